"""Association of the L2 miss share with one property of a layer's KV layout, and its level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from tracekit.model.finding import Level, Missing
from tracekit.numerics import association
from tracekit.wording.numbers import bounds, quantity, significant

__all__ = [
    "MIN_N",
    "advice",
    "associate",
    "best_of",
    "judge",
    "missing",
    "overall",
    "shown",
    "with_holm",
]

MIN_N = 8
"""Layers from which on a verdict is made."""
MIN_P_N = 5
WARN_RHO, OK_RHO = 0.3, 0.5
MIN_COVERAGE = 0.8
SIGNIFICANT = 0.05


def associate(x: ArrayLike, y: ArrayLike, z: ArrayLike | None = None) -> dict[str, Any]:
    """Correlate two columns, one row a layer.

    Args:
        x: float64[n], property of the layout; nan where unknown.
        y: float64[n], miss share, 0..1; nan where unknown.
        z: float64[n], covariate (bytes moved); None without one.

    Returns:
        Columns of an association: n, n_eff, r, r_lo, r_hi, rho, rho_lo, rho_hi, p_perm (of rho,
        two-sided, from n = 5), partial_r, partial_lo, partial_hi, delta_miss_pp (percentage
        points of y between the third of rows with the largest x and that with the smallest), and
        why ("" or the reason why there is no coefficient). None where it cannot be estimated.
    """
    u, v = np.asarray(x, np.float64), np.asarray(y, np.float64)
    known = np.isfinite(u) & np.isfinite(v)
    u, v = u[known], v[known]
    r, rho = association.pearson(u, v), association.spearman(u, v)
    ranks = association.average_ranks(u), association.average_ranks(v)
    p = association.permutation_p(*ranks) if u.size >= MIN_P_N else np.nan
    found: dict[str, float] = {
        "r": r.r,
        "r_lo": r.lo,
        "r_hi": r.hi,
        "rho": rho.r,
        "rho_lo": rho.lo,
        "rho_hi": rho.hi,
        "p_perm": p,
        "delta_miss_pp": 100 * association.top_minus_bottom(u, v),
    }
    given = None if z is None else np.asarray(z, np.float64)[known]
    part = association.partial(u, v, given) if given is not None else None
    found |= {
        "partial_r": part.r if part else np.nan,
        "partial_lo": part.lo if part else np.nan,
        "partial_hi": part.hi if part else np.nan,
    }
    numbers = {name: None if np.isnan(value) else float(value) for name, value in found.items()}
    return {"n": u.size, "n_eff": float(u.size), **numbers, "why": _why(u, v)}


def _why(x: NDArray[np.float64], y: NDArray[np.float64]) -> str:
    if x.size == 0:
        return "not known for any layer"
    if x.size < 3:
        return f"n = {x.size} is too few"
    if np.ptp(x) == 0:
        return "the same in every layer"
    return "the miss share is the same in every layer" if np.ptp(y) == 0 else ""


def with_holm(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows with p_holm, adjusted for the number of tests that were made."""
    p = [np.nan if row["p_perm"] is None else row["p_perm"] for row in rows]
    adjusted = association.holm(p)
    return [
        {**row, "p_holm": None if np.isnan(value) else float(value)}
        for row, value in zip(rows, adjusted, strict=True)
    ]


def judge(row: Mapping[str, Any], coverage: float, params: Any) -> Level:
    """Return the level of one association.

    Args:
        row: Result of `with_holm`.
        coverage: Share of the layers whose miss share is known, 0..1.
        params: Has warn_miss_pp and critical_miss_pp.

    Returns:
        `Level.UNKNOWN` unless at least eight layers support a statement.
    """
    if row["n"] < MIN_N or row["rho"] is None or row["rho_lo"] is None:
        return Level.UNKNOWN
    low, high = row["rho_lo"], row["rho_hi"]
    nearest = 0.0 if low <= 0 <= high else min(abs(low), abs(high))
    delta = row["delta_miss_pp"] or 0.0
    shown = (row["p_holm"] or 1.0) < SIGNIFICANT if row["p_holm"] is not None else False
    if shown and nearest > WARN_RHO and delta >= params.warn_miss_pp:
        return Level.CRITICAL if _beyond(row, delta, params) else Level.WARN
    small = max(abs(low), abs(high)) < OK_RHO
    return Level.OK if small and coverage >= MIN_COVERAGE else Level.UNKNOWN


