"""Maps of a KV cache: block index against address, one small chart a layer, runs coloured."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
from markupsafe import Markup

from tracekit.model.diagnosis import Diagnosis
from tracekit.report.page.svg import Chart, linear
from tracekit.wording.names import printable
from tracekit.wording.numbers import count, size

__all__ = ["MOST_LAYERS", "kv_maps"]

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
