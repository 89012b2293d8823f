"""Recordings of real GPUs: what the library told against what torch, NCCL and CUPTI say."""

from __future__ import annotations

import lzma
import sqlite3
import struct
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tracekit.model.markers import EVENTS, WORDS, parse

RECORDINGS = Path(__file__).parents[2] / "fixtures" / "injector"
Row = tuple[int, str, dict[str, Any]]
"""Process, event, values."""
PID = ~0xFFFFFF
FORMATS = {12: "<B", 15: "<i", 18: "<Q"}
UNKNOWN = {12: 255, 15: -1, 18: 2**64 - 1}
MIB = 1 << 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every recording, unpacked."""
    target = tmp_path_factory.mktemp("recordings")
    for packed in RECORDINGS.glob("*.sqlite.xz"):
        (target / packed.stem).write_bytes(lzma.decompress(packed.read_bytes()))
    return target


def _open(folder: Path, name: str) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{folder / name}.sqlite?mode=ro", uri=True)


def _truth(name: str) -> dict[str, Any]:
    return tomllib.loads((RECORDINGS / f"{name}.toml").read_text())


def _domain_rows(db: sqlite3.Connection) -> Iterator[tuple[int, str, bytes | None]]:
    yield from db.execute(
        "SELECT e.globalTid, coalesce(e.text, s.value), e.binaryData FROM NVTX_EVENTS e"
        " LEFT JOIN StringIds s ON s.id = e.textId WHERE e.eventType IN (34, 59) AND EXISTS"
        " (SELECT 1 FROM NVTX_EVENTS d WHERE d.eventType = 75 AND d.text = 'tracekit'"
        " AND d.domainId = e.domainId AND d.globalTid & ~0xFFFFFF = e.globalTid & ~0xFFFFFF)"
        " ORDER BY e.start, e.rowid"
    )


def _texts(db: sqlite3.Connection) -> list[Row]:
    """Markers in text form."""
    rows = []
    for tid, text, _ in _domain_rows(db):
        marker = parse(text)
        if marker is not None:
            rows.append((tid & PID, marker.event, dict(marker.values)))
    return rows


def _payloads(db: sqlite3.Connection) -> list[Row]:
    """Markers in payload form, decoded by the schemas that the export holds."""
    schemas: dict[int, tuple[str, int, list[tuple[str, int, int]]]] = {}
    for number, name, size in db.execute(
        "SELECT DISTINCT schemaId, name, payloadSize FROM NVTX_PAYLOAD_SCHEMAS"
        " WHERE name LIKE 'tracekit.%'"
    ).fetchall():
        rows_of = db.execute(
            "SELECT DISTINCT name, type, coalesce(offset, 0), idx FROM NVTX_PAYLOAD_SCHEMA_ENTRIES"
            " WHERE schemaId = ? AND domainId IN (SELECT domainId FROM NVTX_PAYLOAD_SCHEMAS WHERE"
            " schemaId = ? AND name = ?) ORDER BY idx", (number, number, name)
        )  # fmt: skip
        schemas[number] = (name.removeprefix("tracekit.").upper(), size, [e[:3] for e in rows_of])
    rows: list[Row] = []
    for tid, _, blob in _domain_rows(db):
        if blob is None:
            continue
        _, schema, size, offset = struct.unpack_from("<4Q", blob)
        event, declared, entries = schemas[schema]
        assert (size, offset, len(blob)) == (declared, 32, 32 + size)
        values: dict[str, Any] = {}
        for key, kind, at in entries:
            value = struct.unpack_from(FORMATS[kind], blob, offset + at)[0]
            if value != UNKNOWN[kind]:
                values[key] = WORDS.get((event, key), {}).get(value, value)
        rows.append((tid & PID, event, values))
    return rows


def _sum(rows: list[Row], event: str, source: str) -> int:
    return sum(
        v["bytes"] for _, e, v in rows if (e, v.get("source"), v.get("rc")) == (event, source, 0)
    )


def test_cudamalloc_sums_equal_torch_s_counters(folder: Path) -> None:
    """Reserved bytes and segments, allocated and freed; the live ones are torch's segments."""
    torch = _truth("torch_cudamalloc")["torch"]
    with _open(folder, "torch_cudamalloc") as db:
        rows = _texts(db)
        witness = {
            (address, size)
            for address, size in db.execute(
                "SELECT address, bytes FROM CUDA_GPU_MEMORY_USAGE_EVENTS"
                " WHERE memoryOperationType = 0"
            )
        }
    assert _sum(rows, "ALLOC", "cudaMalloc") == torch["reserved_bytes_all_allocated"]
    assert _sum(rows, "FREE", "cudaFree") == torch["reserved_bytes_all_freed"]
    allocated = [(v["addr"], v["bytes"]) for _, e, v in rows if e == "ALLOC"]
    freed = [(v["addr"], v["bytes"]) for _, e, v in rows if e == "FREE"]
    assert len(allocated) == torch["segment_all_allocated"]
    assert len(freed) == torch["segment_all_freed"]
    alive = list(allocated)
    for block in freed:
        alive.remove(block)
    assert sorted(alive) == sorted(map(tuple, torch["segments"]))
    assert set(allocated) <= witness  # CUPTI's own memory events


