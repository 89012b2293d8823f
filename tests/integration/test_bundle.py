"""The archive that people attach to issues: nothing private in it, and still the same answer."""

from __future__ import annotations

import json
import shutil
import sqlite3
import zipfile
from contextlib import closing

import pytest

from tests.support.builders import Export
from tests.support.communication import collective, ranks_export
from tracekit import engine
from tracekit.cli.shell import app as cli
from tracekit.cli.shell.options import BYTES
from tracekit.report import document, markdown

MARK = "SECRET_MARK"
_USED = (
    ("CUPTI_ACTIVITY_KIND_KERNEL", ("demangledName", "shortName", "mangledName")),
    ("CUPTI_ACTIVITY_KIND_RUNTIME", ("nameId",)),
)
_UNKNOWN_TABLES = {
    "PROCESSES_OF_TOMORROW": "pid INTEGER, name TEXT, detail BLOB",
    "NVTX_EVENTS_NOTES": "textId INTEGER, remark TEXT",
    "ANALYSIS_FILE": "id INTEGER, filename TEXT, content TEXT, globalPid INTEGER",
    "ProcessStreams": "globalPid INTEGER, filenameId INTEGER, contentId INTEGER",
}
_KEYS = {("StringIds", "id"), ("META_DATA_EXPORT", "name"), ("EXPORT_META_DATA", "name")}


def tables(db):
    rows = db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    return [name for (name,) in rows]


def plant(path, *, spare_nvtx_text=False):
    """Put a numbered marker into every text, blob and empty text column of every table."""
    n = 0
    with closing(sqlite3.connect(path)) as db, db:
        used = " UNION ".join(
            f'SELECT "{c}" FROM "{t}" WHERE "{c}" NOT NULL'
            for t, columns in _USED
            if t in tables(db)
            for c in columns
        )
        if spare_nvtx_text:
            used += " UNION SELECT textId FROM NVTX_EVENTS WHERE textId NOT NULL"
        db.execute(
            f"UPDATE StringIds SET value = value || ' {MARK}_strings' WHERE id NOT IN ({used})"
        )
        db.execute(f"INSERT INTO StringIds (id, value) VALUES (999999, '{MARK}_unreferenced')")
        for table, columns in _UNKNOWN_TABLES.items():
            db.execute(f'CREATE TABLE IF NOT EXISTS "{table}" ({columns})')
            own = db.execute(f'PRAGMA table_info("{table}")').fetchall()
            row = [1 if is_key else f"{MARK}_{table}_{c}" for _, c, _, _, _, is_key in own]
            db.execute(f'INSERT INTO "{table}" VALUES ({", ".join("?" * len(row))})', row)
        for table in tables(db):
            for _, column, declared, *_ in db.execute(f'PRAGMA table_info("{table}")').fetchall():
                spared = spare_nvtx_text and (table, column) == ("NVTX_EVENTS", "text")
                if (table, column) in _KEYS or table == "StringIds" or spared:
                    continue
                n += 1
                mark = f" {MARK}_{n}"
                db.execute(
                    f'UPDATE "{table}" SET "{column}" = CAST("{column}" AS TEXT) || ?'
                    f" WHERE typeof(\"{column}\") IN ('text', 'blob')",
                    (mark,),
                )
                if declared == "TEXT":
                    db.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE "{column}" IS NULL',
                               (f'{{"prompt": "{MARK}_{n}"}}',))  # fmt: skip
    assert n > 50


def bundled(path, target, *options):
    reports = path if isinstance(path, list) else [path]
    code = cli.call(["bundle", *map(str, reports), "-o", str(target), *options])
    assert code == 0
    with zipfile.ZipFile(target) as file:
        return {name: file.read(name) for name in file.namelist()}


def unpacked(files, folder):
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return sorted(folder.glob("slice*.sqlite"))


