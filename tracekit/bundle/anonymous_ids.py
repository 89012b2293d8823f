"""Numbers that stand for a machine's own: processes, threads, addresses and pointers.

What a diagnosis needs of them stays: which are equal, and how far apart and how aligned addresses
of one process are. What only tells about the machine goes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import polars as pl

from tracekit.model.markers import EVENTS

__all__ = ["Processes", "TextNumbers", "bases", "number_processes", "shifted"]

PROCESS_STEP = 1000
"""The i-th process is number ``1000 i``, as is its main thread; its other threads follow."""
ADDRESS_UNIT = 1 << 32
"""Bases are multiples of 4 GiB, so the alignment of every address stays as it was."""
NO_BASE = 0
_POINTER_KEYS = ("handle", "comm", "stream")
_TELLING = r" (?:addr|handle|comm|stream|pid|mono_ns)=\S+"
_NUMBER = re.compile(r" (addr|handle|comm|stream|pid|mono_ns)=(\S+)")
_IS_MARKER = rf"^(?:{'|'.join(sorted(EVENTS))})\b"
_ADDRESS = r" addr=0x([0-9a-fA-F]{1,16})(?: |$)"
Base = Mapping[tuple[int, int | None], int]


@dataclass(frozen=True)
class Processes:
    """New numbers of processes and threads.

    Attributes:
        pids: Frame of report UInt16, pid UInt32, new_pid UInt32.
        tids: Frame of report UInt16, pid UInt32, tid UInt32, new_tid UInt32.
    """

    pids: pl.DataFrame
    tids: pl.DataFrame

    def renumbered(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return `frame` with its ``pid`` and ``tid`` columns, where it has them, renumbered."""
        columns = frame.columns
        if "pid" not in columns:
            return frame
        if "tid" in columns:
            keys = ["report", "pid", "tid"]
            frame = frame.join(self.tids, on=keys, how="left", maintain_order="left")
            frame = frame.drop("tid").rename({"new_tid": "tid"})
        frame = frame.join(self.pids, on=["report", "pid"], how="left", maintain_order="left")
        return frame.drop("pid").rename({"new_pid": "pid"}).select(columns)

    def new_pid(self) -> dict[tuple[int, int], int]:
        """Return (report, pid) to its new number."""
        return {(r, p): n for r, p, n in self.pids.iter_rows()}


def number_processes(frames: Iterable[pl.DataFrame]) -> Processes:
    """Number the processes and threads that `frames` mention, in the order of their own numbers.

    Args:
        frames: Frames with report and pid, some with tid.
    """
    schema = {"report": pl.UInt16, "pid": pl.UInt32, "tid": pl.UInt32}
    parts = [
        frame.select(c if c in frame.columns else pl.lit(None, pl.UInt32).alias(c) for c in schema)
        for frame in frames
        if "pid" in frame.columns
    ]
    known = pl.concat([pl.DataFrame(schema=schema), *(p.unique() for p in parts)])
    known = known.filter(pl.col("pid").is_not_null()).unique().sort("report", "pid", "tid")
    pids = known.select("report", "pid").unique(maintain_order=True).with_row_index("new_pid", 1)
    pids = pids.select("report", "pid", (pl.col("new_pid") * PROCESS_STEP).cast(pl.UInt32))
    tids = known.drop_nulls("tid").join(pids, on=["report", "pid"], how="left")
    is_main = pl.col("tid") == pl.col("pid")
    nth = (~is_main).cast(pl.UInt32).cum_sum().over("report", "pid")
    number = pl.col("new_pid") + pl.when(is_main).then(0).otherwise(nth)
    return Processes(
        pids,
        tids.sort("report", "pid", "tid").with_columns(number.alias("new_tid")).drop("new_pid"),
    )


