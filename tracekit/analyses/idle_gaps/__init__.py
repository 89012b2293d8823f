"""Why GPUs are idle, and which copies nothing hides.

A gap is a time in which nothing runs on a GPU. It is cut where the call that launched the next
operation begins and ends, and every piece gets the one cause that explains it: the launching
thread waited, allocated, loaded a module, was busy with something else, or launched as fast as it
could. Time in which only copies run is not idle, and is listed as exposed copies.
"""

from __future__ import annotations

from dataclasses import dataclass

from tracekit.analyses.idle_gaps import tables
from tracekit.analyses.idle_gaps.chart import chart, tracks
from tracekit.analyses.idle_gaps.compute import compute
from tracekit.analyses.idle_gaps.verdict import verdict
from tracekit.trace.analysis import Analysis, param

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


ANALYSIS = Analysis(
    name="idle_gaps",
    question="Why are GPUs idle, and which copies does nothing hide?",
    requires=(),
    params=Params,
    results=(
        tables.GPUS,
        tables.FAMILIES,
        tables.CAUSES,
        tables.SITES,
        tables.LONGEST,
        tables.COPIES,
        tables.GAINS,
        tables.SUMMARY,
    ),
    compute=compute,
    verdict=verdict,
    chart=chart,
    tracks=tracks,
)