def leaks(content):
    spellings = (MARK, MARK.lower(), MARK.encode().hex(), MARK.encode().hex().upper(), "SECRET")
    encoded = [s.encode(e) for s in spellings for e in ("utf-8", "utf-16-le", "utf-16-be")]
    return [s for s in encoded if s in content]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("int4_dequant", ("--window", "worst")),
        ("int4_dequant", ("--window", "worst", "--hash-names", "--top", "100000")),
        ("hf_dynamic_cache", ("--window", "worst", "--top", "100000")),
        ("allreduce_2gpu", ("--window", "60ms:80ms")),
        ("nvtx_only_2022_4", ("--window", "worst")),
    ],
)
def test_no_planted_marker_is_in_any_file_of_a_bundle(
    fixture_path, tmp_path, capsys, name, options
):
    path = tmp_path / f"{MARK}_report.sqlite"
    shutil.copy(fixture_path(name), path)
    plant(path)
    files = bundled(path, tmp_path / "issue.zip", *options)
    assert {"README.md", "diagnosis.md", "diagnosis.json", "diagnosis.html", "slice.sqlite"} <= set(
        files
    )
    for inside, content in files.items():
        assert leaks(content) == [], inside
    assert leaks((tmp_path / "issue.zip").read_bytes()) == []
    assert MARK not in capsys.readouterr().out


def test_nothing_but_nvtx_text_passes_with_keep_nvtx(fixture_path, tmp_path):
    path = tmp_path / f"{MARK}_report.sqlite"
    shutil.copy(fixture_path("int4_dequant"), path)
    plant(path, spare_nvtx_text=True)
    files = bundled(path, tmp_path / "issue.zip", "--window", "worst", "--keep-nvtx")
    assert b"dequant_then_gemm" in files["slice.sqlite"]
    assert {name: leaks(content) for name, content in files.items() if leaks(content)} == {}


def test_markers_are_planted_where_they_would_show(fixture_path, tmp_path):
    path = tmp_path / "report.sqlite"
    shutil.copy(fixture_path("int4_dequant"), path)
    plant(path)
    found = engine.analyze(path)
    shown = document.render(found) + markdown.render(found)
    assert shown.count(MARK) > 10
    assert leaks(path.read_bytes())


def test_an_input_that_cannot_be_read_is_not_named(fixture_path, tmp_path, capsys):
    bad = tmp_path / f"{MARK}.sqlite"
    bad.write_text("hello")
    good = fixture_path("int4_dequant")
    assert cli.call(["bundle", str(good), str(bad), "-o", str(tmp_path / "issue.zip")]) == 4
    assert leaks((tmp_path / "issue.zip").read_bytes()) == []
    with zipfile.ZipFile(tmp_path / "issue.zip") as file:
        assert all(leaks(file.read(n)) == [] for n in file.namelist())


def test_nvtx_text_and_nothing_else_passes_when_asked_to(fixture_path, tmp_path):
    path = fixture_path("int4_dequant")
    hidden = bundled(path, tmp_path / "a.zip", "--window", "worst")
    kept = bundled(path, tmp_path / "b.zip", "--window", "worst", "--keep-nvtx")
    for name in ("slice.sqlite", "diagnosis.json"):
        assert b"dequant_then_gemm" not in hidden[name]
        assert b"dequant_then_gemm" in kept[name]
    assert "--keep-nvtx" in kept["README.md"].decode()
    assert all(b"int4_dequant.sqlite" not in content for content in kept.values())


@pytest.fixture(scope="module")
def contended(fixture_path, tmp_path_factory):
    """The bundle of the worst window of the two-GPU run, and its files."""
    folder = tmp_path_factory.mktemp("bundle")
    options = ("--window", "worst", "--only", "allreduce_contention")
    files = bundled(fixture_path("allreduce_2gpu"), folder / "issue.zip", *options)
    return files, unpacked(files, folder)


