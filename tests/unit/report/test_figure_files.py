"""Figures: one style, no dates, a unit on every axis."""

from __future__ import annotations

import re
from dataclasses import replace

import polars as pl
import pytest
from matplotlib.figure import Figure

from tracekit import analyses, engine
from tracekit.report import figure
from tracekit.trace.analysis import Analysis

HEADS = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}
UNIT = re.compile(r"\((?:x|s|us|ms|bytes|%|share\b[^)]*)\)")
ANALYSES = [a for a in map(analyses.load, analyses.names()) if a.plot is not None]


def bars(frames, axes):
    axes.barh(frames["t"]["name"].to_list(), frames["t"]["share_frac"].to_list())
    axes.set_xlabel("share (share, 0..1)")


FRAMES = {"t": pl.DataFrame({"name": ["a $x$ <b>", "\u4f60"], "share_frac": [0.25, 0.5]})}


@pytest.mark.parametrize("form", sorted(figure.FORMATS))
def test_the_same_frames_give_the_same_bytes(form):
    first, second = (figure.render(bars, FRAMES, form, title="t") for _ in range(2))
    assert first == second
    assert first.startswith(HEADS[form])
    assert not re.search(rb"20\d\d-\d\d-\d\d", first)


def test_nothing_to_draw_gives_nothing():
    assert figure.render(lambda frames, axes: None, {}, "png", title="t") == b""
    assert figure.render(lambda frames, axes: axes.scatter([], []), {}, "png", title="t") == b""


def test_logarithms_have_plain_ticks():
    def plot(frames, axes):
        axes.plot([1, 10, 100], [1, 2, 3])
        axes.set_xscale("log")

    seen = []

    def looked(frames, axes):
        plot(frames, axes)
        seen.append(axes)

    assert figure.render(looked, {}, "svg", title="t")
    assert [seen[0].xaxis.get_major_formatter()(v, 0) for v in (1, 50, 1000)] == [
        "1",
        "50",
        "1,000",
    ]


@pytest.mark.parametrize("analysis", ANALYSES, ids=[a.name for a in ANALYSES])
def test_empty_frames_are_nothing_to_draw(analysis: Analysis):
    frames = {t.name: t.empty() for t in analysis.results}
    assert figure.render(analysis.plot, frames, "png", title=analysis.question) == b""


@pytest.mark.parametrize(
    ("name", "fixture"),
    [
        ("dequant_stall", "int4_dequant"),
        ("kv_fragmentation", "hf_dynamic_cache"),
        ("kv_fragmentation", "kv_stride_l2"),
        ("l2_miss", "kv_stride_l2"),
    ],
)
def test_axes_of_numbers_have_a_unit(name, fixture, fixture_path):
    analysis = analyses.load(name)
    found = engine.analyze([fixture_path(fixture)], only=[name])
    axes = Figure().add_subplot()
    analysis.plot(found.frames[name], axes)
    numbers = [a for a in (axes.xaxis, axes.yaxis) if not a.have_units()]
    assert numbers
    for axis in numbers:
        assert UNIT.search(axis.get_label_text()), axis.get_label_text()
    assert figure.render(analysis.plot, found.frames[name], "svg", title=analysis.question)


def test_slowdowns_are_drawn_with_their_intervals():
    analysis = analyses.load("allreduce_contention")
    groups = next(t for t in analysis.results if t.name == "groups")
    row = {
        "op": "AllReduce",
        "bytes": 1_000_000,
        "partner": "gemm",
        "slowdown_ratio": 1.5,
        "slowdown_lo_ratio": 1.25,
        "slowdown_hi_ratio": 2.0,
    }
    frames = {"groups": groups.conform(pl.DataFrame([row, {**row, "partner": "memcpy"}]))}
    axes = Figure().add_subplot()
    analysis.plot(frames, axes)
    assert [t.get_text() for t in axes.get_yticklabels()] == [
        "AllReduce 1 MB\nbeside gemm",
        "AllReduce 1 MB\nbeside memcpy",
    ]
    [low, high] = axes.collections[0].get_segments()[0][:, 0]
    assert (low, high) == (1.25, 2.0)
    assert replace(analysis, plot=None).plot is None
