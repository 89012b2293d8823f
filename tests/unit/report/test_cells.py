"""Lines break where Rich, which is slower to load and to run, breaks them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from tracekit.report import text as report_text

WORDS = st.lists(st.text("ab-.… 漢", min_size=1, max_size=30), max_size=12).map(" ".join)


@settings(deadline=None)
@given(WORDS, st.integers(4, 60))
def test_text_breaks_where_rich_breaks_it(text: str, width: int) -> None:
    broken = Text(text).wrap(Console(width=width), width, overflow="fold")
    assert report_text.wrapped(text, width) == [line.plain.rstrip() for line in broken]
    assert report_text.cell_len(text) == cell_len(text)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", [""]),
        ("one two", ["one two"]),
        ("one two three", ["one two", "three"]),
        ("a one-two-three b", ["a", "one-two-", "three b"]),
        ("漢漢漢漢漢", ["漢漢漢漢", "漢"]),
    ],
)
def test_words_stay_whole_where_they_fit(text: str, lines: list[str]) -> None:
    assert report_text.wrapped(text, 8) == lines


def test_headings_end_on_one_line_and_numbers_stand_at_the_right() -> None:
    page = report_text.Lines(40)
    page.columns(("name", "time of all"), [("kernel", "12"), ("b", "3")], (False, True), 0)
    assert page.text().split("\n") == [
        "        time",
        "          of",
        "name     all",
        "kernel    12",
        "b          3",
        "",
    ]


def test_colour_covers_words_only() -> None:
    page = report_text.Lines(40, color=True)
    page.line("plain")
    page.fields([("Do", "it")])
    assert page.text() == "plain\n  \x1b[2mDo\x1b[0m           it\n"
