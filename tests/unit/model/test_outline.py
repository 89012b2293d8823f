"""A diagnosis fits a screen, and is safe in a notebook."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

import pytest

from tests.support.diagnoses import DEQUANT
from tracekit.model.finding import Confidence, Finding, Level

HOSTILE = "<script>alert(1)</script>\x1b[31m " + "long words " * 20


@pytest.fixture
def many():
    found = Finding(
        id="x/y",
        level=Level.WARN,
        title=HOSTILE,
        advice=HOSTILE,
        confidence=Confidence(provenance=0.6),
    )
    return replace(DEQUANT, findings=(found,) * 40)


def test_it_fits_a_screen(many):
    lines = repr(many).splitlines()
    assert len(lines) == 15
    assert max(len(line) for line in lines) <= 79
    assert lines[0].startswith("Diagnosis: 40 warn; ")
    assert lines[-2:] == [
        "  and 28 more in .findings",
        "tracekit.render(diagnosis) shows all of it",
    ]
    assert "\x1b" not in repr(many)


def test_without_findings_it_says_so():
    assert repr(replace(DEQUANT, findings=())).startswith("Diagnosis: no finding; ")


def test_a_notebook_gets_a_table_and_no_script(many):
    class Tags(HTMLParser):
        opened: list[str] = []  # noqa: RUF012
        closed: list[str] = []  # noqa: RUF012

        def handle_starttag(self, tag, attrs):
            self.opened.append(tag)
            assert not {"src", "href", "onclick"} & {name for name, _ in attrs}

        def handle_endtag(self, tag):
            self.closed.append(tag)

    parser = Tags()
    parser.feed(many._repr_html_())
    assert parser.opened.count("tr") == 41
    assert set(parser.opened) == {
        *("div", "p", "b", "table", "thead", "tbody", "tr", "th", "td", "br", "small")
    }
    assert sorted(t for t in parser.opened if t != "br") == sorted(parser.closed)
    assert "medium" in many._repr_html_()
