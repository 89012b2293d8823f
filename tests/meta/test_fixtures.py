"""The fixtures are what their manifest says, small, and free of anything private."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import lzma
import re
import sqlite3
import statistics
import tarfile
import tomllib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FIXTURES = Path(__file__).parents[2] / "fixtures"
MANIFEST: list[dict[str, Any]] = tomllib.loads(
    (FIXTURES / "MANIFEST.toml").read_text(encoding="utf-8")
)["fixture"]
BY_FILE = {entry["file"]: entry for entry in MANIFEST}
EXPORTS = sorted(name for name in BY_FILE if name.endswith(".sqlite.xz"))
# The injector's recordings are described by a .toml beside them, and tested with the injector.
PUBLISHED = sorted(
    {*BY_FILE, *(f"{path.parent.name}/{path.name}" for path in FIXTURES.glob("*/*.xz"))}
)
MAX_BYTES = 6_000_000

_HEX = rb"[0-9a-f]"
PRIVATE = {
    "home folder": rb"/(?:home|root|Users)/",
    "absolute path": rb"(?<![\w/.*])/(?:usr|opt|tmp|var|etc|mnt|data|srv|work\w*|proc|dev)/[\w.]",
    "environment": rb"\b(?:PATH|HOSTNAME|LD_LIBRARY_PATH|SHELL|PWD|TOKEN|SECRET|PASSWORD)=",
    "mail address": rb"[\w.+-]{2,}@[\w-]+\.[a-z]{2,}",
    "host name": rb"\b[a-z][\w-]+\.(?:internal|local|lan|corp|cloud|amazonaws\.com)\b",
    "IP address": rb"(?<![\d.])(?!127\.0\.0\.1)(?:\d{1,3}\.){3}\d{1,3}(?![\d.])",
    "GPU serial": rb"GPU-" + _HEX + rb"{8}-",
    "uuid": rb"(?!(?:0{4}){2}-(?:0{4}-){3})" + _HEX + rb"{8}-(?:" + _HEX + rb"{4}-){3}" + _HEX,
}
SYSTEM_ENV = {
    *("CpuArchitecture", "CpuCores", "CudaDriverVersion", "HardwarePlatform", "HasCudaEvents"),
    *("HasNvtxEvents", "Hostname", "NvDriverVersion", "OsDescription", "SupportsGpuMetrics"),
}


@cache
def content(name: str) -> bytes:
    """Decompressed bytes of a fixture."""
    return lzma.decompress((FIXTURES / name).read_bytes())


@contextmanager
def opened(name: str) -> Iterator[sqlite3.Connection]:
    """An export in memory: nothing is written anywhere."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.deserialize(content(name))
        yield db


def texts(db: sqlite3.Connection, sql: str) -> list[Any]:
    return [row[0] for row in db.execute(sql)]


def tables(db: sqlite3.Connection) -> set[str]:
    return set(texts(db, "SELECT name FROM sqlite_master WHERE type = 'table'"))


def test_manifest_and_folder_agree() -> None:
    found = [*FIXTURES.glob("*.xz"), *FIXTURES.glob("pairs/*.xz")]
    files = {path.relative_to(FIXTURES).as_posix() for path in found}
    assert files == set(BY_FILE)
    assert len(BY_FILE) == len(MANIFEST), "a file is described twice"


def test_all_fixtures_together_are_small() -> None:
    total = sum(path.stat().st_size for path in FIXTURES.rglob("*") if path.is_file())
    assert total < MAX_BYTES


@pytest.mark.parametrize("name", sorted(BY_FILE))
def test_hashes_and_workload(name: str) -> None:
    entry = BY_FILE[name]
    assert hashlib.sha256((FIXTURES / name).read_bytes()).hexdigest() == entry["sha256"]
    assert hashlib.sha256(content(name)).hexdigest() == entry["content_sha256"]
    assert (FIXTURES / entry["workload"]).is_file()
    assert entry["shows"].strip()
    assert entry["facts"]


def _members(name: str) -> list[tuple[str, bytes]]:
    """What to search: the bytes of a file, or the decoded texts of every Parquet table."""
    if not name.endswith(".tar.xz"):
        return [(name, content(name))]
    polars = pytest.importorskip("polars", reason="Parquet files are read with Polars")
    found = []
    with tarfile.open(fileobj=io.BytesIO(content(name))) as archive:
        for member in archive:
            file = archive.extractfile(member)
            assert file is not None
            data = file.read()
            strings = polars.read_parquet(io.BytesIO(data)).select(polars.selectors.string())
            cells = [str(cell) for row in strings.rows() for cell in row if cell is not None]
            found.append((member.name, data + "\n".join(cells).encode()))
    return found


