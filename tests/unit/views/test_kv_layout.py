"""The layout of live blocks, compared with a plain re-count block by block."""

from __future__ import annotations

import math
from itertools import pairwise

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.views.kv.layout import measure
from tracekit.views.kv.records import RECORDS

PAGE = 2 << 20


def live(blocks: list[dict[str, int]], **geometry: int) -> pl.DataFrame:
    rows = [
        {"report": 0, "pid": 1, "device": 0, "seq": 0, "layer": 0, "kind": "k", **geometry, **b}
        for b in blocks
    ]
    frame = pl.DataFrame(rows, schema={**RECORDS, "list_id": pl.Int64, "pool_id": pl.Int64})
    return frame.with_columns(pl.col("list_id", "pool_id").fill_null(0))


def sectors(segments: list[tuple[int, int]], granule: int) -> list[set[int]]:
    return [set(range(a // granule, (a + n - 1) // granule + 1)) for a, n in segments]


def recount(blocks: list[dict[str, int]]) -> dict[str, float | None]:
    """Count one pool of sequences the slow way."""
    once = sorted({(b["addr"], b["bytes"]) for b in blocks})
    covered = set().union(*(range(a, a + n) for a, n in once))
    asked = sum(n for _, n in once)
    pairs, gaps, runs, strides = 0, 0, 0, []
    for seq in {b["list_id"] for b in blocks}:
        mine = sorted((b for b in blocks if b["list_id"] == seq), key=lambda b: b["block"])
        runs += 1
        for one, two in pairwise(mine):
            if two["block"] == one["block"] + 1:
                pairs += 1
                strides.append(abs(two["addr"] - one["addr"]))
                broken = two["addr"] - one["addr"] != one["bytes"]
                gaps += broken
                runs += broken
            else:
                runs += 1
    cut = [(a + d, min(128, n - d)) for a, n in once for d in range(0, n, 128)]
    return {
        "m": len(blocks),
        "pairs": pairs,
        "frag_frac": gaps / pairs if pairs else 0.0,
        "runs": runs,
        "stride_mean_bytes": sum(strides) / len(strides) if strides else None,
        "bytes": len(covered),
        "overfetch_32b_frac": 32 * sum(map(len, sectors(once, 32))) / asked - 1,
        "overfetch_128b_frac": 128 * sum(map(len, sectors(once, 128))) / asked - 1,
        "request_overfetch_frac": 32 * sum(map(len, sectors(cut, 32))) / asked - 1,
        "sector_overfetch_frac": 32 * len(set().union(*sectors(once, 32))) / len(covered) - 1,
        "line_bytes": 128 * len(set().union(*sectors(once, 128))),
        "pages": len(set().union(*sectors(once, PAGE))),
        "misaligned_16b_frac": sum(a % 16 != 0 for a, _ in once) / len(once),
    }


@st.composite
def _pools(draw: st.DrawFn) -> list[dict[str, int]]:
    blocks = []
    for seq in range(draw(st.integers(1, 3))):
        for index in draw(st.lists(st.integers(0, 9), unique=True, min_size=1, max_size=6)):
            addr = draw(st.sampled_from([0, 6, 64, 100, 4096, PAGE - 64])) + 1024 * draw(
                st.integers(0, 5)
            )
            size = draw(st.sampled_from([64, 100, 256, 1024]))
            blocks.append(
                {"list_id": seq, "pool_id": 0, "block": index, "addr": 4096 + addr, "bytes": size}
            )
    return blocks


@given(_pools())
@settings(deadline=None, max_examples=80)
def test_counts_of_a_pool_equal_a_plain_recount(blocks: list[dict[str, int]]) -> None:
    row = measure(live(blocks), "pool_id").row(0, named=True)
    for name, want in recount(blocks).items():
        assert row[name] == (None if want is None else pytest.approx(want, rel=1e-12, abs=1e-12))


@given(_pools(), st.integers(1, 5))
@settings(deadline=None, max_examples=30)
def test_a_shift_of_all_addresses_by_whole_pages_changes_nothing(
    blocks: list[dict[str, int]], pages: int
) -> None:
    shifted = [{**b, "addr": b["addr"] + pages * PAGE} for b in blocks]
    assert measure(live(blocks), "pool_id").equals(measure(live(shifted), "pool_id"))


def rows_of(pattern: dict[str, int], heads: int) -> list[tuple[int, int]]:
    return [
        (pattern["addr"] + t * pattern["token_pitch"] + h * pattern.get("head_pitch", 0), n)
        for t in range(pattern["block_tokens"])
        for h in range(heads)
        for n in [pattern["row_bytes"]]
    ]


@given(
    st.integers(0, 40).map(lambda k: 8 * k),
    st.sampled_from([96, 128, 144, 160, 256]),
    st.integers(1, 4),
    st.booleans(),
    st.integers(1, 3),
)
@settings(deadline=None, max_examples=60)
def test_rows_of_a_block_equal_an_expansion(
    offset: int, row: int, heads: int, token_first: bool, n_blocks: int
) -> None:
    tokens = 4
    pitch = (heads * row, row) if token_first else (row, tokens * row)
    shape = {"block_tokens": tokens, "token_pitch": pitch[0], "row_bytes": row}
    shape["head_pitch"] = pitch[1]
    size = tokens * heads * row
    blocks = [
        {"list_id": 0, "block": i, "addr": 4096 + offset + i * 2 * size, "bytes": size, **shape}
        for i in range(n_blocks)
    ]
    got = measure(live(blocks), "pool_id").row(0, named=True)
    all_rows = [r for b in blocks for r in rows_of(b, heads)]
    asked = sum(n for _, n in all_rows)
    assert got["segment"] == "row"
    assert got["overfetch_32b_frac"] == pytest.approx(
        32 * sum(map(len, sectors(all_rows, 32))) / asked - 1
    )
    assert got["misaligned_128b_frac"] == pytest.approx(
        sum(a % 128 != 0 for a, _ in all_rows) / len(all_rows)
    )
    distinct = len(set().union(*sectors(all_rows, 128)))
    assert math.isclose(got["line_bytes"], 128 * distinct)


def test_rows_with_holes_move_more_than_they_hold() -> None:
    shape = {"block_tokens": 4, "token_pitch": 160, "row_bytes": 144, "head_pitch": 0}
    blocks = [{"list_id": 0, "block": 0, "addr": 4096, "bytes": 640, **shape}]
    row = measure(live(blocks), "pool_id").row(0, named=True)
    assert row["sector_overfetch_frac"] == pytest.approx(20 * 32 / (4 * 144) - 1)
