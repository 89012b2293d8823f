"""Communication kernels, one row each: operation, communicator, size and place in the sequence."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.model.kernels import classify
from tracekit.model.table import Column, Table
from tracekit.numerics.numbering import ordered
from tracekit.trace import Trace, view
from tracekit.views.collectives.calls import comm_kernels, communicator_sizes, launch_facts
from tracekit.views.device.activity import activity
from tracekit.views.device.kernels import shapes
from tracekit.views.keys import looked_up, row_numbers

__all__ = [
    "COLLECTIVES",
    "PER_RANK_OPS",
    "SYNCHRONOUS_OPS",
    "bus_factor",
    "collectives",
    "peer_copies",
]

PER_RANK_OPS = ("AllGather", "ReduceScatter", "AlltoAll")
"""Operations whose size NCCL states per rank: the whole message is that times the ranks."""
SYNCHRONOUS_OPS = ("AllReduce", "AllGather", "ReduceScatter", "AlltoAll", "Barrier")
"""Operations that no rank can finish before the last rank has begun."""
_MADE_OF_SENDS = ("AlltoAll", "Gather", "Scatter")
POINT_TO_POINT = ("Send", "Recv", "SendRecv")
COLLECTIVES = Table(
    "collectives",
    (
        Column("activity", pl.UInt32, "", "row of `activity`"),
        Column("report", pl.UInt16, "", "report"),
        Column("gpu", pl.Int16, "", "GPU; null when the report does not name it"),
        Column("pid", pl.UInt32, "", "process"),
        Column("rank_id", pl.UInt32, "", "number of the rank in this run"),
        Column("rank", pl.Int64, "", "rank in words"),
        Column("context", pl.Int64, "", "CUDA context"),
        Column("stream", pl.Int64, "", "stream"),
        Column("start_ns", pl.Int64, "ns", "start"),
        Column("end_ns", pl.Int64, "ns", "end"),
        Column("op", pl.Categorical(), "", "operation; null when nothing states it"),
        Column("op_conflict", pl.Boolean, "", "whether name and call disagree"),
        Column("comm", pl.Categorical(), "", "communicator: its id, or ~family#k where unknown"),
        Column("comm_known", pl.Boolean, "", "whether the id is the library's own"),
        Column("bytes", pl.Int64, "bytes", "whole message; null when unknown"),
        Column("dtype", pl.Categorical(), "", "element type"),
        Column("nranks", pl.Int64, "", "ranks of it; null when not stated"),
        Column("nranks_at_least", pl.Int64, "", "ranks of the communicator, or those seen"),
        Column("name_key", pl.UInt32, "", "key of the name in `kernel_names`"),
        Column("name", pl.Categorical(), "", "kernel name, or kind of copy"),
        Column("grid", pl.Categorical(), "", "grid of the kernel"),
        Column("fused", pl.Boolean, "", "whether the kernel also does other work"),
        Column("launch_start_ns", pl.Int64, "ns", "start of the launching call; null: unknown"),
        Column("in_graph", pl.Boolean, "", "whether it ran inside a CUDA graph"),
        Column("fused_group", pl.Boolean, "", "whether it carries several calls of one group"),
        Column("provenance", pl.Float64, "", "confidence in source of size and operation, 0..1"),
        Column("seq", pl.UInt32, "", "position among those of its rank and communicator"),
        Column("step", pl.UInt32, "", "step; null outside of steps"),
    ),
    "one communication kernel",
)
PEER_COPIES = Table(
    "peer_copies",
    (
        Column("gpu", pl.Int16, "", "GPU; null when the report does not name it"),
        Column("n", pl.UInt32, "", "copies"),
        Column("bytes", pl.Int64, "bytes", "bytes copied"),
        Column("time_ns", pl.Int64, "ns", "sum of lengths"),
        Column("bytes_per_s", pl.Float64, "B/s", "bytes over time"),
    ),
    "copies between GPUs on one GPU",
)
_PROVENANCE = {"payload": 1.0, "marker": 1.0, "range": 0.6}
_BY_NAME, _AT_LEAST = 0.6, 0.8


def bus_factor(op: str | None, nranks: int) -> float | None:
    """Factor from algorithm to bus bandwidth (after nccl-tests, PERFORMANCE.md).

    Args:
        op: Operation.
        nranks: Ranks of the communicator.

    Returns:
        2(p-1)/p for AllReduce, (p-1)/p for ReduceScatter, AllGather and AlltoAll, 1 for
        Broadcast, Reduce, Gather, Scatter and point-to-point; None for an unknown operation.
        A single rank moves nothing: 0.
    """
    if op is None or nranks < 1:
        return None
    if nranks == 1:
        return 0.0
    if op == "AllReduce":
        return 2 * (nranks - 1) / nranks
    if op in PER_RANK_OPS:
        return (nranks - 1) / nranks
    return 1.0 if op in (*POINT_TO_POINT, "Broadcast", "Reduce", "Gather", "Scatter") else None


@view
def collectives(trace: Trace) -> pl.DataFrame:
    """Return one row per communication kernel.

    The operation comes from the host call where one is known, else from the kernel's name. The
    communicator is the library's id in hexadecimal, the same on all ranks; a kernel of an unknown
    call takes the one that its stream serves; without any it is ``~family#k``, the k-th
    communicator (by handle, else by stream) that a rank uses. ``seq`` counts the kernels of a
    communicator on a rank in the order of their launches. ``bytes`` is the whole message: for
    operations sized per rank the stated size times the ranks.

    Returns:
        Frame of `COLLECTIVES`, sorted by comm, rank_id, seq. ``rank_id`` numbers (report, gpu,
        pid) over the trace, ``rank`` is the number the library gave, null when unknown.
    """
    rows = comm_kernels(trace)
    if rows.is_empty():
        return COLLECTIVES.empty()
    rows = rows.hstack(launch_facts(trace))
    rows = rows.hstack(looked_up(rows, _name_facts(rows), ["name_key"]))
    rows = rows.with_columns(
        _rank_ids(rows),
        pl.coalesce("what", "op").alias("_op"),
        _conflict().alias("op_conflict"),
        pl.coalesce("call_dtype", "name_dtype").alias("dtype"),
        pl.col("graph_node").is_not_null().alias("in_graph"),
    )
    rows = rows.drop("op").rename({"_op": "op"})
    inits = communicator_sizes(trace)
    rows = _with_grid(trace, _with_communicator(rows, inits))
    return COLLECTIVES.select(_in_sequence(_with_sizes(rows)))


def _name_facts(rows: pl.DataFrame) -> pl.DataFrame:
    """Operation as spelled and element type, per distinct kernel name."""
    names = rows.select("name_key", "name").unique("name_key", maintain_order=True)
    found = [classify(name or "") for name in names["name"]]
    return names.select("name_key").with_columns(
        pl.Series("named_op", [f.named_op for f in found], pl.Categorical),
        pl.Series("name_dtype", [f.dtype for f in found], pl.Categorical),
    )


def _rank_ids(rows: pl.DataFrame) -> pl.Series:
    """Number the distinct (report, gpu, pid)."""
    number, ranks = row_numbers(rows.select("report", "gpu", "pid"))
    order = ranks.with_row_index("_at").sort(ranks.columns, nulls_last=False)
    place = order.with_row_index("rank_id").sort("_at")["rank_id"].cast(pl.UInt32)
    return place[number]


def _conflict() -> pl.Expr:
    said, named = pl.col("what"), pl.col("named_op")
    pair = (named == "SendRecv") & said.is_in([*POINT_TO_POINT, *_MADE_OF_SENDS])
    return (said.is_not_null() & named.is_not_null() & (said != named) & ~pair).fill_null(
        value=False
    )


def _with_communicator(rows: pl.DataFrame, inits: pl.DataFrame) -> pl.DataFrame:
    """Name the communicator, by order of first use on its rank where no id is known.

    And add the number of its ranks and the own rank, as its creation or the call said.
    """
    ids = rows["comm"].drop_nulls().unique().sort()
    names = pl.Series("_id", [f"0x{c:016x}" for c in ids], pl.Categorical)
    known = pl.DataFrame([ids, names]).with_row_index("_number")
    rows = rows.join(known.drop("_id"), on="comm", how="left", maintain_order="left").drop("comm")
    rows = _with_stream_s_communicator(rows)
    rows = rows.with_columns(pl.col("_number").is_not_null().alias("comm_known"))
    inits = inits.join(known.drop("_id"), on="comm", how="left", maintain_order="left")
    rows = _with_ranks(rows, inits)
    ids = known["_id"].gather(rows["_number"]) if known.height else known["_id"].clear(rows.height)
    return rows.with_columns(pl.coalesce(ids, _in_order_of_use(rows)).alias("comm"))


def _in_order_of_use(rows: pl.DataFrame) -> pl.Series:
    """Names of communicators without an id; null where there is one."""
    nccl = pl.col("family") == "nccl"
    family = pl.when(nccl).then(pl.lit("~nccl")).otherwise(pl.lit("~custom"))
    over = ["rank_id", "_family"]
    columns = [family.alias("_family"), pl.coalesce("handle", "stream").alias("_channel")]
    unnamed = rows.filter(~pl.col("comm_known")).select("rank_id", "start_ns", *columns)
    used = unnamed.group_by(*over, "_channel").agg(pl.col("start_ns").min())
    used = used.sort(*over, "start_ns", "_channel", nulls_last=True)
    used = used.with_columns(pl.int_range(pl.len()).over(over).alias("_nth")).drop("start_ns")
    named = pl.format("{}#{}", "_family", "_nth").cast(pl.Categorical).alias("_label")
    found = unnamed.join(
        used.with_columns(named),
        on=[*over, "_channel"],
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )
    at = rows.select((~pl.col("comm_known")).arg_true()).to_series()
    labels = pl.Series("_label", [None], pl.Categorical).new_from_index(0, rows.height)
    return labels.scatter(at, found["_label"]) if found.height else labels


def _with_stream_s_communicator(rows: pl.DataFrame) -> pl.DataFrame:
    """Give NCCL kernels of unknown calls the one communicator that their stream serves."""
    on = ["rank_id", "stream"]
    number, pairs = row_numbers(rows.select(*on, "_number"))
    only = pl.when(pl.len() == 1).then(pl.col("_number").first()).alias("_served")
    served = pairs.drop_nulls("_number").group_by(on).agg(only)
    of_pair = pairs.join(served, on=on, how="left", maintain_order="left")["_served"]
    taken = pl.when(pl.col("family") == "nccl").then(of_pair.gather(number))
    return rows.with_columns(pl.coalesce("_number", taken).alias("_number"))


def _with_grid(trace: Trace, rows: pl.DataFrame) -> pl.DataFrame:
    text = pl.format("{}x{}x{}", "grid_x", "grid_y", "grid_z").cast(pl.Categorical).alias("grid")
    grids = shapes(trace).table.select(text).to_series()
    return rows.with_columns(grids[shapes(trace).row[rows["row"].to_numpy()]])


def _with_sizes(rows: pl.DataFrame) -> pl.DataFrame:
    """The whole message, from the ranks of the communicator where the size is per rank."""
    rows = rows.with_columns(pl.col("nranks").max().over("comm"))
    at_least = pl.max_horizontal("nranks", pl.col("rank_id").n_unique().over("comm"))
    per_rank = pl.col("op").is_in(PER_RANK_OPS) & (pl.col("stated_by") == "payload")
    factor = pl.when(per_rank.fill_null(value=False)).then(at_least).otherwise(1)
    provenance = pl.col("stated_by").replace_strict(
        _PROVENANCE, default=_BY_NAME, return_dtype=pl.Float64
    )
    known = pl.col("nranks").is_not_null()
    return rows.with_columns(
        at_least.alias("nranks_at_least"),
        (pl.col("call_bytes") * factor).alias("bytes"),
        pl.when(known)
        .then(provenance)
        .otherwise(pl.min_horizontal(provenance, _AT_LEAST))
        .alias("provenance"),
    )


def _with_ranks(rows: pl.DataFrame, inits: pl.DataFrame) -> pl.DataFrame:
    """Number of ranks and own rank as the creation of the communicator, or the call, said."""
    by_comm = inits.drop_nulls("_number")
    by_id = by_comm.group_by("_number").agg(pl.col("nranks").max().alias("_by_id"))
    own = by_comm.group_by("report", "pid", "_number").agg(
        pl.when(pl.len() == 1).then(pl.col("rank").first()).alias("_own_rank")
    )
    handles = inits.drop_nulls("handle").group_by("report", "pid", "handle")
    by_handle = handles.agg(
        pl.col("nranks").max().alias("_by_handle"), pl.col("rank").max().alias("_handle_rank")
    )
    process = ["report", "pid"]
    found = rows.select("nranks", "rank").hstack(
        [
            *looked_up(rows, by_id, ["_number"]),
            *looked_up(rows, own, [*process, "_number"]),
            *looked_up(rows, by_handle, [*process, "handle"]),
        ]
    )
    return rows.with_columns(
        found.select(
            pl.coalesce("_by_id", "_by_handle", "nranks").alias("nranks"),
            pl.coalesce("_own_rank", "_handle_rank", "rank").alias("rank"),
        )
    )


def _in_sequence(rows: pl.DataFrame) -> pl.DataFrame:
    """Sort by communicator and rank, and number their kernels by launch.

    Where a launch is missing, by start.
    """
    number, n = _of_communicator(rows)
    start, unknown = rows["start_ns"].to_numpy(), rows["launch_start_ns"].is_null().to_numpy()
    incomplete = np.bincount(number[unknown], minlength=n) > 0
    launch = rows["launch_start_ns"].fill_null(0).to_numpy()
    time = np.where(incomplete[number], start, launch)
    order = ordered(number, (time, start, rows["activity"].to_numpy().astype(np.int64)))
    columns = [c.name for c in COLLECTIVES.columns if c.name != "seq"]
    rows = rows.select(columns) if order is None else rows.select(columns)[order]
    count = np.bincount(number, minlength=n)
    seq = np.arange(number.size) - np.repeat(np.cumsum(count) - count, count)
    return rows.with_columns(pl.Series("seq", seq, pl.UInt32))


def _of_communicator(rows: pl.DataFrame) -> tuple[NDArray[np.uint32], int]:
    """Number the pairs of a communicator, in the order of names, and a rank; and how many."""
    names = rows["comm"].unique().sort()
    at = names.to_physical().to_numpy()
    place = np.zeros(int(at.max(initial=0)) + 1, np.uint32)
    place[at] = np.arange(at.size)
    comm = pl.Series("comm", place[rows["comm"].to_physical().to_numpy()])
    number, pairs = row_numbers(rows.select(comm, "rank_id"))
    return number, pairs.height


@view
def peer_copies(trace: Trace) -> pl.DataFrame:
    """Return the copies between GPUs, which are communication without a kernel.

    Returns:
        Frame of `PEER_COPIES`, by gpu.
    """
    copies = activity(trace).filter(pl.col("kind") == "memcpy PtoP")
    copies = copies.with_columns(trace.frame("memcpy")["bytes"][copies["row"]])
    length = (pl.col("end_ns") - pl.col("start_ns")).sum()
    totals = copies.group_by("gpu").agg(
        pl.len().alias("n"), pl.col("bytes").sum(), length.alias("time_ns")
    )
    rate = (pl.col("bytes") / pl.col("time_ns") * 1e9).alias("bytes_per_s")
    return PEER_COPIES.select(totals.sort("gpu").with_columns(rate))