@pytest.mark.parametrize("name", PUBLISHED)
def test_nothing_private(name: str) -> None:
    """Searches raw bytes, so free pages and page slack are covered, too."""
    for member, data in _members(name):
        printable = b"\n".join(sorted(set(re.findall(rb"[\x20-\x7e]{6,}", data))))
        for what, pattern in PRIVATE.items():
            hits = {
                hit for hit in re.findall(pattern, printable) if not _is_version(what, hit, member)
            }
            assert not hits, f"{member}: {what}: {sorted(hits)[:3]}"


@pytest.mark.parametrize(
    ("what", "example"),
    [
        ("home folder", b"/home/somebody/model"),
        ("absolute path", b"open /opt/app/lib.so failed"),
        ("environment", b"HOSTNAME=node17"),
        ("mail address", b"somebody@example.org"),
        ("host name", b"gpu-node-17.internal"),
        ("IP address", b"10.11.12.13"),
        ("GPU serial", b"GPU-0a1b2c3d-4e5f"),
        ("uuid", b"0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"),
    ],
)
def test_the_search_finds_what_it_is_for(what: str, example: bytes) -> None:
    assert re.search(PRIVATE[what], example)
    assert not re.search(PRIVATE["uuid"], b"00000000-0000-0000-0000-000000000060")


def _is_version(what: str, hit: bytes, member: str) -> bool:
    """Product versions have four numbers as addresses do."""
    tool = next((BY_FILE[name]["tool"] for name in BY_FILE if member == name), "nsys 2025.3.2.0")
    return what == "IP address" and hit.decode() in tool


@pytest.mark.parametrize("name", EXPORTS)
def test_no_traces_of_a_machine(name: str) -> None:
    with opened(name) as db:
        have = tables(db)
        assert not {table for table in have if re.search("NETWORK|NIC", table)}
        for table in ("ANALYSIS_FILE", "ProcessStreams"):
            if table in have:
                assert texts(db, f"SELECT count(*) FROM {table}") == [0]
        for table in have & {"META_DATA_EXPORT", "EXPORT_META_DATA"}:
            values = dict(db.execute(f"SELECT name, value FROM {table}"))
            assert values["EXPORT_HOST"] == "host"
            assert values["EXPORT_USER"] in ("", None)
            assert not [value for value in values.values() if value and "/" in value]
        if "META_DATA_CAPTURE" in have:
            names = texts(db, "SELECT name FROM META_DATA_CAPTURE")
            assert not [n for n in names if "ENVIRONMENT" in n or "ARGUMENT" in n or "DIR" in n]
            commands = "SELECT value FROM META_DATA_CAPTURE WHERE name LIKE '%COMMAND'"
            program = BY_FILE[name].get("process", "python3")
            assert set(texts(db, commands)) <= {program, "torchrun"}
        system = dict(db.execute("SELECT name, value FROM TARGET_INFO_SYSTEM_ENV"))
        assert set(system) <= SYSTEM_ENV
        assert system["Hostname"] == "host"
        program = BY_FILE[name].get("process", "python3")
        assert set(texts(db, "SELECT name FROM PROCESSES")) == {program}


@pytest.mark.parametrize("name", EXPORTS)
def test_origin_and_row_counts(name: str) -> None:
    entry = BY_FILE[name]
    with opened(name) as db:
        have = tables(db)
        meta = (have & {"META_DATA_EXPORT", "EXPORT_META_DATA"}).pop()
        values = dict(db.execute(f"SELECT name, value FROM {meta}"))
        assert entry["tool"] == f"nsys {values['EXPORT_PRODUCT_VERSION']}"
        assert entry["schema"] == values["EXPORT_SCHEMA_VERSION"]
        assert entry["exported_utc"] == values["EXPORT_TIME_UTC"]
        gpus = texts(db, "SELECT name FROM TARGET_INFO_GPU") if "TARGET_INFO_GPU" in have else []
        assert entry["gpus"] == gpus
        for table, rows in entry["rows"].items():
            assert texts(db, f'SELECT count(*) FROM "{table}"') == [rows], table
        kinds = {t for t in have if t.startswith(("CUPTI_ACTIVITY_KIND_KERNEL", "GPU_METRICS"))}
        assert kinds <= set(entry["rows"])


