"""``tracekit bundle``: a small archive to attach to an issue, with nothing private in it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracekit.cli.shell.app import progress
from tracekit.cli.shell.options import BYTES, SETTING, WINDOW, merged_params
from tracekit.cli.shell.output import check_places, print_text, terminal_options, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.bundle.archive import Archive, Part
    from tracekit.bundle.readme import SliceNote
    from tracekit.model.diagnosis import Diagnosis
    from tracekit.trace import Trace

__all__ = ["WORST", "command"]

WORST = "worst"
_PARTIAL = 4
_README_BYTES = 4_000
_PATH = click.Path(path_type=Path)
_DEFAULT = "10MB"


class _Window(click.ParamType[Any]):
    """``START:END``, or the word that asks for the worst one."""

    name = "START:END|worst"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        return value if value == WORST else WINDOW.convert(value, param, ctx)


@click.command("bundle", short_help="Pack diagnosis, figures and a slice to attach to an issue.")
@click.argument("reports", metavar="REPORT...", nargs=-1, required=True, type=_PATH)
@click.option(
    "--output",
    "-o",
    metavar="FILE.zip",
    type=_PATH,
    default=Path("issue.zip"),
    show_default=True,
    help="Archive to write.",
)
@click.option(
    "--window",
    type=_Window(),
    help="Add a slice of the trace: this part of the session, or the worst window, as wide as it"
    " takes to give the same finding alone.",
)
@click.option("--only", "-k", metavar="NAME", multiple=True, help="Run only this analysis.")
@click.option(
    "--param",
    "params",
    metavar="NAME=VALUE",
    multiple=True,
    type=SETTING,
    help="Set a parameter; `tracekit list NAME` shows them.",
)
@click.option(
    "--peak-gbps",
    metavar="GB/S",
    type=click.FloatRange(min=0, min_open=True),
    help="Peak DRAM bandwidth of the GPUs, overriding the report's.",
)
@click.option(
    "--top", metavar="N", type=click.IntRange(min=0), help="Rows of each table, in every format."
)
@click.option("--keep-nvtx", is_flag=True, help="Let the program's own NVTX text pass.")
@click.option("--hash-names", is_flag=True, help="Replace kernel names; their class stays.")
@click.option("--dry-run", is_flag=True, help="Show what would go in, write nothing.")
@click.option(
    "--max-size",
    type=BYTES,
    default=_DEFAULT,
    show_default=True,
    help="What the archive may take; a number without a unit is MB.",
)
@click.option("--max-mb", metavar="MB", type=BYTES, help="The same as --max-size.")
@click.option("--salvage", is_flag=True, help="Read what is left of a damaged report.")
def command(reports: tuple[Path, ...], **options: Any) -> int:
    """Pack what a maintainer needs to see of one run into an archive of a few MB.

    Inside are the diagnosis as Markdown, JSON and HTML, figures, a README that says how to make it
    again and, with --window, part of the trace that `tracekit analyze` reads. Nothing passes that
    is not known to be harmless.
    """
    target = options["output"]
    check_places([target], reports)
    with progress() as notify:
        made, note, lost = _made(reports, options, notify or _nobody)
    if not options["dry_run"]:
        write(target, made.content)
    print_text(_listing(target, made, note, options))
    return _PARTIAL if lost else 0


def _nobody(_: str) -> None:
    """Report progress to nobody."""


def _made(
    reports: Sequence[Path], options: dict[str, Any], notify: Callable[[str], None]
) -> tuple[Archive, SliceNote | None, bool]:
    """Return the archive, what its slices hold, and whether some inputs could not be used."""
    from tracekit import analyses, engine, opening, settings
    from tracekit.bundle.anonymous import anonymous
    from tracekit.bundle.archive import WORTH_SLICE, archive, documents, figures
    from tracekit.bundle.readme import readme

    params = merged_params(options["params"], options["peak_gbps"])
    _, values = settings.parse(analyses.names(), params)
    redact: opening.Redact = "keep nvtx" if options["keep_nvtx"] else "yes"
    max_bytes = options["max_mb"] or options["max_size"]
    notify("opening")
    opened = opening.OpenOptions(salvage=options["salvage"], redact=redact, settings=values)
    with opening.open_trace(reports, options=opened) as redacted:
        trace, loader = anonymous(redacted, hash_names=options["hash_names"])
        found = engine.diagnose(
            trace,
            only=options["only"],
            params=params,
            redact=redact,
            with_pictures=True,
            progress=notify,
        )
        parts = (*documents(found, top=options["top"]), *figures(found))
        worthier = sum(p.packed_bytes for p in parts if p.worth > WORTH_SLICE)
        left = max(0, max_bytes - worthier - _README_BYTES)
        slices, note = _slices(trace, found, frozenset(loader.sampled), options, left, notify)
    about = partial(readme, found, _said(options), note)
    return archive((*parts, *slices), max_bytes, about), note, bool(redacted.unreadable)


def _slices(
    trace: Trace,
    found: Diagnosis,
    counters: frozenset[str],
    options: dict[str, Any],
    max_bytes: int,
    notify: Callable[[str], None],
) -> tuple[tuple[Part, ...], SliceNote | None]:
    if options["window"] is None:
        return (), None
    from tracekit.bundle.slices import Slicer

    params = merged_params(options["params"], options["peak_gbps"])
    slicer = Slicer(trace, found, counters, params, max_bytes, notify)
    window = options["window"]
    return slicer.worst() if window == WORST else slicer.asked(window)


def _said(options: dict[str, Any]) -> list[str]:
    """Return the options that decide what is inside, as words; none of them names anything."""
    words = [w for name in sorted(options["only"]) for w in ("--only", name)]
    window = options["window"]
    if window is not None:
        words += ["--window", window if window == WORST else f"{window[0]}ns:{window[1]}ns"]
    words += ["--top", str(options["top"])] if options["top"] is not None else []
    words += ["--keep-nvtx"] if options["keep_nvtx"] else []
    words += ["--hash-names"] if options["hash_names"] else []
    words += ["--salvage"] if options["salvage"] else []
    return [*words, "--max-size", f"{options['max_mb'] or options['max_size']}B"]


def _listing(target: Path, made: Archive, note: SliceNote | None, options: dict[str, Any]) -> str:
    from tracekit.bundle.readme import slice_line
    from tracekit.report.text import Lines
    from tracekit.wording.names import printable
    from tracekit.wording.numbers import size

    page = Lines(**terminal_options(sys.stdout))
    verb = "would be" if options["dry_run"] else "is"
    most = size(options["max_mb"] or options["max_size"])
    page.line(
        f"{printable(str(target))} {verb} {size(len(made.content))} of at most {most}", "bold"
    )
    rows = [(p.name, size(len(p.content)), size(p.packed_bytes), p.about) for p in made.parts]
    heads = ("file", "size", "packed", "what it is")
    page.columns(heads, rows, (False, True, True, False), 2, wrap=True)
    page.fields(("Dropped", f"{d.name} ({size(d.n_bytes)}): {d.what}") for d in made.dropped)
    page.fields([("Slice", slice_line(note) if note else "")])
    return page.text()