def test_the_slice_alone_gives_the_same_slowdown_groups(fixture_path, contended):
    files, slices = contended
    only = ["allreduce_contention"]
    whole = engine.analyze([fixture_path("allreduce_2gpu")], only=only)
    alone = engine.analyze(slices, only=only)
    twins = {f.id: f for f in alone.findings}
    for finding in (f for f in whole.findings if f.level in ("warn", "critical")):
        slowdown = next(m for m in finding.metrics if m.name == "slowdown_ratio")
        again = next(m for m in twins[finding.id].metrics if m.name == "slowdown_ratio")
        assert slowdown.lo <= again.value <= slowdown.hi
    key = ["op", "bytes", "partner", "mechanism"]
    groups = [d.frames["allreduce_contention"]["groups"].sort(key) for d in (whole, alone)]
    assert groups[0].select(key).equals(groups[1].select(key))
    ratios = zip(*(g.rows(named=True) for g in groups), strict=True)
    assert [w["slowdown_ratio"] for w, _ in ratios if w["partner"]]
    for of_whole, of_slice in zip(*(g.rows(named=True) for g in groups), strict=True):
        if of_whole["slowdown_lo_ratio"] is not None:
            low, high = of_whole["slowdown_lo_ratio"], of_whole["slowdown_hi_ratio"]
            assert low <= of_slice["slowdown_ratio"] <= high
    text = files["README.md"].decode()
    assert "NOT the same" not in text
    assert "slowdown_ratio" in text


def test_the_slice_is_smaller_and_holds_only_passing_tables(fixture_path, contended):
    _, (path,) = contended
    assert path.stat().st_size < fixture_path("allreduce_2gpu").stat().st_size / 3
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert db.execute("PRAGMA freelist_count").fetchone() == (0,)
        names = set(tables(db))
        assert names.isdisjoint(
            {"PROCESSES", "ThreadNames", "DIAGNOSTIC_EVENT", "TARGET_INFO_SYSTEM_ENV"}
        )
        assert "TARGET_INFO_SESSION_START_TIME" not in names
        uuids = [u for (u,) in db.execute("SELECT uuid FROM TARGET_INFO_GPU ORDER BY uuid")]
        assert uuids == [f"00000000-0000-0000-0000-00000000000{n}" for n in (1, 2)]
        used = " UNION ".join(f'SELECT "{c}" FROM "{t}"' for t, columns in _USED for c in columns)
        unused = db.execute(f"SELECT count(*) FROM StringIds WHERE id NOT IN ({used})").fetchone()
        assert unused == (0,)


def test_the_slices_of_two_ranks_give_the_same_findings(fixture_path, tmp_path):
    paths = [fixture_path(f"tp_decode_rank{r}") for r in (0, 1)]
    files = bundled(paths, tmp_path / "issue.zip", "--window", "worst", "-k", "collective_skew")
    assert {"slice-0.sqlite", "slice-1.sqlite"} <= set(files)
    alone = engine.analyze(unpacked(files, tmp_path), only=["collective_skew"])
    whole = engine.analyze(paths, only=["collective_skew"])
    assert [f.id for f in alone.findings if f.level in ("warn", "critical")] == [
        f.id for f in whole.findings if f.level in ("warn", "critical")
    ]
    assert alone.alignment[1].method == "collectives"
    assert len([g for g in alone.gpus if g.used]) == 2
    assert "NOT the same" not in files["README.md"].decode()


