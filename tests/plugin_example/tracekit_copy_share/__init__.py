"""How much of each GPU's time copies take: the analysis of docs/adding-an-analysis.md."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from tracekit.model.chart import MOST_ROWS, Axis, Bar, Chart, Panel, Role, Rows
from tracekit.model.finding import Confidence, Evidence, Finding, Level, Metric
from tracekit.model.table import Column, Table
from tracekit.trace import Trace
from tracekit.trace.analysis import Analysis, Frames, param
from tracekit.views.device.kernels import COPY_KINDS
from tracekit.views.overview.totals import overview
from tracekit.wording.numbers import duration, share

__all__ = ["ANALYSIS", "Params"]


@dataclass(frozen=True)
class Params:
    """Parameters of `copy_share`."""

    warn_frac: float = param(0.10, unit="1", help="share of a GPU's time in copies: warning")


COPIES = Table(
    "copies",
    (
        Column("gpu", pl.Int16, "", "GPU; null when the report does not name it"),
        Column("kind", pl.String, "", "from where to where"),
        Column("n", pl.UInt32, "", "copies"),
        Column("bytes", pl.Int64, "bytes", "bytes copied"),
        Column("time_ns", pl.Int64, "ns", "sum of their durations"),
        Column("time_frac", pl.Float64, "1", "time_ns over first to last work of the GPU"),
    ),
    "copies of one kind on one GPU, longest first",
)


def compute(trace: Trace, params: Params) -> dict[str, pl.DataFrame]:
    """Return the frames of `ANALYSIS`."""
    del params
    spans = {gpu.gpu: gpu.span_ns for gpu in overview(trace).gpus}
    kind = pl.col("copy_kind").replace_strict(COPY_KINDS, default="unknown", return_dtype=pl.String)
    copies = (
        trace.frame("memcpy")
        .group_by("gpu", kind.alias("kind"))
        .agg(
            pl.len().alias("n"),
            pl.col("bytes").sum(),
            (pl.col("end_ns") - pl.col("start_ns")).sum().alias("time_ns"),
        )
    )
    span = pl.col("gpu").replace_strict(spans, default=None, return_dtype=pl.Int64)
    copies = copies.with_columns(
        pl.when(span > 0).then(pl.col("time_ns") / span).alias("time_frac")
    )
    return {
        "copies": COPIES.conform(
            copies.sort("gpu", "time_ns", "kind", descending=[False, True, False])
        )
    }


def verdict(frames: Frames, params: Params) -> tuple[Finding, ...]:
    """Return one finding a GPU: how much of its time its copies take."""
    return tuple(
        _finding(own, params)
        for own in frames["copies"].drop_nulls("gpu").partition_by("gpu", maintain_order=True)
    )


def _finding(copies: pl.DataFrame, params: Params) -> Finding:
    gpu, time_ns, n = copies["gpu"][0], copies["time_ns"].sum(), int(copies["n"].sum())
    known = copies["time_frac"].drop_nulls()
    frac = known.sum() if len(known) else None
    level = Level.UNKNOWN  # what was not measured is never fine
    if frac is not None:
        level = Level.WARN if frac >= params.warn_frac else Level.OK
    return Finding(
        id=f"copy_share/gpu-{gpu}",
        level=level,
        title=f"copies take {duration(time_ns)}, {share(frac)} of the time of GPU {gpu}",
        metrics=(Metric("time_frac", frac, "1", n=n, doc="copies over the GPU's time"),),
        thresholds={"time_frac": (params.warn_frac, None)},
        confidence=Confidence(n=n),
        advice="Copy from pinned memory, on a stream of its own, or do not copy at all.",
        caveats=("Copies may overlap each other and kernels: their sum may cost less.",),
        scope=(("gpu", str(gpu)),),
        evidence=(Evidence("copies", {"gpu": gpu}, ("kind", "n", "bytes", "time_ns")),),
    )


def chart(frames: Frames) -> Chart | None:
    """Return the time of copies by GPU and kind, one bar each."""
    rows = frames["copies"].head(MOST_ROWS)
    if rows.is_empty():
        return None
    columns = rows.select("gpu", "kind", "time_ns").rows()
    bars = tuple(
        Bar(at, 0, time_ns, Role.COPY, f"{kind} on GPU {gpu}", duration(time_ns))
        for at, (gpu, kind, time_ns) in enumerate(columns)
    )
    labels = tuple(f"GPU {gpu}, {kind}" for gpu, kind, _ in columns)
    panel = Panel("Time in copies", Axis("time in copies", "ns", low=0), Rows(labels), bars)
    return Chart("Copies", "Sum of the durations of copies, by GPU and direction.", (panel,))


ANALYSIS = Analysis(
    name="copy_share",
    question="How much of each GPU's time do copies take?",
    requires=("memcpy",),
    params=Params,
    results=(COPIES,),
    compute=compute,
    verdict=verdict,
    chart=chart,
)
