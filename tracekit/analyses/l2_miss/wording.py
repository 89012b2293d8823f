"""How associations of `l2_miss` are chosen and told, wherever miss shares come from."""

from __future__ import annotations

from typing import Any

import polars as pl

from tracekit.analyses.l2_miss.association import MIN_N
from tracekit.model.finding import Level, Missing

__all__ = ["advice", "best_of", "missing", "overall", "shown"]

_RANK = {"critical": 3, "warn": 2, "ok": 1, "unknown": 0}
WORDS = {
    "frag_frac": "how much of the cache lies apart (frag_frac)",
    "o32_request_frac": "misaligned requests (o32_request_frac)",
    "page_ratio": "spread over pages (page_ratio)",
    "footprint_l2_frac": "cache lines against the L2 (footprint_l2_frac)",
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
    numbers = f"rho {best['rho']:.2f}"
    if best["rho_lo"] is not None:
        numbers += f" [{best['rho_lo']:.2f}, {best['rho_hi']:.2f}]"
    numbers += f", n={best['n']}"
    if best["p_holm"] is not None:
        numbers += f", p {best['p_holm']:.2g}"
    what = WORDS.get(best["x_name"], best["x_name"])
    if level in (Level.WARN, Level.CRITICAL):
        delta = best["delta_miss_pp"]
        return f"; misses are associated with {what}: {delta:+.0f} points, {numbers}"
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
