"""An archive to attach to an issue: parts, what fits of them, and the same bytes every time."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tracekit.errors import UsageError
from tracekit.model.diagnosis import Diagnosis
from tracekit.model.finding import Level
from tracekit.report import document, markdown
from tracekit.report.page import html
from tracekit.wording.numbers import count, size

__all__ = [
    "WORTH_SLICE",
    "Archive",
    "Dropped",
    "Part",
    "archive",
    "documents",
    "figures",
    "fitted",
]

README = "README.md"
DIAGNOSIS = "diagnosis.md"
JSON = "diagnosis.json"
PAGE = "diagnosis.html"
JSON_ROWS = (1000, 100, 10, 0)
"""Rows of every table in the JSON that are tried, where all of them are too large."""
LEVEL_OF_COMPRESSION = 9
BAD = (Level.CRITICAL, Level.WARN)
_OLDEST = (1980, 1, 1, 0, 0, 0)
_FILE_MODE = 0o644 << 16
_UNIX = 3
_ENTRY_BYTES, _END_BYTES = 30 + 46, 22


@dataclass(frozen=True)
class Part:
    """One file of an archive.

    Attributes:
        name: Its name in the archive.
        content: Its bytes.
        about: What it is, in a few words.
        worth: Parts of least worth are left out first; `ALWAYS` never are.
        smaller: Gives the same part smaller, None when that is not possible (any more).
    """

    name: str
    content: bytes
    about: str
    worth: int
    smaller: Callable[[], Part | None] = lambda: None

    @cached_property
    def packed_bytes(self) -> int:
        """What it takes in the archive."""
        squeeze = zlib.compressobj(LEVEL_OF_COMPRESSION, zlib.DEFLATED, -zlib.MAX_WBITS)
        deflated = len(squeeze.compress(self.content)) + len(squeeze.flush())
        return deflated + _ENTRY_BYTES + 2 * len(self.name.encode())


@dataclass(frozen=True)
class Dropped:
    """What did not fit.

    Attributes:
        name: Name of the part.
        n_bytes: What it would have taken in the archive.
        what: What was done: left out, or made smaller.
    """

    name: str
    n_bytes: int
    what: str


@dataclass(frozen=True)
class Archive:
    """A finished archive.

    Attributes:
        parts: What is inside, by name.
        dropped: What is not, because of the size.
        content: The bytes of the zip file.
    """

    parts: tuple[Part, ...]
    dropped: tuple[Dropped, ...]
    content: bytes


ALWAYS, WORTH_JSON, WORTH_SLICE, WORTH_PAGE, WORTH_FIGURE = 5, 4, 3, 2, 1


def documents(diagnosis: Diagnosis, *, top: int | None = None) -> tuple[Part, ...]:
    """Return a diagnosis as Markdown, HTML and JSON.

    Args:
        diagnosis: A redacted diagnosis.
        top: Rows of every table; None for what suits each format.
    """
    text, page = markdown.render(diagnosis, top=top), html.render(diagnosis, top=top)
    first = document.DEFAULT_TOP if top is None else top
    return (
        Part(DIAGNOSIS, text.encode(), "the diagnosis, to read or to paste", ALWAYS),
        Part(PAGE, page.encode(), "the diagnosis as a page, one file without network", WORTH_PAGE),
        _json(diagnosis, (first, *(n for n in JSON_ROWS if n < first))),
    )


def figures(diagnosis: Diagnosis) -> tuple[Part, ...]:
    """Return the chart of every analysis that found something bad, as a picture."""
    from tracekit.report.charts import figure  # matplotlib takes longer to load than the rest

    bad = {f.id.partition("/")[0] for f in diagnosis.findings if f.level in BAD}
    return tuple(
        Part(
            f"figure-{name}.png",
            figure.render(chart, "png"),
            f"figure: {chart.title}",
            WORTH_FIGURE,
        )
        for name, chart in diagnosis.charts.items()
        if name in bad
    )


def _json(diagnosis: Diagnosis, rows: Sequence[int]) -> Part:
    about = f"the diagnosis for programs, up to {count(rows[0])} rows of every table"
    content = document.render(diagnosis, top=rows[0]).encode()
    rest = rows[1:]
    smaller = (lambda: _json(diagnosis, rest)) if rest else (lambda: None)
    return Part(JSON, content, about, WORTH_JSON, smaller)


def fitted(
    parts: Sequence[Part], max_bytes: int, readme: Callable[..., str]
) -> tuple[tuple[Part, ...], tuple[Dropped, ...]]:
    """Return the parts that fit together with a README, and what had to go.

    Args:
        parts: Everything there is.
        max_bytes: What the archive may take.
        readme: Called with (parts, dropped), returns the text of the README.

    Raises:
        UsageError: Not even the Markdown fits.
    """
    kept, dropped = sorted(parts, key=lambda p: p.name), tuple[Dropped, ...]()
    while True:
        about = Part(
            README,
            readme(kept, dropped).encode(),
            "hashes, what was left out, how to make it",
            ALWAYS,
        )
        taken = _END_BYTES + about.packed_bytes + sum(p.packed_bytes for p in kept)
        if taken <= max_bytes:
            return tuple(sorted([about, *kept], key=lambda p: p.name)), dropped
        spare = [p for p in kept if p.worth < ALWAYS]
        if not spare:
            message = f"--max-size: not even the diagnosis as text fits, {size(taken)} are needed"
            raise UsageError(message)
        victim = min(spare, key=lambda p: (p.worth, -p.packed_bytes, p.name))
        kept.remove(victim)
        less = victim.smaller()
        kept = sorted([*kept, *([less] if less else [])], key=lambda p: p.name)
        dropped = _noted(dropped, victim, less)


def _noted(dropped: tuple[Dropped, ...], victim: Part, less: Part | None) -> tuple[Dropped, ...]:
    """Add what happened to `victim`; a part that shrinks twice is mentioned once."""
    what = "left out" if less is None else f"made smaller: {less.about}"
    before = next((d for d in dropped if d.name == victim.name), None)
    rest = tuple(d for d in dropped if d is not before)
    if before is not None:
        return (*rest, replace(before, what=what))
    return (*rest, Dropped(victim.name, victim.packed_bytes, what))


def archive(parts: Sequence[Part], max_bytes: int, readme: Callable[..., str]) -> Archive:
    """Return the zip of what fits: entries by name, no date, the same bytes for the same parts.

    Args:
        parts: Everything there is.
        max_bytes: What the archive may take.
        readme: See `fitted`.

    Raises:
        UsageError: Not even the Markdown fits.
    """
    kept, dropped = fitted(parts, max_bytes, readme)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for part in kept:
            entry = zipfile.ZipInfo(part.name, _OLDEST)
            entry.external_attr, entry.create_system = _FILE_MODE, _UNIX
            file.writestr(entry, part.content, zipfile.ZIP_DEFLATED, LEVEL_OF_COMPRESSION)
    return Archive(kept, dropped, buffer.getvalue())
