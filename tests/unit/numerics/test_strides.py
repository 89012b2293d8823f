"""Block layouts with known answers: 32 KiB blocks of 16 tokens x 8 heads x 128 x 2 B."""

from __future__ import annotations

import numpy as np
import pytest

from tracekit.numerics import strides

BASE = 0x7F0000000000
BLOCK = 32768
MIB = 1 << 20


def one_list(offsets: list[int], size: int, indices: list[int] | None = None) -> strides.Layout:
    n = len(offsets)
    address = BASE + np.array(offsets)
    index = np.arange(n) if indices is None else np.array(indices)
    return strides.layout([0] * n, index, address, [size] * n, [size] * n)


def blocks(*ids: int, indices: list[int] | None = None) -> strides.Layout:
    return one_list([i * BLOCK for i in ids], BLOCK, indices)


def facts(layout: strides.Layout, *names: str) -> list[float]:
    return [getattr(layout, name).item() for name in names]


def test_contiguous_blocks() -> None:
    layout = blocks(0, 1, 2, 3)
    assert facts(layout, "blocks", "pairs", "contiguity_frac", "fragmentation_frac") == [4, 3, 1, 0]
    assert facts(layout, "stride_median_bytes", "runs", "scatter_frac") == [32768, 1, 0]


def test_permuted_blocks() -> None:
    layout = blocks(0, 2, 1, 3)
    assert facts(layout, "stride_mean_bytes") == pytest.approx([54613.333333], rel=1e-6)
    assert facts(layout, "stride_median_bytes", "backward", "contiguity_frac") == [65536, 1, 0]
    assert facts(layout, "fragmentation_frac", "runs", "run_mean_bytes") == [1, 4, 32768]
    assert facts(layout, "scatter_frac", "overlaps") == [0, 0]


@pytest.mark.parametrize(("pitch", "scatter"), [(512, 0.428571), (896, 0.652174)])
def test_short_rows_at_a_wider_pitch(pitch: int, scatter: float) -> None:
    layout = one_list([pitch * i for i in range(4)], 256)
    assert facts(layout, "stride_median_bytes", "contiguity_frac", "run_mean_bytes") == [
        pitch,
        0,
        256,
    ]
    assert facts(layout, "scatter_frac") == pytest.approx([scatter], rel=1e-5)


def test_internal_fragmentation() -> None:
    used = np.array([1, 16, 1, 16, 16, 16, 16, 16, 16, 4])
    group = [0, 1, 1, 2, 2, 2, 2, 2, 2, 2]
    index = [0, 0, 1, *range(7)]
    layout = strides.layout(group, index, np.arange(10) * 16, [16] * 10, used, [0] * 10)
    assert facts(layout, "blocks", "bytes", "used_bytes") == [10, 160, 118]
    assert facts(layout, "internal_frac") == pytest.approx([0.2625], rel=1e-6)


def test_external_fragmentation() -> None:
    free = np.array([10, 5, 25, 20]) * MIB
    assert strides.external_frac(free) == pytest.approx(0.583333, rel=1e-6)
    assert strides.external_frac([]) == 0.0


def test_one_block_in_each_of_three_pages() -> None:
    layout = one_list([0, 2 * MIB, 4 * MIB], BLOCK)
    assert facts(layout, "pages", "pages_min", "page_ratio", "bytes") == [3, 1, 3.0, 98304]
    assert facts(layout, "scatter_frac") == pytest.approx([0.976744], rel=1e-6)


def test_one_block_and_a_missing_index() -> None:
    single = blocks(0)
    assert facts(single, "pairs", "fragmentation_frac", "runs") == [0, 0, 1]
    assert np.isnan(facts(single, "stride_mean_bytes", "stride_median_bytes")).all()
    hole = blocks(0, 1, 5, indices=[0, 1, 3])
    assert facts(hole, "pairs", "contiguity_frac", "runs", "run_mean_bytes") == [1, 1, 2, 49152]
    assert facts(hole, "scatter_frac") == [0.5]


def test_concatenating_cache_copies_itself() -> None:
    sizes = np.array([100, 101, 102, 103]) * 2048
    moved = strides.relocations([0] * 4, [1, 2, 3, 4], [0, 1 << 30, 0, 1 << 30], sizes)
    assert facts(moved, "moves", "copied_bytes", "new_bytes") == [3, 620544, 6144]
    assert facts(moved, "write_amplification") == [101.0]


def test_static_cache_copies_nothing() -> None:
    still = strides.relocations([5, 5, 6], [2, 1, 1], [64, 64, 0], [10, 10, 4])
    assert still.group.tolist() == [5, 6]
    assert still.copied_bytes.tolist() == [0, 0]
    assert np.isnan(still.write_amplification).all()


def test_block_table_of_three_runs() -> None:
    layout = blocks(7, 8, 9, 3, 4, 12, 13)
    assert facts(layout, "contiguity_frac", "fragmentation_frac", "scatter_frac") == pytest.approx(
        [0.666667, 0.333333, 0.363636], rel=2e-6
    )
    assert facts(layout, "backward", "runs") == [1, 3]
    assert facts(layout, "stride_mean_bytes", "stride_median_bytes") == [98304, 32768]


def test_pool_pools_pairs_not_ratios() -> None:
    group = [0, 0, 0, 1, 1]
    index = [0, 1, 2, 0, 1]
    address = np.array([0, 1, 2, 10, 20]) * BLOCK
    size = [BLOCK] * 5
    by_sequence = strides.layout(group, index, address, size, size)
    by_layer = strides.layout(group, index, address, size, size, [9] * 5)
    assert by_sequence.fragmentation_frac.tolist() == [0.0, 1.0]
    assert by_layer.group.tolist() == [9]
    assert facts(by_layer, "pairs", "contiguous", "runs") == [3, 2, 3]
    assert facts(by_layer, "fragmentation_frac") == pytest.approx([1 / 3])
    assert facts(by_layer, "stride_mean_bytes") == [12 / 3 * BLOCK]
    assert facts(by_layer, "span_bytes") == [(3 + 11) * BLOCK]


def test_last_of_equal_indices_wins_and_is_counted() -> None:
    layout = strides.layout([0] * 3, [0, 1, 1], [0, 640, 64], [64] * 3, [64] * 3)
    assert facts(layout, "blocks", "duplicates", "contiguous") == [2, 1, 1]


def test_intersecting_blocks_are_reported() -> None:
    assert facts(one_list([0, 32, 128], 64), "overlaps") == [1]


def test_no_blocks_no_rows() -> None:
    empty = strides.layout([], [], [], [], [])
    assert empty.group.size == empty.fragmentation_frac.size == empty.span_bytes.size == 0
    assert strides.relocations([], [], [], []).group.size == 0
