"""Every analysis has its page, its tests, its golden and its line in the changelog.

The end of a page is what `tracekit list NAME --markdown` prints; ``--update`` writes it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.builders import Export
from tracekit import analyses, engine
from tracekit.report.analysis_page import reference, skeleton

ROOT = Path(__file__).parent.parent.parent
NAMES = analyses.own_names()
ALL = [analyses.load(name) for name in NAMES]


def page(name):
    return ROOT / "docs" / "analyses" / f"{name}.md"


def test_there_are_analyses():
    assert len(NAMES) >= 5


@pytest.mark.parametrize("analysis", ALL, ids=NAMES)
def test_the_page_names_every_parameter_and_column(analysis, update):
    path = page(analysis.name)
    text, wanted = path.read_text(), reference(analysis)
    begin = text.partition(wanted.partition("\n")[0])[0]
    if update:
        path.write_text(f"{begin.rstrip()}\n\n{wanted}")
        return
    assert text[len(begin) :] == wanted, "run this test with --update to write it anew"


@pytest.mark.parametrize("analysis", ALL, ids=NAMES)
def test_the_page_asks_the_question_and_has_been_written(analysis):
    text = page(analysis.name).read_text()
    assert text.startswith(f"# {analysis.name}\n\n{analysis.question}\n")
    assert "TODO" not in text
    assert ("\n## Chart\n" in text) is (analysis.chart is not None)


def test_no_page_is_of_an_analysis_that_is_gone():
    assert sorted(p.stem for p in (ROOT / "docs" / "analyses").glob("*.md")) == list(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_there_are_tests_a_golden_and_a_line_in_the_changelog(name):
    assert (ROOT / "tests" / "unit" / "analyses" / f"test_{name}.py").exists()
    goldens = [p for p in (ROOT / "tests" / "golden").rglob("*.*") if p.suffix in (".py", ".json")]
    assert any(name in p.read_text() for p in goldens)
    assert f"`{name}`" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("analysis", ALL, ids=NAMES)
def test_an_analysis_is_named_as_its_package_and_described(analysis):
    assert analyses.load(analysis.name) is analysis
    assert analysis.question.endswith("?")
    for table in analysis.results:
        assert table.doc, table.name
        assert [c.name for c in table.columns if not c.doc] == [], table.name


def test_a_recording_without_work_is_nothing_to_draw(tmp_path):
    path = Export().gpu().write(tmp_path / "run.sqlite")
    found = engine.analyze([path], with_pictures=True)
    assert (found.charts, found.tracks, found.time_parts) == ({}, (), ())


@pytest.mark.parametrize("analysis", ALL, ids=NAMES)
def test_the_skeleton_of_a_page_names_what_is_to_be_written(analysis):
    text = skeleton(analysis)
    assert text.count("TODO: ") == (5 if analysis.chart else 4)
    assert text.endswith(reference(analysis))