def test_the_same_input_gives_the_same_bytes(fixture_path, tmp_path):
    path = fixture_path("int4_dequant")
    for target in ("a.zip", "b.zip"):
        bundled(path, tmp_path / target, "--window", "worst")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.zip") as file:
        names = file.namelist()
        assert names == sorted(names)
        assert {i.date_time for i in file.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_a_dry_run_writes_nothing_and_lists_everything(fixture_path, tmp_path, capsys):
    target = tmp_path / "issue.zip"
    path = str(fixture_path("int4_dequant"))
    assert cli.call(["bundle", path, "-o", str(target), "--dry-run", "--window", "worst"]) == 0
    out = capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
    for name in ("README.md", "diagnosis.md", "diagnosis.json", "diagnosis.html", "slice.sqlite"):
        assert name in out
    assert "would be" in out


@pytest.mark.parametrize("option", [("--max-size", "20kB"), ("--max-mb", "0.02")])
def test_a_size_limit_is_kept_and_what_was_dropped_is_said(fixture_path, tmp_path, capsys, option):
    target = tmp_path / "issue.zip"
    files = bundled(fixture_path("int4_dequant"), target, "--top", "100000", *option)
    assert target.stat().st_size <= 20_000
    assert "diagnosis.md" in files
    assert "diagnosis.html" not in files
    assert "diagnosis.html" in files["README.md"].decode().split("Dropped to stay")[1]
    assert "diagnosis.html" in capsys.readouterr().out.split("Dropped", 1)[1]


def test_a_limit_that_nothing_fits_into_is_refused(fixture_path, tmp_path, capsys):
    target = tmp_path / "issue.zip"
    path = str(fixture_path("int4_dequant"))
    assert cli.call(["bundle", path, "-o", str(target), "--max-size", "1kB"]) == 2
    assert "not even the diagnosis as text fits" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_window_without_events_is_refused(fixture_path, tmp_path, capsys):
    target = tmp_path / "issue.zip"
    path = str(fixture_path("int4_dequant"))
    assert cli.call(["bundle", path, "-o", str(target), "--window", "900s:901s"]) == 3
    assert "holds no event" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words", [("--window", "soon"), ("--max-size", "big"), ("--max-size", "0")]
)
def test_a_wrong_option_is_refused_before_any_work(tmp_path, words):
    assert cli.call(["bundle", "nothing.sqlite", "-o", str(tmp_path / "x.zip"), *words]) == 2


def test_an_input_is_never_overwritten(fixture_path, tmp_path):
    path = shutil.copy(fixture_path("int4_dequant"), tmp_path / "run.sqlite")
    before = path.read_bytes()
    assert cli.call(["bundle", str(path), "-o", str(path)]) == 2
    assert path.read_bytes() == before


def test_an_archive_that_was_there_stays_when_making_a_new_one_fails(tmp_path):
    target = tmp_path / "issue.zip"
    target.write_bytes(b"the old one")
    bad = tmp_path / "bad.sqlite"
    bad.write_text("hello")
    assert cli.call(["bundle", str(bad), "-o", str(target)]) == 3
    assert target.read_bytes() == b"the old one"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.sqlite", "issue.zip"]


def test_hashed_names_are_gone_and_their_classes_stay(fixture_path, tmp_path):
    path = fixture_path("int4_dequant")
    plain = bundled(path, tmp_path / "a.zip", "--window", "worst")
    hashed = bundled(path, tmp_path / "b.zip", "--window", "worst", "--hash-names")
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        used = " UNION ".join(f"SELECT {c} FROM {_USED[0][0]}" for c in _USED[0][1])
        names = [n for (n,) in db.execute(f"SELECT value FROM StringIds WHERE id IN ({used})")]
    assert names
    for content in hashed.values():
        assert not any(name.encode() in content for name in names)
    classes = [json.loads(f["diagnosis.json"])["overview"]["classes"] for f in (plain, hashed)]
    assert classes[0] == classes[1]
    (slice_path,) = unpacked(hashed, tmp_path)
    alone = engine.analyze([slice_path])
    assert [(c.kind, c.n) for c in alone.overview.classes] == [
        (c["kind"], c["n"]) for c in classes[0]
    ]


def test_markup_in_names_is_escaped_in_every_document(tmp_path):
    evil = "gemm<script>alert(1)</script>\x1b[31m|`*#1 @you\n<img src=x onerror=y>"
    export = Export().gpu()
    for i in range(8):
        export.kernel(1000 * i, 1000 * i + 900, evil, launch=1000 * i - 100)
    path = export.write(tmp_path / "run.sqlite")
    files = bundled(path, tmp_path / "issue.zip", "--window", "0s:1s")
    for name in ("diagnosis.html", "diagnosis.md", "README.md", "diagnosis.json"):
        text = files[name].decode()
        assert "\x1b" not in text
        if name != "diagnosis.json":
            assert "<script>alert" not in text
            assert "<img src=x" not in text


