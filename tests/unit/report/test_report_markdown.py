from __future__ import annotations

import math
from dataclasses import replace

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tests.support.diagnoses import (
    COMMAND,
    CRITICAL,
    DEQUANT,
    FINE,
    NO_GPU,
    OPAQUE,
    OVERVIEW,
    REPORT,
)
from tracekit.model.finding import Evidence, Level
from tracekit.report.evidence import courses
from tracekit.report.markdown import MOST_BYTES, code, inline, render, sparkline

PARSER = MarkdownIt("gfm-like", {"linkify": False})
EVIL = (
    "<img src=x onerror=alert(1)> **b** _i_ [a](http://x) | `c` @team #12 ~~s~~ $m$ \x1b[1m www.x.y"
)
HARMLESS = {"inline", "text", "softbreak", "html_block", "fence"}


def tokens(text):
    for token in PARSER.parse(text):
        yield token
        yield from token.children or ()


def html_of(text):
    return [t.content.strip() for t in tokens(text) if t.type in ("html_block", "html_inline")]


def test_the_summary_comes_first_and_names_level_stake_and_confidence():
    head = render(DEQUANT).splitlines()[:8]
    assert head[2] == "**Findings: 1 critical, 1 fine, 1 not judged.**"
    assert "CRITICAL" in head[6]
    assert "2.56 ms, 34.4% of all steps' GPU span | medium |" in head[6]


def test_tables_are_tables():
    found = [t.type for t in tokens(render(DEQUANT))]
    assert found.count("table_open") == 3
    assert found.count("html_block") == 4


def test_details_hold_rows_and_say_how_many():
    text = render(DEQUANT, top=2)
    assert "<details><summary>Dequantisation by step (2 of 7 rows)</summary>" in text
    assert text.count("`void dequantize_int4_kernel<(int)128>(int*)`") == 2


def test_what_is_missing_comes_with_its_command_in_a_block():
    fences = [t.content for t in tokens(render(DEQUANT)) if t.type == "fence"]
    assert fences == [f"{COMMAND}\n", "tracekit analyze REPORT\n"]


def test_the_command_to_reproduce_has_window_and_parameters():
    provenance = {"window_ns": [1, 2], "params": {"kernels.gemm": "a b"}, "redact": "yes"}
    text = render(
        replace(DEQUANT, reports=(REPORT, replace(REPORT, index=1)), provenance=provenance)
    )
    assert "tracekit analyze REPORT0 REPORT1 --window 1ns:2ns --param 'kernels.gemm=a b'\n" in text
    assert "were left out" in text


@pytest.mark.parametrize("diagnosis", [NO_GPU, OPAQUE], ids=["no gpu", "opaque"])
def test_partial_recordings_render(diagnosis):
    text = render(diagnosis)
    if diagnosis is NO_GPU:
        assert "No accelerator activity recorded" in text
        assert "busy" not in text
    else:
        assert "communication at least 0.48% of 210 ms busy; up to 95.7%" in text


def evil(name):
    frame = pl.DataFrame({"kernel": [name] * 3, "n": [1, 2, 3]})
    finding = replace(
        CRITICAL,
        title=name,
        advice=name,
        caveats=(name,),
        scope=((name, name),),
        evidence=(Evidence("steps", title=name),),
    )
    return replace(
        DEQUANT,
        findings=(finding, replace(FINE, title=name)),
        frames={"dequant_stall": {"steps": frame}},
        overview=replace(OVERVIEW, step_groups={name: (1, 2.0)}, perspective=(name,)),
        reports=(replace(REPORT, name=name),),
    )


def check_harmless(text):
    assert all(t.type not in {"link_open", "image", "s_open", "em_open"} for t in tokens(text))
    for block in html_of(text):
        assert block.startswith(("<details><summary>", "</details>")), block
        inside = block.removeprefix("<details><summary>").removesuffix("</summary>")
        assert "<" not in inside.removeprefix("</details>").replace("<details><summary>", "")


