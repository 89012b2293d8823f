"""Charts of a page: each is drawn where the frames of its name hold something."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import polars as pl
from markupsafe import Markup

from tracekit.model.diagnosis import Diagnosis
from tracekit.report.page.svg import Axis, Chart, linear, log2
from tracekit.wording.names import printable, short_name
from tracekit.wording.numbers import bounds, count, duration, ratio, share, size

__all__ = ["MOST_LAYERS", "Picture", "kv_maps", "pictures"]

MOST_LAYERS = 12
_COLOURS = 6
_WIDTH, _HEIGHT, _LEFT = 320, 220, 76


def kv_maps(diagnosis: Diagnosis) -> tuple[str, list[Markup]]:
    """Return a caption and one map a layer with more than one block, most broken first.

    Args:
        diagnosis: With pictures.

    Returns:
        ("", []) when no marker states such blocks. Colours go round with the runs: neighbours of
        one colour lie beside each other in memory.
    """
    runs = diagnosis.pictures.get("kv_map")
    if runs is None:
        return "", []
    layers = [p for p in runs.partition_by("pool", "layer", "kind") if p["n_blocks"][0] > 1]
    layers.sort(key=lambda p: -p["n_runs"][0] / p["n_blocks"][0])
    if not layers:
        return "", []
    caption = (
        "Where the blocks lie when their pool is fullest. A line is a run: blocks that follow each "
        "other both in the sequence and in memory. Colours only tell neighbouring runs apart."
    )
    if len(layers) > MOST_LAYERS:
        caption += f" {len(layers) - MOST_LAYERS} layers with longer runs are not shown."
    shown = sorted(layers[:MOST_LAYERS], key=lambda p: (p["pool"][0], _number(p), p["kind"][0]))
    return caption, [_map(part) for part in shown]


def _number(part: pl.DataFrame) -> int:
    layer = part["layer"][0]
    return -1 if layer is None else layer


def _map(part: pl.DataFrame) -> Markup:
    base = int(str(part["start_addr"].min()))
    top = int(str(part["end_addr"].max())) - base
    blocks, n_runs = part["n_blocks"][0], part["n_runs"][0]
    pieces = f"{count(n_runs)} run{'' if n_runs == 1 else 's'}"
    title = f"{_title(part)}: {count(blocks)} blocks in {pieces}"
    x = linear("block, in logical order", 0, blocks, lambda v: count(int(v)))
    y = linear("bytes above the lowest", 0, top, size)
    chart = Chart(title, x, y, width=_WIDTH, height=_HEIGHT, left=_LEFT)
    lines: list[list[tuple[float, float, float, float]]] = [[] for _ in range(_COLOURS)]
    for run, (at, start, end, length) in enumerate(_lines(part)):
        lines[run % _COLOURS].append((at, start - base, at + length, end - base))
    for number, own in enumerate(lines):
        if own:
            chart.segments(own, f"c{number + 1}")
    shown = "" if part.height == n_runs else f" (1 of {-(-n_runs // part.height)} shown)"
    return Markup("<figure><figcaption>{}{}</figcaption>{}</figure>").format(
        title, shown, chart.svg()
    )


def _lines(part: pl.DataFrame) -> Iterator[tuple[int, int, int, int]]:
    length = pl.col("last_block") - pl.col("first_block") + 1
    columns = part.select("position", "start_addr", "end_addr", length.alias("length"))
    yield from columns.iter_rows()


def _title(part: pl.DataFrame) -> str:
    layer = part["layer"][0]
    words = ["cache" if layer is None else f"layer {layer}"]
    kind = part["kind"][0]
    return " ".join([*words, *([printable(kind)] if kind and kind != "kv" else [])])


_MOST_ROWS = 30
_ROW = 19
_PARTNERS = 6


@dataclass(frozen=True)
class Picture:
    """One section of charts.

    Attributes:
        title: Heading.
        caption: How to read them.
        charts: Figures or bare charts.
        small: Whether several stand beside each other.
    """

    title: str
    caption: str
    charts: tuple[Markup, ...]
    small: bool = False


def pictures(diagnosis: Diagnosis) -> tuple[Picture, ...]:
    """Return every picture for which there is something to draw."""
    return tuple(p for draw in (_slowdown, _dequant, _hit_rates, _maps) for p in draw(diagnosis))


def _frame(diagnosis: Diagnosis, analysis: str, name: str) -> pl.DataFrame:
    found = diagnosis.frames.get(analysis, {}).get(name)
    return pl.DataFrame() if found is None else found


def _maps(diagnosis: Diagnosis) -> Iterator[Picture]:
    caption, charts = kv_maps(diagnosis)
    if charts:
        yield Picture("KV cache addresses", caption, tuple(charts), small=True)


def _slowdown(diagnosis: Diagnosis) -> Iterator[Picture]:
    """Slowdown of collectives with its interval, one row a size and partner."""
    groups = _frame(diagnosis, "allreduce_contention", "groups")
    if groups.is_empty():
        return
    rows = groups.drop_nulls("slowdown_ratio").sort("op", "bytes", "partner", nulls_last=True)
    rows = rows.head(_MOST_ROWS)
    if rows.is_empty():
        return
    ends = [rows[c].max() for c in ("slowdown_ratio", "slowdown_hi_ratio")]
    high = max(float(str(v)) for v in ends if v is not None)
    low = min(float(str(rows["slowdown_ratio"].min())), 1.0)
    partners = {p: i for i, p in enumerate(rows["partner"].unique().sort().to_list())}
    chart = Chart(
        "Slowdown of collectives beside other work, with 95 % intervals",
        linear("transfer beside other work over transfer alone (x)", low * 0.9, high * 1.05, ratio),
        Axis("", rows.height - 0.3, -0.7, ()),
        width=680,
        height=_ROW * rows.height + 70,
        left=240,
    )
    chart.rule(1.0)
    for at, row in enumerate(rows.iter_rows(named=True)):
        lo, hi = row["slowdown_lo_ratio"], row["slowdown_hi_ratio"]
        words = f"{row['op'] or 'collective'} {size(row['bytes'])} beside {row['partner']}"
        interval = None if lo is None or hi is None else (lo, hi)
        value = row["slowdown_ratio"]
        tip = f"{words}: {ratio(value)} {bounds(lo, hi, 'x')}, {row['n_cont']} against alone"
        colour = f"c{partners[row['partner']] % _PARTNERS + 1}"
        chart.point(value, at, colour, tip, interval=interval, across=True)
        chart.text(low * 0.9, at, f"{words}  ", end=True)
    yield Picture(
        "Collectives beside other work",
        "Slowdown by size and by what runs beside, with 95 % intervals; the dashed line is no "
        "slowdown. Waiting for a late rank is not in it.",
        (chart.svg(),),
    )


def _dequant(diagnosis: Diagnosis) -> Iterator[Picture]:
    """Chains of dequantisation kernels, one row a step."""
    periods = _frame(diagnosis, "dequant_stall", "periods")
    if periods.is_empty():
        return
    key = "step" if periods["step"].is_not_null().any() else "stream"
    rows = periods.drop_nulls("step") if key == "step" else periods
    steps = rows.partition_by("gpu", key, maintain_order=True)[:_MOST_ROWS]
    longest = max(int(str(s["end_ns"].max())) - int(str(s["start_ns"].min())) for s in steps)
    chart = Chart(
        "Dequantisation chains of each step on a time axis",
        linear("time since the first dequantisation of the step", 0, longest, duration),
        Axis(key, len(steps) - 0.3, -0.7, _row_ticks([s[key][0] for s in steps])),
        width=680,
        height=_ROW * len(steps) + 70,
        left=52,
    )
    for at, own in enumerate(steps):
        origin = int(str(own["start_ns"].min()))
        for row in own.iter_rows(named=True):
            _chain(chart, at, origin, row)
    yield Picture(
        "Dequantisation by step",
        "Each row is a step. Red-orange: dequantisation kernels that nothing hides; light: hidden "
        "behind other work; grey: from then until the consumer starts. Between chains, the "
        "consumers and all other work run.",
        (chart.svg(),),
    )


def _chain(chart: Chart, at: int, origin: int, row: dict[str, object]) -> None:
    start, end, busy, exposed = (
        int(str(row[c])) for c in ("start_ns", "end_ns", "dequant_ns", "exposed_ns")
    )
    layer = "" if row["layer"] is None else f"layer {row['layer']}: "
    tip = (
        f"{layer}{row['n_kernels']} x {short_name(str(row['kernel']), 60)}, {duration(busy)}, "
        f"{duration(exposed)} exposed; then {duration(max(0, end - start - busy))} until "
        f"{short_name(str(row['consumer']), 60)}"
    )
    band = (at - 0.32, at + 0.32)
    start -= origin
    chart.bar((start, end - origin), band[::-1], "wait", tip)
    chart.bar((start, start + busy), band[::-1], "c4 faint", tip)
    chart.bar((start, start + exposed), band[::-1], "c4", tip)


def _row_ticks(labels: list[object]) -> tuple[tuple[float, str], ...]:
    texts = ("?" if label is None else str(label) for label in labels)
    return tuple((float(i), text) for i, text in enumerate(texts))


def _hit_rates(diagnosis: Diagnosis) -> Iterator[Picture]:
    """L2 hit rate of layers against how far apart and how large their cache is."""
    layers = _frame(diagnosis, "l2_miss", "layers")
    layout = _frame(diagnosis, "kv_fragmentation", "layout")
    if layers.is_empty():
        return
    layers = layers.drop_nulls("hit_frac")
    if not layout.is_empty():
        peak = layout.filter(pl.col("at_peak") & (pl.col("level") == "layer"))
        stride = peak.group_by("gpu", "layer").agg(pl.col("stride_med_abs_bytes").median())
        stride = stride.with_columns(pl.col("layer").cast(pl.Int32))
        layers = layers.join(stride, on=["gpu", "layer"], how="left", maintain_order="left")
    wanted = (
        ("stride_med_abs_bytes", "median distance of neighbouring KV blocks (bytes)"),
        ("line_bytes", "cache lines that the layer's KV blocks touch (bytes)"),
        ("span_bytes", "lowest to highest KV address (bytes)"),
    )
    sizes = {gpu.index: gpu.l2_bytes for gpu in diagnosis.gpus}
    charts = tuple(
        _hit_rate(own, column, title, sizes)
        for column, title in wanted
        if column in layers.columns
        and (own := layers.filter(pl.col(column) > 0))[column].n_unique() > 1
    )
    if charts:
        yield Picture(
            "L2 hit rate of layers",
            "One point a layer, with the 95 % interval over its kernel executions (often smaller "
            "than the point). The dashed line is the size of the L2. An association is no cause.",
            charts,
            small=True,
        )


def _hit_rate(
    layers: pl.DataFrame, column: str, title: str, l2_bytes: Mapping[int, int | None]
) -> Markup:
    low, high = (float(str(v)) for v in (layers[column].min(), layers[column].max()))
    top = float(str(layers.select(pl.max_horizontal("hit_hi_frac", "hit_frac").max()).item()))
    chart = Chart(
        f"L2 hit rate against {title}",
        log2(title, low, high, size),
        linear("sampled L2 hit rate (%)", 0, min(1.0, 1.1 * top), share),
        width=370,
        height=240,
    )
    for l2 in sorted({known for gpu in layers["gpu"] if (known := l2_bytes.get(gpu))}):
        if chart.x.low <= l2 <= chart.x.high:
            chart.rule(l2)
    for row in layers.iter_rows(named=True):
        lo, hi = row["hit_lo_frac"], row["hit_hi_frac"]
        tip = (
            f"layer {row['layer']} {short_name(row['label'] or '', 50)}: hit rate "
            f"{share(row['hit_frac'])} {bounds(lo, hi, '1')}, {size(row[column])}"
        )
        interval = None if lo is None or hi is None else (lo, hi)
        chart.point(row[column], row["hit_frac"], "c1", tip, interval=interval)
    return chart.svg()
