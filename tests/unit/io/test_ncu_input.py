"""Raw pages among the inputs of a run: known by content, without what they tell of people."""

from __future__ import annotations

import json
import lzma
import zipfile

import pytest

from tests.support.builders import Export
from tests.support.ncu_pages import HOST, PROCESS, Page
from tracekit.cli.shell import app as cli
from tracekit.engine import analyze
from tracekit.errors import DuplicateReportError, InputError, NotAReportError
from tracekit.inspection import inspect
from tracekit.model.finding import Level
from tracekit.opening import open_trace

UNITS = {"gpu__time_duration.sum": "us", "lts__t_sectors.sum": "sector"}
RANGE = "alice prompt=my secret"


def page(time: str = "1.5") -> Page:
    values = {"gpu__time_duration__dot__sum": time, "lts__t_sectors__dot__sum": "1,000"}
    return Page(UNITS).kernel("void gemm<int>(A)", inside=[RANGE, "layer=3"], **values)


def report(folder):
    return Export().gpu().kernel(0, 1_000, "void gemm<int>(A)").write(folder / "r.sqlite")


@pytest.mark.parametrize("name", ["k.csv", "k.txt", "k", "k.csv.xz"])
def test_a_page_is_known_by_its_content(tmp_path, name):
    plain = page().write(tmp_path / "plain", banners=["==PROF== Connected", "loading weights"])
    path = tmp_path / name
    text = plain.read_bytes()
    path.write_bytes(lzma.compress(text) if name.endswith(".xz") else text)
    with open_trace([report(tmp_path), path]) as trace:
        assert [r.name for r in trace.reports] == ["r.sqlite", name]
        assert [r.has_timeline for r in trace.reports] == [True, False]
        assert len(trace.alignment) == 1
        assert trace.unreadable == {}
        row = trace.frame("ncu_kernels").row(0, named=True)
    assert (row["report"], row["launch"], row["name"]) == (1, 0, "void gemm<int>(A)")
    assert (row["layer"], row["block_x"], row["time_ns"]) == (3, 128, 1_500.0)
    assert (row["l2_sectors"], row["l2_misses"]) == (1_000.0, None)


def test_a_page_alone_is_an_input_too(tmp_path):
    path = page().write(tmp_path / "k.csv")
    found = analyze([path])
    assert found.overview.has_device_activity is False
    assert {f.level for f in found.findings} == {Level.UNKNOWN}
    assert "l2_miss/ncu" in [f.id for f in found.findings]
    assert inspect(path).rows == {"ncu_kernels": 1}


def test_the_order_of_inputs_does_not_matter(tmp_path):
    files = [page().write(tmp_path / "k.csv"), report(tmp_path)]
    with open_trace(files) as trace:
        assert [r.has_timeline for r in trace.reports] == [True, False]
        assert [r.index for r in trace.reports] == [0, 1]


def test_what_is_no_page_is_refused_as_before(tmp_path):
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(NotAReportError, match="a text file, not an nsys export"):
        analyze([tmp_path / "other.csv"])
    (tmp_path / "k.ncu-rep").write_bytes(b"NVR\0" + b"\1" * 100)
    with pytest.raises(NotAReportError, match="Nsight Compute report") as refused:
        analyze([tmp_path / "k.ncu-rep"])
    assert "ncu --import" in str(refused.value.hint)
    with pytest.raises(InputError, match="no such file"):
        analyze([tmp_path / "none.csv"])


def test_a_page_without_kernels_says_so(tmp_path):
    with pytest.raises(NotAReportError, match="without any kernel"):
        analyze([Page(UNITS).write(tmp_path / "k.csv")])


def test_a_number_that_cannot_be_read_sets_the_page_aside(tmp_path):
    bad = page("1.234,5").write(tmp_path / "k.csv")
    with pytest.raises(InputError, match="ambiguous number"):
        analyze([bad])
    found = analyze([report(tmp_path), bad])
    assert "ambiguous number" in found.unreadable["k.csv"]


def test_the_same_page_twice_is_refused(tmp_path):
    one, two = page().write(tmp_path / "a.csv"), page().write(tmp_path / "b.csv")
    with pytest.raises(DuplicateReportError, match=r"the same results as a\.csv"):
        analyze([report(tmp_path), one, two])


def test_counters_that_could_not_be_collected_are_noted(tmp_path):
    line = f"==WARNING== {HOST}: lts__t_sectors.sum not accessible in {PROCESS}"
    path = page().write(tmp_path / "k.csv", banners=[line])
    found = analyze([report(tmp_path), path])
    assert found.reports[1].notes == ["Nsight Compute could not collect lts__t_sectors.sum"]


@pytest.mark.parametrize("form", ["json", "html", "markdown", "text"])
@pytest.mark.parametrize("redact", ["--redact", "--no-redact"])
def test_host_program_and_ranges_never_pass(tmp_path, capsys, form, redact):
    path = page().write(tmp_path / "k.csv", banners=[f"==PROF== Connected to {PROCESS}"])
    files = [str(report(tmp_path)), str(path)]
    assert cli.call(["analyze", *files, "--format", form, redact, "-v"]) == 0
    said = capsys.readouterr().out
    assert "gemm" in said
    for private in (HOST, PROCESS, "secret", "alice"):
        assert private not in said
    assert ("k.csv" in said) == (redact == "--no-redact")


@pytest.mark.parametrize("options", [[], ["--hash-names"]])
def test_a_bundle_holds_no_private_text_and_one_slice(tmp_path, options):
    path = page().write(tmp_path / "k.csv", banners=[f"==PROF== Connected to {PROCESS}"])
    target = tmp_path / "b.zip"
    files = [str(report(tmp_path)), str(path)]
    window = ["--window", "0ns:2us"]
    assert cli.call(["bundle", *files, "-o", str(target), *window, *options]) == 0
    with zipfile.ZipFile(target) as file:
        content = {name: file.read(name) for name in file.namelist()}
    assert [n for n in content if n.startswith("slice")] == ["slice.sqlite"]
    for private in (HOST, PROCESS, "secret", "alice", "k.csv"):
        assert not any(private.encode() in data for data in content.values()), private
    document = json.loads(content["diagnosis.json"])
    n_rows = document["frames"]["l2_miss"]["ncu_match"]["rows"]
    assert n_rows == (0 if options else 1), "hashed names match nothing: counts are left out"
