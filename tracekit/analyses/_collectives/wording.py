"""Sentences and findings that both analyses of collectives use."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from tracekit.model.finding import Confidence, Evidence, Finding, Level, Metric, Missing
from tracekit.trace.analysis import Frames
from tracekit.wording.numbers import count_of, duration, share, threshold

__all__ = [
    "FEW",
    "UNCLASSIFIED_LIMIT",
    "combined_stake_note",
    "communicator_label",
    "denominator",
    "denominator_of_run",
    "limit_ok_findings",
    "limits",
    "marked_as_hint",
    "missing_sizes",
    "no_collectives",
    "only_point_to_point",
    "opaque_caveat",
    "operation_name",
    "operation_slug",
    "partner_name",
    "source_note",
    "unmatched",
]

UNCLASSIFIED_LIMIT = 0.10
CAPTURE = "capture"
Row = Mapping[str, Any]
_OPS = {
    "AllReduce": "all-reduce",
    "AllGather": "all-gather",
    "AllGatherV": "all-gather (v)",
    "ReduceScatter": "reduce-scatter",
    "AlltoAll": "all-to-all",
    "Broadcast": "broadcast",
    "Reduce": "reduce",
    "SendRecv": "send/receive",
}
_PARTNERS = {
    "gemm": "GEMMs",
    "gemm_quant": "quantised GEMMs",
    "moe_gemm": "expert GEMMs",
    "gemm_helper": "GEMM helper kernels",
    "memcpy HtoD": "host-to-device copies",
    "memcpy DtoH": "device-to-host copies",
    "memcpy DtoD": "device-to-device copies",
    "memcpy PtoP": "copies between GPUs",
    "memset": "memsets",
    "opaque graph": "opaque CUDA graphs",
    "unclassified": "unclassified kernels",
    "kv_cache": "KV-cache kernels",
    "moe": "MoE routing kernels",
}
_REASONS = {
    "one rank": "only one of its ranks was recorded",
    "missing ranks": "some of its ranks were not recorded",
    "counts differ": "ranks recorded different numbers of collectives and no unique match exists",
    "clocks not aligned": "the clocks of its reports could not be aligned",
    "operations differ": "its ranks recorded different operations or sizes",
    "not in step": "kernels of its ranks, taken in order, do not overlap in time",
}


def operation_name(op: str | None) -> str:
    """Return "all-reduce" for "AllReduce"; "collective" when the operation is unknown."""
    return "collective" if op is None else _OPS.get(op, op)


def operation_slug(op: str | None) -> str:
    """Return the operation as part of a finding's id."""
    return re.sub(r"[^a-z0-9]+", "-", operation_name(op).lower()).strip("-")


def partner_name(kind: str | None) -> str:
    """Return a kind of work in the plural: "device-to-device copies"."""
    if kind is None:
        return "other work"
    return _PARTNERS.get(kind, f"{kind.replace('_', ' ')} kernels")


def communicator_label(frames: Frames, comm: str) -> str:
    """Return " on communicator 0x..", "" when there is only one."""
    known = frames["communicators"]["comm"].n_unique()
    if known <= 1:
        return ""
    return f" on unnamed communicator {comm[1:]}" if comm[0] == "~" else f" on communicator {comm}"


def no_collectives(analysis: str, facts: Row) -> Finding:
    """Return the verdict on a trace without communication kernels."""
    opaque, unclassified = facts["opaque_ns"] or 0, facts["unclassified_frac"] or 0.0
    if opaque > 0:
        return Finding(
            id=f"{analysis}/hidden",
            level=Level.UNKNOWN,
            title="no collectives visible, but "
            f"{share(opaque / max(facts['busy_ns'], 1))} of busy time is inside opaque CUDA graphs",
            missing=(Missing("the kernels inside CUDA graphs", ("graph_nodes",)),),
        )
    if unclassified >= UNCLASSIFIED_LIMIT:
        return Finding(
            id=f"{analysis}/unclassified",
            level=Level.UNKNOWN,
            title=f"no collectives recognised, but {share(unclassified)} of kernel time has names"
            " that no rule knows",
            missing=(Missing("a class for those names: --param kernels.custom_comm=REGEX"),),
        )
    return Finding(id=f"{analysis}/none", level=Level.OK, title="no collectives ran")


