"""Markers decoded column by column agree with the grammar's own parser."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.model.markers import EVENTS, HEX_KEYS, LIST_KEYS, WORD_KEYS, parse
from tracekit.views.nvtx.markers import WHERE, decode, marker_schema


def rows_of(texts: list[str | None]) -> pl.DataFrame:
    n = len(texts)
    return pl.DataFrame(
        {
            "report": [0] * n,
            "pid": [7] * n,
            "tid": [8] * n,
            "t_ns": list(range(n)),
            "end_ns": [None] * n,
            "nvtx_row": list(range(n)),
            "text": texts,
        },
        schema={**WHERE, "text": pl.String},
    )


def test_documented_examples_decode() -> None:
    frames = decode(
        rows_of(
            [
                "KV_BLOCK layer=0 seq=3 block=17 addr=0x7f5bba008000 bytes=32768",
                "KV_REALLOC layer=1 kind=k addr=0x7f5ab96d9c00 bytes=65536 seq_len=64",
                "MOE_ROUTE layer=0 batch=0 counts=115,122,112,115,8,0,5,4",
                "KV_TABLE seq=4 first=2 op=append ids=7,8,9",
                "nothing of ours",
                None,
            ]
        )
    )
    block = frames["KV_BLOCK"].row(0, named=True)
    assert (block["layer"], block["seq"], block["block"]) == (0, 3, 17)
    assert (block["addr"], block["bytes"], block["used"]) == (0x7F5BBA008000, 32768, None)
    assert frames["KV_REALLOC"]["kind"].to_list() == ["k"]
    assert frames["MOE_ROUTE"]["counts"].to_list() == [[115, 122, 112, 115, 8, 0, 5, 4]]
    assert frames["KV_TABLE"]["ids"].to_list() == [[7, 8, 9]]
    assert sum(frame.height for frame in frames.values()) == 4


def test_every_event_has_a_frame_with_its_schema_even_without_rows() -> None:
    frames = decode(rows_of([]))
    assert list(frames) == list(EVENTS)
    for name, frame in frames.items():
        assert frame.schema == marker_schema(name)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("KV_BLOCK seq=x1 layer=2", None),
        ("KV_BLOCK layer=2 seq=-1", -1),
        ("KV_BLOCK kv_seq=5 layer=2", None),
        ("KV_BLOCK layer=2 seq=0x10", 16),
    ],
)
def test_a_value_that_cannot_be_read_is_null(text: str, value: int | None) -> None:
    assert decode(rows_of([text]))["KV_BLOCK"]["seq"].to_list() == [value]


def test_a_word_that_only_begins_like_an_event_is_no_marker() -> None:
    frames = decode(rows_of(["KV_BLOCKS layer=1", "kv_block layer=1", "STEP"]))
    assert frames["KV_BLOCK"].height == 0
    assert frames["STEP"].height == 1


def _values(key: str) -> st.SearchStrategy[str]:
    number = st.integers(-(2**62), 2**62).map(str)
    if key in LIST_KEYS:
        return st.lists(st.integers(0, 10**6), min_size=1, max_size=5).map(
            lambda v: ",".join(map(str, v))
        )
    if key in HEX_KEYS:
        return st.integers(0, 2**63 - 1).map(hex)
    if key in WORD_KEYS:
        return st.from_regex(r"[A-Za-z0-9_.]{1,8}", fullmatch=True)
    return st.one_of(number, st.just("oops"))


@st.composite
def _texts(draw: st.DrawFn) -> str:
    event = EVENTS[draw(st.sampled_from(sorted(EVENTS)))]
    keys = draw(st.lists(st.sampled_from(event.keys), unique=True, max_size=len(event.keys)))
    pairs = [f"{key}={draw(_values(key))}" for key in keys]
    noise = draw(st.sampled_from([[], ["other=1"], ["free", "text"]]))
    return " ".join([event.name, *pairs, *noise])


@given(st.lists(_texts(), max_size=8))
@settings(deadline=None, max_examples=60)
def test_columns_equal_the_parser_row_by_row(texts: list[str]) -> None:
    frames = decode(rows_of(list(texts)))
    for place, text in enumerate(texts):
        marker = parse(text)
        assert marker is not None
        row = frames[marker.event].filter(pl.col("nvtx_row") == place).row(0, named=True)
        got = {k: v for k, v in row.items() if k not in WHERE and v is not None}
        want = {k: list(v) if isinstance(v, tuple) else v for k, v in marker.values.items()}
        want = {k: v for k, v in want.items() if k not in WHERE}
        assert got == want
