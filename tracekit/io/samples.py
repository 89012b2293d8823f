"""Samples of hardware counters in the order that views want: each counter of a GPU in one piece."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import polars as pl

from tracekit.numerics.buckets import by_kind

__all__ = ["SAMPLE_COLUMNS", "in_time", "named", "no_samples"]

SAMPLE_COLUMNS = ("report", "gpu", "name", "t_ns", "value")


def no_samples(metrics: Collection[str]) -> pl.DataFrame:
    """Return no sample of some counters.

    Args:
        metrics: Exact names.
    """
    kinds = (pl.UInt16(), pl.Int16(), pl.Enum(sorted(metrics)), pl.Int64(), pl.Int64())
    return pl.Schema(dict(zip(SAMPLE_COLUMNS, kinds, strict=True))).to_frame()


def named(codes: pl.Series, kind: pl.Enum) -> pl.Series:
    """Return categories by their number.

    Args:
        codes: UInt32, below the number of categories.
        kind: The categories.
    """
    return pl.Series("name", kind.categories, dtype=kind).gather(codes)


def in_time(samples: pl.DataFrame) -> pl.DataFrame:
    """Sort samples by GPU, name and time.

    Args:
        samples: `SAMPLE_COLUMNS` of one report, the name an Enum in order of the alphabet.

    Returns:
        The same rows; a null GPU comes first, rows that agree in all three keep their order.
    """
    kind = samples["name"].dtype
    assert isinstance(kind, pl.Enum)
    names = max(len(kind.categories), 1)
    gpu = samples["gpu"].fill_null(-1).to_numpy().astype(np.int64) + 1
    n_kinds = (int(gpu.max(initial=0)) + 1) * names
    if n_kinds > 1 << 16 or samples["report"].n_unique() > 1:
        return samples.sort("gpu", "name", "t_ns", maintain_order=True)
    gpu *= names
    gpu += samples["name"].to_physical().to_numpy()
    times, values = (np.ascontiguousarray(samples[c].to_numpy()) for c in ("t_ns", "value"))
    count, times, values = by_kind(gpu.astype(np.uint16), times, values, n_kinds)
    index = np.arange(n_kinds)
    owner = pl.Series("gpu", np.repeat((index // names - 1).astype(np.int16), count))
    name = pl.Series(np.repeat((index % names).astype(np.uint32), count))
    return pl.DataFrame(
        {
            "gpu": owner if gpu.min(initial=names) >= names else owner.replace(-1, None),
            "name": named(name, kind),
            "t_ns": times,
            "value": values,
        }
    ).select(
        pl.lit(samples["report"].first(), pl.UInt16).alias("report"), "gpu", "name", "t_ns", "value"
    )