def only_point_to_point(analysis: str, facts: Row) -> Finding:
    """Return the verdict on a trace whose communication is sends and receives alone."""
    return Finding(
        id=f"{analysis}/point_to_point",
        level=Level.UNKNOWN,
        title=f"{count_of(facts['n_comm_kernels'], 'communication kernel')}, all of them sends and"
        " receives: not judged, because only collectives meet all ranks in one order",
    )


def limit_ok_findings(findings: Sequence[Finding], most: int = 3) -> tuple[Finding, ...]:
    """Return the findings with at most `most` of level ok, the last of them naming how many more.

    A run of many communicators would bury its one bad finding under a page of good ones.
    """
    fine = [f for f in findings if f.level is Level.OK]
    if len(fine) <= most:
        return tuple(findings)
    last = fine[most - 1]
    rest = replace(last, title=f"{last.title}; and {len(fine) - most} more like it")
    dropped = {id(f) for f in fine[most - 1 :]}
    return (*(f for f in findings if id(f) not in dropped), rest)


def opaque_caveat(facts: Row) -> tuple[str, ...]:
    """Return the bounds on communication that opaque graph time leaves, if there is any."""
    opaque = facts["opaque_ns"] or 0
    if not opaque:
        return ()
    busy = max(facts["busy_ns"], 1)
    low, high = facts["comm_ns"] / busy, (facts["comm_ns"] + opaque) / busy
    return (
        f"{share(opaque / busy)} of busy time is inside opaque CUDA graphs: communication is at"
        f" least {share(low)} of busy time and up to {share(high)}.",
    )


def source_note(facts: Row) -> str:
    """Return why sizes and ranks are not fully known, in words; empty when they are."""
    if facts["n_unsized"] == facts["n_comm_kernels"]:
        why = (
            "NCCL's NVTX payloads were not exported"
            if facts["has_nccl_ranges"]
            else ("no NCCL ranges were recorded")
        )
        return f"message sizes are unknown ({why})"
    return (
        "whether all ranks were recorded is unknown, as the communicator was made before recording"
    )


def missing_sizes(facts: Row) -> tuple[Missing, ...]:
    """Return what to record for message sizes, if NCCL stated them and the export dropped them."""
    if not facts["n_unsized"] or not facts["has_nccl_ranges"] or facts["n_blobs"]:
        return ()
    return (Missing("message sizes: export NCCL's NVTX payloads", ("nvtx_schemas",)),)


def unmatched(frames: Frames, analysis: str, what: str) -> tuple[Finding, ...]:
    """Return one finding for each reason for which communicators could not be judged.

    Args:
        frames: With ``communicators``, ``facts`` and ``raw_durations``.
        analysis: Name of the analysis.
        what: What is unknown, to begin the headline with.
    """
    rows = frames["communicators"].filter(pl.col("status") != "matched")
    found = []
    for (status,), own in rows.sort("status", "comm").partition_by("status", as_dict=True).items():
        found.append(_unmatched_one(frames, analysis, what, str(status), own))
    return tuple(found)


def _unmatched_title(what: str, status: str, own: pl.DataFrame) -> str:
    first = own.row(0, named=True)
    ranks = f"{first['n_ranks']} of {first['nranks']} ranks have device activity"
    why = ranks if status in ("one rank", "missing ranks") and first["nranks"] else _REASONS[status]
    several = f" for {count_of(own.height, 'communicator')}" if own.height > 1 else ""
    kernels = count_of(int(own["n_kernels"].sum()), "communication kernel")
    return f"{what} unknown{several}: {why}; {kernels} not judged"


