"""Deep nesting: every kernel back to its innermost range, in one process.

`python -m benchmarks.nesting N FOLDER` writes N nested ranges and N launched kernels on one thread,
attributes them, checks the answer, and prints seconds, cpu_seconds and the anonymous memory before.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.decode import pack
from benchmarks.nsys_tables import Writer
from tracekit.opening import OpenOptions, open_trace
from tracekit.views.launches.attribution import attribution

__all__ = ["write_nested"]

DEPTH = 100
"""Ranges that are open at once in the middle of a group."""
TICK = 1_000


def write_nested(path: Path, n: int) -> NDArray[np.int64]:
    """Write groups of `DEPTH` ranges inside each other, and a launch after each opening.

    Args:
        path: File to write.
        n: Ranges, and kernels; rounded down to whole groups.

    Returns:
        int64[n]: for each kernel, the place of its innermost range in order of opening.
    """
    groups, level = np.divmod(np.arange(n // DEPTH * DEPTH), DEPTH)
    begin = groups * (2 * DEPTH + 1) * TICK
    opened, closed = begin + level * TICK, begin + (2 * DEPTH - level) * TICK
    out = Writer(path)
    out.rows("StringIds", id=[1], value=["work_kernel"])
    thread = pack(0, 1)
    said = {"eventType": 59, "globalTid": thread, "domainId": 0}
    out.rows("NVTX_EVENTS", start=opened, end=closed, text=[f"at {v}" for v in level], **said)
    launch, number = opened + TICK // 2, np.arange(opened.size) + 1
    out.rows(
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        start=launch,
        end=launch + 5,
        globalTid=thread,
        correlationId=number,
        nameId=1,
    )
    names = {"demangledName": 1, "shortName": 1}
    place = {"deviceId": 0, "contextId": 1, "streamId": 7, "globalPid": pack(0)}
    ran = {"start": launch + TICK, "end": launch + TICK + 100, "correlationId": number}
    out.rows("CUPTI_ACTIVITY_KIND_KERNEL", **ran, **place, **names)
    out.db.close()
    return np.arange(opened.size)


def attribute(path: Path) -> NDArray[np.int64]:
    """Return the row of each kernel's innermost range; -1 without one."""
    with open_trace(path, options=OpenOptions(reader="pages")) as trace:
        found: NDArray[np.int64] = trace.view(attribution)["range"].fill_null(-1).to_numpy()
    return found


def anonymous_bytes() -> int | None:
    """Return this process' anonymous memory; None where the system does not tell."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(s.split()[1]) * 1024 for s in lines if s.startswith("RssAnon:")), None)


def main(n: int, folder: Path) -> None:
    """Attribute `n` kernels and print what it took."""
    small, large = folder / "small.sqlite", folder / "large.sqlite"
    write_nested(small, 10 * DEPTH)
    attribute(small)
    expected = write_nested(large, n)
    before = anonymous_bytes()
    wall, cpu = time.perf_counter(), time.process_time()
    found = attribute(large)
    taken = {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}
    assert np.array_equal(found, expected), "kernels in the wrong ranges"
    print(json.dumps({**taken, "before_bytes": before, "rows": len(found)}))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