def _beyond(row: Mapping[str, Any], delta: float, params: Any) -> bool:
    """Whether the association stays when the bytes moved are held fixed, and is large."""
    low, high = row["partial_lo"], row["partial_hi"]
    if low is None or high is None or delta < params.critical_miss_pp:
        return False
    return bool(low > 0 if row["rho"] > 0 else high < 0)


_RANK = {"critical": 3, "warn": 2, "ok": 1, "unknown": 0}
WORDS = {
    "frag_frac": "how much of the cache lies apart (frag_frac)",
    "request_overfetch_frac": "misaligned requests (request_overfetch_frac)",
    "page_ratio": "spread over pages (page_ratio)",
    "footprint_l2_ratio": "cache lines against the L2 (footprint_l2_ratio)",
}


def best_of(tested: pl.DataFrame) -> dict[str, Any] | None:
    """Return the association to speak of: worst level, then largest coefficient."""
    known = (
        tested.with_row_index("place")
        .drop_nulls("rho")
        .with_columns(
            pl.col("severity").replace_strict(_RANK, return_dtype=pl.Int8).alias("rank"),
            pl.col("rho").abs().alias("size"),
        )
    )
    known = known.sort("rank", "size", "place", descending=[True, True, False])
    return known.row(0, named=True) if known.height else None


def overall(tested: pl.DataFrame) -> Level:
    """Return the level of a finding from those of its associations."""
    levels = set(tested.drop_nulls("rho")["severity"])
    for level in (Level.CRITICAL, Level.WARN, Level.UNKNOWN):
        if level.value in levels:
            return level
    return Level.OK if levels else Level.UNKNOWN


def shown(best: dict[str, Any] | None, level: Level, summary: dict[str, Any], n_layers: int) -> str:
    """Return what is said of an association, as the second part of a title."""
    if best is None:
        if summary["n_kv"] == 0:
            return "; association with the KV layout not judged: no KV-cache markers"
        if n_layers == 0:
            return "; association with the KV layout not judged: no kernel lies in a layer range"
        return "; association with the KV layout not judged: nothing differs between layers"
    numbers = (
        f"rho {quantity(best['rho'], '')} {bounds(best['rho_lo'], best['rho_hi'], '')}".rstrip()
    )
    numbers += f", n={best['n']}"
    if best["p_holm"] is not None:
        numbers += f", p {significant(best['p_holm'], 2)}"
    what = WORDS.get(best["x_name"], best["x_name"])
    if level in (Level.WARN, Level.CRITICAL):
        delta = quantity(best["delta_miss_pp"], "pp")
        sign = "" if best["delta_miss_pp"] < 0 else "+"
        return f"; misses are associated with {what}: {sign}{delta}, {numbers}"
    if level is Level.OK:
        return f"; not associated with the KV layout (closest: {what}, {numbers})"
    if best["n"] < MIN_N:
        return f"; {best['n']} layers are too few to judge an association with the KV layout"
    return f"; no association with {what} shown, interval too wide ({numbers})"


def advice(level: Level, best: dict[str, Any] | None) -> str:
    """Return what to do about an association that is shown."""
    if best is None or level not in (Level.WARN, Level.CRITICAL):
        return ""
    return (
        f"Test it: run once with {best['x_name']} changed and everything else alike (a compacted"
        " block table, or fewer tokens in the cache), and compare kernel times, not hit rates."
    )


def missing(summary: dict[str, Any], n_layers: int) -> tuple[Missing, ...]:
    """Return what an association with the KV layout would need."""
    found = []
    if summary["n_kv"] == 0:
        what = "KV-cache markers, to compare layers by layout"
        found.append(Missing(what, ("nvtx",), "tracekit run -- YOUR_COMMAND"))
    if n_layers == 0:
        what = "NVTX ranges that name layers (layer=3) around their kernel launches"
        found.append(Missing(what, ("nvtx",), "tracekit run -- YOUR_COMMAND"))
    return tuple(found)
