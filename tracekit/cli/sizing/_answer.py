"""An answer as text, JSON or a figure, from one place."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracekit.cli.shell.output import check_places, print_text, terminal_options, write

if TYPE_CHECKING:
    from tracekit.model.chart import Chart
    from tracekit.report.text import Lines

__all__ = [
    "PATH",
    "Answer",
    "check",
    "deliver",
    "hardware_table",
    "output_options",
    "plain",
    "text_of",
]

PATH = click.Path(path_type=Path)
_FIGURES = ("svg", "png", "pdf")
_SUFFIXES = (".txt", ".json", ".csv", *(f".{form}" for form in _FIGURES))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a verb found out.

    Attributes:
        verb: Words after ``tracekit``.
        document: The answer as plain values, for JSON.
        write: Writes it as text.
        chart: Returns its chart; None if there is nothing to draw.
        csv: The answer's table as CSV; None if it has none.
    """

    verb: str
    document: Mapping[str, Any]
    write: Callable[[Lines], None]
    chart: Callable[[], Chart | None] | None = None
    csv: Callable[[], str] | None = None


def output_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--format`` and ``--output`` to a verb."""
    for option in (
        click.option(
            "--output",
            "-o",
            "outputs",
            metavar="FILE",
            type=PATH,
            multiple=True,
            help="Also write to this file; its suffix chooses the format; may be repeated.",
        ),
        click.option(
            "--format",
            "form",
            type=click.Choice(("text", "json")),
            default="text",
            show_default=True,
            help="What is printed.",
        ),
    ):
        function = option(function)
    return function


def check(outputs: Sequence[Path], inputs: Sequence[Path] = ()) -> None:
    """Refuse outputs that cannot be written, before any work.

    Raises:
        UsageError: An unknown suffix, no folder, or one of the inputs.
    """
    from tracekit.errors import UsageError

    for path in outputs:
        if path.suffix.lower() not in _SUFFIXES:
            message = f"-o {path}: the suffix chooses the format"
            raise UsageError(message, hint=f"use one of {', '.join(_SUFFIXES)}")
    check_places(outputs, inputs)


def deliver(answer: Answer, form: str, outputs: Sequence[Path]) -> None:
    """Print `answer`, and write it to each of `outputs`.

    Raises:
        InputError: There is no figure or table where one was wanted, or a file cannot be written.
    """
    contents = [(path, _content(answer, path)) for path in outputs]
    for path, content in contents:
        write(path, content)
    print_text(_json(answer) if form == "json" else _text(answer, **terminal_options(sys.stdout)))


def _content(answer: Answer, path: Path) -> str | bytes:
    from tracekit.errors import InputError

    suffix = path.suffix.lower()
    if suffix == ".json":
        return _json(answer)
    if suffix == ".txt":
        return _text(answer)
    if suffix == ".csv":
        if answer.csv is None:
            message = f"-o {path}: {answer.verb} has no table for CSV"
            raise InputError(message, hint="use .json")
        return answer.csv()
    return _figure(answer, path)


def _figure(answer: Answer, path: Path) -> str | bytes:
    from tracekit.errors import InputError

    chart = None if answer.chart is None else answer.chart()
    if chart is None:
        message = f"-o {path}: {answer.verb} has nothing to draw here"
        raise InputError(message)
    form = path.suffix.lower().removeprefix(".")
    if form == "svg":
        from tracekit.report.charts.svg import chart_file

        return chart_file(chart)
    from tracekit.report.charts import figure

    return figure.render(chart, form)


def _text(answer: Answer, **options: Any) -> str:
    from tracekit.report.text import Lines

    page = Lines(**options)
    answer.write(page)
    return page.text()


def _json(answer: Answer) -> str:
    from tracekit import __version__

    document = {"command": answer.verb, "tracekit": __version__, **plain(answer.document)}
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def plain(value: Any) -> Any:
    """Return `value` as what JSON holds: records as objects, numbers that are none as null."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, frozenset | set):
        return sorted(plain(v) for v in value)
    return value


def text_of(path: Path, what: str) -> str:
    """Return the text of an input file.

    Raises:
        InputError: It cannot be read, or is no text.
    """
    from tracekit.errors import InputError

    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        message = f"{what} cannot be read: {error.strerror}"
        raise InputError(message, path=path) from None
    except UnicodeDecodeError:
        message = f"{what} is no text"
        raise InputError(message, path=path) from None


def hardware_table(path: Path | None) -> Any:
    """Return the hardware table with the user's own file merged in.

    Raises:
        InputError: The file cannot be used.
    """
    from tracekit.errors import InputError
    from tracekit.model.hardware import HARDWARE, merged, parse_devices

    if path is None:
        return HARDWARE
    try:
        return merged(HARDWARE, parse_devices(text_of(path, "hardware table"), HARDWARE))
    except InputError as error:
        raise InputError(error.message, path=error.path or path, hint=error.hint) from None
