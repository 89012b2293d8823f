"""Why GPUs are idle, and which copies nothing hides.

A gap is a time in which nothing runs on a GPU. It is cut where the call that launched the next
operation begins and ends, and every piece gets the one cause that explains it: the launching
thread waited, allocated, loaded a module, was busy with something else, or launched as fast as it
could. Time in which only copies run is not idle, and is listed as exposed copies.
"""

from __future__ import annotations

from dataclasses import dataclass

from tracekit.analyses.idle_gaps import tables
from tracekit.analyses.idle_gaps.compute import VIEWS, compute
from tracekit.analyses.idle_gaps.verdict import verdict
from tracekit.trace.analysis import Analysis, Frames, param

__all__ = ["ANALYSIS", "Params"]


@dataclass(frozen=True)
class Params:
    """Parameters of `idle_gaps`."""

    warn_frac: float = param(
        0.10, unit="1", help="share of step time idle for a removable cause that is a warning"
    )
    critical_frac: float = param(
        0.30, unit="1", help="share of step time idle for a removable cause that is critical"
    )
    warn_copy_frac: float = param(
        0.05, unit="1", help="share of step time in copies that nothing hides that is a warning"
    )
    critical_copy_frac: float = param(
        0.20, unit="1", help="share of step time in copies that nothing hides that is critical"
    )
    host_link_gbps: float = param(
        0.0, unit="GB/s", help="peak of the link to host memory, one way; 0: from the GPU's name"
    )


def plot(frames: Frames, axes: object) -> None:
    """Draw the idle share of each step group by kind of cause; one bar a group and GPU."""
    rows = frames["families"]
    bars = list(dict.fromkeys(rows.select("gpu", "step_group").rows()))
    left = dict.fromkeys(bars, 0.0)
    labels = [f"GPU {gpu}: {group or 'whole span'}" for gpu, group in bars]
    for name in rows["family"].unique(maintain_order=True).to_list():
        own = rows.filter(rows["family"] == name)
        shares = {
            (gpu, group): idle / time if time else 0.0
            for gpu, group, idle, time in own.select(
                "gpu", "step_group", "idle_ns", "time_ns"
            ).rows()
        }
        if not any(shares.values()):
            continue
        widths = [shares.get(bar, 0.0) for bar in bars]
        axes.barh(labels, widths, left=list(left.values()), height=0.6, label=name)  # type: ignore[attr-defined]
        for bar, width in zip(bars, widths, strict=True):
            left[bar] += width
    if any(left.values()):
        axes.set_xlabel("idle / step time (share, 0..1)")  # type: ignore[attr-defined]
        axes.invert_yaxis()  # type: ignore[attr-defined]
        axes.legend(loc="lower right", fontsize="small")  # type: ignore[attr-defined]


ANALYSIS = Analysis(
    name="idle_gaps",
    question="Why are GPUs idle, and which copies does nothing hide?",
    requires=(),
    views=VIEWS,
    params=Params,
    results=(
        tables.GPUS,
        tables.FAMILIES,
        tables.CAUSES,
        tables.SITES,
        tables.COPIES,
        tables.GAINS,
        tables.SUMMARY,
    ),
    compute=compute,
    verdict=verdict,
    plot=plot,
)
