"""What Nsight Compute counted, by kernel and by layer of the timeline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from tracekit.analyses.l2_miss.association import advice, best_of, missing, overall, shown
from tracekit.analyses.l2_miss.tables import NCU_KERNELS, NCU_LAYERS, NCU_MATCH
from tracekit.model.finding import Confidence, Evidence, Finding, Level, Metric, Missing
from tracekit.model.ncu import CACHE_CAVEAT, PROFILE, SHAPE
from tracekit.trace import Trace
from tracekit.trace.analysis import Frames
from tracekit.views.l2.hits import ATTENTION
from tracekit.views.l2.layers import layer_kv
from tracekit.views.l2.ncu import matched, profiled
from tracekit.wording.numbers import share, span, threshold

__all__ = ["counted", "counted_kernels", "counted_layers", "matching"]

"""Views that the functions here read."""
MIN_MATCHED = 0.8


def counted_kernels(trace: Trace, useful_bytes: int) -> pl.DataFrame:
    """Return misses by kernel and layer; ratios of sums.

    Args:
        trace: The run.
        useful_bytes: What one execution must read; 0 when not stated.

    Returns:
        Frame of `NCU_KERNELS`.
    """
    key = ["name", "layer", *SHAPE]
    table = (
        profiled(trace)
        .group_by(key)
        .agg(
            pl.len().alias("n_profiled"),
            pl.when(pl.col("misses").count() > 0).then(pl.col("misses").sum()).alias("misses"),
            _ratio("misses", "lookups").alias("miss_frac"),
            _ratio("all_misses", "all_lookups").alias("all_miss_frac"),
            pl.col("dram_read_bytes", "occupancy_frac", "occupancy_gap_pp").mean(),
            pl.col("miss_source").unique().sort().str.join(", "),
            pl.col("inconsistent").any(),
        )
    )
    if useful_bytes > 0:
        useful = pl.col("dram_read_bytes") / useful_bytes
        table = table.with_columns(useful.alias("dram_amplification"))
    order = ["misses", *key]
    ordered = table.sort(order, descending=[True, *[False] * len(key)], nulls_last=True)
    return NCU_KERNELS.conform(_with_shapes(ordered))


def counted_layers(trace: Trace) -> pl.DataFrame:
    """Return misses by layer of the timeline, each kernel with what it is matched with.

    Returns:
        Frame of `NCU_LAYERS`; misses are null where less than 80% of a layer's kernel time was
        profiled.
    """
    if profiled(trace).is_empty():
        return NCU_LAYERS.empty()
    rows = matched(trace).kernels.drop_nulls("layer")
    attention = rows.filter(pl.col("kind") == ATTENTION)
    of = "attention kernels" if attention.height else "all kernels"
    rows = attention if attention.height else rows
    seen = pl.col("how").is_not_null()
    share = pl.col("time_ns").filter(seen).sum() / pl.col("time_ns").sum()
    sums = rows.group_by("gpu", "layer").agg(
        pl.lit(of).alias("of"),
        pl.len().alias("n_kernels"),
        pl.col("time_ns").sum(),
        pl.col("time_ns").median().alias("median_ns"),
        share.alias("matched_frac"),
        *(
            pl.when(share >= MIN_MATCHED).then(value).alias(name)
            for name, value in (
                ("miss_frac", _ratio("misses", "lookups")),
                ("all_miss_frac", _ratio("all_misses", "all_lookups")),
                ("dram_read_bytes", pl.col("dram_read_bytes").mean()),
            )
        ),
    )
    sums = sums.join(layer_kv(trace, rows), on=["gpu", "layer"], how="left")
    return NCU_LAYERS.conform(sums.sort("gpu", "miss_frac", "layer", nulls_last=True))


def matching(trace: Trace) -> pl.DataFrame:
    """Return kernels of the timeline and of Nsight Compute side by side, frame of `NCU_MATCH`."""
    if profiled(trace).is_empty():
        return NCU_MATCH.empty()
    both = matched(trace)
    key = ["bare", *SHAPE]
    ways = both.kernels.group_by(key).agg(
        pl.col("how").drop_nulls().unique().sort().str.join(", ").alias("matched_by")
    )
    total = pl.col("time_ns").sum()
    table = both.table.join(
        ways.rename({"bare": "name"}),
        on=["name", *SHAPE],
        how="left",
        nulls_equal=True,
        maintain_order="left",
    ).with_columns(
        pl.when(total > 0).then(pl.col("time_ns") / total).alias("time_frac"),
        pl.col("matched_by").fill_null(""),
    )
    return NCU_MATCH.conform(_with_shapes(table))


def _ratio(above: str, below: str) -> pl.Expr:
    """Ratio of sums over rows that have both; null without any."""
    known = pl.col(above).is_not_null() & (pl.col(below) > 0)
    total = pl.col(below).filter(known).sum()
    return pl.when(total > 0).then(pl.col(above).filter(known).sum() / total)


def _with_shapes(rows: pl.DataFrame) -> pl.DataFrame:
    """Add grid and block as text; null where the shape is not known."""
    texts = (
        pl.concat_str([pl.col(f"{kind}_{a}") for a in "xyz"], separator=" x ").alias(kind)
        for kind in ("grid", "block")
    )
    return rows.with_columns(texts)


LAYERS_FOR_SURE = 20
CACHES_UNKNOWN = 0.5
"""Provenance of counts from a file that does not say whether caches were emptied before them."""
WIDE_GAP_PP = 10.0
_COLUMNS = (
    *("name", "layer", "n_profiled", "miss_frac", "all_miss_frac", "dram_read_bytes"),
    *("dram_amplification", "inconsistent", "occupancy_frac", "occupancy_gap_pp"),
)
_LAYER_COLUMNS = (
    *("layer", "miss_frac", "all_miss_frac", "dram_read_bytes", "median_ns", "matched_frac"),
    *("frag_frac", "line_overfetch_frac", "footprint_l2_ratio", "span_l2_ratio"),
)


def counted(frames: Frames, summary: dict[str, Any], params: Any) -> Iterator[Finding]:
    """Return one finding a GPU with layers, or one for all kernels; nothing without counts."""
    if summary["n_profiled"] == 0:
        return
    layers = frames["ncu_layers"].drop_nulls("gpu")
    gpus = layers["gpu"].unique().sort().to_list()
    for gpu in gpus or [None]:
        yield _finding(frames, summary, params, layers.filter(pl.col("gpu").eq_missing(gpu)), gpu)


def _finding(
    frames: Frames, summary: dict[str, Any], params: Any, layers: pl.DataFrame, gpu: int | None
) -> Finding:
    own = {"gpu": gpu, "source": "ncu"}
    rows = frames["associations"]
    rows = rows.clear() if gpu is None else rows.filter(**own)
    tested = rows.drop_nulls("severity")
    matched = summary["matched_frac"]
    judgeable = matched is not None and matched >= MIN_MATCHED
    best = best_of(tested) if judgeable else None
    level = overall(tested) if judgeable else Level.UNKNOWN
    return Finding(
        id="l2_miss/ncu" if gpu is None else f"l2_miss/ncu-gpu{gpu}",
        level=level,
        title=_measured(frames, layers) + _second(best, level, summary, layers.height),
        metrics=(*_metrics(frames, layers, summary), *_associated(best)),
        confidence=Confidence(
            coverage=1.0 if matched is None else matched,
            n=best["n"] if best else layers.height or frames["ncu_kernels"].height,
            n_hi=LAYERS_FOR_SURE,
            provenance=CACHES_UNKNOWN,
            why="how caches were treated between passes is not stated",
        ),
        advice=advice(level, best),
        caveats=tuple(_caveats(frames, summary, layers)),
        scope=() if gpu is None else (("gpu", str(gpu)),),
        thresholds={"delta_miss_pp": (params.warn_miss_pp, params.critical_miss_pp)},
        evidence=tuple(_evidence(frames, layers, own)),
        missing=tuple(_missing(summary, layers.height)),
    )


def _measured(frames: Frames, layers: pl.DataFrame) -> str:
    known = layers.drop_nulls("miss_frac")
    what = f"{known.height} layers"
    if known.is_empty():
        known = frames["ncu_kernels"].drop_nulls("miss_frac")
        what = f"{known.height} kernels"
    if known.is_empty():
        return "no L2 look-ups were counted by Nsight Compute"
    low, high = (float(str(known["miss_frac"].quantile(q))) for q in (0.0, 1.0))
    return f"L2 misses {span(low, high, '1')} over {what} (Nsight Compute)"


def _second(
    best: dict[str, Any] | None, level: Level, summary: dict[str, Any], n_layers: int
) -> str:
    matched_frac = summary["matched_frac"]
    if matched_frac is None:
        return "; no timeline to compare them with"
    if matched_frac < MIN_MATCHED:
        profiled_part = f"{share(matched_frac)} of kernel time profiled"
        return f"; association with the KV layout not judged: {profiled_part}"
    return shown(best, level, summary, n_layers)


def _metrics(frames: Frames, layers: pl.DataFrame, summary: dict[str, Any]) -> tuple[Metric, ...]:
    known = layers.drop_nulls("miss_frac")
    whose = "layer"
    if known.is_empty():
        known, whose = frames["ncu_kernels"].drop_nulls("miss_frac"), "kernel"
    docs = {
        "miss_frac": f"median {whose} [lowest, highest]",
        "all_miss_frac": f"requests of any source, median {whose} [lowest, highest]",
    }
    found = [
        Metric(name, *_range(known[name]), known[name].count(), doc) for name, doc in docs.items()
    ]
    kernels = frames["ncu_kernels"]
    gaps = kernels["occupancy_gap_pp"].drop_nulls()
    amplified = kernels["dram_amplification"].drop_nulls()
    found.append(
        Metric("matched_frac", summary["matched_frac"], "1", doc="of kernel time, profiled")
    )
    if amplified.len():
        doc = "DRAM reads over useful bytes, median kernel [lowest, highest]"
        value, _, low, high = _range(amplified)
        found.append(Metric("dram_amplification", value, "x", low, high, amplified.len(), doc))
    if gaps.len():
        wide = int((gaps > WIDE_GAP_PP).sum())
        doc = f"kernels whose occupancy is over {threshold(WIDE_GAP_PP, ' points')} below its bound"
        found.append(Metric("n_occupancy_gaps", wide, n=gaps.len(), doc=doc))
    return tuple(found)


def _range(values: pl.Series) -> tuple[float | None, str, float | None, float | None]:
    """Median, unit, lowest and highest."""
    numbers = [values.median(), values.min(), values.max()]
    middle, low, high = (n if isinstance(n, float) else None for n in numbers)
    return middle, "1", low, high


def _associated(best: dict[str, Any] | None) -> tuple[Metric, ...]:
    if best is None:
        return ()
    doc = f"rho, misses with {best['x_name']}"
    return (
        Metric("rho", best["rho"], "", best["rho_lo"], best["rho_hi"], best["n"], doc),
        Metric("delta_miss_pp", best["delta_miss_pp"], "pp", n=best["n"], doc="top - bottom third"),
    )


def _caveats(frames: Frames, summary: dict[str, Any], layers: pl.DataFrame) -> Iterator[str]:
    yield CACHE_CAVEAT
    odd = int(frames["ncu_kernels"]["inconsistent"].sum())
    if odd:
        yield (
            f"{odd} kernels counted more misses than look-ups, as happens when lines are fetched in"
            " parts; their share rests on another counter (miss_source)."
        )
    absent = frames["ncu_match"].filter(pl.col("status") == "not profiled")
    if absent.height:
        yield (
            f"{absent.height} kernels ({share(float(absent['time_frac'].sum()))} of kernel time)"
            " were not profiled: their misses are unknown, not none."
        )
    strange = frames["ncu_match"].filter(pl.col("status") == "only in ncu").height
    if strange and summary["matched_frac"] is not None:
        yield f"{strange} profiled kernels are not in the timeline: another part of the program?"
    if summary["by_shape_frac"]:
        yield (
            f"{share(summary['by_shape_frac'])} of kernel time is matched by name and launch shape"
            " alone: a mean over whatever ran under that name."
        )
    if layers["frag_frac"].is_not_null().any():
        yield (
            "KV addresses are those of the timeline's run; under Nsight Compute the cache may have"
            " lain elsewhere. An association over layers is no cause."
        )


def _evidence(frames: Frames, layers: pl.DataFrame, own: dict[str, Any]) -> Iterator[Evidence]:
    if layers.height:
        title = "L2 misses and KV layout, by layer (Nsight Compute)"
        yield Evidence("ncu_layers", {"gpu": own["gpu"]}, _LAYER_COLUMNS, title)
    yield Evidence("ncu_kernels", columns=_COLUMNS, title="L2 misses by kernel (Nsight Compute)")
    if frames["associations"].height and own["gpu"] is not None:
        yield Evidence("associations", own, title="Associations over layers")
    yield Evidence("ncu_match", title="Kernels of the timeline that were profiled")


def _missing(summary: dict[str, Any], n_layers: int) -> Iterator[Missing]:
    share = summary["matched_frac"]
    if share is None:
        yield Missing("a timeline of the run, given together with this file", ("kernels", "nvtx"))
        return
    if share < MIN_MATCHED:
        yield Missing("Nsight Compute's counters of the other kernels", (), PROFILE)
    yield from missing(summary, n_layers)
