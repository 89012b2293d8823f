"""A trace made fit for strangers: nothing in it names a machine, a process or an address.

Stands on a redacted trace (`tracekit.io.run.redaction` decides which text passes) and goes further:
processes, threads, addresses and pointers become small numbers, payloads are reduced to the fields
that are understood, and kernel names can be hashed. Documents and slices made of one such trace
agree with each other.
"""

from __future__ import annotations

from collections.abc import Collection

import polars as pl

from tracekit.bundle.anonymous_ids import TextNumbers, bases, number_processes, shifted
from tracekit.bundle.anonymous_names import hashed_name
from tracekit.bundle.anonymous_payloads import known_payloads
from tracekit.model.catalog import CATALOG
from tracekit.model.kernels import Classifier
from tracekit.trace import Trace

__all__ = ["AnonymousLoader", "anonymous"]

_NAME_IDS = ("name_id", "mangled_id", "short_id")
_STAND_IN = r"^text-\d"


class AnonymousLoader:
    """Loads the frames of a redacted trace with numbers of their own; see the module.

    Args:
        trace: A redacted trace.
        hash_names: Replace kernel names.

    Attributes:
        sampled: Exact names of the counters that were asked for.
    """

    def __init__(self, trace: Trace, *, hash_names: bool = False) -> None:
        self._trace = trace
        self._hash_names = hash_names
        self.sampled: set[str] = set()
        self._processes = number_processes(
            trace.frame(name) for name, entry in CATALOG.items() if "pid" in entry.table.schema
        )
        texts = trace.frame("nvtx").select("report", "pid", "text").unique(maintain_order=True)
        self._bases = bases(trace.frame("memory_events"), texts)
        self._numbers = TextNumbers(texts, self._processes, self._bases)
        self._payloads = known_payloads(trace.frame("nvtx"), trace.frame("nvtx_schema_entries"))

    def load(self, name: str) -> pl.DataFrame:
        """Return the canonical frame `name`."""
        frame = self._trace.frame(name)
        match name:
            case "strings" if self._hash_names:
                return self._hashed(frame)
            case "ncu_kernels" if self._hash_names:
                return frame.clear()  # spelled otherwise, their hashes would match nothing
            case "nvtx":
                return self._processes.renumbered(self._nvtx(frame))
            case "nvtx_schemas":
                return self._payloads.schemas
            case "nvtx_schema_entries":
                return self._payloads.entries
            case "memory_events":
                return self._processes.renumbered(self._relative(frame))
        return self._processes.renumbered(frame)

    def load_samples(self, metrics: Collection[str]) -> pl.DataFrame:
        """Return samples, and remember which counters they are of."""
        self.sampled.update(metrics)
        return self._trace.samples(metrics)

    def _nvtx(self, frame: pl.DataFrame) -> pl.DataFrame:
        # A number beside words that had to go may tell what they told.
        replaced = pl.col("text").is_null() | pl.col("text").str.contains(_STAND_IN)
        return frame.with_columns(
            self._numbers.column(frame),
            self._payloads.blobs,
            pl.when(~replaced).then("int64").alias("int64"),
        )

    def _relative(self, frame: pl.DataFrame) -> pl.DataFrame:
        new = [
            None if addr is None else _signed(shifted(addr % (1 << 64), self._bases.get(key, 0)))
            for *key_parts, addr in frame.select("report", "pid", "addr").iter_rows()
            for key in [(key_parts[0], key_parts[1])]
        ]
        return frame.with_columns(pl.Series("addr", new, dtype=pl.Int64))

    def _hashed(self, frame: pl.DataFrame) -> pl.DataFrame:
        kernels = self._trace.frame("kernels")
        used = pl.concat([kernels[c] for c in _NAME_IDS]).drop_nulls().unique()
        classifier = Classifier(self._trace.settings.get("kernel_overrides", ()))
        of_kernel = pl.col("id").is_in(used.implode())
        names = frame.filter(of_kernel)["value"].drop_nulls().unique(maintain_order=True)
        hashes = pl.Series([hashed_name(n, classifier) for n in names], dtype=pl.String)
        value = pl.col("value").replace(names, hashes)
        return frame.with_columns(pl.when(of_kernel).then(value).otherwise("value").alias("value"))


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def anonymous(trace: Trace, *, hash_names: bool = False) -> tuple[Trace, AnonymousLoader]:
    """Return a redacted trace made anonymous, and its loader.

    Args:
        trace: A redacted trace.
        hash_names: Replace kernel names by hashes that keep their class.
    """
    loader = AnonymousLoader(trace, hash_names=hash_names)
    settings = trace.settings
    twin = Trace(loader, trace.reports, lambda: trace.gpus, trace.alignment, settings=settings)
    return twin, loader
