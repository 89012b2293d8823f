"""Block records from markers: lifetimes, block tables, releases, and what is at fault."""

from __future__ import annotations

import polars as pl
import pytest

from tracekit.views.kv.records import KvRecords, build_records
from tracekit.views.nvtx.markers import WHERE, decode


def records(*texts: str, pids: list[int] | None = None) -> KvRecords:
    n = len(texts)
    rows = pl.DataFrame(
        {
            "report": [0] * n,
            "pid": pids or [7] * n,
            "tid": [8] * n,
            "t_ns": list(range(n)),
            "end_ns": [None] * n,
            "nvtx_row": list(range(n)),
            "text": list(texts),
        },
        schema={**WHERE, "text": pl.String},
    )
    return build_records(decode(rows))


def columns(found: KvRecords, *names: str) -> list[tuple[object, ...]]:
    return found.records.select(names).rows()


def test_a_record_lives_until_the_next_one_of_its_block() -> None:
    found = records(
        "KV_BLOCK layer=0 seq=1 block=0 kind=k addr=0x1000 bytes=64 used=4",
        "KV_BLOCK layer=0 seq=1 block=0 kind=k addr=0x1000 bytes=64 used=8",
        "KV_FREE layer=0 seq=1 block=0 kind=k",
    )
    assert columns(found, "used", "t_alloc_ns", "t_free_ns") == [(4, 0, 1), (8, 1, 2)]
    assert found.faults == {}


def test_a_block_table_gives_every_layer_its_address() -> None:
    found = records(
        "KV_POOL layer=0 kind=k addr=0x10000 stride=256 blocks=10 block_bytes=256 block_tokens=16",
        "KV_POOL layer=1 kind=k addr=0x90000 stride=512 blocks=10 block_bytes=256 block_tokens=16",
        "KV_POOL layer=1 kind=k addr=0x90000 stride=512 blocks=10 block_bytes=256 again=1",
        "KV_TABLE seq=5 first=3 op=append ids=7,2",
    )
    assert columns(found, "layer", "block", "addr", "bytes", "source") == [
        (0, 3, 0x10000 + 7 * 256, 256, "table"),
        (0, 4, 0x10000 + 2 * 256, 256, "table"),
        (1, 3, 0x90000 + 7 * 512, 256, "table"),
        (1, 4, 0x90000 + 2 * 512, 256, "table"),
    ]
    assert found.pools.height == 2


def test_tables_of_the_scheduler_join_the_pools_of_workers_by_engine() -> None:
    found = records(
        "KV_POOL layer=0 addr=0x10000 stride=256 blocks=10 block_bytes=256 engine=a",
        "KV_POOL layer=0 addr=0x20000 stride=256 blocks=10 block_bytes=256 engine=a",
        "KV_POOL layer=0 addr=0x30000 stride=256 blocks=10 block_bytes=256 engine=b",
        "KV_TABLE seq=5 ids=1 engine=a",
        "KV_TABLE seq=5 ids=2 engine=c",
        pids=[11, 12, 13, 9, 9],
    )
    assert columns(found, "pid", "addr") == [(11, 0x10100), (12, 0x20100)]
    assert found.faults == {"block-table entries whose engine stated no pool": 1}


def test_a_table_of_one_group_fills_the_layers_of_that_group() -> None:
    found = records(
        "KV_POOL layer=0 addr=0x10000 stride=256 blocks=10 block_bytes=256 group=0",
        "KV_POOL layer=1 addr=0x20000 stride=256 blocks=10 block_bytes=256 group=1",
        "KV_POOL layer=2 addr=0x30000 stride=256 blocks=10 block_bytes=256",
        "KV_TABLE seq=5 ids=1 group=0",
        "KV_TABLE seq=5 ids=2 group=1",
    )
    assert columns(found, "layer", "addr") == [(0, 0x10100), (1, 0x20200)]
    assert list(found.faults.values()) == [2]


@pytest.mark.parametrize(
    ("release", "closed"),
    [
        ("KV_TABLE seq=1 op=free", [True, True, False]),
        ("KV_TABLE seq=1 first=1 op=free ids=4", [False, True, False]),
        ("KV_FREE seq=1", [True, True, False]),
        ("KV_FREE seq=1 block=0 layer=-1", [True, False, False]),
        ("KV_FREE layer=0", [True, True, True]),
        ("KV_FREE addr=0x10300", [True, False, False]),
        ("KV_FREE seq=3", [False, False, False]),
    ],
)
def test_what_a_release_leaves_out_means_all(release: str, closed: list[bool]) -> None:
    found = records(
        "KV_POOL layer=0 addr=0x10000 stride=256 blocks=10 block_bytes=256",
        "KV_TABLE seq=1 ids=3,4",
        "KV_TABLE seq=2 ids=5",
        release,
    )
    assert found.records["t_free_ns"].is_not_null().to_list() == closed


def test_faults_are_counted_not_hidden() -> None:
    found = records(
        "KV_FREE layer=0 seq=1 block=0",
        "KV_BLOCK layer=0 seq=1 block=0 addr=0x1000 bytes=64",
        "KV_FREE layer=0 seq=1 block=0",
        "KV_FREE layer=0 seq=1 block=0",
        "KV_BLOCK layer=0 seq=1 block=1 bytes=64",
        "KV_POOL layer=0 addr=0x10000 stride=256 blocks=10 block_bytes=256",
        "KV_TABLE seq=1 ids=10",
    )
    assert found.faults == {
        "releases of blocks that were never allocated": 2,
        "blocks without address, index or size": 1,
        "block ids outside their pool": 1,
    }
    assert found.records.height == 1


def test_of_two_records_of_one_block_at_one_time_the_last_counts() -> None:
    texts = [
        "KV_BLOCK layer=0 seq=1 block=0 addr=0x1000 bytes=64",
        "KV_BLOCK layer=0 seq=1 block=0 addr=0x2000 bytes=64",
    ]
    rows = pl.DataFrame(
        {
            "report": [0, 0],
            "pid": [7, 7],
            "tid": [8, 8],
            "t_ns": [5, 5],
            "end_ns": [None, None],
            "nvtx_row": [0, 1],
            "text": texts,
        },
        schema={**WHERE, "text": pl.String},
    )
    found = build_records(decode(rows))
    assert columns(found, "addr") == [(0x2000,)]
    assert found.faults == {"two records of one block at one time (the last one counts)": 1}


def test_a_cache_that_starts_anew_smaller_is_no_relocation() -> None:
    found = records(
        "KV_REALLOC layer=0 kind=k addr=0x1000 bytes=100",
        "KV_REALLOC layer=0 kind=k addr=0x2000 bytes=110",
        "KV_REALLOC layer=0 kind=k addr=0x3000 bytes=100",
        "KV_REALLOC layer=0 kind=k addr=0x3000 bytes=110",
    )
    assert columns(found, "moved", "before_bytes") == [
        (False, None),
        (True, 100),
        (False, 110),
        (False, 100),
    ]
