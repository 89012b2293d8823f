"""Which communication calls a group call holds together."""

from __future__ import annotations

import polars as pl

__all__ = ["BOUNDARIES", "with_groups"]

BOUNDARIES = {"start": "GroupStart", "end": "GroupEnd"}
"""Events of markers to the calls that begin and end a group."""


def with_groups(calls: pl.DataFrame) -> pl.DataFrame:
    """Number the outermost group that each call lies in; nested group calls share it.

    Args:
        calls: Frame of source, thread, start_ns, end_ns and what; sorted by source, thread and
            start.

    Returns:
        `calls` with group Int64, null outside of groups.
    """
    if not calls["what"].is_in(list(BOUNDARIES.values())).any():
        return calls.with_columns(pl.lit(None, pl.Int64).alias("group"))
    over = ["source", "thread"]
    step = (
        pl.when(pl.col("what") == "GroupStart")
        .then(1)
        .when(pl.col("what") == "GroupEnd")
        .then(-1)
        .otherwise(0)
    )
    calls = calls.with_columns(step.cast(pl.Int64).alias("_step"))
    calls = calls.with_columns(pl.col("_step").cum_sum().over(over).alias("_after"))
    # A capture that began inside a group has an end without a start: count from the lowest level.
    floor = pl.min_horizontal(pl.col("_after").cum_min().over(over), 0)
    calls = calls.with_columns((pl.col("_after") - floor).alias("_depth"))
    opens = (pl.col("_step") == 1) & (pl.col("_depth") == 1)
    number = opens.cast(pl.Int64).cum_sum()
    closes = (pl.col("_step") == -1) & (pl.col("_depth") == 0)
    grouped = (pl.col("_depth") > 0) | (closes & (pl.col("_after") == floor))
    began = opens.cast(pl.Int64).cum_sum().over(over) > 0
    group = pl.when(grouped & began).then(number).otherwise(_ended_group(over)).alias("group")
    return calls.with_columns(group).drop("_step", "_after", "_depth")


def _ended_group(over: list[str]) -> pl.Expr:
    """Number groups of threads of which only the ends were recorded, below zero.

    A group has the calls inside the range of its end, and the sends and receives since the end
    before: those are hardly ever made outside of groups.
    """
    what = pl.col("what")
    ends = what == "GroupEnd"
    row = pl.when(ends).then(-1 - pl.int_range(pl.len(), dtype=pl.Int64))
    before = row.forward_fill().over(over)
    until = pl.when(ends).then("end_ns").forward_fill().over(over)
    p2p = what.is_in(["Send", "Recv"])
    found = (
        pl.when(ends)
        .then(row)
        .when(pl.col("start_ns") < until)
        .then(before)
        .when(p2p)
        .then(row.backward_fill().over(over))
    )
    return pl.when(~(what == "GroupStart").any().over(over)).then(found)
