"""Recordings that ``tracekit run`` made on real GPUs, against what the programs printed."""

from __future__ import annotations

import lzma
import sqlite3
import statistics
import tomllib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tracekit.model.markers import Marker, parse

FOLDER = Path(__file__).parents[2] / "fixtures" / "run"


def truth(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


def opened(name: str) -> sqlite3.Connection:
    export = sqlite3.connect(":memory:")
    export.deserialize(lzma.decompress((FOLDER / f"{name}.sqlite.xz").read_bytes()))
    return export


@pytest.fixture(scope="module")
def decode() -> Iterator[sqlite3.Connection]:
    with closing(opened("hf_decode")) as export:
        yield export


def markers(export: sqlite3.Connection, event: str) -> list[Marker]:
    rows = export.execute(
        "SELECT text FROM NVTX_EVENTS WHERE text LIKE ? ORDER BY start", (f"{event} %",)
    )
    return [marker for (text,) in rows if (marker := parse(text)) is not None]


def test_an_unmodified_decode_tells_the_chain_that_it_prints(decode: sqlite3.Connection) -> None:
    keys = ("layer", "kind", "addr", "bytes", "seq_len")
    found = [[marker.values[key] for key in keys] for marker in markers(decode, "KV_REALLOC")]
    wanted = truth("hf_decode")["chain"]
    assert len(wanted) == 56
    assert found == wanted
    assert {m.values["seq"] for m in markers(decode, "KV_REALLOC")} == {0}


def test_the_last_place_of_every_tensor_is_given_up(decode: sqlite3.Connection) -> None:
    last = {(layer, kind): addr for layer, kind, addr, _, _ in truth("hf_decode")["chain"]}
    freed = [m.values for m in markers(decode, "KV_FREE")]
    assert {(v["layer"], v["kind"]): v["addr"] for v in freed} == last


def test_steps_and_layers_stand_around_it_without_a_mark_by_hand(
    decode: sqlite3.Connection,
) -> None:
    facts = truth("hf_decode")
    steps = [m.values for m in markers(decode, "STEP")]
    assert [s["step"] for s in steps] == list(range(facts["steps"]))
    assert [s["phase"] for s in steps] == ["prefill"] + ["decode"] * (facts["steps"] - 1)
    assert [s["n_tok"] for s in steps] == [facts["tokens_prefill"]] + [1] * (facts["steps"] - 1)
    layers = [m.values["layer"] for m in markers(decode, "LAYER")]
    assert layers == list(range(facts["layers"])) * facts["steps"]


def test_kernels_are_launched_inside_the_layers(decode: sqlite3.Connection) -> None:
    inside, total = decode.execute(
        "WITH launched AS (SELECT r.start AS at, r.globalTid AS tid"
        " FROM CUPTI_ACTIVITY_KIND_KERNEL k"
        " JOIN CUPTI_ACTIVITY_KIND_RUNTIME r USING (correlationId)),"
        " within AS (SELECT at, tid FROM launched l WHERE EXISTS (SELECT 1 FROM NVTX_EVENTS n"
        "  WHERE n.text LIKE 'STEP %' AND n.globalTid = l.tid AND l.at BETWEEN n.start AND n.end))"
        " SELECT sum(EXISTS (SELECT 1 FROM NVTX_EVENTS n WHERE n.text LIKE 'LAYER %'"
        "  AND n.globalTid = w.tid AND w.at BETWEEN n.start AND n.end)), count(*) FROM within w"
    ).fetchone()
    assert total > 500
    assert inside / total > 0.8


def test_two_ranks_are_two_aligned_reports() -> None:
    facts = truth("tensor_parallel")
    ends = []
    for rank in range(2):
        with closing(opened(f"tensor_parallel_rank{rank}")) as export:
            told = [m.values for m in markers(export, "COLL")]
            assert {(v["rank"], v["nranks"]) for v in told} == {(rank, 2)}
            assert [v["seq"] for v in told] == list(range(50))
            asked = [v for v in told if v["bytes"] == facts["bytes"]]
            assert len(asked) == facts["all_reduces"]
            assert len(told) - len(asked) == facts["barriers"]
            (began,) = export.execute(
                "SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME"
            ).fetchone()
            rows = export.execute(
                "SELECT end FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s"
                " ON s.id = k.shortName WHERE s.value LIKE '%AllReduce%' ORDER BY start"
            ).fetchall()
            assert len(rows) == len(told)
            ends.append([began + end for (end,) in rows])
    apart = [b - a for a, b in zip(*ends, strict=True)]
    offset = statistics.median(apart)
    assert offset == facts["end_offset_median_ns"]
    assert statistics.median(abs(a - offset) for a in apart) == facts["end_offset_mad_ns"]