def test_markup_in_names_is_shown_not_used():
    text = render(evil(EVIL))
    check_harmless(text)
    assert "\x1b" not in text
    assert "@team" not in "".join(t.content for t in tokens(text) if t.type == "html_block")
    shown = "".join(t.content for t in tokens(text) if t.type == "text")
    assert "<img src=x onerror=alert(1)> **b** _i_ [a](http://x) | `c` @team #12" in shown


@settings(deadline=None, max_examples=60)
@given(st.text(alphabet=st.sampled_from("<>*_[]()|`@#~$!&\\ ab\n-+.:/"), max_size=30))
def test_no_name_makes_markup(name):
    check_harmless(render(evil(name)))


@settings(deadline=None)
@given(st.text(max_size=40))
@example("__0__")
@example("_a__b_")
def test_inline_text_reads_back_as_it_was(text):
    (paragraph,) = [t for t in PARSER.parse("x " + inline(text) + " x") if t.type == "inline"]
    shown = "".join(t.content for t in paragraph.children or ())
    assert all(t.type in {"text", "text_special"} for t in paragraph.children or ())
    assert shown == "x " + inline_source(text) + " x"


def inline_source(text):
    from tracekit.wording.names import printable

    return printable(text)


def test_a_code_span_stays_one_cell():
    assert code("a|b`c") == "`a\\|b'c`"
    assert code("") == ""


def test_a_page_stays_small_whatever_it_holds():
    frame = pl.DataFrame({"kernel": ["k" * 500] * 5_000, "x_ns": range(5_000)})
    many = tuple(
        replace(CRITICAL, id=f"dequant_stall/{i}", title=f"Finding {i} " + "t" * 900)
        for i in range(500)
    )
    diagnosis = replace(DEQUANT, findings=many, frames={"dequant_stall": {"steps": frame}})
    for top in (None, 0, 100_000):
        text = render(diagnosis, top=top)
        assert len(text.encode()) < MOST_BYTES
    assert "more findings do not fit here" in text
    assert "### Reproduce" in text


def test_fewer_rows_before_fewer_findings():
    names = [f"kernel_{i}" for i in range(5_000)]
    frame = pl.DataFrame({f"name_{i}": names for i in range(50)})
    diagnosis = replace(DEQUANT, frames={"dequant_stall": {"steps": frame}})
    text = render(diagnosis, top=5_000)
    assert len(text.encode()) < MOST_BYTES
    assert "(10 of 5,000 rows)" in text
    assert "do not fit" not in text


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ([], ""),
        ([0, 1, 2, 3, 4, 5, 6, 7], "▁▂▃▄▅▆▇█"),
        ([1, 1], "██"),
        ([0, 0], "▁▁"),
        ([None, 2, math.nan, 4], "·▅·█"),
        ([-1, 0, 1], "▁▅█"),
    ],
)
def test_sparklines(values, line):
    assert sparkline(values) == line


def test_a_sparkline_averages_runs_of_rows():
    assert sparkline([0, 0, 4, 4, 8, 8], width=3) == "▁▅█"
    assert len(sparkline(range(10_000))) == 40


def test_only_ordered_measured_columns_of_long_tables_have_a_course():
    frame = pl.DataFrame(
        {
            "step": [*range(8), 3],
            "start_ns": range(9),
            "name": ["k"] * 9,
            "gap_ns": [9, 8, 7, 6, 5, 4, 3, 2, 1],
        }
    )
    diagnosis = replace(DEQUANT, frames={"dequant_stall": {"steps": frame}})
    (course,) = courses(diagnosis, CRITICAL, Evidence("steps"))
    assert (course.heading, course.over, course.unit) == ("gap", "time", "ns")
    assert course.values == (9, 8, 7, 6, 5, 4, 3, 2, 1)
    assert courses(DEQUANT, CRITICAL, Evidence("steps")) == ()
    assert "gap over time: `██▇▆▅▄▃▂▁` (1 ns to 9 ns)" in render(diagnosis)


def test_levels_are_words_beside_colours():
    finding = replace(CRITICAL, level=Level.WARN)
    assert "🟠 WARNING" in render(replace(DEQUANT, findings=(finding,)))