_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL AS k JOIN StringIds AS s ON s.id = k.shortName"
_FACTS: tuple[tuple[str, str, str], ...] = (
    (
        *("int4_dequant", "dequant_kernels"),
        f"SELECT count(*) FROM {_KERNELS} WHERE s.value = 'dequantize_int4_kernel'",
    ),
    (
        *("int4_dequant", "dequant_total_ns"),
        f"SELECT sum(k.end - k.start) FROM {_KERNELS} WHERE s.value = 'dequantize_int4_kernel'",
    ),
    ("graph_nodes", "kernels_with_graph_node", f"SELECT count(k.graphNodeId) FROM {_KERNELS}"),
    ("graph_nodes", "graph_launches", f"SELECT count(DISTINCT k.correlationId) FROM {_KERNELS}"),
    ("graph_opaque", "graph_rows", "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE"),
    (
        *("graph_opaque", "graph_total_ns"),
        'SELECT sum("end" - start) FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE',
    ),
    (
        *("allreduce_2gpu", "nccl_kernels_per_gpu"),
        f"SELECT count(*) / 2 FROM {_KERNELS} WHERE s.value LIKE 'nccl%'",
    ),
    (
        *("allreduce_2gpu", "nccl_payloads"),
        "SELECT count(*) FROM NVTX_EVENTS WHERE binaryData IS NOT NULL",
    ),
    (
        *("tp_decode_rank0", "nccl_kernels"),
        f"SELECT count(*) FROM {_KERNELS} WHERE s.value LIKE 'nccl%'",
    ),
    (
        *("tp_decode_rank1", "nccl_kernels"),
        f"SELECT count(*) FROM {_KERNELS} WHERE s.value LIKE 'nccl%'",
    ),
    (
        *("kv_stride_l2", "kv_block_marks"),
        "SELECT count(*) FROM NVTX_EVENTS WHERE text LIKE 'KV_BLOCK %'",
    ),
    (
        *("hf_dynamic_cache", "kv_realloc_marks"),
        "SELECT count(*) FROM NVTX_EVENTS WHERE text LIKE 'KV_REALLOC %'",
    ),
    ("nvtx_only_2022_4", "marks", "SELECT count(*) FROM NVTX_EVENTS WHERE eventType = 34"),
    ("nvtx_only_schema_3_7", "ranges", "SELECT count(*) FROM NVTX_EVENTS WHERE eventType = 59"),
)


@pytest.mark.parametrize(("name", "fact", "sql"), _FACTS)
def test_facts_by_sql(name: str, fact: str, sql: str) -> None:
    file = f"{name}.sqlite.xz"
    with opened(file) as db:
        assert texts(db, sql) == [BY_FILE[file]["facts"][fact]]


_COPIES = "CUPTI_ACTIVITY_KIND_MEMCPY"
_CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME AS r JOIN StringIds AS s ON s.id = r.nameId WHERE s.value"
_COUNTS = {
    "steps": "SELECT count(*) FROM NVTX_EVENTS WHERE text LIKE 'decode step=%'",
    "kernels": "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL",
    "graph_launches": f"SELECT count(*) FROM {_CALLS} LIKE 'cudaGraphLaunch%'",
    "malloc_calls": f"SELECT count(*) FROM {_CALLS} LIKE 'cudaMalloc%'",
    "free_calls": f"SELECT count(*) FROM {_CALLS} LIKE 'cudaFree%'",
    "host_to_device_copies": f"SELECT count(*) FROM {_COPIES} WHERE copyKind = 1",
    "host_to_device_bytes": f"SELECT total(bytes) FROM {_COPIES} WHERE copyKind = 1",
    "pageable_copies": f"SELECT count(*) FROM {_COPIES} WHERE srcKind = 0",
    "device_to_host_copies": f"SELECT count(*) FROM {_COPIES} WHERE copyKind = 2",
}
"""Facts of the before/after pairs; the name of a fact is what it counts."""


@pytest.mark.parametrize("name", [name for name in EXPORTS if name.startswith("pairs/")])
def test_counts_of_the_pairs(name: str) -> None:
    counted = {fact: value for fact, value in BY_FILE[name]["facts"].items() if fact in _COUNTS}
    assert {"steps", "kernels"} <= set(counted)
    with opened(name) as db:
        assert {fact: texts(db, _COUNTS[fact])[0] for fact in counted} == counted


@pytest.mark.parametrize("name", EXPORTS)
def test_every_kernel_name_is_in_the_classifiers_table(name: str) -> None:
    table = FIXTURES.parent / "tests" / "unit" / "model" / "test_kernels_traced.tsv"
    listed = {line.split("\t")[1] for line in table.read_text(encoding="utf-8").splitlines()}
    with opened(name) as db:
        if "CUPTI_ACTIVITY_KIND_KERNEL" not in tables(db):
            pytest.skip(f"{name} has no kernel table")
        sql = f"SELECT DISTINCT s.value FROM {_KERNELS.replace('shortName', 'demangledName')}"
        assert set(texts(db, sql)) <= listed


