"""Charts of sizing results: what each has to show, without a style."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tracekit.model.chart import (
    MOST_ROWS,
    Axis,
    Bar,
    Chart,
    Key,
    Line,
    Panel,
    Point,
    Role,
    Rows,
    Rule,
)
from tracekit.sizing.bounds.workload import Assessment
from tracekit.sizing.choice.pareto import Front
from tracekit.sizing.machines.topology import Machine, path_classes
from tracekit.sizing.runs.matrix import Row
from tracekit.sizing.slo import SloFit

__all__ = ["growth", "heatmap", "matrix", "pareto", "roofline", "slo", "topology"]

_MAIN, _OTHER, _THIRD = Role.SERIES_1, Role.SERIES_2, Role.SERIES_3
_CURVE_POINTS = 100
_AROUND = 4.0
"""A roof is drawn this many times below and above what stands under it."""


def roofline(found: Assessment, name: str) -> Chart:
    """Return the roof of a device, and where prefill and decode stand below it.

    Args:
        found: The assessment.
        name: Name of the model.
    """
    phases = ((found.decode, _MAIN), (found.prefill, _OTHER))
    bandwidth, peak = found.peak.gb_per_s * 1e9, found.flop_per_s
    seen = [phase.intensity for phase, _ in phases]
    if peak is not None:
        seen.append(peak / bandwidth)
    low, high = min(seen) / _AROUND, max(seen) * _AROUND

    def roof(intensity: float) -> float:
        reach = intensity * bandwidth
        return (reach if peak is None else min(reach, peak)) / 1e12

    corners = [low, *([] if peak is None else [peak / bandwidth]), high]
    marks: tuple[Line | Point, ...] = (
        Line(tuple((x, roof(x)) for x in corners), Role.OTHER_COMPUTE),
        *(
            Point(
                phase.intensity, roof(phase.intensity), role, f"{phase.name}: {phase.bound} bound"
            )
            for phase, role in phases
        ),
    )
    panel = Panel(
        title=f"What {found.device} can reach",
        x=Axis("arithmetic intensity", "FLOP/byte", low, high, log=True),
        y=Axis("attainable rate of one GPU", "TFLOPS", log=True),
        marks=marks,
    )
    return Chart(
        f"Roofline of {name} on {found.device}",
        "The line is the published peak: memory on the slope, compute on the flat. A point is the"
        " most that its phase can reach.",
        (panel,),
        tuple(Key(f"{phase.name}: {phase.bound} bound", role) for phase, role in phases),
    )


def pareto(
    found: Front, names: Sequence[str], columns: Mapping[str, Sequence[float | None]]
) -> Chart | None:
    """Return each row's value on each axis, the front apart from the rest; None without rows.

    Args:
        found: The front.
        names: One a row.
        columns: Values of each axis.
    """
    chosen = [i for i, name in enumerate(names) if name not in found.missing][:MOST_ROWS]
    if not chosen:
        return None
    roles = [_MAIN if names[i] in found.front else Role.IDLE for i in chosen]
    panels = []
    for axis, more in found.axes.items():
        values = [columns[axis][i] or 0.0 for i in chosen]
        marks = tuple(
            Bar(row, 0.0, value, role, label=f"{value:,.6g}")
            for row, (value, role) in enumerate(zip(values, roles, strict=True))
        )
        better = "more" if more else "less"
        panels.append(
            Panel(
                title=f"{axis}, {better} is better",
                x=Axis(axis, low=0.0, high=1.15 * max(values, default=1.0)),
                y=Rows(tuple(names[i] for i in chosen)),
                marks=marks,
                wide=False,
            )
        )
    return Chart(
        "Rows that no other row beats on every axis",
        "A row beats another if it is at least as good on every axis and better on one.",
        tuple(panels),
        (Key("front", _MAIN), Key("beaten", Role.IDLE)),
    )


def growth(tokens: Sequence[float], traffic: Sequence[float]) -> Chart | None:
    """Return measured traffic over tokens; None without runs."""
    if not tokens:
        return None
    panel = Panel(
        title="Measured runs",
        x=Axis("tokens of a step", log=True),
        y=Axis("traffic, in the unit of the table", log=True),
        marks=tuple(Point(t, m, _MAIN) for t, m in zip(tokens, traffic, strict=True)),
    )
    return Chart(
        "Traffic over tokens", "Both axes are logarithmic: linear growth has slope 1.", (panel,)
    )


def slo(found: SloFit, objective_s: float | None) -> Chart | None:
    """Return latency over load, the fitted curve, what the objective allows; None without levels.

    Args:
        found: The fit.
        objective_s: Latency objective, seconds; None for none.
    """
    levels = found.levels.levels
    if not levels:
        return None
    marks: list[Point | Line | Rule] = [
        Point(v.qps, v.latency_s * 1e9, _MAIN, f"{v.n} samples") for v in levels
    ]
    if (queue := found.queue) is not None and queue.capacity_qps is not None:
        rates = [levels[-1].qps * i / _CURVE_POINTS for i in range(_CURVE_POINTS + 1)]
        curve = [(q, (queue.latency_at(q) or 0.0) * 1e9) for q in rates]
        marks.insert(0, Line(tuple(curve), _OTHER))
    if objective_s is not None:
        marks.append(Rule(objective_s * 1e9, "objective", horizontal=True))
    if found.qps is not None:
        least = "at least " if found.qps.at_least else ""
        marks.append(Rule(found.qps.qps, f"allowed: {least}{found.qps.qps:.3g} requests/s"))
    panel = Panel(
        title="Latency over request rate",
        x=Axis("request rate", "requests/s", low=0.0),
        y=Axis("latency", "ns", low=0.0),
        marks=tuple(marks),
    )
    caption = "Each point is a level of load. Nothing is said beyond the last one."
    return Chart(panel.title, caption, (panel,), (Key("level", _MAIN), Key("fitted queue", _OTHER)))


def topology(machine: Machine) -> Chart | None:
    """Return the class of the path between every two GPUs; None with fewer than two."""
    if len(machine.gpus) < 2:
        return None
    names = list(path_classes(machine, list(machine.gpus)))
    shade = {name: 1 - i / (len(names) + 0.5) for i, name in enumerate(names)}
    order = {gpu: i for i, gpu in enumerate(machine.gpus)}
    marks = tuple(
        Bar(order[y], order[x] - 0.5, order[x] + 0.5, _MAIN, name, shade=shade[name])
        for (a, b), name in machine.paths.items()
        for x, y in ((a, b), (b, a))
    )
    panel = Panel(
        title="Paths between GPUs",
        x=Axis("GPU", low=-0.5, high=len(order) - 0.5),
        y=Rows(tuple(f"GPU{gpu}" for gpu in order)),
        marks=marks,
    )
    caption = "The darker, the nearer: what lies between two GPUs, as nvidia-smi names it."
    return Chart(panel.title, caption, (panel,), tuple(Key(n, _MAIN, shade[n]) for n in names))


def heatmap(cells: Sequence[Mapping[str, Any]]) -> Chart | None:
    """Return utilisation over time, one row a GPU and counter; None without cells.

    Args:
        cells: Rows with gpu, bin_start_ns, bin_end_ns, metric and mean_pct.
    """
    rows = sorted({(c["gpu"], c["metric"]) for c in cells})[:MOST_ROWS]
    if not rows:
        return None
    row_of = {key: i for i, key in enumerate(rows)}
    marks = tuple(
        Bar(
            row_of[c["gpu"], c["metric"]],
            c["bin_start_ns"],
            c["bin_end_ns"],
            _MAIN,
            f"{c['mean_pct']:.3g} %",
            shade=c["mean_pct"] / 100,
        )
        for c in cells
        if c["mean_pct"] is not None and (c["gpu"], c["metric"]) in row_of
    )
    panel = Panel(
        title="Utilisation over time",
        x=Axis("session time", "ns"),
        y=Rows(tuple(f"GPU {g} {name.removesuffix(' [Throughput %]')}" for g, name in rows)),
        marks=marks,
    )
    legend = tuple(Key(f"{share:.0%} of peak", _MAIN, share) for share in (0.1, 0.5, 1.0))
    return Chart(
        panel.title, "Mean of each bin; no colour: idle, or not sampled.", (panel,), legend
    )


def matrix(rows: Sequence[Row]) -> Chart | None:
    """Return the memory activity of each row that has it; None without any."""
    known = [(r, v) for r in rows if (v := r.cells["dram_frac"].value) is not None][:MOST_ROWS]
    if not known:
        return None
    panel = Panel(
        title="Memory activity of runs",
        x=Axis("DRAM read and write, of peak", "1", low=0.0, high=1.0),
        y=Rows(tuple(f"{r.run}, {r.group}, GPU {r.gpu}" for r, _ in known)),
        marks=tuple(
            Bar(i, 0.0, value, _THIRD, label=f"{value:.0%}") for i, (_, value) in enumerate(known)
        ),
    )
    return Chart(panel.title, "Mean over the steps of each kind.", (panel,))
