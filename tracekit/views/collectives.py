"""Communication kernels, one row each: operation, communicator, size and place in the sequence."""

from __future__ import annotations

import polars as pl

from tracekit.model.kernels import classify
from tracekit.model.trace import Trace, view
from tracekit.views.activity import activity
from tracekit.views.coll_calls import communicator_sizes
from tracekit.views.coll_launches import comm_kernels, launch_facts
from tracekit.views.kernels import shapes
from tracekit.views.keys import row_numbers

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
COLLECTIVES = pl.Schema(
    {
        "activity": pl.UInt32(),
        "report": pl.UInt16(),
        "gpu": pl.Int16(),
        "pid": pl.UInt32(),
        "rank_id": pl.UInt32(),
        "rank": pl.Int64(),
        "context": pl.Int64(),
        "stream": pl.Int64(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "op": pl.Categorical(),
        "op_conflict": pl.Boolean(),
        "comm": pl.Categorical(),
        "comm_known": pl.Boolean(),
        "bytes": pl.Int64(),
        "dtype": pl.Categorical(),
        "nranks": pl.Int64(),
        "nranks_at_least": pl.Int64(),
        "name_key": pl.UInt32(),
        "name": pl.Categorical(),
        "grid": pl.Categorical(),
        "fused": pl.Boolean(),
        "launch_start_ns": pl.Int64(),
        "in_graph": pl.Boolean(),
        "fused_group": pl.Boolean(),
        "prov": pl.Float64(),
        "seq": pl.UInt32(),
        "step": pl.UInt32(),
    }
)
"""Columns of `collectives`."""
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


@view(of=[comm_kernels, launch_facts, communicator_sizes, shapes])
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
    rows = comm_kernels(trace).hstack(launch_facts(trace))
    rows = rows.join(_name_facts(rows), on="name_key", how="left", maintain_order="left")
    rows = rows.with_columns(
        _rank_ids(rows),
        pl.coalesce("what", "op").alias("_op"),
        _conflict().alias("op_conflict"),
        pl.coalesce("call_dtype", "name_dtype").alias("dtype"),
        pl.col("graph_node").is_not_null().alias("in_graph"),
    )
    rows = rows.drop("op").rename({"_op": "op"})
    rows = _with_grid(trace, _with_communicator(rows))
    rows = _with_sizes(rows, communicator_sizes(trace))
    return _with_sequence(rows).select(list(COLLECTIVES)).cast(COLLECTIVES)


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


def _with_communicator(rows: pl.DataFrame) -> pl.DataFrame:
    """Name the communicator; by order of first use on its rank where no id is known."""
    rows = _with_stream_s_communicator(rows)
    rows = rows.with_columns(pl.col("comm").is_not_null().alias("comm_known"))
    ids = rows["comm"].drop_nulls().unique().to_list()
    known = pl.DataFrame({"comm": ids, "_id": [f"0x{c:016x}" for c in ids]}).cast(_NAMED)
    rows = rows.join(known, on="comm", how="left", maintain_order="left")
    label = pl.coalesce("_id", _in_order_of_use(rows)).alias("comm")
    return rows.with_columns(label, pl.col("comm").alias("comm_id"))


_NAMED = pl.Schema({"comm": pl.UInt64(), "_id": pl.Categorical()})


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
    served = (
        rows.drop_nulls("comm")
        .group_by(on)
        .agg(pl.when(pl.col("comm").n_unique() == 1).then(pl.col("comm").first()).alias("_served"))
    )
    rows = rows.join(served, on=on, how="left", maintain_order="left")
    taken = pl.when(pl.col("family") == "nccl").then("_served")
    return rows.with_columns(pl.coalesce("comm", taken).alias("comm")).drop("_served")


def _with_grid(trace: Trace, rows: pl.DataFrame) -> pl.DataFrame:
    text = pl.format("{}x{}x{}", "grid_x", "grid_y", "grid_z").cast(pl.Categorical).alias("grid")
    grids = shapes(trace).table.select(text).to_series()
    return rows.with_columns(grids[shapes(trace).row[rows["row"].to_numpy()]])


def _with_sizes(rows: pl.DataFrame, inits: pl.DataFrame) -> pl.DataFrame:
    """The whole message, from the ranks of the communicator where the size is per rank."""
    rows = _with_ranks(rows, inits)
    at_least = pl.max_horizontal("nranks", pl.col("rank_id").n_unique().over("comm"))
    per_rank = pl.col("op").is_in(PER_RANK_OPS) & (pl.col("told_by") == "payload")
    factor = pl.when(per_rank.fill_null(value=False)).then(at_least).otherwise(1)
    prov = pl.col("told_by").replace_strict(_PROVENANCE, default=_BY_NAME, return_dtype=pl.Float64)
    known = pl.col("nranks").is_not_null()
    return rows.with_columns(
        at_least.alias("nranks_at_least"),
        (pl.col("call_bytes") * factor).alias("bytes"),
        pl.when(known).then(prov).otherwise(pl.min_horizontal(prov, _AT_LEAST)).alias("prov"),
    )


def _with_ranks(rows: pl.DataFrame, inits: pl.DataFrame) -> pl.DataFrame:
    """Number of ranks and own rank as the creation of the communicator, or the call, said."""
    by_comm = inits.drop_nulls("comm").rename({"comm": "comm_id"})
    by_id = by_comm.group_by("comm_id").agg(pl.col("nranks").max().alias("_by_id"))
    own = by_comm.group_by("report", "pid", "comm_id").agg(
        pl.when(pl.len() == 1).then(pl.col("rank").first()).alias("_own_rank")
    )
    handles = inits.drop_nulls("handle").group_by("report", "pid", "handle")
    by_handle = handles.agg(
        pl.col("nranks").max().alias("_by_handle"), pl.col("rank").max().alias("_handle_rank")
    )
    rows = rows.join(by_id, on="comm_id", how="left", maintain_order="left")
    rows = rows.join(own, on=["report", "pid", "comm_id"], how="left", maintain_order="left")
    rows = rows.join(by_handle, on=["report", "pid", "handle"], how="left", maintain_order="left")
    return rows.with_columns(
        pl.coalesce("_by_id", "_by_handle", "nranks").max().over("comm").alias("nranks"),
        pl.coalesce("_own_rank", "_handle_rank", "rank").alias("rank"),
    )


def _with_sequence(rows: pl.DataFrame) -> pl.DataFrame:
    """Number the kernels of a communicator on a rank by launch, or by start if one is missing."""
    over = ["comm", "rank_id"]
    complete = pl.col("launch_start_ns").null_count().over(over) == 0
    order = pl.when(complete).then("launch_start_ns").otherwise("start_ns")
    rows = rows.with_columns(order.alias("_order")).sort(*over, "_order", "start_ns", "activity")
    return rows.with_columns(pl.int_range(pl.len()).over(over).cast(pl.UInt32).alias("seq"))


@view("memcpy", of=[activity])
def peer_copies(trace: Trace) -> pl.DataFrame:
    """Return the copies between GPUs, which are communication without a kernel.

    Returns:
        Frame of gpu Int16, n UInt32, bytes Int64, time_ns Int64, bytes_per_s Float64; by gpu.
    """
    copies = activity(trace).filter(pl.col("kind") == "memcpy PtoP")
    copies = copies.with_columns(trace.frame("memcpy")["bytes"][copies["row"]])
    length = (pl.col("end_ns") - pl.col("start_ns")).sum()
    totals = copies.group_by("gpu").agg(
        pl.len().alias("n"), pl.col("bytes").sum(), length.alias("time_ns")
    )
    return totals.sort("gpu").with_columns(
        (pl.col("bytes") / pl.col("time_ns") * 1e9).alias("bytes_per_s")
    )