def alternating(n):
    """Two ranks, n times one collective alone and one beside a copy, 300 us apart."""
    export, at = ranks_export(2), 500_000
    for i in range(n):
        for length in (100_000 + i % 5 * 1000, 150_000 + i % 5 * 1000):
            for rank in range(2):
                collective(export, at, at + length, rank=rank)
                if length >= 150_000:
                    place = {"device": rank, "pid": 100 + rank, "stream": 14}
                    export.memcpy(at - 20_000, at + length + 20_000, nbytes=1 << 30, **place)
            at += 300_000
    return export


def test_the_worst_window_is_as_wide_as_it_takes_and_no_wider(tmp_path):
    path = alternating(100).write(tmp_path / "run.sqlite")
    options = ("--window", "worst", "-k", "allreduce_contention")
    files = bundled(path, tmp_path / "issue.zip", *options)
    (slice_path,) = unpacked(files, tmp_path)
    with closing(sqlite3.connect(slice_path)) as db:
        (n,) = db.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
        window = db.execute("SELECT value FROM META_DATA_EXPORT WHERE name = 'TRACEKIT_SLICE_NS'")
        start, _, end = window.fetchone()[0].partition(":")
    assert 40 <= n < 200  # of 400
    assert int(end) - int(start) < 20_000_000  # of 60 ms
    only = ["allreduce_contention"]
    whole, alone = (engine.analyze([p], only=only).findings for p in (path, slice_path))
    assert [f.id for f in alone] == [f.id for f in whole]
    slowdowns = [
        next(m for m in f[0].metrics if m.name == "slowdown_ratio") for f in (whole, alone)
    ]
    assert slowdowns[0].lo <= slowdowns[1].value <= slowdowns[0].hi
    assert "NOT the same" not in files["README.md"].decode()


def test_where_only_more_than_fits_would_do_the_readme_says_so(tmp_path):
    path = alternating(100).write(tmp_path / "run.sqlite")
    options = ("--window", "worst", "-k", "allreduce_contention")
    whole = bundled(path, tmp_path / "a.zip", *options)
    tight = (tmp_path / "a.zip").stat().st_size
    with zipfile.ZipFile(tmp_path / "a.zip") as file:
        sizes = {i.filename: i.compress_size for i in file.infolist()}
    text = sizes["README.md"] + sizes["diagnosis.md"] + sizes["diagnosis.json"]
    limit = text + 4_000 + sizes["slice.sqlite"] // 2
    assert limit < tight
    files = bundled(path, tmp_path / "b.zip", *options, "--max-size", f"{limit}B")
    assert len(files["slice.sqlite"]) < len(whole["slice.sqlite"])
    assert "NOT the same" in files["README.md"].decode()


@pytest.mark.parametrize("name", ["int4_dequant", "hf_dynamic_cache"])
def test_being_anonymous_changes_no_number(fixture_path, tmp_path, name):
    files = bundled(fixture_path(name), tmp_path / "issue.zip")
    found = json.loads(files["diagnosis.json"])
    plain = json.loads(document.render(engine.analyze([fixture_path(name)])))
    numbers = [
        [
            (f["level"], f["at_stake_ns"], [m["value"] for m in f["metrics"] if m["unit"]])
            for f in d["findings"]
        ]
        for d in (found, plain)
    ]
    assert numbers[0] == numbers[1]
    assert found["overview"]["gpus"] == plain["overview"]["gpus"]


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [("10MB", 10_000_000), ("24", 24_000_000), ("0.5", 500_000), ("500kB", 500_000), ("7 b", 7)],
)
def test_sizes_have_decimal_units_and_mean_megabytes_without_one(text, n_bytes):
    assert BYTES.convert(text, None, None) == n_bytes