def test_expandable_sums_equal_torch_s_counters(folder: Path) -> None:
    """Mapped and unmapped bytes are the reserved ones; addresses reserved are another thing."""
    torch = _truth("torch_expandable")["torch"]
    with _open(folder, "torch_expandable") as db:
        rows = _texts(db)
    assert _sum(rows, "ALLOC", "cudaMalloc") == 0
    assert _sum(rows, "ALLOC", "cuMemMap") == torch["reserved_bytes_all_allocated"]
    assert _sum(rows, "FREE", "cuMemUnmap") == torch["reserved_bytes_all_freed"]
    assert _sum(rows, "FREE", "cuMemRelease") == torch["reserved_bytes_all_freed"]
    assert _sum(rows, "ALLOC", "cuMemCreate") == torch["reserved_bytes_all_allocated"]
    assert _sum(rows, "ALLOC", "cuMemAddressReserve") > 1000 * torch["reserved_bytes_all_current"]
    refused = [v for _, e, v in rows if e == "ALLOC" and v["rc"]]
    assert [(v["source"], v["rc"], "handle" in v) for v in refused] == [("cuMemCreate", 800, False)]
    bases = {v["addr"] for _, e, v in rows if e == "ALLOC" and v["source"] == "cuMemAddressReserve"}
    assert bases == {address for address, _ in torch["segments"]}


