"""What `kv_fragmentation` has to show: fragmentation over time, and where blocks lie in memory."""

from __future__ import annotations

import polars as pl

from tracekit.model.chart import Axis, Chart, Line, Panel, Segments, numbered_role
from tracekit.trace.analysis import Frames
from tracekit.wording.numbers import count

__all__ = ["MOST_LAYERS", "chart"]

MOST_LAYERS = 12
_COLOURS = 6


def chart(frames: Frames) -> Chart | None:
    """Return the fragmentation index of each pool over time and a map of each layer's addresses.

    Args:
        frames: Those of the analysis, and `tracekit.views.kv.address_map.kv_map` as ``kv_map``.
    """
    maps, n_layers = _maps(frames["kv_map"])
    panels = (*_index(frames["layout"]), *maps)
    if not panels:
        return None
    caption = "Fragmentation index: share of neighbouring blocks that lie apart."
    if maps:
        caption += (
            " Maps: where the blocks lie when their pool is fullest. A line is a run: blocks that "
            "follow each other both in the sequence and in memory. Colours only tell neighbouring "
            "runs apart."
        )
    if n_layers > len(maps):
        caption += f" {n_layers - len(maps)} layers with longer runs are not shown."
    return Chart("KV cache addresses", caption, panels)


def _index(layout: pl.DataFrame) -> tuple[Panel, ...]:
    """Fragmentation index over time, one line a pool; a pool seen once has none."""
    rows = layout.filter(pl.col("level") == "pool").drop_nulls("frag_frac").sort("pool", "t_ns")
    pools = [part for part in rows.partition_by("pool", maintain_order=True) if part.height > 1]
    if not pools:
        return ()
    lines = tuple(
        Line(
            tuple(part.select("t_ns", "frag_frac").iter_rows()),
            numbered_role(number),
            f"pool {part['pool'][0]}: {part['group'][0]}",
            steps=True,
        )
        for number, part in enumerate(pools)
    )
    y = Axis("fragmentation index", "1", low=0, high=1)
    return (Panel("Fragmentation of each pool over time", Axis("session time", "ns"), y, lines),)


def _maps(runs: pl.DataFrame) -> tuple[tuple[Panel, ...], int]:
    """Maps of the most broken layers of several blocks, and how many such layers there are."""
    layers = [p for p in runs.partition_by("pool", "layer", "kind") if p["n_blocks"][0] > 1]
    layers.sort(key=lambda p: -p["n_runs"][0] / p["n_blocks"][0])
    shown = sorted(layers[:MOST_LAYERS], key=lambda p: (p["pool"][0], _number(p), p["kind"][0]))
    return tuple(_map(part) for part in shown), len(layers)


def _number(part: pl.DataFrame) -> int:
    layer = part["layer"][0]
    return -1 if layer is None else layer


def _map(part: pl.DataFrame) -> Panel:
    base = part["start_addr"].to_numpy().min()
    blocks, n_runs = part["n_blocks"][0], part["n_runs"][0]
    lines: list[list[tuple[float, float, float, float]]] = [[] for _ in range(_COLOURS)]
    length = pl.col("last_block") - pl.col("first_block") + 1
    columns = part.select("position", "start_addr", "end_addr", length.alias("length"))
    for run, (at, start, end, n) in enumerate(columns.iter_rows()):
        lines[run % _COLOURS].append((at, int(start - base), at + n, int(end - base)))
    pieces = f"{count(n_runs)} run{'' if n_runs == 1 else 's'}"
    shown = "" if part.height == n_runs else f" (1 of {-(-n_runs // part.height)} shown)"
    return Panel(
        f"{_title(part)}: {count(blocks)} blocks in {pieces}{shown}",
        Axis("block, in logical order", low=0, high=blocks),
        Axis("address above the lowest", "bytes", low=0),
        tuple(Segments(tuple(own), numbered_role(n)) for n, own in enumerate(lines) if own),
        wide=False,
    )


def _title(part: pl.DataFrame) -> str:
    layer, kind = part["layer"][0], part["kind"][0]
    name = "cache" if layer is None else f"layer {layer}"
    return f"{name} {kind}" if kind and kind != "kv" else name
