"""What collectives moved and how fast, from the sizes that NCCL recorded."""

from __future__ import annotations

import polars as pl

from tracekit.trace import Trace
from tracekit.views.collectives.kernels import bus_factor, collectives
from tracekit.views.collectives.matching import instances, matching
from tracekit.views.device.hardware import gpu_hardware
from tracekit.views.launches.attribution import steps

__all__ = ["BANDWIDTH", "TRAFFIC", "bus_bandwidths", "step_traffic_of"]

BANDWIDTH = pl.Schema(
    {
        "device": pl.String(),
        "comm": pl.String(),
        "op": pl.String(),
        "bytes": pl.Int64(),
        "nranks": pl.Int64(),
        "n": pl.Int64(),
        "transfer_ns": pl.Float64(),
        "bus_gb_per_s": pl.Float64(),
        "link_gb_per_s": pl.Float64(),
        "link_frac": pl.Float64(),
    }
)
"""Columns: median transfer (last end - latest start), bus bandwidth, the link's one-way peak."""
TRAFFIC = pl.Schema(
    {
        "group": pl.String(),
        "rank_id": pl.Int64(),
        "nranks": pl.Int64(),
        "n_steps": pl.Int64(),
        "all_reduces_per_step": pl.Float64(),
        "message_bytes_per_step": pl.Float64(),
        "sent_bytes_per_step": pl.Float64(),
    }
)
"""Columns: all-reduces of one rank in the steps of a group; sent is what a ring sends."""


def bus_bandwidths(trace: Trace) -> pl.DataFrame:
    """Return the bus bandwidth of each kind of collective, over the collectives of all ranks.

    Only collectives matched across ranks count: with one rank visible, time includes waiting.

    Returns:
        Frame of `BANDWIDTH`, sorted by comm, op and bytes.
    """
    rows = instances(trace).drop_nulls("bytes").filter(pl.col("transfer_ns") > 0)
    known = rows.with_columns(pl.col("comm").cast(pl.String), pl.col("op").cast(pl.String))
    keys = ["comm", "op", "bytes", "nranks_at_least"]
    device, link = _link(trace)
    found = []
    grouped = known.group_by(keys).agg(pl.len().alias("n"), pl.col("transfer_ns").median())
    for row in grouped.sort(keys).iter_rows(named=True):
        factor = bus_factor(row["op"], row["nranks_at_least"] or 0)
        rate = None if factor is None else row["bytes"] / row["transfer_ns"] * factor
        found.append(
            {
                "device": device,
                "comm": row["comm"],
                "op": row["op"],
                "bytes": row["bytes"],
                "nranks": row["nranks_at_least"],
                "n": row["n"],
                "transfer_ns": row["transfer_ns"],
                "bus_gb_per_s": rate,
                "link_gb_per_s": link,
                "link_frac": None if rate is None or link is None else rate / link,
            }
        )
    return pl.DataFrame(found, schema=BANDWIDTH)


def _link(trace: Trace) -> tuple[str, float | None]:
    """Names of the GPUs, and their link's peak in one direction if all have the same."""
    used = matching(trace).members["gpu"].drop_nulls().unique().sort().to_list()
    gpus = [trace.gpus[index] for index in used]
    rows = [gpu_hardware(gpu) for gpu in gpus]
    peaks = {None if row is None else row.link_one_way_gb_per_s for row in rows}
    names = ", ".join(dict.fromkeys(gpu.name or "unknown" for gpu in gpus))
    return names, peaks.pop() if len(peaks) == 1 else None


def step_traffic_of(trace: Trace) -> pl.DataFrame:
    """Return what each rank's all-reduces moved in a step, from the recorded message sizes.

    Returns:
        Frame of `TRAFFIC`, sorted; steps without all-reduces, and all-reduces without a size or
        outside steps, do not count.
    """
    rows = collectives(trace).with_columns(pl.col("op").cast(pl.String))
    rows = rows.filter(pl.col("op") == "AllReduce").drop_nulls(["bytes", "step"])
    rows = rows.join(steps(trace).select("step", "group"), on="step")
    ranks = pl.col("nranks_at_least")
    factor = pl.when(ranks > 1).then(2 * (ranks - 1) / ranks).otherwise(0.0)
    n_steps = pl.col("step").n_unique()
    found = rows.group_by("group", "rank_id", ranks.alias("nranks")).agg(
        n_steps.alias("n_steps"),
        (pl.len() / n_steps).alias("all_reduces_per_step"),
        (pl.col("bytes").sum() / n_steps).alias("message_bytes_per_step"),
        ((pl.col("bytes") * factor).sum() / n_steps).alias("sent_bytes_per_step"),
    )
    return found.select(list(TRAFFIC)).cast(TRAFFIC).sort("group", "rank_id", "nranks")
