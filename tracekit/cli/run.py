"""``tracekit run``: run a program with markers and, where nsys is, record it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from tracekit.recording.options import Metrics
    from tracekit.recording.session import Outcome, Request

__all__ = ["command"]

_NOT_FOUND = 127
_SUFFIXES = (".nsys-rep", ".qdstrm", ".sqlite", ".markers.jsonl")


@click.command(
    "run",
    short_help="Run a program with markers and record it.",
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
)
@click.argument("program", metavar="COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--nsys",
    metavar="PATH|auto|always|never",
    default="auto",
    show_default=True,
    help="Which nsys records: the one found, one that must be found, none, or this one.",
)
@click.option(
    "--metrics",
    metavar="auto|none|SET",
    default="auto",
    show_default=True,
    help="GPU counters: the general set if the machine allows, none, or a set by name; "
    "`l2` is the compute-triage set of the GPU.",
)
@click.option("--metrics-hz", type=click.IntRange(10, 200_000), help="Samples a second.")
@click.option(
    "--output",
    "-o",
    metavar="OUT",
    type=click.Path(path_type=Path),
    help="Outputs are OUT.nsys-rep, OUT.sqlite and, if needed, OUT.markers.jsonl "
    "(default: tracekit-run in this folder, numbered).",
)
@click.option("--force", "-f", is_flag=True, help="Overwrite earlier outputs of the same name.")
@click.option("--no-hooks", is_flag=True, help="Record only: no preload, no Python hooks.")
@click.option("--analyze", is_flag=True, help="Analyse the recording when the program has ended.")
@click.option(
    "--per-rank", is_flag=True, help="One report a rank, for torchrun and what builds on it."
)
@click.option(
    "--nsys-option",
    "nsys_options",
    metavar="OPTION",
    multiple=True,
    help="Pass this to nsys profile too, e.g. --nsys-option=--delay=60. May be repeated.",
)
@click.option("--moe", is_flag=True, help="Count each expert's tokens with a small extra kernel.")
@click.option("--allocator", is_flag=True, help="Keep torch's own allocator history as markers.")
@click.option(
    "--budget",
    metavar="SHARE|off",
    help="Share of the step time that Python markers may cost (default: 0.01).",
)
def command(program: tuple[str, ...], **options: object) -> int:
    """Run COMMAND with markers in it and record it with nsys.

    Write two dashes before the command: tracekit run -o out -- python serve.py. Arguments, signals
    and the exit code are the program's own. Its children are reached too: torchrun's workers,
    spawned processes, bash -c. Without nsys on the machine the program still runs, and its markers
    go to a file that analyze reads.
    """
    from tracekit.recording import ranks
    from tracekit.recording.session import program_exists, record, record_ranks

    if not program_exists(program[0]):
        _say(f"{program[0]}: command not found")
        return _NOT_FOUND
    if options["per_rank"]:
        stem = _stem(options["output"], force=bool(options["force"]), rank=None)
        inner = _inner_options(stem, options)
        return record_ranks(_request(program, stem, options), inner, _say)
    stem = _stem(options["output"], force=bool(options["force"]), rank=ranks.rank(os.environ))
    request = _request(program, stem, options)
    outcome = record(request, _say)
    _report(request, outcome)
    if options["analyze"]:
        return _analyze(outcome)
    return outcome.code


def _say(line: str) -> None:
    click.echo(f"tracekit: {line}", err=True)


def _stem(output: object, *, force: bool, rank: int | None) -> Path:
    """Return the outputs' path without a suffix; refuse to overwrite unless that is requested."""
    from tracekit.errors import UsageError
    from tracekit.recording.session import free_stem

    suffix = "" if rank is None else f".rank{rank}"
    if not isinstance(output, Path):
        if rank is None:
            return free_stem(Path.cwd())
        return Path.cwd() / f"tracekit-run{suffix}"
    name = next((output.name.removesuffix(s) for s in _SUFFIXES if output.name.endswith(s)), None)
    stem = output.absolute().with_name((name or output.name) + suffix)
    if not stem.parent.is_dir():
        message = f"-o {output}: there is no folder {stem.parent}"
        raise UsageError(message)
    there = [p for s in _SUFFIXES if (p := stem.with_name(stem.name + s)).exists()]
    if there and not force:
        message = f"-o {output}: {there[0].name} is there already"
        raise UsageError(message, hint="--force overwrites it")
    for path in there:
        path.unlink()
    return stem


def _request(program: tuple[str, ...], stem: Path, options: dict[str, object]) -> Request:
    from tracekit.recording.session import Request

    settings = {}
    if options["moe"]:
        settings["TRACEKIT_MOE"] = "1"
    if options["allocator"]:
        settings["TRACEKIT_ALLOCATOR"] = "1"
    if options["budget"]:
        settings["TRACEKIT_BUDGET"] = str(options["budget"])
    return Request(
        command=program,
        stem=stem,
        nsys=str(options["nsys"]),
        metrics=_metrics(options),
        hooks=not options["no_hooks"],
        nsys_options=tuple(map(str, _words(options["nsys_options"]))),
        settings=settings,
    )


def _words(values: object) -> tuple[object, ...]:
    return values if isinstance(values, tuple) else ()


def _metrics(options: dict[str, object]) -> Metrics:
    from tracekit.recording import ranks
    from tracekit.recording.options import Metrics

    hz = options["metrics_hz"]
    inside = ranks.rank(os.environ) is not None
    return Metrics(
        choice=str(options["metrics"]),
        frequency_hz=hz if isinstance(hz, int) else None,
        # Two sessions cannot sample one GPU: a rank samples its own.
        device=ranks.local_gpu(os.environ) if inside else None,
    )


def _inner_options(stem: Path, options: dict[str, object]) -> list[str]:
    """Spell the options again for ``tracekit run`` inside each rank."""
    found = [f"--output={stem}", f"--nsys={options['nsys']}", f"--metrics={options['metrics']}"]
    if options["metrics_hz"]:
        found.append(f"--metrics-hz={options['metrics_hz']}")
    if options["budget"]:
        found.append(f"--budget={options['budget']}")
    found += [f"--nsys-option={word}" for word in _words(options["nsys_options"])]
    flags = ("force", "no_hooks", "moe", "allocator")
    return [*found, *(f"--{flag.replace('_', '-')}" for flag in flags if options[flag])]


def _report(request: Request, outcome: Outcome) -> None:
    """Say what there is now and what to do with it."""
    from tracekit.recording.options import L2_SETS

    made = [outcome.converted.report, outcome.converted.export, outcome.sidecar]
    names = [_short(path) for path in made if path is not None]
    if names:
        _say(f"wrote {', '.join(names)}")
    if outcome.converted.problem:
        _say(outcome.converted.problem)
    inputs = [_short(p) for p in (outcome.converted.export, outcome.sidecar) if p is not None]
    if inputs:
        _say(f"next: tracekit analyze {' '.join(inputs)}")
    else:
        _say("nothing was recorded and no hook had anything to record")
    if outcome.converted.export is not None and request.metrics.choice not in L2_SETS:
        _say("L2 hit rates are in no general set: a second run with --metrics l2 samples them")


def _short(path: Path) -> str:
    """Return a path as one would type it here."""
    import shlex

    here = Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))


def _analyze(outcome: Outcome) -> int:
    """Analyse what was recorded; the program's own failure stays the exit code."""
    from tracekit.cli.shell.app import call

    inputs = [str(p) for p in (outcome.converted.export, outcome.sidecar) if p is not None]
    if not inputs:
        return outcome.code or 3
    return outcome.code or call(["analyze", *inputs])
