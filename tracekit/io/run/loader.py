"""Several reports as one run: frames concatenated on one clock, devices as physical GPUs."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from tracekit.io.lookup import looked_up
from tracekit.io.ncu import NcuInput
from tracekit.io.nsys.reader import ReportReader, by_counter, metric_rows, no_samples
from tracekit.io.source import RowFilter
from tracekit.model.catalog import CATALOG
from tracekit.model.inputs import Gpu, MemoryPlan

__all__ = [
    "BYTES_PER_ROW",
    "DEVICE_TABLES",
    "RunLoader",
    "default_bytes",
    "needed_bytes",
    "plan_memory",
]

FOREVER_NS = 1 << 62
_TIMES = ("start_ns", "end_ns", "t_ns")
DEVICE_TABLES = ("kernels", "memcpy", "peer_copies", "memset", "graph_trace")
_WINDOWED = frozenset({*DEVICE_TABLES, "nvtx", "gpu_metrics"})
_FILTERED = frozenset({*DEVICE_TABLES, "nvtx", "runtime"})


class RunLoader:
    """Loads canonical frames of one or several reports.

    Args:
        readers: One per report; ``reader.report.index`` is its position.
        offsets_ns: What to subtract from each report's times.
        window: Half-open session time that events must touch; None for all.
        ncu: Results of Nsight Compute; their report numbers follow those of `readers`.
        by_device: Whether samples are read one GPU at a time: slower, with less memory.
    """

    def __init__(
        self,
        readers: Sequence[ReportReader],
        offsets_ns: Sequence[int] | None = None,
        window: tuple[int, int] | None = None,
        ncu: Sequence[NcuInput] = (),
        *,
        by_device: bool = False,
    ) -> None:
        self._by_device = by_device
        self._readers = tuple(readers)
        self._ncu = tuple(ncu)
        self._offsets = tuple(offsets_ns or (0 for _ in readers))
        self._window = window
        self._keys: dict[tuple[int | str, ...], int] = {}
        self._gpus: list[Gpu] = []
        self._lock = threading.Lock()
        self._gpu_by_ordinal = self._map_devices()

    def gpus(self) -> tuple[Gpu, ...]:
        """Return the physical GPUs, by index; those that no report describes once work was read."""
        return tuple(self._gpus)

    def load(self, name: str) -> pl.DataFrame:
        """Return the canonical frame `name` of all reports."""
        table = CATALOG[name].table
        if name == "ncu_kernels":
            first = len(self._readers)
            parts = [one.frame(i) for i, one in enumerate(self._ncu, first)]
            return pl.concat(parts) if parts else table.empty()
        parts = [self._one(i, name) for i in range(len(self._readers))]
        parts = [table.conform(part) for part in parts]
        return parts[0] if len(parts) == 1 else pl.concat(parts) if parts else table.empty()

    def load_samples(self, metrics: Collection[str]) -> pl.DataFrame:
        """Return samples of the named counters with physical GPUs, negative times dropped."""
        parts = [self._samples(i, metrics) for i in range(len(self._readers))]
        if len(parts) > 1:  # two reports of one host may hold the same samples
            rows = pl.concat(parts).unique(maintain_order=True)
            return rows.sort("gpu", "name", "t_ns", maintain_order=True)
        return parts[0] if parts else no_samples(metrics)

    def _samples(self, index: int, metrics: Collection[str]) -> pl.DataFrame:
        parts, early = [], 0
        for types in self._types_by_gpu(index):
            rows, n = self._samples_of(index, metrics, types)
            parts.append(rows)
            early += n
        if early:
            # Sampling times, not rows: their number must not depend on which counters were asked.
            dropped = self._readers[index].report.dropped.setdefault("gpu_metrics", {})
            dropped["sampled before the capture"] = early
        return parts[0] if len(parts) == 1 else pl.concat(parts)

    def _types_by_gpu(self, index: int) -> Sequence[Collection[int] | None]:
        """Device types to read at a time: those of one GPU, an unknown one first, or all."""
        known = self._readers[index].load("metric_names")["type_id"].unique()
        if not self._by_device or known.is_empty() or known.null_count():
            return (None,)
        types: dict[int, list[int]] = {}
        for type_id in known:
            gpu = self._gpu_of(index, type_id)
            types.setdefault(-1 if gpu is None else gpu, []).append(type_id)
        return [types[gpu] for gpu in sorted(types)]

    def _samples_of(
        self, index: int, metrics: Collection[str], types: Collection[int] | None
    ) -> tuple[pl.DataFrame, int]:
        """Samples of some device types, and at how many times before the capture there were any."""
        window = self._own_window(index)
        rows, counter = metric_rows(self._readers[index], metrics, window, types)

        def kind(type_id: int | None, metric: int | None) -> int | None:
            number, gpu = counter(type_id, metric), self._gpu_of(index, type_id)
            return number if number is None or gpu is None else (gpu + 1) * len(metrics) + number

        kinds = looked_up("kind", [rows["type_id"], rows["metric"]], kind, pl.Int32)
        rows = rows.select("type_id", kinds, "t_ns", "value")
        rows = rows.drop_nulls("kind") if kinds.null_count() else rows
        early, times = pl.col("t_ns") < 0, 0
        if rows.select(early.any()).item():
            times = rows.filter(early).select("type_id", "t_ns").unique().height
            rows = rows.filter(~early)
        rows = self._shifted(index, "gpu_metrics", rows.drop("type_id"))
        return by_counter(rows, index, metrics), times

    def _one(self, index: int, name: str) -> pl.DataFrame:
        frame = self._readers[index].load(name, self._filters(index, name))
        frame = self._shifted(index, name, frame)
        if name in {"gpu_metrics", "metric_names"}:
            return frame.with_columns(self._metric_gpu(index, frame["type_id"]))
        if name == "gpus":
            ids = self._gpu_ids[index]
            return frame.with_columns(pl.col("id").replace_strict(ids, default=None).alias("gpu"))
        if "device" in frame.columns and "gpu" in CATALOG[name].table.schema:
            return self._with_gpu(index, frame)
        return frame

    def _own_window(self, index: int) -> tuple[int, int] | None:
        """The window on the clock of one report, an open end kept within 64 bits."""
        if self._window is None:
            return None
        low, high = (t + self._offsets[index] for t in self._window)
        return max(low, -FOREVER_NS), min(high, FOREVER_NS)

    def _filters(self, index: int, name: str) -> list[RowFilter]:
        window = self._own_window(index)
        if window is None or name not in _FILTERED:
            return []
        begins = RowFilter("start", high=window[1])
        # Ranges and calls from before the window may belong to work inside it: only the end cuts.
        return [begins, RowFilter("end", low=window[0] + 1)] if name in DEVICE_TABLES else [begins]

    def _shifted(self, index: int, name: str, frame: pl.DataFrame) -> pl.DataFrame:
        offset = self._offsets[index]
        if offset:
            times = [c for c in _TIMES if c in frame.columns]
            frame = frame.with_columns(pl.col(c) - offset for c in times)
        if self._window is None or name not in _WINDOWED:
            return frame
        low, high = self._window
        if "t_ns" in frame.columns:
            return frame.filter(pl.col("t_ns").is_between(low, high, closed="left"))
        begun = pl.col("start_ns") < high
        # A range from before the window may hold the calls that launched work inside it.
        return frame.filter(begun if name == "nvtx" else begun & (pl.col("end_ns") > low))

    def _metric_gpu(self, index: int, type_id: pl.Series) -> pl.Series:
        return looked_up("gpu", [type_id], lambda value: self._gpu_of(index, value))

    def _gpu_of(self, index: int, type_id: int | None) -> int | None:
        """The GPU of a device type, whose lowest byte is the id of the GPU in the report."""
        ids = {g & 0xFF: k for g, k in self._gpu_ids[index].items()}
        return None if type_id is None else ids.get(type_id & 0xFF)

    def _with_gpu(self, index: int, frame: pl.DataFrame) -> pl.DataFrame:
        if "pid" not in frame.columns:
            frame = frame.with_columns(pl.lit(None, pl.UInt32).alias("pid"))
        gpu = self._gpu_of_work(index, frame)
        homeless = frame["device"].filter(gpu.is_null()).drop_nulls() if gpu.null_count() else ()
        if len(homeless):
            self._number_others(index, set(homeless))
            gpu = self._gpu_of_work(index, frame)
        return frame.with_columns(gpu)

    def _gpu_of_work(self, index: int, frame: pl.DataFrame) -> pl.Series:
        known, of = self._gpu_by_ordinal[index], [frame["pid"], frame["device"]]
        return looked_up("gpu", of, lambda pid, d: known.get((pid, d), known.get((None, d))))

    def _map_devices(self) -> list[dict[tuple[int | None, int], int]]:
        """Number the physical GPUs of all reports; return (pid, ordinal) -> index per report."""
        self._gpu_ids: list[dict[int, int]] = []
        maps: list[dict[tuple[int | None, int], int]] = []
        for i, reader in enumerate(self._readers):
            ids: dict[int, int] = {}
            for row in reader.load("gpus").sort("id").iter_rows(named=True):
                key = _physical(i, row.get("_uuid"), row.get("_bus"), row["id"])
                if key not in self._keys:
                    self._keys[key] = len(self._gpus)
                    self._gpus.append(_gpu(len(self._gpus), row))
                ids[row["id"]] = self._keys[key]
            known: dict[tuple[int | None, int], int] = {(None, d): g for d, g in ids.items()}
            for row in reader.load("cuda_devices").iter_rows(named=True):
                if row.get("gpu_id") in ids:
                    known[(row.get("pid"), row["device"])] = ids[row["gpu_id"]]
            maps.append(known)
            if not known:
                self._number_seen(i, reader, known)
            self._gpu_ids.append(ids or {d: g for (_, d), g in known.items()})
        return maps

    def _number_others(self, index: int, devices: set[int]) -> None:
        """Number the devices that worked and that no report describes, if any of these is one."""
        with self._lock:
            if devices - {d for _, d in self._gpu_by_ordinal[index]}:
                # All of them, so that the numbers do not depend on which table is read first.
                for i, reader in enumerate(self._readers):
                    self._number_seen(i, reader, self._gpu_by_ordinal[i])

    def _number_seen(
        self, index: int, reader: ReportReader, known: dict[tuple[int | None, int], int]
    ) -> None:
        seen = {d for table in DEVICE_TABLES for d in reader.devices(table)}
        for device in sorted(seen - {d for _, d in known}):
            known[(None, device)] = len(self._gpus)
            self._keys[("device", index, device)] = len(self._gpus)
            self._gpus.append(Gpu(len(self._gpus)))


def _physical(report: int, uuid: str | None, bus: str | None, gpu_id: int) -> tuple[int | str, ...]:
    if uuid and uuid.strip("0-"):
        return ("uuid", uuid)
    return ("bus", report, bus) if bus else ("id", report, gpu_id)


def _gpu(index: int, row: dict[str, object]) -> Gpu:
    names = ("l2_bytes", "memory_bytes", "bandwidth_bytes_per_s", "clock_hz", "sm_count")
    numbers: dict[str, Any] = {
        n: int(v) for n in names if isinstance(v := row.get(n), int) and v > 0
    }
    return replace(Gpu(index, str(row.get("name") or ""), str(row.get("chip") or "")), **numbers)


BYTES_PER_ROW = {
    "kernels": 100,
    "memcpy": 100,
    "peer_copies": 100,
    "memset": 100,
    "graph_trace": 100,
    "runtime": 20,
    "nvtx": 145,
    "gpu_metrics": 9,
    "memory_events": 60,
    "sync": 60,
    "strings": 80,
}
"""Peak anonymous memory that one row of a table adds, measured on generated runs."""
SPARING_FRAC = 0.82
"""Share of it that is needed when one table and one analysis is worked on at a time, not two."""
FIXED_BYTES = 190_000_000
"""Interpreter, libraries and compiled kernels."""
LEAST_BYTES = 64_000_000
"""What is left for rows even when the budget does not cover `FIXED_BYTES`."""
AT_ONCE = 2
"""Tables or analyses worked on at a time where memory allows: they share most of what they need,
and each takes memory of its own."""
_SAMPLES_FILL_FRAC = 1 / 3
"""Share of all that is needed from which on samples decide how much memory it takes."""
_PACED_BY = ("kernels", "runtime", "graph_trace", "nvtx")


def default_bytes() -> int:
    """Return half of the memory that is free now, limits of the control group respected."""
    free = _available()
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        limit = _number(Path(path))
        free = free if limit is None else min(free, limit)
    return free // 2


def _available() -> int:
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def needed_bytes(readers: Sequence[ReportReader]) -> int:
    """Return the memory that a run's rows take at the peak, in bytes, `FIXED_BYTES` not counted."""
    return sum(
        count * BYTES_PER_ROW.get(table, 0)
        for reader in readers
        for table, count in reader.report.tables.items()
    )


