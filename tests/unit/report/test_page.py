"""The HTML page as text: what it holds, what it cannot hold, and that it is the same again."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace

import polars as pl
import pytest

from tests.support.diagnoses import CRITICAL, DEQUANT, NO_GPU, OPAQUE, STEPS
from tracekit.model.chart import Axis, Bar, Chart, Panel, Role, Rows
from tracekit.model.finding import Evidence
from tracekit.model.table import Column, Table
from tracekit.report.page import data as page_tables
from tracekit.report.page import html
from tracekit.report.page.data import evidence, script_json, tables
from tracekit.views.contention.windows import WINDOWS


def data_of(text):
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    return json.loads(found[1])


def inline(text, tag):
    """The one element of a kind that has no attribute."""
    return re.search(rf"<{tag}>(.*?)</{tag}>", text, re.S)[1]


@pytest.mark.parametrize(
    "diagnosis", [DEQUANT, NO_GPU, OPAQUE], ids=["dequant", "no gpu", "opaque"]
)
def test_the_same_diagnosis_gives_the_same_bytes(diagnosis):
    assert html.render(diagnosis) == html.render(diagnosis)


def test_the_policy_allows_exactly_the_pages_own_script_and_style():
    text = html.render(DEQUANT)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    rules = dict(r.strip().split(" ", 1) for r in policy.split(";"))
    assert rules["default-src"] == "'none'"
    for tag, rule in (("script", "script-src"), ("style", "style-src")):
        digest = hashlib.sha256(inline(text, tag).encode()).digest()
        assert rules[rule] == f"'sha256-{base64.b64encode(digest).decode()}'"


def test_the_page_names_no_other_place():
    text = html.render(DEQUANT)
    assert re.findall(r'(?:src|href|action)="(?!#|data:,)[^"]*"', text) == []
    assert not re.search(r"https?://|url\(|@import|style=\"|\bon\w+=\"", text)


def test_the_summary_comes_first():
    text = html.render(DEQUANT)
    places = [text.index(t) for t in ("1 critical, 1 fine, 1 not judged", "GPU 0", 'id="findings"')]
    assert places == sorted(places)
    assert "busy 91.2% of 7.42 ms" in text


def test_time_that_is_opaque_makes_communication_a_lower_bound():
    text = html.render(OPAQUE)
    assert "communication, at least <b>1.00 ms, 0.48%</b>" in text
    assert "opaque graphs: what ran inside was not recorded <b>200 ms, 95.2%</b>" in text


def test_markup_in_every_text_stays_text():
    evil = '</script><img src=x onerror="x()">'
    frame = STEPS.with_columns(pl.lit(evil).alias("kernel"))
    bad = replace(CRITICAL, title=evil, advice=evil, caveats=(evil,), scope=((evil, evil),))
    text = html.render(
        replace(
            DEQUANT,
            findings=(bad,),
            frames={"dequant_stall": {"steps": frame}},
            reports=(replace(DEQUANT.reports[0], name=evil),),
            unreadable={evil: evil},
        )
    )
    assert "<img" not in text
    assert text.count("</script>") == 2
    kernel = next(c for c in data_of(text)["tables"][0]["columns"] if c["h"] == "kernel")
    assert kernel["s"] == [evil]


def test_json_in_a_script_element_cannot_leave_it():
    value = {"a": "</script><!-- & \u2028\u2029", "b": [1, None, 0.5]}
    text = script_json(value)
    assert not set(text) & set("<>&\u2028\u2029")
    assert json.loads(text) == value
    assert script_json("\ud800").encode() == b'"\\ud800"'


def test_columns_carry_their_scale_unit_and_meaning():
    about = Table(
        "steps", (Column("dequant_ns", pl.Int64, "ns", "time that they run"),), "one step"
    )
    [table] = tables(replace(DEQUANT, tables={"dequant_stall": (about,)}), 5)
    columns = {c["h"]: c for c in table["columns"]}
    assert (table["rows"], table["shown"], table["doc"]) == (7, 5, "one step")
    assert columns["dequant (us)"]["f"] == 1e3
    assert columns["dequant (us)"]["t"] == "time that they run"
    assert columns["dequant (us)"]["v"] == [255600, 250000, 261000, 255000, 255100]
    assert columns["dequant (%)"]["bar"] == 1
    assert columns["start (s)"]["f"] == 1e9
    assert columns["overlapped"]["s"] == ["no"]


def test_a_unit_that_the_name_lacks_comes_from_the_table():
    frame = pl.DataFrame({"write_amplification": [65.5]})
    about = Table("chains", (Column("write_amplification", pl.Float64, "x", "copied over new"),))
    found = replace(DEQUANT, frames={"kv": {"chains": frame}}, tables={"kv": (about,)})
    assert tables(found, 9)[0]["columns"][0]["h"] == "write amplification (x)"


def test_intervals_stand_beside_their_value_and_unmeasured_columns_are_named():
    frame = pl.DataFrame(
        {
            "slow_ratio": [1.5, None],
            "slow_lo_ratio": [1.25, None],
            "slow_hi_ratio": [1.75, float("nan")],
            "hit_frac": pl.Series([None, None], dtype=pl.Float64),
            "addr": [2**60, 1],
        }
    )
    [table] = tables(replace(DEQUANT, frames={"a": {"t": frame}}), 9)
    slow, addr = table["columns"]
    assert (slow["v"], slow["lo"], slow["hi"]) == ([1.5, None], [1.25, None], [1.75, None])
    assert table["absent"] == ["hit"]
    assert addr["s"] == ["1", str(2**60)]


def test_evidence_points_at_rows_and_columns_of_the_tables():
    finding = replace(
        CRITICAL,
        evidence=(
            Evidence("steps", {"step": [1, 6]}, ("dequant_ns", "step"), "two steps"),
            Evidence("steps"),
            Evidence("steps", {"step": 99}),
            Evidence("no such frame"),
        ),
    )
    drawn = tables(DEQUANT, 5)
    two, everything = evidence(DEQUANT, finding, drawn)
    names = drawn[0]["names"]
    assert two == {
        "title": "two steps",
        "table": 0,
        "rows": [1],
        "columns": [names.index("dequant_ns"), names.index("step")],
        "total": 2,
    }
    assert (everything["rows"], everything["columns"], everything["total"]) == (None, None, 7)


def test_5000_windows_stay_below_3_mb():
    rows = [
        (0, i * 997, i * 997 + 333, 333, "AllReduce", "gemm", i / 7e3, 0.2, 1.0, False)
        for i in range(5_000)
    ]
    frame = pl.DataFrame(rows, schema=WINDOWS.schema, orient="row")
    text = html.render(replace(DEQUANT, frames={"allreduce_contention": {"windows": frame}}))
    assert len(text.encode()) < 500_000
    assert data_of(text)["tables"][0]["shown"] == 5_000


def test_tables_are_cut_shorter_before_the_page_grows_too_large(monkeypatch):
    monkeypatch.setattr(page_tables, "MOST_BYTES", 60_000)
    frame = pl.DataFrame({"length_ns": range(10**8, 10**8 + 40_000)})
    [table] = page_tables.fitting_tables(replace(DEQUANT, frames={"a": {"t": frame}}))
    assert (table["rows"], table["shown"]) == (40_000, 5_000)
    wide = frame.select(pl.col("length_ns").alias(f"x{i}_ns") for i in range(4))
    [table] = page_tables.fitting_tables(replace(DEQUANT, frames={"a": {"t": wide}}))
    assert (table["rows"], table["shown"]) == (40_000, 1_250)


def test_charts_follow_each_other_and_are_linked():
    axis = Axis("time", "ns", low=0)
    bars = Panel("Bars", axis, Rows(("<a>",)), (Bar(0, 0, 5, Role.COPY, label="5 ns"),))
    charts = {n: Chart(f"Chart {n}", "How to read it.", (bars,)) for n in ("one", "two")}
    text = html.render(replace(DEQUANT, charts=charts))
    assert '<a href="#pictures">Charts</a>' in text
    assert re.findall(r"<h3>(Chart \w+)</h3>", text) == ["Chart one", "Chart two"]
    assert text.count('<svg class="chart"') == 2
    assert "&lt;a&gt;" in text


def test_without_a_chart_there_is_no_section_of_charts():
    assert "#pictures" not in html.render(DEQUANT)
    assert "#pictures" not in html.render(NO_GPU)
