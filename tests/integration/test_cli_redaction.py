"""What a redacted answer may say: nothing that a trace holds beside known harmless text."""

from __future__ import annotations

import json
import shutil
import sqlite3

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.builders import Export
from tracekit.cli.shell import app as cli
from tracekit.io.run.redaction import Texts
from tracekit.views.kv.oom import parse_oom

MARK = "SECRET_MARK"
_USED = (
    ("CUPTI_ACTIVITY_KIND_KERNEL", ("demangledName", "shortName", "mangledName")),
    ("CUPTI_ACTIVITY_KIND_RUNTIME", ("nameId",)),
)
_LEAKY = {
    "META_DATA_CAPTURE": "name TEXT, value TEXT",
    "TARGET_INFO_SYSTEM_ENV": "globalVid INTEGER, devStateName TEXT, name TEXT, nameEnum TEXT",
    "PROCESSES": "globalPid INTEGER, pid INTEGER, name TEXT",
    "ThreadNames": "nameId INTEGER, priority INTEGER, globalTid INTEGER",
    "ProcessStreams": "globalPid INTEGER, filenameId INTEGER, contentId INTEGER",
    "ANALYSIS_FILE": "id INTEGER, filename TEXT, content TEXT, globalPid INTEGER",
}


def tables(db):
    rows = db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    return [name for (name,) in rows]


def plant(path):
    """Append a marker to every text of every table, and add tables that hold nothing else."""
    with sqlite3.connect(path) as db:
        used = " UNION ".join(
            f'SELECT "{c}" FROM "{t}" WHERE "{c}" NOT NULL'
            for t, columns in _USED
            if t in tables(db)
            for c in columns
        )
        db.execute(f"UPDATE StringIds SET value = value || ' {MARK}_S' WHERE id NOT IN ({used})")
        for table, columns in _LEAKY.items():
            db.execute(f'CREATE TABLE IF NOT EXISTS "{table}" ({columns})')
            marks = ", ".join(
                "NULL" if is_key else f"'{MARK}_{table}_{name}'" if "INT" not in kind else "7"
                for _, name, kind, _, _, is_key in db.execute(f'PRAGMA table_info("{table}")')
            )
            db.execute(f'INSERT INTO "{table}" VALUES ({marks})')
        for table in set(tables(db)) - {"StringIds"}:
            for row in db.execute(f'PRAGMA table_info("{table}")').fetchall():
                column = row[1]
                db.execute(
                    f'UPDATE "{table}" SET "{column}" = "{column}" || \' {MARK}_{column}\''
                    f" WHERE typeof(\"{column}\") = 'text'"
                )
        db.execute("UPDATE DIAGNOSTIC_EVENT SET severity = 3 WHERE rowid % 5 = 0")
    db.close()


def numbers(whole):
    """What must not depend on names."""
    return [
        (
            f["id"].partition("/")[0],
            f["level"],
            f["at_stake_ns"],
            [m["value"] for m in f["metrics"]],
        )
        for f in whole["findings"]
        if f["level"] != "unknown"
    ]


def answers(path, capsys, *options, forms=("text", "json", "markdown")):
    out = []
    for form in forms:
        assert cli.call(["analyze", str(path), "--format", form, *options]) == 0
        out.append(capsys.readouterr().out)
    return out


@pytest.mark.parametrize("name", ["int4_dequant", "hf_dynamic_cache", "allreduce_2gpu"])
def test_no_planted_marker_reaches_a_redacted_answer(fixture_path, tmp_path, capsys, name):
    path = tmp_path / f"{MARK}_file.sqlite"
    shutil.copy(fixture_path(name), path)
    plant(path)
    every = ("text", "json", "markdown", "html")
    for text in answers(path, capsys, "--redact", "--top", "100000", forms=every):
        assert MARK not in text
        assert "SECRET" not in text
    capsys.readouterr()


@pytest.mark.parametrize("name", ["int4_dequant", "hf_dynamic_cache"])
def test_redaction_changes_no_number(fixture_path, capsys, name):
    path = fixture_path(name)
    _, plain, _ = answers(path, capsys)
    _, redacted, _ = answers(path, capsys, "--redact")
    plain, redacted = json.loads(plain), json.loads(redacted)
    assert numbers(redacted) == numbers(plain)
    assert redacted["overview"]["gpus"] == plain["overview"]["gpus"]
    assert redacted["reports"][0]["name"] == "report-0"
    assert redacted["reports"][0]["utc_epoch_ns"] is None


MARKERS = [
    *(f"KV_TABLE seq=3 first=4 op={op} ids=17,18" for op in ("alloc", "share", "free")),
    *(f"KV_BLOCK layer=0 kind=k addr=0x10 bytes=64 op={op}" for op in ("append", "move")),
    *(f"META version=0.1.0 grammar=tk1 pid=7 markers={m} again=1" for m in ("nvtx", "sidecar")),
    "META version=0.1.0 grammar=tk1 pid=7 markers=nvtx degraded=1 again=1",
    "ALLOC source=torch_segment addr=0x10 bytes=64 stream=0x0",
    "ALLOC source=torch_block addr=0x10 bytes=64 requested=60",
]


@pytest.mark.parametrize("marker", MARKERS)
def test_every_word_that_the_hooks_write_passes(marker):
    assert Texts().column(pl.Series([marker])).to_list() == [marker]
    assert MARK not in Texts().column(pl.Series([f"{marker} {MARK}"]))[0]
    assert MARK not in Texts().column(pl.Series([f"{marker} op={MARK}"]))[0]