def bases(allocations: pl.DataFrame, texts: pl.DataFrame) -> Base:
    """Return what to subtract from the addresses of each process.

    Args:
        allocations: Frame of report, pid and addr Int64 (64 bits, reinterpreted as signed).
        texts: Frame of report, pid, text; addresses in markers count too.

    Returns:
        (report, pid) to a multiple of 4 GiB, such that the lowest address ends up in the second
        4 GiB: no address becomes the null pointer.
    """
    in_text = pl.col("text").str.extract(_ADDRESS).str.to_integer(base=16, dtype=pl.UInt64)
    own = pl.col("addr").reinterpret(signed=False)
    addresses = pl.concat(
        [
            allocations.select("report", "pid", own),
            texts.filter(pl.col("text").str.contains(_IS_MARKER)).select(
                "report", "pid", in_text.alias("addr")
            ),
        ]
    )
    lowest = addresses.filter(pl.col("addr") > 0).group_by("report", "pid").agg(pl.min("addr"))
    return {
        (report, pid): int(addr) // ADDRESS_UNIT * ADDRESS_UNIT - ADDRESS_UNIT
        for report, pid, addr in lowest.iter_rows()
    }


def shifted(address: int, base: int) -> int:
    """Return an address relative to the base of its process; the null pointer stays."""
    return (address - base) % (1 << 64) if address else 0


class TextNumbers:
    """Rewrites the telling numbers in the texts of markers.

    Args:
        texts: Distinct marker texts with their report and pid: frame of report, pid, text.
        processes: New process numbers.
        base: Of each process, see `bases`.
    """

    def __init__(self, texts: pl.DataFrame, processes: Processes, base: Base) -> None:
        self._pids = processes.new_pid()
        self._base = base
        seen: dict[str, set[int]] = {}
        markers = texts["text"].filter(
            texts["text"].str.contains(_IS_MARKER).fill_null(value=False)
        )
        for word in markers.str.extract_all(_TELLING).explode().drop_nulls().unique():
            key, _, value = word[1:].partition("=")
            seen.setdefault(key, set()).add(_integer(value))
        self._pointers = {
            key: {v: i for i, v in enumerate(sorted(seen.get(key, set()) - {0}), 1)}
            for key in _POINTER_KEYS
        }
        self._start_ns = min(seen.get("mono_ns", {0}))

    def column(self, frame: pl.DataFrame) -> pl.Series:
        """Return the ``text`` column of a frame (report, pid, text) with numbers rewritten."""
        telling = pl.col("text").str.contains(_IS_MARKER) & pl.col("text").str.contains(_TELLING)
        keys = ["report", "pid", "text"]
        old = frame.filter(telling).select(keys).unique(maintain_order=True)
        new = pl.Series("_new", [self._one(*row) for row in old.iter_rows()], dtype=pl.String)
        joined = frame.select(keys).join(
            old.hstack([new]), on=keys, how="left", maintain_order="left", nulls_equal=True
        )
        return joined.select(pl.coalesce("_new", "text").alias("text")).to_series()

    def _one(self, report: int, pid: int | None, text: str) -> str:
        return _NUMBER.sub(self._replacement(report, pid), text)

    def _replacement(self, report: int, pid: int | None) -> Callable[[re.Match[str]], str]:
        base = self._base.get((report, pid), NO_BASE)

        def new(match: re.Match[str]) -> str:
            key, value = match[1], _integer(match[2])
            if key == "addr":
                return f" addr=0x{shifted(value, base):x}"
            if key == "pid":
                return f" pid={self._pids.get((report, value), 0)}"
            if key == "mono_ns":
                return f" mono_ns={value - self._start_ns}"
            return f" {key}=0x{self._pointers[key].get(value, 0):x}"

        return new


def _integer(text: str) -> int:
    """Return the number that `text` spells; 0 where it spells none."""
    digits, base = (text[2:], 16) if text.startswith("0x") else (text, 10)
    try:
        return int(digits, base) % (1 << 64)
    except ValueError:
        return 0
