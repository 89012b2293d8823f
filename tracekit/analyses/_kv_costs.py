"""What moving the KV cache costs and how full it is: findings of `kv_fragmentation`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from tracekit.analyses._kv_rules import (
    BLOCKS_FOR_SURE,
    RANK,
    RULES,
    Rule,
    byte_size,
    scope,
    slug,
    thresholds,
)
from tracekit.model.analysis import Confidence, Evidence, Finding, Level, Metric, Missing

__all__ = ["copies", "usage"]

NO_STEPS, STEP_TOKENS = 0.6, 0.8
NEGLIGIBLE = 0.01
SOME_OF_DEVICE = 0.01


def copies(group: str, own: dict[str, pl.DataFrame], params: Any) -> Iterator[Finding]:
    """Yield what relocations cost, if there are any.

    Args:
        group: Name of the kind of pool.
        own: Frames of the analysis, rows of those pools only.
        params: Thresholds.
    """
    chains, steps = own["chains"], own["copies"]
    moves = int(chains["moves"].sum())
    if moves == 0:
        return
    copied, new = int(chains["copied_bytes"].sum()), int(chains["new_bytes"].sum())
    known = steps.drop_nulls("copy_frac").sort("copy_frac", "pool", descending=[True, False])
    worst = known.row(0, named=True) if known.height else None
    share = worst["copy_frac"] if worst else None
    pattern = "growing cache" if new else "moving cache"
    amplified = f" to add {byte_size(new)} ({copied / new:.1f}x)" if new else ""
    title = f"{pattern}: {moves} relocations copied {byte_size(copied)}{amplified}"
    rule = next(r for r in RULES if r.column == "copy_frac")
    yield Finding(
        id=f"kv_fragmentation/copies-{slug(group)}",
        level=_level(share, rule, params),
        title=title + _of_time(worst),
        metrics=(
            Metric("copy_frac", share, "1", doc="of GPU step time, at peak bandwidth"),
            Metric("moves", moves, "", doc="relocations"),
            Metric("copied_bytes", copied, "bytes", n=moves),
            Metric("new_bytes", new, "bytes", doc="growth"),
            Metric("write_amp", copied / new if new else None, "x", doc="copied over new"),
        ),
        at_stake_ns=round(float(known["copy_ns"].sum())) if worst else None,
        at_stake_frac=share,
        at_stake_of="GPU step time" if worst and worst["step_group"] else "capture span",
        confidence=Confidence(
            n=moves,
            n_hi=BLOCKS_FOR_SURE,
            prov=1.0 if worst and worst["step_group"] else NO_STEPS,
            why="exact bytes; their time is a lower bound at peak memory bandwidth",
        ),
        advice="Preallocate the cache at its final length (a static cache) or page it, so that a"
        " step appends instead of copying everything."
        if share is not None and share >= params.copy_warn_frac
        else "",
        caveats=(
            "Small copies run below peak bandwidth and each also costs a kernel launch and an"
            " allocation, which is not counted here.",
            "Old and new memory live side by side during a move: a growing cache, not a leak.",
        ),
        scope=scope(group, own["pools"]),
        thresholds=thresholds([rule], params),
        evidence=(
            Evidence("copies", {"group": group}, title="Copies by group of steps"),
            Evidence("chains", {"group": group}, title="Caches that move"),
        ),
        missing=()
        if worst
        else (Missing("steps with device work, and the GPU's bandwidth", ("kernels", "nvtx")),),
    )


def _of_time(worst: dict[str, Any] | None) -> str:
    if worst is None:
        return "; their share of a step is not known"
    where = f"steps '{worst['step_group']}'" if worst["step_group"] else "the capture (no steps)"
    share = worst["copy_frac"]
    harmless = ": harmless" if share < NEGLIGIBLE else ""
    return f" = {100 * share:.2g} % of GPU time in {where}{harmless}"


def usage(group: str, own: dict[str, pl.DataFrame], params: Any) -> Iterator[Finding]:
    """Yield how full the pools are, if markers state what is reserved or holds tokens.

    Args:
        group: Name of the kind of pool.
        own: Frames of the analysis, rows of those pools only.
        params: Thresholds.
    """
    rows = (
        own["usage"]
        .filter("at_peak")
        .join(own["pools"].select("pool", "device_bytes"), on="pool", how="left")
    )
    rows = rows.sort("int_frac", "pool", descending=[True, False], nulls_last=True)
    row = rows.row(0, named=True)
    if row["reserved_bytes"] is None and row["used_bytes"] is None:
        return
    int_rule, ext_rule = (
        next(r for r in RULES if r.column == name) for name in ("int_frac", "ext_frac")
    )
    device = row["device_bytes"]
    matters = device is None or row["allocated_bytes"] >= SOME_OF_DEVICE * device
    internal = _level(row["int_frac"], int_rule, params) if matters else Level.OK
    external = _level(row["ext_frac"], ext_rule, params)
    known = [level for level in (internal, external) if level is not Level.UNKNOWN]
    level = max(known, key=lambda each: RANK[each.value]) if known else Level.UNKNOWN
    yield Finding(
        id=f"kv_fragmentation/usage-{slug(group)}",
        level=level if row["int_frac"] is not None or level is not Level.OK else Level.UNKNOWN,
        title=_usage_title(group, row, matters=matters),
        metrics=(
            Metric("int_frac", row["int_frac"], "1", doc="allocated without a token"),
            Metric("ext_frac", row["ext_frac"], "1", doc="free outside the largest extent"),
            Metric("reserved_bytes", row["reserved_bytes"], "bytes", doc="stated pools"),
            Metric("allocated_frac", row["allocated_frac"], "1", doc="of reserved"),
            Metric("used_frac", row["used_frac"], "1", doc="holding tokens, of reserved"),
        ),
        confidence=Confidence(
            prov=1.0 if row["used_from"] == "blocks" else STEP_TOKENS,
            why=f"fill from {row['used_from']}",
        ),
        advice="Smaller blocks waste fewer slots behind the last token of each sequence."
        if level in (Level.WARN, Level.CRITICAL) and internal is level
        else "",
        caveats=(
            "Engines call different things usage: reserved, allocated and holding tokens are"
            " told apart here.",
        ),
        scope=scope(group, own["pools"]),
        thresholds=thresholds([int_rule, ext_rule], params),
        evidence=(Evidence("usage", {"group": group, "at_peak": True}, title="Fill at the peak"),),
        missing=()
        if row["used_bytes"] is not None
        else (
            Missing(
                "how many tokens blocks hold (`used=` of KV_BLOCK or `kv_tokens=` of STEP)",
                (),
                "tracekit run -- YOUR_COMMAND",
            ),
        ),
    )


def _usage_title(group: str, row: dict[str, Any], *, matters: bool) -> str:
    parts = []
    if row["reserved_bytes"] is not None:
        parts.append(f"{byte_size(row['reserved_bytes'])} reserved")
        parts.append(f"{100 * row['allocated_frac']:.4g}% of it allocated")
    else:
        parts.append(f"{byte_size(row['allocated_bytes'])} allocated")
    if row["used_frac"] is not None:
        parts.append(f"{100 * row['used_frac']:.4g}% holding tokens")
    if row["int_frac"] is None:
        parts.append("how much holds tokens is not stated")
    else:
        parts.append(f"{row['int_frac']:.1%} of allocated bytes hold no token")
    if row["ext_frac"] is not None:
        parts.append(f"{row['ext_frac']:.1%} of free bytes outside the largest free extent")
    small = "" if matters else " (under 1 % of device memory: not judged)"
    return f"KV cache ({group}) when fullest: {', '.join(parts)}{small}"


def _level(value: float | None, rule: Rule, params: Any) -> Level:
    if value is None:
        return Level.UNKNOWN
    if rule.critical and value >= getattr(params, rule.critical):
        return Level.CRITICAL
    return Level.WARN if value >= getattr(params, rule.warn) else Level.OK
