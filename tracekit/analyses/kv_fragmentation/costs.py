"""What moving the KV cache costs and how full it is: findings of `kv_fragmentation`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from tracekit.analyses.kv_fragmentation.rules import (
    BLOCKS_FOR_SURE,
    RANK,
    RULES,
    Rule,
    scope,
    slug,
    thresholds,
)
from tracekit.model.finding import Confidence, Evidence, Finding, Level, Metric, Missing
from tracekit.views.launches.graph_replays import GROUP
from tracekit.wording.numbers import ratio, share, size

__all__ = ["copies", "out_of_memory", "usage"]

NO_STEPS, STEP_TOKENS = 0.6, 0.8
NEGLIGIBLE = 0.01
SOME_OF_DEVICE = 0.01
_COPY, _INTERNAL, _EXTERNAL = (
    next(rule for rule in RULES if rule.column == name)
    for name in ("copy_frac", "internal_frac", "external_frac")
)
_OOM_ADVICE = {
    True: "Try PYTORCH_ALLOC_CONF=expandable_segments:True (PYTORCH_CUDA_ALLOC_CONF in older"
    " versions of PyTorch).",
    False: "No allocator setting can help: ask for less (shorter context, fewer sequences, a"
    " smaller or quantised cache).",
}


def copies(group: str, own: dict[str, pl.DataFrame], params: Any) -> Iterator[Finding]:
    """Yield what relocations cost, if there are any.

    Args:
        group: Name of the kind of pool.
        own: Frames of the analysis, rows of those pools only.
        params: Thresholds.
    """
    chains = own["chains"]
    moves = int(chains["moves"].sum())
    if moves == 0:
        return
    known = own["copies"].drop_nulls("copy_frac")
    known = known.sort("copy_frac", "pool", descending=[True, False])
    worst = known.row(0, named=True) if known.height else None
    copy_frac = worst["copy_frac"] if worst else None
    stepped = worst is not None and worst["step_group"] is not None
    replayed = worst is not None and worst["step_group"] == GROUP
    copied, new = int(chains["copied_bytes"].sum()), int(chains["new_bytes"].sum())
    yield Finding(
        id=f"kv_fragmentation/copies-{slug(group)}",
        level=_level(copy_frac, _COPY, params),
        title=_copied(moves, copied, new) + _of_time(worst),
        metrics=_copy_metrics(copy_frac, moves, copied, new),
        at_stake_ns=round(float(known["copy_ns"].sum())) if worst else None,
        at_stake_frac=copy_frac,
        at_stake_of="GPU step time" if stepped else "capture span",
        confidence=Confidence(
            n=moves,
            n_hi=BLOCKS_FOR_SURE,
            provenance=1.0 if stepped and not replayed else NO_STEPS,
            why="exact bytes; their time is a lower bound at peak memory bandwidth",
        ),
        advice=_PREALLOCATE if copy_frac is not None and copy_frac >= params.copy_warn_frac else "",
        caveats=_COPY_CAVEATS,
        scope=scope(group, own["pools"]),
        thresholds=thresholds([_COPY], params),
        evidence=tuple(
            Evidence(name, {"group": group}, title=t, headings=_COPY_HEADINGS)
            for name, t in _COPY_TABLES
        ),
        missing=() if worst else (Missing(_NEEDS_STEPS, ("kernels", "nvtx")),),
    )


_PREALLOCATE = (
    "Preallocate the cache at its final length (a static cache) or page it, so that a step appends"
    " instead of copying everything."
)
_COPY_CAVEATS = (
    "Small copies run below peak bandwidth and each also costs a kernel launch and an allocation,"
    " which is not counted here.",
    "Old and new memory live side by side during a move: a growing cache, not a leak.",
)
_COPY_HEADINGS = {"write_amplification": "copied / new"}
_COPY_TABLES = (("copies", "Copies by group of steps"), ("chains", "Caches that move"))
_NEEDS_STEPS = "steps with device work, and the GPU's bandwidth"


def _copied(moves: int, copied: int, new: int) -> str:
    pattern = "growing cache" if new else "moving cache"
    amplified = f" to add {size(new)} ({ratio(copied / new)})" if new else ""
    return f"{pattern}: {moves} relocations copied {size(copied)}{amplified}"


def _copy_metrics(copy_frac: float | None, moves: int, copied: int, new: int) -> tuple[Metric, ...]:
    return (
        Metric("copy_frac", copy_frac, "1", doc="of GPU step time, at peak bandwidth"),
        Metric("moves", moves, "", doc="relocations"),
        Metric("copied_bytes", copied, "bytes", n=moves),
        Metric("new_bytes", new, "bytes", doc="growth"),
        Metric("write_amplification", copied / new if new else None, "x", doc="copied over new"),
    )


def _of_time(worst: dict[str, Any] | None) -> str:
    if worst is None:
        return "; their share of a step is not known"
    where = f"steps '{worst['step_group']}'" if worst["step_group"] else "the capture (no steps)"
    harmless = ": harmless" if worst["copy_frac"] < NEGLIGIBLE else ""
    return f", {share(worst['copy_frac'])} of GPU time in {where}{harmless}"


def usage(group: str, own: dict[str, pl.DataFrame], params: Any) -> Iterator[Finding]:
    """Yield how full the pools are, if markers state what is reserved or holds tokens.

    Args:
        group: Name of the kind of pool.
        own: Frames of the analysis, rows of those pools only.
        params: Thresholds.
    """
    memory = own["pools"].select("pool", "device_bytes")
    rows = own["usage"].filter("at_peak").join(memory, on="pool", how="left")
    rows = rows.sort("internal_frac", "pool", descending=[True, False], nulls_last=True)
    row = rows.row(0, named=True)
    if row["reserved_bytes"] is None and row["used_bytes"] is None:
        return
    matters = row["device_bytes"] is None or (
        row["allocated_bytes"] >= SOME_OF_DEVICE * row["device_bytes"]
    )
    level, internal = _fill_levels(row, params, matters=matters)
    yield Finding(
        id=f"kv_fragmentation/usage-{slug(group)}",
        level=level,
        title=_usage_title(group, row, matters=matters),
        metrics=_usage_metrics(row),
        confidence=Confidence(
            provenance=STEP_TOKENS if row["used_from"] == "step tokens" else 1.0,
            why=f"fill from {row['used_from'] or 'addresses alone'}",
        ),
        advice="Smaller blocks waste fewer slots behind the last token of each sequence."
        if internal in (Level.WARN, Level.CRITICAL)
        else "",
        caveats=(
            "Engines call different things usage: reserved, allocated and holding tokens are"
            " distinguished here.",
        ),
        scope=scope(group, own["pools"]),
        thresholds=thresholds([_INTERNAL, _EXTERNAL], params),
        evidence=(Evidence("usage", {"group": group, "at_peak": True}, title="Fill at the peak"),),
        missing=() if row["used_bytes"] is not None else (_NEEDS_TOKENS,),
    )


_NEEDS_TOKENS = Missing("how many tokens blocks hold (used= of KV_BLOCK or kv_tokens= of STEP)")


def _fill_levels(row: dict[str, Any], params: Any, *, matters: bool) -> tuple[Level, Level]:
    """Level of the finding, and of its internal fragmentation.

    What holds no token is judged only where the cache is a real part of the device's memory: one
    sequence of one token wastes 94% of its block and means nothing.
    """
    internal = _level(row["internal_frac"], _INTERNAL, params)
    if internal is not Level.UNKNOWN and not matters:
        internal = Level.OK
    known = [
        level
        for level in (internal, _level(row["external_frac"], _EXTERNAL, params))
        if level is not Level.UNKNOWN
    ]
    return max(known, key=lambda each: RANK[each.value], default=Level.UNKNOWN), internal


def _usage_metrics(row: dict[str, Any]) -> tuple[Metric, ...]:
    return (
        Metric("internal_frac", row["internal_frac"], "1", doc="allocated without a token"),
        Metric("external_frac", row["external_frac"], "1", doc="free outside the largest extent"),
        Metric("reserved_bytes", row["reserved_bytes"], "bytes", doc="stated pools"),
        Metric("allocated_frac", row["allocated_frac"], "1", doc="of reserved"),
        Metric("used_frac", row["used_frac"], "1", doc="holding tokens, of reserved"),
    )


def _usage_title(group: str, row: dict[str, Any], *, matters: bool) -> str:
    parts = []
    if row["reserved_bytes"] is not None:
        parts.append(f"{size(row['reserved_bytes'])} reserved")
        parts.append(f"{share(row['allocated_frac'])} of it allocated")
    else:
        parts.append(f"{size(row['allocated_bytes'])} allocated")
    if row["used_frac"] is not None:
        parts.append(f"{share(row['used_frac'])} holding tokens")
    if row["internal_frac"] is None:
        parts.append("how much holds tokens is not stated")
    else:
        parts.append(f"{share(row['internal_frac'])} of allocated bytes hold no token")
    if row["external_frac"] is not None:
        parts.append(f"{share(row['external_frac'])} of free bytes outside the largest free extent")
    small = "" if matters else " (under 1% of device memory: not judged)"
    return f"KV cache ({group}) when fullest: {', '.join(parts)}{small}"


def out_of_memory(messages: pl.DataFrame) -> Iterator[Finding]:
    """Yield what the last out-of-memory message of the trace says about fragmentation.

    Args:
        messages: Frame ``oom``.
    """
    if messages.is_empty():
        return
    last = messages.sort("t_ns").row(-1, named=True)
    possible = last["possible"]
    level = {True: Level.WARN, False: Level.OK, None: Level.UNKNOWN}[possible]
    yield Finding(
        id="kv_fragmentation/out-of-memory",
        level=level,
        title=f"out of memory ({messages.height} messages): {last['verdict']}",
        metrics=(
            Metric("requested_bytes", last["requested_bytes"], "bytes"),
            Metric("unallocated_bytes", last["unallocated_bytes"], "bytes", doc="reserved, unused"),
            Metric("free_bytes", last["free_bytes"], "bytes", doc="free for the driver"),
        ),
        confidence=Confidence(why="numbers of PyTorch's own message"),
        advice=_OOM_ADVICE.get(possible, ""),
        caveats=("That enough memory lies unused does not show that it could have been joined.",),
        evidence=(Evidence("oom", title="Out-of-memory messages"),),
    )


def _level(value: float | None, rule: Rule, params: Any) -> Level:
    if value is None:
        return Level.UNKNOWN
    if rule.critical and value >= getattr(params, rule.critical):
        return Level.CRITICAL
    return Level.WARN if value >= getattr(params, rule.warn) else Level.OK
