"""Thresholds of `kv_fragmentation`: what is judged, where, and what reaching a threshold means."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import polars as pl

from tracekit.model.finding import Level

__all__ = [
    "BLOCKS_FOR_SURE",
    "RANK",
    "RULES",
    "Rule",
    "scope",
    "severity",
    "slug",
    "thresholds",
]

BLOCKS_FOR_SURE = 32
MANY_BYTES = 2 << 20
RANK = {"ok": 0, "warn": 1, "critical": 2}


class Rule(NamedTuple):
    """One judged quantity.

    Attributes:
        column: Column of the table.
        table: Frame that has it.
        warn: Name of the parameter that holds the threshold.
        critical: The same for critical; "" when the quantity alone never is.
        guard: What must also hold for a warning: "" or "short runs".
        critical_guard: What must also hold for critical: "" or "many".
        words: What it means, with ``{value}``, printed as the column is.
        advice: What to do about it.
        caveat: How that can be wrong.
    """

    column: str
    table: str
    warn: str
    critical: str = ""
    guard: str = ""
    critical_guard: str = ""
    words: str = ""
    advice: str = ""
    caveat: str = ""


RULES: tuple[Rule, ...] = (
    Rule(
        "sector_overfetch_frac",
        "layout",
        "overfetch_warn_frac",
        "overfetch_critical_frac",
        critical_guard="many",
        words="at least {value} more bytes move from memory than the cache holds",
        advice="Make rows and blocks begin and end on 32 B: pad the row pitch or the head size.",
    ),
    Rule(
        "misaligned_16b_frac",
        "layout",
        "misaligned_warn_frac",
        words="{value} of blocks or rows start off a 16 B boundary, so loads become narrow",
        advice="Align the base of the pool and every block and row pitch to 16 B or more.",
        caveat="Misalignment costs load requests, hardly any DRAM byte: on an H200 a read of 32 KiB"
        " blocks 6 B off took 41 us instead of 33.",
    ),
    Rule(
        "request_overfetch_frac",
        "layout",
        "overfetch_warn_frac",
        words="128 B requests touch {value} more sectors than they need",
        advice="Start blocks on 32 B (128 B is safe) so that no request straddles a sector.",
    ),
    Rule(
        "frag_frac",
        "layout",
        "broken_warn_frac",
        guard="short runs",
        words="{value} of neighbours lie apart and contiguous pieces are short",
        advice="Make contiguous pieces at least 4 KiB: more tokens a block, or heads and dims of a"
        " token packed together.",
        caveat="What short pieces cost depends on whether the lines that they touch still fit into"
        " L2; counts of addresses do not show it, l2_miss does.",
    ),
    Rule(
        "page_ratio",
        "layout",
        "page_ratio_warn",
        words="blocks are spread over {value} the 2 MiB pages that they need",
        advice="Allocate the cache as one pool, so that its blocks share pages.",
    ),
    Rule("copy_frac", "copies", "copy_warn_frac", "copy_critical_frac"),
    Rule("internal_frac", "usage", "internal_warn_frac", "internal_critical_frac"),
    Rule("external_frac", "usage", "external_warn_frac", "external_critical_frac"),
)
"""Every judged quantity; the ones of ``layout`` hold for pool, layer and sequence rows alike."""


def severity(rules: Sequence[Rule], params: Any) -> list[pl.Expr]:
    """Return expressions for the columns severity, why and conf_frac of layout rows."""
    warns = {rule.column: _reached(rule, rule.warn, rule.guard, params) for rule in rules}
    criticals = [
        _reached(rule, rule.critical, rule.critical_guard, params)
        for rule in rules
        if rule.critical
    ]
    level = (
        pl.when(pl.any_horizontal(criticals))
        .then(pl.lit(Level.CRITICAL.value))
        .when(pl.any_horizontal(warns.values()))
        .then(pl.lit(Level.WARN.value))
        .otherwise(pl.lit(Level.OK.value))
    )
    reasons = [pl.when(reached).then(pl.lit(name)) for name, reached in warns.items()]
    sure = pl.min_horizontal(pl.col("m") / BLOCKS_FOR_SURE, pl.lit(1.0))
    sure = pl.when(pl.col("overlaps") > 0).then(0.0).otherwise(sure)
    return [
        level.alias("severity"),
        pl.concat_str(reasons, separator=",", ignore_nulls=True).alias("why"),
        sure.alias("conf_frac"),
    ]


def _reached(rule: Rule, threshold: str, guard: str, params: Any) -> pl.Expr:
    reached = pl.col(rule.column) >= float(getattr(params, threshold))
    if guard == "short runs":
        reached &= pl.col("run_mean_bytes") < params.short_run_bytes
    if guard == "many":
        reached &= (pl.col("bytes") >= MANY_BYTES) & (pl.col("m") >= BLOCKS_FOR_SURE)
    return reached.fill_null(False)


def thresholds(rules: Sequence[Rule], params: Any) -> dict[str, tuple[float | None, float | None]]:
    """Return column to (warn, critical) for a finding."""
    return {
        rule.column: (
            float(getattr(params, rule.warn)),
            float(getattr(params, rule.critical)) if rule.critical else None,
        )
        for rule in rules
    }


def scope(group: str, pools: pl.DataFrame) -> tuple[tuple[str, str], ...]:
    """Return what a finding about some pools is about."""
    gpus = ", ".join(map(str, pools["gpu"].drop_nulls().unique().sort().to_list()))
    return (("gpu", gpus or "not stated"), ("cache", group))


def slug(group: str) -> str:
    """Return a name as part of a finding's id."""
    return re.sub(r"[^a-z0-9]+", "-", group.lower()).strip("-")