def _unmatched_one(
    frames: Frames, analysis: str, what: str, status: str, own: pl.DataFrame
) -> Finding:
    comms = sorted({str(comm).partition("/")[0] for comm in own["comm"]})
    raw = frames["raw_durations"].filter(pl.col("comm").is_in(comms))
    longest = raw.sort("n", descending=True, maintain_order=True).row(0, named=True)
    return Finding(
        id=f"{analysis}/{status.replace(' ', '_')}",
        level=Level.UNKNOWN,
        title=_unmatched_title(what, status, own),
        metrics=(
            Metric(
                "raw_median_ns",
                longest["median_ns"],
                "ns",
                n=longest["n"],
                doc=f"raw median of {operation_name(longest['op'])} kernels, waiting included",
            ),
        ),
        caveats=(
            "Durations of communication kernels include waiting for late ranks: without the other"
            " ranks they are upper bounds of the transfer.",
            *opaque_caveat(frames["facts"].row(0, named=True)),
        ),
        evidence=(
            Evidence(
                "raw_durations",
                {"comm": comms},
                ("op", "bytes", "overlapped", "n", "min_ns", "median_ns", "max_ns"),
                "Kernel durations, waiting included",
            ),
        ),
        missing=(_what_would_tell(status),),
    )


def _what_would_tell(status: str) -> Missing:
    if status in ("one rank", "missing ranks"):
        return Missing(
            "the other ranks' reports: record every rank (nsys follows child processes of the"
            " command it starts; workers started elsewhere need their own nsys) and give all"
            " reports at once",
            command="tracekit analyze rank0.sqlite rank1.sqlite",
        )
    if status == "clocks not aligned":
        return Missing("at least five collectives that all reports recorded at the same time")
    return Missing("communicator ids: NCCL's NVTX payloads", ("nvtx_schemas",))


FEW = 10
"""Fewer collectives than this, at low confidence, give a hint and no more."""
LOW_CONFIDENCE = 0.5
NEARLY_ALL = 0.99


def denominator(group: str | None, time_ns: float | None) -> str:
    """Return what a share is of, with its length: the span of device work, or a step group.

    Args:
        group: Step group, or None or the name of the whole capture.
        time_ns: Length in ns, None when unknown.
    """
    if group is None or group == CAPTURE:
        length = "time" if time_ns is None else duration(time_ns)
        return f"the {length} from first to last device work"
    length = "" if time_ns is None else f"{duration(time_ns)} of "
    return f'the {length}device time in steps "{group}"'


def denominator_of_run(facts: Row, time_ns: float | None) -> str:
    """Return what a share of everything is of: all steps, or the span of device work."""
    if not facts["has_steps"]:
        return denominator(None, time_ns)
    return "the device time in all steps" + (
        "" if time_ns is None else f", {duration(time_ns)} a rank"
    )


def limits(warn: float | None, critical: float | None, *, ratio: bool = False) -> str:
    """Return from where on a number is a warning and critical, to put behind its label.

    Args:
        warn: Least value that warns, a share or a ratio; None for never.
        critical: Least value that is critical.
        ratio: Whether the number is a ratio.
    """
    words = (("warn", warn), ("critical", critical))
    unit = "x" if ratio else "1"
    return ", ".join(f"{word} from {threshold(v, unit)}" for word, v in words if v is not None)


def marked_as_hint(title: str, n: int, confidence: Confidence) -> str:
    """Return the headline, marked as a hint where it rests on a handful of collectives."""
    if n >= FEW or confidence.value >= LOW_CONFIDENCE:
        return title
    return f"hint, from {count_of(n, 'collective')} only: {title}"


def combined_stake_note(frames: Frames, comm: str, own_ns: int) -> str:
    """Return the sentence that says what all findings on a communicator put at stake together.

    Args:
        frames: With ``combined_stake``.
        comm: Communicator.
        own_ns: What the finding itself puts at stake; "" is returned where that is nearly all.
    """
    rows = frames["combined_stake"].filter(pl.col("comm") == comm)
    if rows.is_empty() or not rows["combined_ns"].item():
        return ""
    row = rows.row(0, named=True)
    if own_ns >= NEARLY_ALL * row["combined_ns"]:
        return ""
    parts = (
        ("waiting for ranks", "waiting"),
        ("queueing", "queueing"),
        ("slower transfers", "slower"),
    )
    each = [f"{words} {duration(row[f'{name}_ns'] or None, 'none')}" for words, name in parts]
    return (
        "Do not add findings up: on this communicator all together put at most"
        f" {duration(row['combined_ns'])} at stake, each moment counted once ({', '.join(each)})."
    )
