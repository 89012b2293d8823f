"""Archives: what is dropped first, what is said about it, and the same bytes every time."""

from __future__ import annotations

import io
import random
import re
import zipfile
from dataclasses import replace

import pytest

from tests.support.diagnoses import DEQUANT
from tracekit.bundle.archive import ALWAYS, Part, archive, documents, figures, fitted
from tracekit.bundle.readme import Compared, Repeated, SliceNote, readme, slice_line
from tracekit.errors import UsageError
from tracekit.model.chart import Axis, Bar, Chart, Panel, Role, Rows


def noise(n, seed=0):
    return random.Random(seed).randbytes(n)


def part(name, n, worth):
    return Part(name, noise(n), f"about {name}", worth)


def plain(parts, dropped):
    return "\n".join([*(p.name for p in parts), *(f"{d.name}: {d.what}" for d in dropped)])


PARTS = (
    part("text.md", 1_000, ALWAYS),
    part("data.json", 5_000, 4),
    part("slice.sqlite", 8_000, 3),
    part("page.html", 3_000, 2),
    part("small.svg", 2_000, 1),
    part("large.svg", 4_000, 1),
)


@pytest.mark.parametrize(
    ("max_bytes", "gone"),
    [
        (30_000, []),
        (22_000, ["large.svg"]),
        (19_500, ["large.svg", "small.svg"]),
        (16_000, ["large.svg", "small.svg", "page.html"]),
        (8_000, ["large.svg", "small.svg", "page.html", "slice.sqlite"]),
        (3_000, ["large.svg", "small.svg", "page.html", "slice.sqlite", "data.json"]),
    ],
)
def test_parts_of_least_worth_go_first_and_the_size_is_kept(max_bytes, gone):
    made = archive(PARTS, max_bytes, plain)
    assert [d.name for d in made.dropped] == gone
    assert len(made.content) <= max_bytes
    with zipfile.ZipFile(io.BytesIO(made.content)) as file:
        names = file.namelist()
        assert names == sorted({"README.md", *(p.name for p in PARTS)} - set(gone))
        assert all(f"{name}: left out" in file.read("README.md").decode() for name in gone)


def test_a_part_that_can_be_smaller_is_made_smaller_and_told_of_once():
    sizes = [10_000, 6_000, 1_000]

    def shrunk(i):
        smaller = (lambda: shrunk(i + 1)) if i + 1 < len(sizes) else (lambda: None)
        return Part("data.json", noise(sizes[i]), f"up to {sizes[i]} rows", 4, smaller)

    parts, dropped = fitted([part("text.md", 500, ALWAYS), shrunk(0)], 3_000, plain)
    assert [len(p.content) for p in parts if p.name == "data.json"] == [1_000]
    assert [(d.name, d.what) for d in dropped] == [("data.json", "made smaller: up to 1000 rows")]
    assert dropped[0].n_bytes > 10_000


def test_nothing_is_made_when_the_text_does_not_fit():
    with pytest.raises(UsageError, match="not even the diagnosis as text fits"):
        archive(PARTS, 900, plain)


def test_the_same_parts_give_the_same_bytes_in_any_order():
    one = archive(PARTS, 10**6, plain).content
    assert one == archive(PARTS[::-1], 10**6, plain).content
    with zipfile.ZipFile(io.BytesIO(one)) as file:
        assert file.testzip() is None
        assert {(i.create_system, i.external_attr >> 16) for i in file.infolist()} == {(3, 0o644)}


def test_the_packed_size_of_a_part_is_what_it_takes_in_the_archive():
    compressible = Part("a.txt", b"abc" * 10_000, "", ALWAYS)
    made = archive([compressible, *PARTS], 10**6, plain)
    assert sum(p.packed_bytes for p in made.parts) + 22 == len(made.content)


def test_documents_are_markdown_page_and_json_and_the_json_can_shrink():
    found = documents(DEQUANT)
    assert [p.name for p in found] == ["diagnosis.md", "diagnosis.html", "diagnosis.json"]
    rows, at = [], found[2]
    while at is not None:
        rows.append(at.about)
        at = at.smaller()
    assert [r.split("up to ")[1].split(" rows")[0] for r in rows] == ["1,000", "100", "10", "0"]


def test_figures_are_of_what_is_bad():
    bar = Bar(0, 0, 1, Role.DEQUANTISATION)
    chart = Chart("Steps", "", (Panel("Steps", Axis("t", "ns"), Rows(("a",)), (bar,)),))
    charts = {"dequant_stall": chart, "kv_fragmentation": chart}
    (one,) = figures(replace(DEQUANT, charts=charts))
    assert (one.name, one.about) == ("figure-dequant_stall.png", "figure: Steps")
    assert one.content.startswith(b"\x89PNG")
    assert figures(DEQUANT) == ()


def note(**changes):
    row = Compared("slowdown_ratio", "x", 2.4, 2.36, 2.42, 2.41, True)
    same = Repeated("a/slow", "it is <b>slow</b> | very", (row,), True)
    lag = Compared("lag_ns", "ns", 5.0, None, None, None, False)
    other = Repeated("a/late", "it is late", (lag,), False)
    return SliceNote(
        **({"window": (10**6, 2 * 10**6), "n_rows": 1234, "repeated": (same, other)} | changes)
    )


def test_the_readme_says_what_the_slice_gives_alone():
    parts = [part("slice.sqlite", 10, 3), part("diagnosis.md", 10, ALWAYS)]
    text = readme(DEQUANT, ["--window", "worst"], note(), parts, ())
    assert "1,234 events of 0.001000 s to 0.002000 s" in text
    assert "the same: `a/slow`" in text
    assert "NOT the same: `a/late`" in text
    assert "| slowdown_ratio | 2.40x | \\[2.36x, 2.42x\\] | 2.41x |" in text
    assert "| lag_ns | 5 ns | - | - |" in text
    assert re.search(r"(?<!\\)<b>", text) is None
    assert "tracekit analyze slice.sqlite" in text
    assert "--window worst" in text


def test_the_readme_names_what_is_not_there_and_why():
    text = readme(DEQUANT, [], note(n_rows=0, remark="It does not fit."), [], ())
    assert "It does not fit." in text
    assert "analyze slice" not in text


def test_the_readme_says_which_names_passed():
    plain_text = readme(DEQUANT, [], None, [], ())
    asked = readme(DEQUANT, ["--keep-nvtx", "--hash-names"], None, [], ())
    assert "`text-1`" in plain_text
    assert "as recorded" in plain_text
    assert "NVTX text passed" in asked
    assert "hashes" in asked


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "1,234 events of 0.001000 s to 0.002000 s; alone it gives 1 of 2 bad findings"),
        ({"window": None, "repeated": ()}, "1,234 events of the whole capture"),
        ({"n_rows": 0, "remark": "Nothing fits."}, "Nothing fits."),
    ],
)
def test_the_slice_in_one_line(changes, line):
    assert slice_line(note(**changes)).startswith(line)
