"""What the host asked for, for each communication kernel: the call behind its launch."""

from __future__ import annotations

import polars as pl

from tracekit.trace import Trace, view
from tracekit.views.collectives.calls import CALL, call_of, group_sizes, host_calls, thread_key
from tracekit.views.device.activity import activity, device_ids, identified, queues
from tracekit.views.device.kernels import kernel_names
from tracekit.views.keys import looked_up
from tracekit.views.launches.attribution import attribution

__all__ = ["FACTS", "comm_kernels", "launch_facts"]

_NODE_HOPS = 8
_NO_THREAD = -1
FACTS = pl.Schema(
    {
        "what": pl.Categorical(),
        "comm": pl.UInt64(),
        "handle": pl.Int64(),
        "call_bytes": pl.Int64(),
        "call_dtype": pl.Categorical(),
        "nranks": pl.Int64(),
        "rank": pl.Int64(),
        "fused_group": pl.Boolean(),
        "told_by": pl.Categorical(),
    }
)
_FIELDS = tuple(CALL[:-1])
_NODE = ["report", "pid", "graph_node"]


@view(of=[activity, attribution, device_ids, kernel_names, queues])
def comm_kernels(trace: Trace) -> pl.DataFrame:
    """Return the communication kernels with their launch.

    Returns:
        Rows of `activity` plus activity UInt32 (row there), report, pid, context, stream,
        graph_node Int64, launch_start_ns, launch_tid, step, and of `kernel_names` fused Boolean
        and name, op and family as Categorical; in the order of `activity`.
    """
    launches = attribution(trace).select("launch_start_ns", "launch_tid", "step")
    names = kernel_names(trace).filter(pl.col("is_comm"))
    is_comm = activity(trace)["name_key"].is_in(names["name_key"].implode()).fill_null(value=False)
    at = is_comm.arg_true()
    work = pl.DataFrame({"activity": at.cast(pl.UInt32)}).hstack(activity(trace)[at])
    work = identified(trace, work.hstack(launches[at]))
    node = device_ids(trace).graph_node
    own = pl.lit(None, pl.Int64) if node is None else node[at]
    work = work.with_columns(own.alias("graph_node"))
    texts = names.select("name_key", "fused", pl.col("name", "op", "family").cast(pl.Categorical))
    return work.hstack(looked_up(work, texts, ["name_key"]))


@view("graph_nodes", of=[comm_kernels])
def _asked_at(trace: Trace) -> pl.DataFrame:
    """Thread and time of the call: the launch, or for a graph kernel the capture of its node.

    Frame of thread Int64 (-1 without a launch) and t_ns Int64, a row a communication kernel.
    """
    rows = comm_kernels(trace)
    captured = _capture_points(trace.frame("graph_nodes"))
    rows = rows.join(captured, on=_NODE, how="left", maintain_order="left")
    launched = rows.with_columns(thread_key("launch_").alias("_launched"))
    in_graph = pl.col("graph_node").is_not_null()
    return launched.select(
        pl.when(in_graph)
        .then("captured_thread")
        .otherwise("_launched")
        .fill_null(_NO_THREAD)
        .alias("thread"),
        pl.when(in_graph)
        .then("captured_ns")
        .otherwise("launch_start_ns")
        .fill_null(0)
        .alias("t_ns"),
    )


def _capture_points(nodes: pl.DataFrame) -> pl.DataFrame:
    """Where each executed graph node, through clones of clones, was captured."""
    born = nodes.sort("start_ns").unique(_NODE, keep="first", maintain_order=True)
    born = born.with_columns(thread_key().alias("captured_thread"))
    clones = nodes.drop_nulls("original_node").unique(_NODE, keep="first", maintain_order=True)
    clones = clones.select("report", "pid", pl.col("graph_node").alias("_root"), "original_node")
    roots = born.select(*_NODE, pl.col("graph_node").alias("_root"))
    for _ in range(_NODE_HOPS):
        up = roots.join(clones, on=["report", "pid", "_root"], how="left", maintain_order="left")
        if up["original_node"].null_count() == up.height:
            break
        further = pl.coalesce("original_node", "_root").alias("_root")
        roots = up.select(*_NODE, further)
    place = born.select(
        "report",
        "pid",
        pl.col("graph_node").alias("_root"),
        "captured_thread",
        pl.col("start_ns").alias("captured_ns"),
    )
    return roots.join(place, on=["report", "pid", "_root"], how="left").select(
        *_NODE, "captured_thread", "captured_ns"
    )


