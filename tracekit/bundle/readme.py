"""The README of a bundle: what is inside, how it was made, what was left out."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from tracekit.bundle.archive import Dropped, Part
from tracekit.model.diagnosis import Diagnosis
from tracekit.report.markdown import code, inline
from tracekit.wording.numbers import bounds, count, moment, quantity, size

__all__ = ["Compared", "Repeated", "SliceNote", "readme", "slice_line"]


@dataclass(frozen=True)
class Compared:
    """One number of a finding, from the run and from the slice alone.

    Attributes:
        name: Name of the metric.
        unit: Its unit.
        whole: Value from the run.
        lo: Lower end of its 95% interval, None without one.
        hi: Upper end.
        alone: Value from the slice alone; None when there is none.
        agrees: Whether `alone` lies in the interval, or is close where there is none.
    """

    name: str
    unit: str
    whole: float
    lo: float | None
    hi: float | None
    alone: float | None
    agrees: bool


@dataclass(frozen=True)
class Repeated:
    """A finding of the run, and whether the slices alone give it.

    Attributes:
        id: Its id.
        title: Its headline in the run.
        compared: Its numbers from the run and from the slices.
        agrees: Whether the slices give the finding, its numbers within their intervals.
    """

    id: str
    title: str
    compared: tuple[Compared, ...]
    agrees: bool


@dataclass(frozen=True)
class SliceNote:
    """What the slices of a bundle hold.

    Attributes:
        window: Half-open session time in ns; None for everything.
        n_rows: Events in them.
        repeated: Bad findings of the run, worst first; empty for a window that was requested.
        remark: Further sentence.
    """

    window: tuple[int, int] | None
    n_rows: int
    repeated: tuple[Repeated, ...] = ()
    remark: str = ""


def readme(
    diagnosis: Diagnosis,
    options: Sequence[str],
    note: SliceNote | None,
    parts: Sequence[Part],
    dropped: Sequence[Dropped],
) -> str:
    """Return the README.

    Args:
        diagnosis: What the bundle is about.
        options: Options of ``tracekit bundle`` that made it.
        note: About the slices; None when none were requested.
        parts: Files of the archive other than the README.
        dropped: What did not fit.
    """
    lines = ["# What this archive holds", "", *_made(diagnosis), "", *_files(parts, dropped)]
    if note is not None:
        lines += ["", "## The slice", "", *_slice(note, parts)]
    lines += ["", "## How to make it again", "", *_commands(diagnosis, options, parts)]
    lines += ["", "## What was left out on purpose", "", *_withheld(options)]
    return "\n".join(lines) + "\n"


def _made(diagnosis: Diagnosis) -> list[str]:
    said = {k: diagnosis.provenance.get(k, "unknown") for k in ("tracekit", "python", "polars")}
    reports = "one report" if len(diagnosis.reports) == 1 else f"{len(diagnosis.reports)} reports"
    lines = [
        f"Made by tracekit {said['tracekit']} (Python {said['python']}, Polars {said['polars']})"
        f" from {reports} of Nsight Systems:",
        "",
    ]
    return lines + [
        f"- REPORT{r.index}: {inline(r.product) or 'unknown version'}, schema"
        f" {inline(r.schema_version or 'unknown')}, {code(r.sha256, 80)}"
        for r in diagnosis.reports
    ]


def _files(parts: Sequence[Part], dropped: Sequence[Dropped]) -> list[str]:
    lines = ["| file | size | what it is |", "| :--- | ---: | :--- |"]
    lines += [f"| {code(p.name)} | {size(len(p.content))} | {inline(p.about)} |" for p in parts]
    if dropped:
        lines += ["", "Dropped to stay within the requested size:", ""]
    return lines + [
        f"- {code(d.name)} ({size(d.n_bytes)} compressed): {inline(d.what)}" for d in dropped
    ]


def _slice(note: SliceNote, parts: Sequence[Part]) -> list[str]:
    if not any(p.name.endswith(".sqlite") for p in parts):
        return [inline(note.remark) or "Not in this archive."]
    lines = [f"Holds {_extent(note)}."]
    if note.repeated:
        lines += ["", "What it gives alone, compared with the whole run:"]
    for finding in note.repeated:
        verdict = "the same" if finding.agrees else "NOT the same"
        lines += ["", f"- {verdict}: {code(finding.id)}, {inline(finding.title)}", ""]
        lines += ["| number | in the run | 95% interval | in the slice |"]
        lines += ["| :--- | ---: | ---: | ---: |"]
        lines += [_row(c) for c in finding.compared]
    return [*lines, *(["", inline(note.remark)] if note.remark else [])]


def slice_line(note: SliceNote) -> str:
    """Return in one sentence what the slices hold and whether they give the findings alone."""
    if not note.n_rows:
        return note.remark
    same = sum(r.agrees for r in note.repeated)
    found = f"alone it gives {same} of {len(note.repeated)} bad findings of the run"
    parts = [_extent(note), found if note.repeated else "", note.remark]
    return "; ".join(p for p in parts if p)


def _extent(note: SliceNote) -> str:
    whole = note.window is None
    span = "the whole capture" if whole else " to ".join(moment(t) for t in note.window or ())
    return f"{count(note.n_rows)} events of {span}"


def _row(found: Compared) -> str:
    interval = inline(bounds(found.lo, found.hi, found.unit)) or "-"
    values = [quantity(v, found.unit) for v in (found.whole, found.alone)]
    return f"| {inline(found.name)} | {values[0]} | {interval} | {values[1]} |"


def _commands(diagnosis: Diagnosis, options: Sequence[str], parts: Sequence[Part]) -> list[str]:
    reports = [f"REPORT{r.index}" for r in diagnosis.reports]
    slices = [p.name for p in parts if p.name.endswith(".sqlite")]
    params = [
        word
        for name, value in sorted(dict(diagnosis.provenance.get("params", {})).items())
        for word in ("--param", f"{name}={value}")
    ]
    lines = [
        "```sh",
        shlex.join(["tracekit", "bundle", *reports, "-o", "issue.zip", *options, *params]),
    ]
    lines.append(shlex.join(["tracekit", "analyze", *reports, *params]))
    if slices:
        lines.append(shlex.join(["tracekit", "analyze", *slices, *params]))
    return [*lines, "```"]


def _withheld(options: Sequence[str]) -> list[str]:
    nvtx = (
        "- NVTX text passed, because `--keep-nvtx` was given; NVTX categories, JSON and payloads"
        " that are not NCCL's did not."
        if "--keep-nvtx" in options
        else "- NVTX text other than markers, NCCL's ranges, and step and layer numbers: each"
        " different text is `text-1`, `text-2`, ..."
    )
    names = (
        "- Kernel names are hashes with a word for their class; the same name has the same hash."
        if "--hash-names" in options
        else "- Kernel and CUDA function names are as recorded."
    )
    return [
        "Only what is known to be harmless passes; everything else does not, whatever it is:",
        "",
        "- Environment, command line, working directory, host, user, file names and paths.",
        "- Processes of the host, names of processes and threads, output of the program.",
        "- Messages of the profiler, except for counts of lost records.",
        nvtx,
        names,
        "- Identity of GPUs: a uuid is zeros and the number of the GPU.",
        "- Process and thread ids are numbered anew (1000, 2000, ...); pointers too.",
        "- Addresses count from a multiple of 4 GiB below the lowest one of their process.",
        "- Dates and wall-clock times; times within the session are as recorded.",
    ]