def test_the_name_of_an_engine_goes_and_still_joins_its_markers():
    names = [f"KV_TABLE seq=1 op=alloc ids=4 engine={MARK}-{i} group=0" for i in (0, 1, 0)]
    pool = f"KV_POOL layer=0 kind=k addr=0x10 bytes=64 engine={MARK}-1"
    assert Texts().column(pl.Series([*names, pool])).to_list() == [
        "KV_TABLE seq=1 op=alloc ids=4 engine=-1 group=0",
        "KV_TABLE seq=1 op=alloc ids=4 engine=-2 group=0",
        "KV_TABLE seq=1 op=alloc ids=4 engine=-1 group=0",
        "KV_POOL layer=0 kind=k addr=0x10 bytes=64 engine=-2",
    ]


def test_a_paged_cache_is_judged_the_same_when_redacted(tmp_path, capsys):
    export = Export().gpu()
    export.mark(
        1, "KV_POOL layer=0 kind=k addr=0x10000 bytes=3200000 stride=32000 blocks=100 engine=lab-0"
    )
    for i in range(8):
        export.mark(10 + i, f"KV_TABLE seq=1 first={i} op=alloc ids={(7 * i) % 50} engine=lab-0")
    path = export.write(tmp_path / "r.sqlite")
    _, plain, _ = answers(path, capsys)
    _, redacted, _ = answers(path, capsys, "--redact")
    judged = numbers(json.loads(redacted))
    assert judged == numbers(json.loads(plain))
    assert {name for name, *_ in judged} == {"kv_fragmentation"}
    assert "lab-0" not in redacted


def test_nvtx_text_passes_when_it_is_asked_to(fixture_path, capsys):
    path = fixture_path("int4_dequant")
    hidden, _, _ = answers(path, capsys, "--redact")
    assert "dequant_then_gemm" not in hidden
    kept, _, _ = answers(path, capsys, "--redact", "--keep-nvtx")
    assert "dequant_then_gemm" in kept
    assert "int4_dequant.sqlite" not in kept


def test_markdown_is_redacted_unless_asked(fixture_path, capsys):
    path = fixture_path("int4_dequant")
    _, _, page = answers(path, capsys)
    assert "dequant_then_gemm" not in page
    assert "int4_dequant.sqlite" not in page
    _, _, page = answers(path, capsys, "--no-redact")
    assert "dequant_then_gemm" in page


def test_inputs_that_cannot_be_read_are_not_named(tmp_path, capsys):
    good = Export().gpu().kernel(0, 1_000).write(tmp_path / "good.sqlite")
    bad = tmp_path / f"{MARK}.sqlite"
    bad.write_text("hello")
    assert cli.call(["analyze", str(good), str(bad), "--redact"]) == 4
    assert MARK not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("KV_BLOCK layer=0 seq=3 block=17 addr=0x7f5bba008000 bytes=32768", None),
        ("KV_REALLOC layer=1 kind=k addr=0x7f5ab96d9c00 bytes=65536 seq_len=64", None),
        ("MOE_ROUTE layer=0 batch=0 counts=115,122,112", None),
        ("STEP step=3 phase=decode", None),
        ("tk.kv", None),
        ("ncclAllReduce", None),
        ("pncclGroupStart", None),
        ("layer 3", None),
        ("prefill step 12", None),
        ("KV_BLOCK layer=0 owner=bob", "text-1 layer=0"),
        ("KV_BLOCK layer=0 kind=bob", "text-1 layer=0"),
        ("STEP step=3 phase=bob", "text-1 step=3"),
        ("bob's decode step=3 layer 7", "text-1 step=3 layer 7"),
        ("12345", "text-1"),
        ("\U0001f511", "text-1"),
        ("ncclAllReduce of bob", "text-1"),
        ("step of bob", "text-1"),
    ],
)
def test_which_nvtx_texts_pass(text, shown):
    assert Texts().column(pl.Series([text])).to_list() == [text if shown is None else shown]


def test_the_same_words_get_the_same_stand_in():
    column = Texts().column(pl.Series(["a step 1", None, "b", "a step 2", "b"]))
    assert column.to_list() == ["text-1 step 1", None, "text-2", "text-1 step 2", "text-2"]


OUT_OF_MEMORY = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.1 GiB of"
    " which 1.5 GiB is free. Process 123 (bob) has 77 GiB memory in use. Of the allocated memory"
    " 60.0 GiB is allocated by PyTorch, with 10.0 MiB allocated in private pools (e.g., CUDA"
    " Graphs), and 15.0 GiB is reserved by PyTorch but unallocated."
)


def test_an_out_of_memory_message_keeps_its_numbers_only():
    (shown,) = Texts().column(pl.Series([OUT_OF_MEMORY])).to_list()
    assert parse_oom(shown) == parse_oom(OUT_OF_MEMORY)
    assert "bob" not in shown
    assert "123" not in shown


@settings(deadline=None)
@given(st.text(st.characters(min_codepoint=0x80, categories=["L", "S"]), min_size=1))
def test_no_foreign_letter_passes(text):
    for wrapped in (text, f"step 3 {text}", f"KV_BLOCK layer=0 kind={text}", f"nccl{text}"):
        (shown,) = Texts().column(pl.Series([wrapped])).to_list()
        assert shown.isascii()
