"""Figures of sizing results, drawn on the matplotlib axes that a caller gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tracekit.sizing.pareto import Front
from tracekit.sizing.workload import Assessment

__all__ = ["pareto", "roofline"]


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
