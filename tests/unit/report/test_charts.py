"""Charts as data become the same picture on the page, as SVG, as PNG and as PDF."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from tracekit.model.chart import (
    Axis,
    Bar,
    Chart,
    Key,
    Line,
    Panel,
    Point,
    Role,
    Rows,
    Rule,
    Segments,
    numbered_role,
    role_of_kind,
)
from tracekit.report.charts import figure, layout
from tracekit.report.charts.drawing import Box, Dot, Path, Text, text_width
from tracekit.report.charts.palette import DARK, LIGHT, colour_name, fills, style
from tracekit.report.charts.scales import fitted, nice_ticks
from tracekit.report.charts.svg import chart_file, panel_svg
from tracekit.report.page.charts import pictures

LONG = "decode step=N mode=" + "a_very_long_name_of_a_step_" * 6
SVG = "{http://www.w3.org/2000/svg}"
BARS = Panel(
    "Time of steps",
    Axis("time of a step", "ns", low=0),
    Rows(("fast", "slow <b>")),
    (
        Bar(0, 0, 1e6, Role.MATRIX_PRODUCT, "1 ms of GEMM"),
        Bar(1, 0, 4e6, Role.MATRIX_PRODUCT, label="4.00 ms"),
        Bar(1, 4e6, 5e6, Role.IDLE, shade=0.5),
    ),
)
POINTS = Panel(
    "Hit rate",
    Axis("bytes touched", "bytes", log=True),
    Axis("hit rate", "1", low=0),
    (
        Rule(1e6, "size of the L2"),
        Point(1e3, 0.5, Role.ATTENTION, "layer 0", (0.4, 0.6)),
        Line(((1e3, 0.1), (1e5, 0.2), (1e6, 0.3)), Role.SERIES_1, steps=True),
        Segments(((1e3, 0.1, 1e4, 0.1), (1e4, 0.3, 1e5, 0.3)), Role.SERIES_2),
    ),
    wide=False,
)
CHART = Chart("Both", "How to read them.", (BARS, POINTS), (Key("product", Role.MATRIX_PRODUCT),))


def shapes(panel, kind):
    return [s for s in layout.panel_drawing(panel).shapes if isinstance(s, kind)]


def words(panel):
    return [t.words for t in shapes(panel, Text)]


@pytest.mark.parametrize("form", [*figure.FORMATS, "svg"])
def test_the_same_chart_gives_the_same_bytes(form):
    drawn = [chart_file(CHART) if form == "svg" else figure.render(CHART, form) for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert drawn[0].startswith({"svg": b"<svg ", "png": b"\x89PNG", "pdf": b"%PDF"}[form])
    assert not re.search(rb"20\d\d-\d\d-\d\d", drawn[0])


def test_an_svg_file_stands_alone():
    text = chart_file(CHART).decode()
    root = ElementTree.fromstring(text)
    said = [e.text for e in root.iter(f"{SVG}text")]
    assert said[:3] == ["Both", "How to read them.", "product"]
    assert "slow <b>" in said
    assert "var(--" not in text
    assert LIGHT["c2"] in text
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)


def test_lengths_of_bars_are_those_of_their_values():
    fast, slow, idle = shapes(BARS, Box)
    assert fast.width * 4 == pytest.approx(slow.width)
    assert idle.x == pytest.approx(slow.x + slow.width)
    assert (idle.kind, idle.shade, fast.tip) == ("idle", 0.5, "1 ms of GEMM")
    assert fast.y < slow.y == idle.y


def test_axes_of_numbers_state_their_unit():
    assert "time of a step (ms)" in words(BARS)
    assert [w for w in words(BARS) if w.isdigit()] == ["0", "1", "2", "3", "4", "5"]
    assert {"hit rate (%)", "bytes touched", "1 kB", "1 MB"} <= set(words(POINTS))


def test_a_point_has_its_interval_along_the_axis_of_its_value():
    (dot,) = shapes(POINTS, Dot)
    (whisker,) = [p for p in shapes(POINTS, Path) if p.kind == "whisker"]
    [(low, high)] = whisker.lines
    assert low[0] == high[0] == dot.x
    assert high[1] < dot.y < low[1]
    on_rows = Panel("t", Axis("x", "x"), Rows(("a",)), (Point(2, 0, Role.COPY, "", (1.5, 3)),))
    (dot,) = shapes(on_rows, Dot)
    [[(low, high)]] = [p.lines for p in shapes(on_rows, Path) if p.kind == "whisker"]
    assert low[1] == high[1] == dot.y
    assert low[0] < dot.x < high[0]


def test_steps_hold_a_value_until_the_next():
    (line, pieces) = [p for p in shapes(POINTS, Path) if p.kind.startswith("run")]
    [places] = line.lines
    assert [y for _, y in places[:4]] == [places[0][1], places[0][1], places[2][1], places[2][1]]
    assert places[1][0] == places[2][0]
    assert len(pieces.lines) == 2


@pytest.mark.parametrize("labels", [("short", "b"), (LONG, "b"), (LONG, LONG)])
def test_long_labels_leave_the_marks_their_room(labels):
    panel = Panel(
        "t",
        Axis("time", "ns", low=0, high=100),
        Rows(labels),
        tuple(Bar(i, 0, 100, Role.COPY, label="100 ns") for i in range(len(labels))),
    )
    for box in shapes(panel, Box):
        assert box.width > 0.55 * layout.WIDE
    drawn = layout.panel_drawing(panel)
    for text in shapes(panel, Text):
        half = {"start": 0.0, "middle": 0.5, "end": 1.0}[text.anchor] * text_width(text.words)
        assert text.x - half >= 0
        assert text.x - half + text_width(text.words) <= drawn.width
        assert 0 < text.y < drawn.height


def test_what_a_label_loses_is_under_the_mouse():
    panel = Panel("t", Axis("time", "ns"), Rows((LONG,)), (Bar(0, 0, 1, Role.COPY),))
    (cut,) = [t for t in shapes(panel, Text) if t.tip]
    assert cut.tip == LONG
    assert "..." in cut.words
    assert LONG in str(panel_svg(panel))


def test_markup_and_control_characters_of_a_trace_stay_text():
    evil = "</svg><script>x()</script>\x1b[31m"
    mark = Bar(0, 0, 1, Role.COPY, evil, evil)
    panel = Panel(evil, Axis("t", "ns"), Rows((evil,)), (mark,))
    for text in (str(panel_svg(panel)), chart_file(Chart(evil, evil, (panel, panel))).decode()):
        assert "<script" not in text
        assert "\x1b" not in text
        ElementTree.fromstring(text)
    assert figure.render(Chart("你 $x$ {", "", (panel,)), "png").startswith(b"\x89PNG")


def test_panels_stand_beside_each_other_unless_they_are_wide():
    small = layout.figure(Chart("t", "", (POINTS, POINTS)))
    wide = layout.figure(Chart("t", "", (BARS, POINTS)))
    places = [
        [s.x for s in drawn.shapes if isinstance(s, Text) and s.words == "Hit rate"]
        for drawn in (small, wide)
    ]
    assert len(set(places[0])) == 2
    assert len(places[1]) == 1
    assert [s for s in wide.shapes if isinstance(s, Box)][-1].x <= layout.WIDE


def test_the_page_groups_panels_and_names_several_of_them():
    (picture,) = pictures([CHART])
    assert (picture.title, picture.legend) == ("Both", (("product", "c2", 1.0),))
    assert [(small, [t for t, _ in panels]) for small, panels in picture.groups] == [
        (False, ["Time of steps"]),
        (True, ["Hit rate"]),
    ]
    (alone,) = pictures([Chart("One", "", (BARS,))])
    assert alone.groups[0][1][0][0] == ""


@pytest.mark.parametrize("role", Role)
def test_every_role_has_a_colour_on_light_and_dark_ground(role):
    name = colour_name(role)
    assert name in LIGHT
    assert f".{name} {{ fill: var(--{name})" in fills()
    for scheme in (LIGHT, DARK):
        assert f"--{name}: {scheme[name]};" in style()


def test_kinds_of_work_have_the_role_of_their_class():
    kinds = ("gemm", "comm", "memcpy PtoP", "memcpy DtoD", "memset", "elementwise", None)
    assert [role_of_kind(k) for k in kinds] == [
        Role.MATRIX_PRODUCT,
        Role.COMMUNICATION,
        Role.COMMUNICATION,
        Role.COPY,
        Role.COPY,
        Role.OTHER_COMPUTE,
        Role.OTHER_COMPUTE,
    ]
    assert [numbered_role(n) for n in (0, 5, 6)] == [Role.SERIES_1, Role.SERIES_6, Role.SERIES_1]


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [(0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1.0]), (0, 64, [0, 20, 40, 60]), (3, 3, [3])],
)
def test_ticks_are_round(low, high, ticks):
    assert nice_ticks(low, high, 5) == pytest.approx(ticks)


def test_axes_place_values():
    assert fitted(Axis("t", "ns", low=0, high=8), ()).frac(2) == 0.25
    log = fitted(Axis("b", "bytes", low=100, high=10_000, log=True), ())
    assert log.frac(1_000) == pytest.approx(0.5)
    assert [text for _, text in log.ticks(5)] == ["100 B", "500 B", "1 kB", "5 kB", "10 kB"]


@pytest.mark.parametrize("values", [(), (0.0,), (5.0,), (float("nan"), 3.0), (0.0, -1.0)])
@pytest.mark.parametrize("log", [False, True])
def test_any_values_give_an_axis_with_a_tick(values, log):
    scale = fitted(Axis("t", "x", log=log), values)
    assert scale.low < scale.high
    ticks = scale.ticks(5)
    assert 1 <= len(ticks) <= 6
    assert all(scale.low * 0.99 <= v <= scale.high * 1.01 or v == scale.low for v, _ in ticks)
