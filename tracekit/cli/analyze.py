"""``tracekit analyze``: the diagnosis of one run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracekit.cli.shell.app import progress
from tracekit.cli.shell.options import BYTES, SETTING, WINDOW, merged_params
from tracekit.cli.shell.output import (
    FORMATS,
    Format,
    check_outputs,
    format_of,
    print_text,
    terminal_options,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.model.diagnosis import Diagnosis
    from tracekit.opening import Redact

__all__ = ["command"]

_FAILED, _PARTIAL = 1, 4
_PATH = click.Path(path_type=Path)


@click.command("analyze", short_help="Say what costs time in a run, how sure, and what to do.")
@click.argument("reports", metavar="REPORT...", nargs=-1, required=True, type=_PATH)
@click.option("--only", "-k", metavar="NAME", multiple=True, help="Run only this analysis.")
@click.option(
    "--format",
    "form",
    type=click.Choice(sorted(FORMATS)),
    default="text",
    show_default=True,
    help="What to print.",
)
@click.option(
    "--output",
    "-o",
    "outputs",
    metavar="FILE",
    multiple=True,
    type=_PATH,
    help="Also write to this file; its suffix chooses the format.",
)
@click.option("--quiet", "-q", is_flag=True, help="Print nothing on standard output.")
@click.option("--verbose", "-v", is_flag=True, help="Show findings that are fine in full too.")
@click.option(
    "--top",
    metavar="N",
    type=click.IntRange(min=0),
    help="Rows of each table (default: 6 as text).",
)
@click.option(
    "--fail-on",
    type=click.Choice(["warn", "critical"]),
    help="Exit with 1 when a finding is this bad or worse.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Exit with 1 when nothing could be judged or the profiler reported an error.",
)
@click.option(
    "--param",
    "params",
    type=SETTING,
    multiple=True,
    help="Set a parameter, as `tracekit list NAME` shows them.",
)
@click.option(
    "--memory",
    type=BYTES,
    metavar="SIZE",
    help="Memory that may be used (8GB); by default half of what is free.",
)
@click.option(
    "--peak-gbps",
    type=click.FloatRange(min=0, min_open=True),
    metavar="GB/S",
    help="Peak DRAM bandwidth of the GPUs.",
)
@click.option(
    "--window",
    type=WINDOW,
    help="Look only at this part of the session, for example 1.2s:1300ms.",
)
@click.option(
    "--reader",
    type=click.Choice(["auto", "pages", "sqlite"]),
    default="auto",
    show_default=True,
    help="How tables are read; the answer is the same.",
)
@click.option(
    "--redact/--no-redact",
    default=None,
    help="Leave out names that may reveal something about a machine, its users or their data.",
)
@click.option(
    "--keep-nvtx", is_flag=True, help="When redacting, let the program's own NVTX text pass."
)
@click.option("--salvage", is_flag=True, help="Read what is left of a damaged report.")
def command(reports: tuple[Path, ...], **options: Any) -> int:
    """Diagnose one run from its REPORTs: one for all ranks, or one a rank.

    A REPORT is the SQLite export of an Nsight Systems report, also compressed with xz, gzip or
    zstd, or a folder of them. It is never written to.
    """
    check_outputs(options["outputs"], reports)
    printed = [] if options["quiet"] else [FORMATS[options["form"]]]
    files = [(path, format_of(path)) for path in options["outputs"]]
    modes: dict[Redact, bool] = {}
    for form in (*printed, *(f for _, f in files)):
        mode = _redact(form, options)
        modes[mode] = modes.get(mode, False) or form.pictures
    with progress() as notify:
        answers = {
            mode: _analyzed(reports, mode, options, notify, with_pictures=pictures)
            for mode, pictures in (modes or {"no": False}).items()
        }
    for path, form in files:
        write(path, form.renderer()(answers[_redact(form, options)], top=options["top"]))
    for form in printed:
        extra = _for_terminal(options) if options["form"] == "text" else {}
        answer = answers[_redact(form, options)]
        print_text(form.renderer()(answer, top=options["top"], **extra))
    any_answer = next(iter(answers.values()))
    return _exit_code(any_answer, options["fail_on"], strict=options["strict"])


def _redact(form: Format, options: dict[str, Any]) -> Redact:
    """Return what `form` may say: as requested, else as is right for that format."""
    asked = options["redact"]
    if not (form.redacted if asked is None else asked):
        return "no"
    return "keep nvtx" if options["keep_nvtx"] else "yes"


def _analyzed(
    reports: tuple[Path, ...],
    redact: Redact,
    options: dict[str, Any],
    notify: Callable[[str], None] | None,
    *,
    with_pictures: bool,
) -> Diagnosis:
    from tracekit import engine
    from tracekit.opening import OpenOptions

    return engine.analyze(
        reports,
        only=options["only"],
        params=merged_params(options["params"], options["peak_gbps"]),
        options=OpenOptions(
            window_ns=options["window"],
            reader=options["reader"],
            salvage=options["salvage"],
            memory_bytes=options["memory"],
            redact=redact,
        ),
        with_pictures=with_pictures,
        progress=notify,
    )


def _for_terminal(options: dict[str, Any]) -> dict[str, Any]:
    return {"verbose": options["verbose"], **terminal_options(sys.stdout)}


def _exit_code(diagnosis: Diagnosis, fail_on: str | None, *, strict: bool) -> int:
    """Return 1 for a level that was asked to fail, else 4 for inputs left out, else 0."""
    from tracekit.model.finding import Level

    bad = {None: set(), "critical": {"critical"}, "warn": {"critical", "warn"}}[fail_on]
    reached = any(f.level in bad for f in diagnosis.findings)
    lost = any(q.level is Level.CRITICAL for q in diagnosis.quality)
    if reached or (strict and (lost or diagnosis.worst is Level.UNKNOWN)):
        return _FAILED
    return _PARTIAL if diagnosis.unreadable else 0