def test_ctypes_calls_are_marked_in_both_forms(folder: Path) -> None:
    """NCCL from a ctypes handle: six all-reduces of 4 MiB; text and payload say the same."""
    asked = _truth("nccl_by_ctypes")["asked"]
    with _open(folder, "nccl_by_ctypes") as db:
        texts = [row for row in _texts(db) if row[1] != "META"]
        payloads = _payloads(db)
    assert texts == payloads
    colls = [v for _, e, v in texts if e == "COLL"]
    ranks = [int(comm, 16) for comm in asked["communicators"]]
    assert [(v["op"], v["bytes"], v["comm"], v["rank"], v["seq"]) for v in colls] == [
        ("AllReduce", asked["bytes"], ranks[i % 2], i % 2, i // 2)
        for i in range(asked["all_reduces"])
    ]
    assert {(v["nranks"], v["dtype"], v["redop"], v["depth"]) for v in colls} == {
        (2, "float32", "sum", 1)
    }
    comms = [(v["event"], v["rank"], v["device"]) for _, e, v in texts if e == "COMM"]
    assert comms == [("init", 0, 0), ("init", 1, 1), ("destroy", 0, 0), ("destroy", 1, 1)]


def _by_rank(rows: list[Row]) -> dict[int, list[dict[str, Any]]]:
    ranks: dict[int, list[dict[str, Any]]] = {}
    for _, event, values in rows:
        if event == "COLL":
            ranks.setdefault(values["rank"], []).append(values)
    return ranks


@pytest.mark.parametrize(("name", "before"), [("torch_collectives", 2), ("capture_range", 0)])
def test_torch_distributed_is_marked_with_the_right_bytes(
    folder: Path, name: str, before: int
) -> None:
    """Operation and bytes of the whole message, in order, on both ranks, with equal numbers."""
    with _open(folder, name) as db:
        rows = _payloads(db) if name == "torch_collectives" else _texts(db)
    ranks = _by_rank(rows)
    asked = {r["rank"]: r["asked"] for r in _truth(name)["ranks"]}
    names = {"Bcast": "Broadcast"}  # torch calls the in-place form
    for rank, calls in ranks.items():
        told = [[names.get(v["op"], v["op"]), v["bytes"]] for v in calls[before:]]
        assert told == asked[rank]
    assert set(ranks) == {0, 1}
    first, second = (
        [v["seq"] for v in ranks[r] if v["op"] not in {"Send", "Recv"}] for r in (0, 1)
    )
    assert first == second == list(range(first[0], first[0] + len(first)))
    assert {(v["op"], v.get("peer")) for r in ranks.values() for v in r if "peer" in v} == {
        ("Send", 1), ("Recv", 0)
    }  # fmt: skip


def test_every_process_has_its_schemas(folder: Path) -> None:
    """Schemas are in the export by name, with the keys of the table as fields."""
    with _open(folder, "torch_collectives") as db:
        rows = _payloads(db)
    assert len({pid for pid, _, _ in rows}) == 2
    for _, event, values in rows:
        assert set(values) <= set(EVENTS[event].keys)


def test_state_is_there_under_a_capture_range(folder: Path) -> None:
    """Each rank's library, communicator and large allocations, told again when recording starts."""
    with _open(folder, "capture_range") as db:
        rows = _texts(db)
    for pid in {row[0] for row in rows}:
        mine = [(e, v) for p, e, v in rows if p == pid]
        metas = [v for e, v in mine if e == "META"]
        assert [v["again"] for v in metas] == [1]
        assert len([e for e, _ in mine if e == "SYNC"]) == 1
        (comm,) = (v for e, v in mine if e == "COMM" and v.get("again"))
        assert (comm["nranks"], comm["rank"]) == (2, comm["device"])
        live = [
            v for e, v in mine if e == "ALLOC" and v.get("again") and v["source"] == "cudaMalloc"
        ]
        assert [v["bytes"] for v in live].count(_truth("capture_range")["big_bytes"]) == 1
        assert min(v["bytes"] for v in live) >= MIB
        assert {v["device"] for v in live} == {comm["rank"]}
        calls = [v for e, v in mine if e == "COLL" and v["op"] == "AllReduce"]
        assert {v["comm"] for v in calls} == {comm["comm"]}


def test_recordings_name_no_machine(folder: Path) -> None:
    """No environment, user, host or path is left, and each file has its truth and is small."""
    for packed in RECORDINGS.glob("*.sqlite.xz"):
        assert packed.stat().st_size < 300_000
        assert packed.with_suffix("").with_suffix(".toml").exists()
        with _open(folder, packed.stem.removesuffix(".sqlite")) as db:
            strings = {row[0] for row in db.execute("SELECT value FROM StringIds")}
            names = {row[0] for row in db.execute("SELECT name FROM TARGET_INFO_SYSTEM_ENV")}
            capture = {row[0] for row in db.execute("SELECT name FROM META_DATA_CAPTURE")}
            assert {row[0] for row in db.execute("SELECT DISTINCT name FROM PROCESSES")} == {
                "python3"
            }
        assert not [s for s in strings if s.startswith("/") or "LD_PRELOAD" in s]
        assert not names & {"Hostname", "EnvironmentVariables", "UserName"}
        assert not [n for n in capture if n.endswith(("ARGS", "ENV", "USER_NAME", "COMMAND"))]
