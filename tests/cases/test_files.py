"""Files in odd places, of odd kinds, damaged, huge strings and bytes that are no text."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import os
import sqlite3
import tempfile
from pathlib import Path

import pytest
from backports import zstd

from tests.support.builders import Export
from tracekit.engine import analyze
from tracekit.errors import DamagedReportError, DuplicateReportError, InputError, NotAReportError
from tracekit.opening import OpenOptions
from tracekit.views.device.kernels import kernel_names


def small() -> Export:
    """One kernel on one GPU."""
    return Export().gpu().kernel(0, 100, "nvjet_tst_64x8")


def listing(folder: Path) -> dict[str, str]:
    """Name to hash of every file below a folder."""
    files = (p for p in folder.rglob("*") if p.is_file())
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def test_a_mistyped_path_creates_nothing(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        analyze([tmp_path / "nope.sqlite"])
    assert listing(tmp_path) == {}


OTHERS = {
    "r.nsys-rep": (b"\x00\x01binary", "nsys export -t sqlite"),
    "r.qdrep": (b"\x00\x01binary", "nsys export -t sqlite"),
    "r.qdstrm": (b"\x00\x01binary", "QdstrmImporter -i"),
    "r.ncu-rep": (b"NVR\0\x02\0", "ncu --import"),
    "report.bin": (b"NVR\0\x02\0", "ncu --import"),
    "empty.sqlite": (b"", "empty file"),
    "text.sqlite": (b"hello, this is no database\n", "a text file"),
    "x.parquet": (b"PAR1abcd", "a Parquet file"),
    "text.gz": (gzip.compress(b"some log\n"), "gzip file that holds no SQLite export"),
    "text.xz": (lzma.compress(b"some log\n"), "xz file that holds no SQLite export"),
    "cut.gz": (gzip.compress(os.urandom(4_000))[:1_000], "damaged gzip file"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_files_are_named_by_content_with_the_command_to_run(tmp_path, name):
    content, says = OTHERS[name]
    path = tmp_path / name
    path.write_bytes(content)
    before = listing(tmp_path)
    with pytest.raises(InputError) as caught:
        analyze([path])
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 3
    assert listing(tmp_path) == before


def test_a_foreign_database_and_a_folder(tmp_path):
    with sqlite3.connect(tmp_path / "cookies.sqlite") as db:
        db.execute("CREATE TABLE moz_cookies (id INTEGER)")
    db.close()
    with pytest.raises(NotAReportError, match="none of its tables"):
        analyze([tmp_path / "cookies.sqlite"])
    empty = tmp_path / "folder"
    empty.mkdir()
    with pytest.raises(NotAReportError, match="a folder, not an export"):
        analyze([empty])


@pytest.mark.parametrize(
    ("suffix", "pack"), [("xz", lzma.compress), ("gz", gzip.compress), ("zst", zstd.compress)]
)
def test_compressed_exports_open_and_leave_nothing_behind(tmp_path, monkeypatch, suffix, pack):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    plain = small().write(tmp_path / "r.sqlite")
    packed = tmp_path / f"r.sqlite.{suffix}"
    packed.write_bytes(pack(plain.read_bytes()))
    plain.unlink()
    assert analyze([packed]).overview.gpus[0].busy_ns == 100
    assert list(scratch.iterdir()) == []
    packed.write_bytes(packed.read_bytes()[:-30])
    with pytest.raises(DamagedReportError):
        analyze([packed])
    assert list(scratch.iterdir()) == []


def test_reading_changes_no_byte_and_adds_no_file(tmp_path):
    small().write(tmp_path / "r.sqlite")
    before = listing(tmp_path)
    analyze([tmp_path / "r.sqlite"])
    assert listing(tmp_path) == before


def test_wal_header_without_a_wal_opens_in_a_read_only_folder(tmp_path):
    path = small().write(tmp_path / "r.sqlite")
    raw = bytearray(path.read_bytes())
    raw[18:20] = b"\x02\x02"
    path.write_bytes(bytes(raw))
    tmp_path.chmod(0o555)
    try:
        assert analyze([path]).overview.gpus[0].busy_ns == 100
    finally:
        tmp_path.chmod(0o755)
    assert set(listing(tmp_path)) == {"r.sqlite"}


def test_cut_in_half_says_both_sizes(tmp_path):
    e = small()
    for i in range(2_000):
        e.kernel(200 + i, 201 + i, f"kernel_{i}")
    path = e.write(tmp_path / "r.sqlite")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DamagedReportError) as caught:
        analyze([path])
    said = str(caught.value)
    assert "r.sqlite" in said
    assert f"{len(whole) // 2:,}" in said.replace("_", ",") or str(len(whole) // 2) in said
    assert "Traceback" not in said


def test_a_zeroed_page_is_refused_and_salvaged_on_request(tmp_path):
    e = small()
    for i in range(2_000):
        e.call(200 + i, 201 + i, f"cudaCall{i}", correlation=i + 10)
    path = e.write(tmp_path / "r.sqlite")
    with sqlite3.connect(path) as db:
        sql = "SELECT rootpage FROM sqlite_master WHERE name = 'CUPTI_ACTIVITY_KIND_RUNTIME'"
        (root,) = db.execute(sql).fetchone()
    db.close()
    raw = bytearray(path.read_bytes())
    raw[(root - 1) * 4096 : root * 4096] = bytes(4096)
    path.write_bytes(bytes(raw))
    with pytest.raises(InputError):
        analyze([path])
    d = analyze(path, options=OpenOptions(salvage=True))
    assert d.overview.n_kernels == 1
    assert any("damaged, left out" in q.text for q in d.quality)


def test_an_export_older_than_its_report_is_noted(tmp_path):
    path = small().write(tmp_path / "r.sqlite")
    newer = tmp_path / "r.nsys-rep"
    newer.write_bytes(b"x")
    os.utime(path, (1, 1))
    notes = analyze([path]).reports[0].notes
    assert any("r.nsys-rep is newer than r.sqlite" in n and "nsys export" in n for n in notes)


@pytest.mark.parametrize(
    "raw",
    [b"f\xffo", b"a\x00b", b"\xed\xa0\x80", b"\x1b[31mred", "ü".encode() * 500_000],
    ids=["not utf-8", "nul", "surrogate", "ansi", "1 MB"],
)
def test_names_that_are_no_text_are_read(tmp_path, raw):
    path = small().write(tmp_path / "r.sqlite")
    with sqlite3.connect(path) as db:
        db.execute("UPDATE StringIds SET value = CAST(? AS TEXT) WHERE value LIKE 'nvjet%'", (raw,))
    db.close()
    from tracekit.opening import open_trace

    with open_trace([path]) as trace:
        name = kernel_names(trace)["name"][0]
        assert name == raw.decode(errors="replace")


@pytest.mark.parametrize("name", ["dir with space/ré%20p?.sqlite", "a#b&c=d.sqlite"])
def test_special_characters_in_paths(tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    small().write(path)
    assert analyze([path]).overview.gpus[0].busy_ns == 100


def test_a_folder_with_unusable_ranks_gives_a_partial_answer(tmp_path):
    small().write(tmp_path / "rank0.sqlite")
    (tmp_path / "rank1.qdstrm").write_bytes(b"\x01\x02")
    Export().table("CUPTI_ACTIVITY_KIND_KERNEL").write(tmp_path / "rank2.sqlite")
    d = analyze([tmp_path])
    assert [r.name for r in d.reports] == ["rank0.sqlite"]
    assert d.unreadable == {
        "rank1.qdstrm": "an unconverted capture (qdstrm)",
        "rank2.sqlite": "empty: the export holds no event",
    }


def test_the_same_capture_twice_is_refused(tmp_path):
    path = small().write(tmp_path / "a.sqlite")
    (tmp_path / "b.sqlite").write_bytes(path.read_bytes())
    with pytest.raises(DuplicateReportError, match=r"the same capture as a\.sqlite"):
        analyze([path, tmp_path / "b.sqlite"])
