"""What the frames of `kv_fragmentation` say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from tracekit.analyses.kv_fragmentation.costs import copies, out_of_memory, usage
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
from tracekit.trace.analysis import Frames
from tracekit.wording.numbers import quantity, share, size, unit_of_column

__all__ = ["verdict"]

_SHAPE = (
    *(
        "layer",
        "kind",
        "m",
        "frag_frac",
        "run_mean_bytes",
        "stride_median_bytes",
        "misaligned_16b_frac",
    ),
    *("request_overfetch_frac", "sector_overfetch_frac", "page_ratio", "severity", "why"),
)

_HEADINGS = {
    "m": "blocks",
    "frag_frac": "apart",
    "run_mean_bytes": "mean run",
    "stride_median_bytes": "stride",
    "misaligned_16b_frac": "off 16 B",
    "request_overfetch_frac": "request overfetch",
    "sector_overfetch_frac": "sector overfetch",
    "page_ratio": "pages",
}


def verdict(frames: Frames, params: Any) -> Sequence[Finding]:
    """Return the findings of `kv_fragmentation`: layout, copies and fill of each kind of pool."""
    summary = frames["summary"].row(0, named=True)
    found = list(out_of_memory(frames["oom"]))
    if summary["n_records"] == 0:
        return (*found, _nothing(summary))
    for (group,), pools in frames["pools"].group_by("group", maintain_order=True):
        own = {
            name: frames[name].filter(pl.col("pool").is_in(pools["pool"].implode()))
            for name in ("layout", "chains", "copies", "usage", "pools")
        }
        found.append(_layout(str(group), own, frames["faults"], params))
        found += copies(str(group), own, params)
        found += usage(str(group), own, params)
    return found


def _nothing(summary: dict[str, Any]) -> Finding:
    if summary["n_pool_markers"]:
        n = summary["n_pool_markers"]
        stated = "1 KV pool is stated" if n == 1 else f"{n} KV pools are stated"
        title = f"not judged: {stated}, but no block tables"
        what = "block tables (KV_TABLE) or blocks (KV_BLOCK) of the process that schedules"
    elif summary["n_kv_markers"]:
        title = f"not judged: none of {summary['n_kv_markers']} KV markers states a usable block"
        what = "KV markers with an address, a size and a block index"
    else:
        title = "not judged: the trace holds no KV-cache markers"
        what = "markers that say where KV blocks lie; no profiler knows that by itself"
    return Finding(
        id="kv_fragmentation/no-markers",
        level=Level.UNKNOWN,
        title=title,
        caveats=("Allocation events do not show which bytes are KV cache, nor their order.",),
        missing=(Missing(what, ("nvtx",), "tracekit run -- YOUR_COMMAND"),),
    )


def _layout(group: str, own: dict[str, pl.DataFrame], faults: pl.DataFrame, params: Any) -> Finding:
    rows = own["layout"].filter(pl.col("at_peak") & pl.col("level").is_in(["layer", "pool"]))
    ranked = rows.with_columns(
        pl.col("severity").replace_strict(RANK, return_dtype=pl.Int8).alias("rank")
    ).sort("rank", "level", "pool", "layer", "kind", descending=[True, True, *[False] * 3])
    pool = ranked.filter(pl.col("level") == "pool").row(0, named=True)
    level = Level(ranked["severity"][0])
    reached = list(_reached(rows))
    overlaps = int(rows.filter(pl.col("level") == "pool")["overlaps"].sum())
    return Finding(
        id=f"kv_fragmentation/layout-{slug(group)}",
        level=level,
        title=_layout_title(group, pool, rows, reached),
        metrics=_layout_metrics(pool, rows, own["pools"]),
        confidence=_sure(pool, overlaps),
        advice=" ".join(dict.fromkeys(rule.advice for rule, _, _ in reached)),
        caveats=(*_layout_caveats(pool, reached), *_fault_lines(faults)),
        scope=scope(group, own["pools"]),
        thresholds=thresholds([r for r in RULES if r.table == "layout"], params),
        evidence=(
            Evidence(
                "layout",
                {"level": "layer", "at_peak": True, "group": group},
                _SHAPE,
                "Layout by layer, when the pool is fullest",
                _HEADINGS,
            ),
        ),
    )


def _sure(pool: dict[str, Any], overlaps: int) -> Confidence:
    if overlaps:
        why = f"{overlaps} blocks overlap others of their sequence: the markers are at fault"
        return Confidence(coverage=0.0, n=pool["m"], n_hi=BLOCKS_FOR_SURE, why=why)
    why = "exact counts over the addresses that markers state"
    return Confidence(n=pool["m"], n_hi=BLOCKS_FOR_SURE, why=why)


def _layout_caveats(
    pool: dict[str, Any], reached: list[tuple[Rule, float, pl.DataFrame]]
) -> Iterator[str]:
    yield from (rule.caveat for rule, _, _ in reached if rule.caveat)
    yield "Markers may cover a part of the cache only: what they do not state is not counted."
    yield "Addresses are virtual: what is contiguous here need not be in physical pages."
    if pool["frag_frac"] > 0:
        yield "Blocks that lie apart are a matter of locality; no memory is lost by it."


def _fault_lines(faults: pl.DataFrame) -> Iterator[str]:
    for what, n in faults.iter_rows():
        yield f"{n} x {what}."


def _reached(rows: pl.DataFrame) -> Iterator[tuple[Rule, float, pl.DataFrame]]:
    """Rules that some layer (or only the pool) reaches, worst value, and the rows."""
    for rule in (r for r in RULES if r.table == "layout"):
        hit = rows.filter(pl.col("why").str.split(",").list.contains(rule.column))
        layers = hit.filter(pl.col("level") == "layer")
        hit = layers if layers.height else hit
        if hit.height:
            yield rule, float(str(hit[rule.column].max())), hit


def _layout_title(
    group: str,
    pool: dict[str, Any],
    rows: pl.DataFrame,
    reached: list[tuple[Rule, float, pl.DataFrame]],
) -> str:
    if reached:
        words = [
            rule.words.format(value=quantity(value, unit_of_column(rule.column)[1]))
            for rule, value, _ in reached
        ]
        places = [_where(hit, rows) for _, _, hit in reached]
        if len(set(places)) == 1:
            return f"KV cache ({group}): {'; '.join(words)}{places[0]}"
        said = "; ".join(map("".join, zip(words, places, strict=True)))
        return f"KV cache ({group}): {said}"
    if pool["pairs"] == 0:
        return f"KV cache ({group}): each of {pool['m']} caches is one piece, nothing to fragment"
    apart = round(pool["frag_frac"] * pool["pairs"])
    apart_of = f"{share(pool['frag_frac'])} of neighbouring blocks lie apart ({apart:,} of"
    apart_of += f" {pool['pairs']:,}, {pool['runs']:,} pieces of {size(pool['run_mean_bytes'])})"
    if apart == 0:
        return f"KV cache ({group}): all neighbouring blocks are adjacent, no extra bytes"
    return f"KV cache ({group}): {apart_of}, but that moves no extra bytes: harmless"


def _where(hit: pl.DataFrame, rows: pl.DataFrame) -> str:
    """Name the layers that a rule holds for, as " (layers 3, 4 of 11)"."""
    layers = rows.filter(pl.col("level") == "layer")["layer"].drop_nulls().unique()
    bad = hit["layer"].drop_nulls().unique().sort().to_list() if "layer" in hit.columns else []
    if not bad or len(bad) == len(layers):
        return ""
    if len(bad) > 6:
        return f" ({len(bad)} of {len(layers)} layers)"
    word = "layer" if len(bad) == 1 else "layers"
    return f" ({word} {', '.join(map(str, bad))} of {len(layers)})"


def _layout_metrics(
    pool: dict[str, Any], rows: pl.DataFrame, pools: pl.DataFrame
) -> tuple[Metric, ...]:
    layers = rows.filter(pl.col("level") == "layer")

    def worst(column: str) -> float | None:
        value = layers[column].max()
        return value if isinstance(value, int | float) else None

    pairs = pool["pairs"]
    slope = pools["frag_slope_per_s"].drop_nulls()
    return (
        Metric("frag_frac", pool["frag_frac"], "1", n=pairs, doc="fragmentation: neighbours apart"),
        Metric(
            "run_mean_bytes",
            pool["run_mean_bytes"],
            "bytes",
            n=pool["runs"],
            doc="run mean: contiguous piece",
        ),
        Metric(
            "stride_median_bytes",
            pool["stride_median_bytes"],
            "bytes",
            n=pairs,
            doc="stride median of neighbours",
        ),
        Metric("scatter_frac", pool["scatter_frac"], "1", doc="address span that is not cache"),
        Metric(
            "sector_overfetch_frac",
            worst("sector_overfetch_frac"),
            "1",
            doc="extra distinct sectors, worst layer",
        ),
        Metric(
            "request_overfetch_frac",
            worst("request_overfetch_frac"),
            "1",
            doc="extra sectors of 128 B requests, worst layer",
        ),
        Metric(
            "misaligned_16b_frac",
            worst("misaligned_16b_frac"),
            "1",
            doc="off a 16 B boundary, worst layer",
        ),
        Metric(
            "page_ratio", worst("page_ratio"), "x", doc="pages of 2 MiB over needed, worst layer"
        ),
        Metric("blocks", pool["m"], "", doc=f"live blocks, read by {pool['segment']}"),
        Metric("bytes", pool["bytes"], "bytes", doc="distinct live bytes that markers state"),
        Metric(
            "frag_slope_per_s", slope[0] if len(slope) else None, "1/s", doc="trend of frag_frac"
        ),
    )