def plan_memory(
    readers: Sequence[ReportReader],
    offsets_ns: Sequence[int],
    allowed_bytes: int,
    *,
    may_cut: bool = True,
) -> MemoryPlan:
    """Return how to stay within a budget: one thing at a time, then the longest beginning.

    Args:
        readers: The run's reports.
        offsets_ns: What will be subtracted from each report's times.
        allowed_bytes: The budget.
        may_cut: Whether part of the run may be left out.
    """
    needed = needed_bytes(readers)
    room = max(allowed_bytes - FIXED_BYTES, LEAST_BYTES)
    if needed <= room:
        return MemoryPlan(AT_ONCE, allowed_bytes=allowed_bytes)
    share = room / (SPARING_FRAC * needed)
    samples = sum(reader.report.tables.get("gpu_metrics", 0) for reader in readers)
    by_device = samples * BYTES_PER_ROW.get("gpu_metrics", 0) >= _SAMPLES_FILL_FRAC * needed
    if share >= 1 or not may_cut:
        return MemoryPlan(1, None, by_device, allowed_bytes)
    ends, starts = [], []
    for reader, offset in zip(readers, offsets_ns, strict=True):
        found = _time_of_share(reader, share)
        if found is not None:
            starts.append(found[0] - offset)
            ends.append(found[1] - offset)
    cut_ns = (min(starts), min(ends)) if ends else None
    return MemoryPlan(1, cut_ns, by_device, allowed_bytes)


def _time_of_share(reader: ReportReader, share: float) -> tuple[int, int] | None:
    """First start of the longest table, and the start at which `share` of its rows are over."""
    tables = reader.report.tables
    paced = max(_PACED_BY, key=lambda t: tables.get(t, 0) * BYTES_PER_ROW[t])
    if not tables.get(paced):
        return None
    wanted, seen, first = max(1, int(share * tables[paced])), 0, None
    low = None
    for starts in reader.starts(paced):
        if starts.is_empty():
            continue
        low = int(str(starts.min())) if low is None else min(low, int(str(starts.min())))
        if seen + len(starts) > wanted:
            first = int(str(starts.sort()[max(0, wanted - seen - 1)]))
            break
        seen += len(starts)
        first = int(str(starts.max()))
    return None if low is None or first is None else (low, max(first, low + 1))