def test_facts_of_the_relocating_cache() -> None:
    facts = BY_FILE["hf_dynamic_cache.sqlite.xz"]["facts"]
    last: dict[tuple[str, str], tuple[str, int]] = {}
    relocations = copied = new = 0
    with opened("hf_dynamic_cache.sqlite.xz") as db:
        sql = "SELECT text FROM NVTX_EVENTS WHERE text LIKE 'KV_REALLOC %' ORDER BY start"
        marks = texts(db, sql)
    for mark in marks:
        fields = dict(part.split("=") for part in mark.split()[1:])
        key, size = (fields["layer"], fields["kind"]), int(fields["bytes"])
        if key in last:
            address, old = last[key]
            relocations += address != fields["addr"]
            copied += old
            new += size - old
        last[key] = (fields["addr"], size)
    assert len(last) == facts["prefill_allocations"]
    assert (relocations, copied, new) == (
        *(facts["relocations"], facts["copied_bytes"]),
        facts["new_bytes"],
    )
    assert copied / new == facts["write_amp"]


def test_facts_of_the_stride_sweep() -> None:
    facts = BY_FILE["kv_stride_l2.sqlite.xz"]["facts"]
    sql = f"SELECT k.end - k.start FROM {_KERNELS} WHERE s.value = 'kv_row_read' ORDER BY k.start"
    with opened("kv_stride_l2.sqlite.xz") as db:
        spans = [row[0] for row in db.execute(sql)]
    medians = [statistics.median(spans[i : i + 6]) / 1e3 for i in range(0, len(spans), 6)]
    assert medians == pytest.approx(facts["duration_median_us"], rel=1e-9)
    assert len(facts["layouts"]) == len(medians)


def _scrubber() -> ModuleType:
    spec = importlib.util.spec_from_file_location("scrub", FIXTURES / "record" / "scrub.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PLANTED = (
    "INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:ENVIRONMENT', 'KEY=SECRET_MARK_1')",
    "UPDATE META_DATA_CAPTURE SET value = 'SECRET_MARK_2' WHERE name LIKE '%COMMAND'",
    "UPDATE META_DATA_EXPORT SET value = 'SECRET_MARK_3' WHERE name = 'EXPORT_HOST'",
    "UPDATE META_DATA_EXPORT SET value = '/home/SECRET_MARK_4/x' WHERE name LIKE '%PATH_ABS'",
    "UPDATE TARGET_INFO_SYSTEM_ENV SET value = 'SECRET_MARK_5' WHERE name = 'Hostname'",
    "INSERT INTO PROCESSES VALUES (281474976776192, 4, 'SECRET_MARK_6')",
    "UPDATE PROCESSES SET name = '/opt/SECRET_MARK_7/python3' WHERE name = 'python3'",
    "INSERT INTO ANALYSIS_FILE VALUES (1, 'SECRET_MARK_8', 1, 1)",
    "INSERT INTO StringIds VALUES (99999, '/srv/SECRET_MARK_9/model.py')",
    "UPDATE TARGET_INFO_GPU SET uuid = 'SECRET_MARK_10'",
    "UPDATE DIAGNOSTIC_EVENT SET text = 'cannot open /srv/SECRET_MARK_11/a.so'",
    "CREATE TABLE TARGET_INFO_NIC_INFO AS SELECT 'SECRET_MARK_12' AS name",
)


def test_scrubbing_removes_every_planted_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "in.sqlite", tmp_path / "out.sqlite"
    source.write_bytes(content("int4_dequant.sqlite.xz"))
    with closing(sqlite3.connect(source, isolation_level=None)) as db:
        for statement in PLANTED:
            db.execute(statement)
    assert source.read_bytes().count(b"SECRET_MARK_") >= len(PLANTED)
    scrub = _scrubber()
    monkeypatch.setattr("sys.argv", ["scrub.py", str(source), str(target)])
    scrub.main()
    assert b"SECRET_MARK_" not in target.read_bytes()
    with closing(sqlite3.connect(target)) as db:
        for table, rows in BY_FILE["int4_dequant.sqlite.xz"]["rows"].items():
            assert texts(db, f'SELECT count(*) FROM "{table}"') == [rows], table
        assert texts(db, "SELECT name FROM PROCESSES") == ["python3"]
        uuids = texts(db, "SELECT uuid FROM TARGET_INFO_GPU")
        assert uuids == ["00000000-0000-0000-0000-000000000000"]
    with pytest.raises(SystemExit, match="exists already"):
        scrub.main()