@view(of=[comm_kernels, _asked_at, host_calls, group_sizes])
def launch_facts(trace: Trace) -> pl.DataFrame:
    """Return what the host call behind each communication kernel asked for.

    NCCL's own range is asked first, a marker of the injector fills what it does not say. A marker
    is also believed when NCCL's ranges are absent.

    Returns:
        Frame of `FACTS`, one row a row of `comm_kernels`; all null where no call is known.
        ``told_by`` is "payload" when NCCL told the size, "marker" when the injector did, "range"
        when only the operation is known.
    """
    at = _asked_at(trace)
    threads, times = at["thread"].to_numpy(), at["t_ns"].to_numpy()
    calls = host_calls(trace)
    nccl = _grouped(trace, call_of(calls, "nccl", threads, times))
    marker = _grouped(trace, call_of(calls, "marker", threads, times))
    both = nccl.hstack(marker.select(pl.all().name.prefix("m_")))
    told = pl.col("bytes").is_not_null()
    fused = pl.col("fused_group") | (pl.col("what").is_null() & pl.col("m_fused_group"))
    return both.select(
        pl.coalesce("what", "m_what").alias("what"),
        "comm",
        pl.col("m_handle").alias("handle"),
        pl.coalesce("bytes", "m_bytes").alias("call_bytes"),
        pl.col("m_dtype").alias("call_dtype"),
        pl.coalesce("m_nranks", "nranks").alias("nranks"),
        pl.coalesce("m_rank", "rank").alias("rank"),
        fused.alias("fused_group"),
        pl.when(told)
        .then(pl.lit("payload", pl.Categorical))
        .when(pl.col("m_what").is_not_null())
        .then(pl.lit("marker", pl.Categorical))
        .when(pl.col("what").is_not_null())
        .then(pl.lit("range", pl.Categorical))
        .alias("told_by"),
    ).cast(FACTS)


def _grouped(trace: Trace, found: pl.DataFrame) -> pl.DataFrame:
    """Give the launches of a group's end to the calls of the group.

    As many launches as calls: one each, in order. One launch of several calls is fused: sizes are
    summed. Any other count leaves the sizes unknown.
    """
    calls = host_calls(trace)
    if found["group"].null_count() == found.height:
        return found.select(*_FIELDS, fused_group=pl.lit(value=False))
    ending = pl.col("what") == "GroupEnd"
    rows = found.with_row_index("_row").with_columns(
        pl.when(ending).then("group").alias("_group"),
    )
    rows = rows.with_columns(
        pl.int_range(pl.len()).over("_group").alias("_nth"), pl.len().over("_group").alias("_n")
    )
    sizes = group_sizes(trace).select("group", "n_calls", *_prefixed("g_"))
    members = calls.filter(
        pl.col("group").is_not_null() & ~pl.col("what").is_in(["GroupStart", "GroupEnd"])
    ).with_columns(pl.int_range(pl.len()).over("group").alias("_nth"))
    members = members.select(pl.col("group").alias("_group"), "_nth", *_prefixed("c_"))
    rows = rows.join(
        sizes.rename({"group": "_group"}), on="_group", how="left", maintain_order="left"
    )
    rows = rows.join(members, on=["_group", "_nth"], how="left", maintain_order="left")
    one_each = pl.col("_n") == pl.col("n_calls")
    fused = pl.col("_group").is_not_null() & (pl.col("n_calls") > 1) & ~one_each
    shared = pl.when((pl.col("_n") == 1) | one_each)
    return rows.select(
        *(
            pl.when(pl.col("_group").is_null())
            .then(name)
            .when(one_each)
            .then(f"c_{name}")
            .otherwise(shared.then(f"g_{name}") if name == "bytes" else pl.col(f"g_{name}"))
            .alias(name)
            for name in _FIELDS
        ),
        fused.fill_null(value=False).alias("fused_group"),
    )


def _prefixed(prefix: str) -> list[pl.Expr]:
    return [pl.col(c).alias(f"{prefix}{c}") for c in _FIELDS]
