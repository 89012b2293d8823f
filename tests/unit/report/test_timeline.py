"""What the page's timeline is given."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from tests.support.diagnoses import CRITICAL, DEQUANT
from tracekit.model.chart import TRACK, Role, Track
from tracekit.report.page.timeline import timeline
from tracekit.views.overview.pictures import SAMPLES, WORK

WORK_ROWS = [
    (0, "compute", 7, 1, 1_100, 1_200, 100, 1, "gemm", "sgemm"),
    (0, "compute", 7, 1, 1_300, 1_500, 150, 3, "elementwise", None),
    (0, "communication", 13, 0, 1_000, 1_400, 400, 1, "comm", "ncclDevKernel"),
    (None, "steps", None, 2, 1_050, 1_450, 400, 1, "decode step=N", "decode step=3"),
]
SPANS = [(0, 1_100, 1_200, "clash", "AllReduce with gemm"), (None, 1_000, 1_300, "call", "sync")]


def drawn(**more):
    work = pl.DataFrame(WORK_ROWS, schema=WORK.schema, orient="row")
    found = replace(DEQUANT, pictures={"work": work, **more.pop("pictures", {})}, **more)
    made = timeline(found)
    assert made is not None
    return made


def test_without_device_work_there_is_no_timeline():
    assert timeline(DEQUANT) is None
    assert timeline(replace(DEQUANT, pictures={"work": WORK.empty()})) is None


def test_times_count_from_the_first_work():
    made = drawn()
    assert (made["origin"], made["span"]) == (1_000, 500)
    assert [t["label"] for t in made["tracks"]] == [
        "steps",
        "communication · stream 13",
        "compute · stream 7",
    ]
    compute = made["tracks"][2]
    assert (compute["s"], compute["d"]) == ([100, 300], [100, 200])
    assert (compute["n"], compute["b"]) == ([1, 3], [100, 150])
    assert [made["names"][w] for w in compute["w"]] == ["sgemm", ""]


def test_kinds_have_the_colour_of_their_group():
    made = drawn()
    assert dict(made["kinds"]) == {
        "gemm": "c2",
        "elementwise": "c6",
        "comm": "c1",
        "decode step=N": "c8",
    }
    assert made["legend"] == [
        ["communication", "c1"],
        ["matrix product", "c2"],
        ["other compute", "c6"],
        ["step", "c8"],
    ]


def test_tracks_of_analyses_follow_the_communication_of_their_gpu():
    spans = pl.DataFrame(SPANS, TRACK, orient="row")
    roles = {"clash": Role.WINDOW, "call": Role.HOST}
    made = drawn(tracks=(Track("clashes", spans, roles, shaded=True),))
    assert [(t["gpu"], t["lane"] or t["label"], t["shaded"]) for t in made["tracks"]] == [
        (None, "steps", False),
        (None, "clashes", True),
        (0, "communication", False),
        (0, "clashes", True),
        (0, "compute", False),
    ]
    clash = made["tracks"][3]
    assert (clash["s"], clash["d"]) == ([100], [100])
    assert made["names"][clash["w"][0]] == "AllReduce with gemm"
    assert made["kinds"][clash["k"][0]] == ["clash", "c9"]
    assert ["call", "c10"] in made["legend"]


def test_samples_are_permille_and_maxima_only_where_they_differ():
    rows = [
        (0, "DRAM read + write", 1_000, 1_100, 0.25, 0.25),
        (0, "NVLink sending", 1_000, 1_100, 0.125, 0.5),
    ]
    made = drawn(pictures={"samples": pl.DataFrame(rows, schema=SAMPLES.schema, orient="row")})
    dram, link = made["series"]
    assert (dram["v"], dram["x"]) == ([250], None)
    assert (link["v"], link["x"]) == ([125], [500])


def test_worst_windows_are_marked():
    made = drawn(findings=(replace(CRITICAL, t_range_ns=(1_200, 1_300)),))
    assert made["marks"] == [
        {"finding": 0, "level": "critical", "title": CRITICAL.title, "s": 200, "d": 100}
    ]
