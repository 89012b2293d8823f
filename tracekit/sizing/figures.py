"""Figures of sizing results, drawn on the matplotlib axes that a caller gives."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tracekit.sizing.bounds.workload import Assessment
from tracekit.sizing.choice.pareto import Front
from tracekit.sizing.machines.topology import Machine, path_classes
from tracekit.sizing.runs.matrix import Row
from tracekit.sizing.slo import SloFit

__all__ = ["heatmap", "matrix", "pareto", "roofline", "slo", "topology"]


def roofline(found: Assessment, axes: Any) -> None:
    """Draw the roof of a device and where prefill and decode stand below it.

    Args:
        found: The assessment.
        axes: Matplotlib axes.
    """
    phases = (found.decode, found.prefill)
    low = min(p.intensity for p in phases) / 4
    high = max(p.intensity for p in phases) * 4
    bandwidth = found.peak.gb_per_s * 1e9
    if found.flop_per_s is not None:
        ridge = found.flop_per_s / bandwidth
        low, high = min(low, ridge / 4), max(high, ridge * 4)
        xs = [low, ridge, high]
        ys = [low * bandwidth, found.flop_per_s, found.flop_per_s]
    else:
        xs, ys = [low, high], [low * bandwidth, high * bandwidth]
    axes.plot(xs, [y / 1e12 for y in ys], color="#000000", label=f"{found.device}, published peaks")
    for phase in phases:
        reach = phase.intensity * bandwidth
        if found.flop_per_s is not None:
            reach = min(reach, found.flop_per_s)
        axes.plot(
            [phase.intensity], [reach / 1e12], "o", label=f"{phase.name}: {phase.bound} bound"
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("FLOP per byte of memory traffic")
    axes.set_ylabel("attainable TFLOPS of one GPU")
    axes.legend()


def pareto(
    found: Front,
    names: Sequence[str],
    columns: Mapping[str, Sequence[float | None]],
    axes: Any,
) -> None:
    """Draw the rows over the first two axes, the front apart from the rest.

    Args:
        found: The front.
        names: One a row.
        columns: Values of each axis.
        axes: Matplotlib axes.
    """
    along, up = (*found.axes, *found.axes)[:2]
    for label, chosen, color in (
        ("front", found.front, "#0072B2"),
        ("beaten", tuple(found.dominated), "#7D8894"),
    ):
        rows = [i for i, name in enumerate(names) if name in chosen]
        if not rows:
            continue
        xs, ys = [columns[along][i] for i in rows], [columns[up][i] for i in rows]
        axes.plot(xs, ys, "o", color=color, label=label)
        for i, x, y in zip(rows, xs, ys, strict=True):
            offset = {
                "xytext": (4, -9 if i % 2 else 4),
                "textcoords": "offset points",
                "fontsize": 7,
            }
            axes.annotate(names[i], (x, y), **offset)
    axes.set_xlabel(along)
    axes.set_ylabel(up)
    axes.legend(title=f"over {', '.join(found.axes)}", title_fontsize=7)


def slo(found: SloFit, objective_s: float | None, axes: Any) -> None:
    """Draw latency over load, the fitted curve and what the objective allows.

    Args:
        found: The fit.
        objective_s: Latency objective, seconds; None for none.
        axes: Matplotlib axes.
    """
    levels = found.levels.levels
    if not levels:
        return
    axes.plot([v.qps for v in levels], [v.latency_s for v in levels], "o", label="measured levels")
    if found.queue is not None and found.queue.capacity_qps is not None:
        last = levels[-1].qps
        rates = [last * i / _CURVE_POINTS for i in range(_CURVE_POINTS + 1)]
        axes.plot(rates, [found.queue.latency_at(q) for q in rates], label="fitted queue")
    if objective_s is not None:
        axes.axhline(objective_s, color="#D55E00", linestyle="--", label="objective")
    if found.qps is not None:
        at_least = ", at least" if found.qps.at_least else ""
        label = f"allowed{at_least}: {found.qps.qps:.3g} requests/s"
        axes.axvline(found.qps.qps, color="#009E73", label=label)
    axes.set_xlabel("requests per second")
    axes.set_ylabel("latency [s]")
    axes.set_ylim(bottom=0)
    axes.legend()


_CURVE_POINTS = 200


def topology(machine: Machine, axes: Any) -> None:
    """Draw the class of the path between every two GPUs.

    Args:
        machine: The machine.
        axes: Matplotlib axes.
    """
    if len(machine.gpus) < 2:
        return
    names = list(path_classes(machine, list(machine.gpus)))
    order = {gpu: i for i, gpu in enumerate(machine.gpus)}
    size = len(order)
    cells = [[math.nan] * size for _ in range(size)]
    for (a, b), name in machine.paths.items():
        for x, y in ((order[a], order[b]), (order[b], order[a])):
            cells[y][x] = names.index(name)
            axes.text(x, y, name, ha="center", va="center", fontsize=8)
    axes.imshow(cells, cmap="Blues_r", vmin=-1, vmax=len(names), aspect="auto")
    axes.set_xticks(range(size), [f"GPU{gpu}" for gpu in order])
    axes.set_yticks(range(size), [f"GPU{gpu}" for gpu in order])
    axes.grid(visible=False)


def heatmap(cells: Sequence[Mapping[str, Any]], axes: Any) -> None:
    """Draw utilisation over time, one row a GPU and counter.

    Args:
        cells: Rows with gpu, bin_start_ns, bin_end_ns, metric and mean_pct.
        axes: Matplotlib axes.
    """
    rows = sorted({(c["gpu"], c["metric"]) for c in cells})
    starts = sorted({c["bin_start_ns"] for c in cells})
    if not rows:
        return
    row_of, bin_of = ({key: i for i, key in enumerate(keys)} for keys in (rows, starts))
    grid = [[math.nan] * len(starts) for _ in rows]
    for c in cells:
        if c["mean_pct"] is not None:
            grid[row_of[c["gpu"], c["metric"]]][bin_of[c["bin_start_ns"]]] = c["mean_pct"]
    last = max(c["bin_end_ns"] for c in cells)
    extent = (starts[0] / 1e6, last / 1e6, len(rows) - 0.5, -0.5)
    image = axes.imshow(
        grid,
        aspect="auto",
        interpolation="nearest",
        cmap="viridis",
        vmin=0,
        vmax=100,
        extent=extent,
    )
    labels = [f"GPU {gpu} {name.removesuffix(' [Throughput %]')}" for gpu, name in rows]
    axes.set_yticks(range(len(rows)), labels, fontsize=7)
    axes.set_xlabel("session time [ms]")
    axes.grid(visible=False)
    axes.figure.colorbar(image, ax=axes, label="% of peak")


def matrix(rows: Sequence[Row], axes: Any) -> None:
    """Draw the memory activity of each row; rows without it have no bar.

    Args:
        rows: Rows of the matrix.
        axes: Matplotlib axes.
    """
    known = [r for r in rows if r.cells["dram_frac"].value is not None]
    labels = [f"{r.run}, {r.group}, GPU {r.gpu}" for r in known]
    axes.barh(labels, [100 * (r.cells["dram_frac"].value or 0.0) for r in known], color="#0072B2")
    axes.set_xlim(0, 100)
    axes.set_xlabel("DRAM read and write, % of peak")
