"""Findings in the order worth reading them: by level, then by what a fix would bring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from tracekit.model.finding import Finding, Level
from tracekit.model.gain import gain_from

__all__ = ["ranked", "with_gains"]

_ORDER = {Level.CRITICAL: 0, Level.WARN: 1, Level.OK: 2, Level.UNKNOWN: 3}
_CHANGES = {"dequant_stall/exposed": "fuse"}
"""Findings of other analyses to the change that would remove what they found."""


def ranked(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return findings by level, then by predicted gain over all steps, then by time at stake.

    Summed time is no gain: findings without a prediction come after those with one. Of an interval
    its middle counts; a gain below one percent of the step counts as none.
    """
    return tuple(sorted(findings, key=_rank))


def _rank(finding: Finding) -> tuple[int, bool, float, int, str]:
    gain = finding.gain
    known = gain is not None and gain.worth_ranking
    middle = (gain.total_lo_ns + gain.total_hi_ns) / 2 if gain is not None and known else 0.0
    return _ORDER[finding.level], not known, -middle, -(finding.at_stake_ns or 0), finding.id


def with_gains(findings: Sequence[Finding], gains: pl.DataFrame | None) -> list[Finding]:
    """Give findings the predicted gain of the change that would remove what they found.

    Args:
        findings: Of all analyses.
        gains: Table ``gains`` of `idle_gaps`; None when that did not run.
    """
    if gains is None:
        return list(findings)
    return [_with_gain(finding, gains) for finding in findings]


def _with_gain(finding: Finding, gains: pl.DataFrame) -> Finding:
    what = _CHANGES.get(finding.id)
    if what is None or finding.level is Level.OK or finding.gain is not None:
        return finding
    group = dict(finding.scope).get("step group")
    rows = gains.filter((pl.col("what") == what) & (pl.col("step_group") == group))
    return replace(finding, gain=gain_from(rows.row(0, named=True))) if rows.height else finding
