"""What the frames of `l2_miss` say: measured, associated or not shown, never caused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from tracekit.analyses.l2_miss.association import advice, best_of, missing, overall, shown
from tracekit.analyses.l2_miss.counted import counted
from tracekit.model.finding import Confidence, Evidence, Finding, Level, Metric, Missing
from tracekit.model.ncu import PROFILE
from tracekit.trace.analysis import Frames
from tracekit.wording.numbers import share, span

__all__ = ["invalid", "not_sampled", "verdict"]

LAYERS_FOR_SURE = 20
SAMPLED, HALF_SCALED = 0.8, 0.6
_KERNEL_COLUMNS = (
    "name",
    "kind",
    "n_kernels",
    "time_ns",
    "hit_frac",
    "miss_frac",
    "valid_cells",
    "cells",
    "occupancy_frac",
    "median_ns",
    "raw_mean",
    "subsample",
)
_COLUMNS = (
    *("layer", "label", "hit_frac", "valid_cells", "cells", "median_ns", "occupancy_frac"),
    *("frag_frac", "line_overfetch_frac", "footprint_l2_ratio", "span_l2_ratio"),
)


def verdict(frames: Frames, params: Any) -> Sequence[Finding]:
    """Return the findings of `l2_miss`."""
    summary = frames["summary"].row(0, named=True)
    found: list[Finding] = list(counted(frames, summary, params))
    if frames["counters"].is_empty() and not found:
        return (not_sampled(summary),)
    for counter in frames["counters"].iter_rows(named=True):
        found.append(_association(frames, counter, summary, params))
        found += invalid(frames, counter)
    return found


def _association(
    frames: Frames, counter: dict[str, Any], summary: dict[str, Any], params: Any
) -> Finding:
    gpu = counter["gpu"]
    own = {"gpu": gpu, "source": "sampled"}
    rows = frames["associations"].filter(**own)
    tested = rows.drop_nulls("severity")
    layers = frames["layers"].filter(pl.col("gpu") == gpu)
    best = best_of(tested)
    level = overall(tested)
    known_frac = counter["n_known"] / counter["n_layers"] if counter["n_layers"] else 0.0
    half = counter["full_scale"] != 100
    return Finding(
        id=f"l2_miss/association-gpu{gpu}",
        level=level,
        title=_measured(frames, counter, layers) + shown(best, level, summary, counter["n_layers"]),
        metrics=_metrics(best, tested, counter, layers),
        confidence=Confidence(
            coverage=known_frac,
            n=best["n"] if best else 0,
            n_hi=LAYERS_FOR_SURE,
            provenance=HALF_SCALED if half else SAMPLED,
            why="sampled hit rates, one observation a layer",
        ),
        advice=advice(level, best),
        caveats=tuple(_caveats(counter, layers, half=half)),
        scope=(("gpu", str(gpu)), ("counter", counter["name"])),
        thresholds={"delta_miss_pp": (params.warn_miss_pp, params.critical_miss_pp)},
        evidence=(
            Evidence("layers", {"gpu": gpu}, _COLUMNS, "L2 hit rate and KV layout, by layer"),
            Evidence("associations", own, title="Associations over layers"),
            Evidence("kernels", {"gpu": gpu}, _KERNEL_COLUMNS, "L2 hit rate by kernel"),
            Evidence("occupancy", {"gpu": gpu}, title="Kernels by L2 misses and occupancy"),
        ),
        missing=missing(summary, counter["n_layers"]),
    )


def _measured(frames: Frames, counter: dict[str, Any], layers: pl.DataFrame) -> str:
    known = layers.drop_nulls("hit_frac")
    what = f"{known.height} layers"
    if known.is_empty():
        kernels = frames["kernels"].filter(pl.col("gpu") == counter["gpu"])
        known = kernels.drop_nulls("hit_frac")
        what = f"{known.height} kernels"
    if known.is_empty():
        return "no kernel has a valid L2 hit rate"
    low, high = (float(str(known["hit_frac"].quantile(q))) for q in (0.0, 1.0))
    return f"L2 hit rate {span(low, high, '1')} over {what} (sampled)"


def _metrics(
    best: dict[str, Any] | None,
    tested: pl.DataFrame,
    counter: dict[str, Any],
    layers: pl.DataFrame,
) -> tuple[Metric, ...]:
    known = layers.drop_nulls("hit_frac")
    rates = [known["hit_frac"].min(), known["hit_frac"].median(), known["hit_frac"].max()]
    low, middle, high = (rate if isinstance(rate, float) else None for rate in rates)
    found = [
        Metric("hit_frac", middle, "1", low, high, known.height, "median layer [lowest, highest]"),
        Metric(
            "invalid_samples",
            counter["invalid"],
            "",
            n=counter["samples"],
            doc="samples off the scale, left out",
        ),
        Metric("l2_bytes", counter["l2_bytes"], "bytes", doc="size of the L2"),
    ]
    if best is not None:
        n, interval = best["n"], (best["rho_lo"], best["rho_hi"])
        found += [
            Metric("rho", best["rho"], "", *interval, n, f"rho, misses with {best['x_name']}"),
            Metric("delta_miss_pp", best["delta_miss_pp"], "pp", n=n, doc="top - bottom third"),
        ]
    absent = tested.filter(pl.col("rho").is_null())
    for row in absent.iter_rows(named=True):
        doc = f"rho of {row['x_name']}, n/a: {row['why']}"
        found.append(Metric(f"rho_{row['x_name']}", None, "", n=row["n"], doc=doc))
    return tuple(found)


def _caveats(counter: dict[str, Any], layers: pl.DataFrame, *, half: bool) -> Iterator[str]:
    yield (
        "An association over layers is no cause: layers also differ in footprint, and what fits"
        " into the L2 hits whatever its order."
    )
    if half:
        yield (
            f"The counter reads half of the true share here (no sample above 50,"
            f" {counter['at_full_scale']} exactly there): values were doubled."
        )
    if layers["footprint_l2_ratio"].is_not_null().any():
        yield (
            "Footprints count what markers state; where they state a sample of the blocks, the true"
            " footprint is larger, and line_overfetch_frac and span_l2_ratio tell its shape."
        )
    if layers["subsample"].any():
        yield "Some kernels are shorter than a sample: their value mixes with concurrent work."


def not_sampled(summary: dict[str, Any]) -> Finding:
    """Return the finding for a trace without a sampled L2 hit rate."""
    title, advice = _why_not_sampled(summary)
    what = "a sampled L2 hit rate; Nsight Compute counts misses per kernel instead"
    return Finding(
        id="l2_miss/not-sampled",
        level=Level.UNKNOWN,
        title=title,
        advice=advice,
        caveats=("DRAM reads are no stand-in: they also grow with what has to be read once.",)
        if summary["n_metrics"]
        else (),
        missing=(
            *((Missing(what, ("gpu_metrics",), summary["command"]),) if summary["command"] else ()),
            Missing("L2 sectors and misses of each kernel", (), PROFILE),
        ),
    )


def _why_not_sampled(summary: dict[str, Any]) -> tuple[str, str]:
    if summary["n_kernels"] == 0 and not summary["n_metrics"]:
        return "not judged: no kernels and no hardware counters were recorded", ""
    if summary["blocked"] == "permission":
        return (
            "L2 hit rate not collected: permission to read GPU counters was refused",
            "Run nsys as root or with CAP_SYS_ADMIN, or load the driver with"
            " NVreg_RestrictProfilingToAdminUsers=0 (NVIDIA's page on ERR_NVGPUCTRPERM).",
        )
    if summary["blocked"] == "in use":
        return (
            "L2 hit rate not collected: another tool holds the GPU counters",
            "Pause it while recording (for DCGM: dcgmi profile --pause, then --resume).",
        )
    if summary["n_metrics"] == 0:
        return "L2 hit rate not available: no hardware counters were sampled", ""
    n = summary["n_metrics"]
    advice = (
        ""
        if summary["command"]
        else (
            f"For chip {summary['chip']} look for a set with an L2 hit rate in"
            " `nsys profile --gpu-metrics-set=help`."
        )
    )
    return (
        f"L2 miss not available from this capture: none of {n} counters is an L2 hit rate",
        advice,
    )


def invalid(frames: Frames, counter: dict[str, Any]) -> Iterator[Finding]:
    """Say which layers (or kernels) have samples, but too few valid ones."""
    table, name = ("layers", "layer") if counter["n_layers"] else ("kernels", "name")
    rows = frames[table].filter(
        (pl.col("gpu") == counter["gpu"]) & pl.col("hit_frac").is_null() & (pl.col("cells") > 0)
    )
    if rows.is_empty():
        return
    first = rows.row(0, named=True)
    label = f"layer {first['layer']} ({first['label']})" if table == "layers" else first["name"]
    more = f" and {rows.height - 1} more" if rows.height > 1 else ""
    bad = first["cells"] - first["valid_cells"]
    counted = _counted(frames, counter["gpu"], first["layer"]) if table == "layers" else None
    miss_note = "" if counted is None else f"; Nsight Compute counted {share(counted)} misses"
    yield Finding(
        id=f"l2_miss/invalid-gpu{counter['gpu']}",
        level=Level.UNKNOWN,
        title=f"L2 hit rate of {label}{more} unknown: {bad} of {first['cells']} samples invalid"
        + miss_note,
        caveats=(
            "The counter left its scale: misses counted more often than look-ups, as happens when"
            " lines are fetched in parts. Nsight Compute can measure them.",
        ),
        scope=(("gpu", str(counter["gpu"])), ("counter", counter["name"])),
        evidence=(
            Evidence(
                table,
                {"gpu": counter["gpu"], "hit_frac": None},
                (name, "cells", "valid_cells"),
                "Without a valid hit rate",
            ),
        ),
        missing=(Missing("L2 sectors and misses of each kernel", (), PROFILE),)
        if counted is None
        else (),
    )


def _counted(frames: Frames, gpu: int, layer: int) -> float | None:
    """Miss share of a layer as Nsight Compute counted it; None when it did not."""
    rows = frames["ncu_layers"].filter(gpu=gpu, layer=layer).drop_nulls("miss_frac")
    return float(rows["miss_frac"][0]) if rows.height else None
