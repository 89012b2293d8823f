"""What the page's timeline is given."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from tests.diagnoses import CRITICAL, DEQUANT
from tracekit.report.page.timeline import COLOURS, timeline
from tracekit.views.contention.windows import WINDOW
from tracekit.views.overview.pictures import SAMPLES, WORK

WORK_ROWS = [
    (0, "compute", 7, 1, 1_100, 1_200, 100, 1, "gemm", "sgemm"),
    (0, "compute", 7, 1, 1_300, 1_500, 150, 3, "elementwise", None),
    (0, "communication", 13, 0, 1_000, 1_400, 400, 1, "comm", "ncclDevKernel"),
    (None, "steps", None, 2, 1_050, 1_450, 400, 1, "decode step=N", "decode step=3"),
]
WINDOWS = [(0, 1_100, 1_200, 100, "AllReduce", "gemm", 0.5, 0.2, 1.0, False)]


def drawn(**more):
    work = pl.DataFrame(WORK_ROWS, schema=WORK, orient="row")
    found = replace(DEQUANT, pictures={"work": work, **more.pop("pictures", {})}, **more)
    made = timeline(found)
    assert made is not None
    return made


def test_without_device_work_there_is_no_timeline():
    assert timeline(DEQUANT) is None
    assert timeline(replace(DEQUANT, pictures={"work": WORK.to_frame()})) is None


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
        "gemm": COLOURS["matrix product"],
        "elementwise": COLOURS["other compute"],
        "comm": COLOURS["communication"],
        "decode step=N": COLOURS["step"],
    }
    labels = [label for label, _ in made["legend"]]
    assert labels == ["communication", "matrix product", "other compute", "step"]


def test_windows_follow_the_communication_of_their_gpu():
    frames = {"allreduce_contention": {"windows": pl.DataFrame(WINDOWS, WINDOW, orient="row")}}
    made = drawn(frames=frames)
    assert [t["lane"] for t in made["tracks"]] == [
        "steps",
        "communication",
        "contention windows",
        "compute",
    ]
    window = made["tracks"][2]
    assert (window["s"], window["d"]) == ([100], [100])
    assert made["names"][window["w"][0]] == "AllReduce beside gemm"


def test_samples_are_permille_and_maxima_only_where_they_differ():
    rows = [
        (0, "DRAM read + write", 1_000, 1_100, 0.25, 0.25),
        (0, "NVLink sending", 1_000, 1_100, 0.125, 0.5),
    ]
    made = drawn(pictures={"samples": pl.DataFrame(rows, schema=SAMPLES, orient="row")})
    dram, link = made["series"]
    assert (dram["v"], dram["x"]) == ([250], None)
    assert (link["v"], link["x"]) == ([125], [500])


def test_worst_windows_are_marked():
    made = drawn(findings=(replace(CRITICAL, t_range_ns=(1_200, 1_300)),))
    assert made["marks"] == [
        {"finding": 0, "level": "critical", "title": CRITICAL.title, "s": 200, "d": 100}
    ]
