"""Granules touched by segments with known answers."""

from __future__ import annotations

import numpy as np
import pytest

from tracekit.numerics import strides


def rows(count: int, row: int, pitch: int, offset: int = 0) -> strides.Traffic:
    address, block = strides.rows_of_blocks([offset], count, pitch)
    return strides.traffic(address, np.full(address.size, row), block)


@pytest.mark.parametrize("pitch", [512, 896])
def test_aligned_rows_at_any_pitch_fetch_nothing_extra(pitch: int) -> None:
    found = rows(4, 256, pitch)
    assert [found.overfetch_frac(g).item() for g in (32, 64, 128)] == [0.0, 0.0, 0.0]


def test_segments_off_the_sector() -> None:
    long = rows(1, 256, 256, offset=16)
    assert long.touched[32].tolist() == [9]
    assert long.touched[128].tolist() == [3]
    assert [long.overfetch_frac(g).item() for g in (32, 64, 128)] == [0.125, 0.25, 0.5]
    short = rows(1, 128, 128, offset=16)
    assert short.overfetch_frac(32).item() == short.distinct_overfetch_frac(32).item() == 0.25
    assert short.overfetch_frac(128).item() == 1.0
    half = rows(1, 128, 128, offset=32)
    assert (half.overfetch_frac(32).item(), half.overfetch_frac(128).item()) == (0.0, 1.0)


def test_head_sizes_that_are_no_multiple_of_a_line() -> None:
    found = rows(8, 144, 144)
    assert [found.misaligned_frac(q).item() for q in (16, 32, 128)] == [0.0, 0.5, 0.875]
    assert found.overfetch_frac(32).item() == pytest.approx(0.111111, rel=1e-5)
    assert found.distinct_overfetch_frac(32).item() == 0.0
    assert found.overfetch_frac(128).item() == pytest.approx(0.777778, rel=1e-6)
    found = rows(4, 160, 160)
    extra = [found.overfetch_frac(g).item() for g in (32, 64, 128)]
    assert extra == pytest.approx([0.0, 0.2, 0.6], rel=1e-9, abs=1e-12)
    assert found.distinct_overfetch_frac(128).item() == 0.0


def test_requests_of_a_row() -> None:
    address, size, segment = strides.requests([16, 1000], [300, 128])
    assert address.tolist() == [16, 144, 272, 1000]
    assert size.tolist() == [128, 128, 44, 128]
    assert segment.tolist() == [0, 0, 0, 1]


def test_rows_of_several_blocks() -> None:
    address, block = strides.rows_of_blocks([0, 1000, 5000], [2, 0, 3], [64, 64, 100])
    assert address.tolist() == [0, 64, 5000, 5100, 5200]
    assert block.tolist() == [0, 0, 2, 2, 2]


def test_groups_are_counted_apart_and_empty_segments_ignored() -> None:
    found = strides.traffic([0, 0, 16, 5], [32, 32, 32, 0], [4, 2, 2, 1])
    assert found.group.tolist() == [2, 4]
    assert found.segments.tolist() == [2, 1]
    assert found.touched[32].tolist() == [3, 1]
    assert found.distinct[32].tolist() == [2, 1]
    assert found.misaligned[32].tolist() == [1, 0]
    assert strides.traffic([], [], []).group.size == 0


def test_counts_are_integers() -> None:
    found = rows(2, 100, 100)
    for counts in (*found.touched.values(), *found.distinct.values(), found.bytes):
        assert counts.dtype == np.int64
