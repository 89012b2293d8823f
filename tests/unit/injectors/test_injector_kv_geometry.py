from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tracekit_injectors.kv_geometry import Pool, Spec, pools

NB, B, H, D = 10, 16, 8, 128


def dense(shape: tuple[int, ...], order: tuple[int, ...] | None = None) -> tuple[int, ...]:
    """Return strides of a dense tensor whose axes lie in memory in the given order."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(order or range(len(shape))):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


SPEC = Spec(blocks=NB, block_tokens=B, heads=H, head_size=D, head_size_v=D)
BLOCK = B * H * D * 2


def test_keys_and_values_apart_tokens_before_heads() -> None:
    found = pools((2, NB, B, H, D), dense((2, NB, B, H, D)), 2, SPEC)
    assert found == [
        Pool("k", 0, BLOCK, NB, BLOCK, B, H * D * 2, D * 2, D * 2),
        Pool("v", NB * BLOCK, BLOCK, NB, BLOCK, B, H * D * 2, D * 2, D * 2),
    ]


def test_heads_before_tokens_as_a_permuted_view_is_dense_too() -> None:
    shape = (NB, B, H, D)
    strides = (16384, 128, 2048, 1)
    assert strides == dense(shape, (0, 2, 1, 3))
    (pool,) = pools(shape, strides, 2, SPEC)
    assert pool == Pool("kv", 0, BLOCK, NB, BLOCK, B, D * 2, D * 2, B * D * 2)
    assert pool.block_bytes == pool.stride


def test_blocks_before_keys_and_values() -> None:
    shape = (NB, 2, B, H, D)
    k, v = pools(shape, dense(shape), 2, SPEC)
    assert (k.offset, k.stride, k.block_bytes) == (0, 2 * BLOCK, BLOCK)
    assert (v.offset, v.stride) == (BLOCK, 2 * BLOCK)


def test_packed_keys_and_values() -> None:
    shape = (NB, H, B, 2 * D)
    (pool,) = pools(shape, dense(shape), 2, SPEC)
    assert pool == Pool("kv", 0, 2 * BLOCK, NB, 2 * BLOCK, B, 4 * D, 4 * D, B * 4 * D)


def test_no_heads_axis() -> None:
    shape = (NB, B, 576)
    (pool,) = pools(shape, dense(shape), 2, Spec(NB, B, 1, 576, 0))
    assert pool == Pool("kv", 0, B * 1152, NB, B * 1152, B, 1152, 1152, None)


def test_as_many_heads_as_tokens() -> None:
    spec = Spec(NB, 16, 16, D, D)
    (packed,) = pools((NB, 16, 16, 2 * D), dense((NB, 16, 16, 2 * D)), 2, spec)
    assert (packed.head_pitch, packed.token_pitch) == (16 * 4 * D, 4 * D)
    key, _ = pools((2, NB, 16, 16, D), dense((2, NB, 16, 16, D)), 2, spec)
    assert (key.token_pitch, key.head_pitch) == (16 * D * 2, D * 2)


def test_a_kernel_that_cuts_scheduler_blocks() -> None:
    shape = (2, NB * 4, B // 4, H, D)
    k, _ = pools(shape, dense(shape), 2, SPEC)
    assert (k.stride, k.blocks, k.block_bytes, k.block_tokens) == (BLOCK, NB, BLOCK, B)


def test_padded_pages_and_interleaved_layers_keep_their_true_distance() -> None:
    strides = (40_000, H * D, D, 1)
    (pool,) = pools((NB, B, H, D), strides, 2, SPEC)
    assert (pool.stride, pool.block_bytes) == (80_000, BLOCK)


def test_the_spec_s_address_example() -> None:
    # 32768-byte blocks, 1000 of them: physical id 7, and its values behind all the keys.
    spec = Spec(blocks=1000, block_tokens=16, heads=8, head_size=128)
    k, v = pools((2, 1000, 16, 8, 128), dense((2, 1000, 16, 8, 128)), 2, spec)
    base = 0x7F2000000000
    assert base + k.offset + 7 * k.stride == 0x7F2000038000
    assert base + v.offset + 7 * v.stride == 0x7F2001F78000


@pytest.mark.parametrize("shape", [(3, 7), (), (5,), (NB + 1, B, H, D)])
def test_what_counts_no_blocks_gives_nothing(shape: tuple[int, ...]) -> None:
    assert pools(shape, dense(shape), 2, SPEC) == []


def test_two_blocks_are_not_taken_for_keys_and_values() -> None:
    shape = (2, B, H, D)
    (pool,) = pools(shape, dense(shape), 2, Spec(2, B, H, D, D))
    assert (pool.kind, pool.blocks) == ("kv", 2)


@settings(deadline=None)
@given(
    st.permutations(range(4)),
    st.tuples(st.integers(3, 9), st.integers(1, 4), st.integers(1, 4), st.integers(1, 4)),
)
def test_every_byte_of_a_dense_tensor_lies_in_its_block(
    order: list[int], sizes: tuple[int, ...]
) -> None:
    blocks, tokens, heads, content = sizes
    strides = dense(sizes, tuple(order))
    (pool,) = pools(sizes, strides, 1, Spec(blocks, tokens, heads, content))
    assert pool.block_bytes == tokens * heads * content
    for number in range(blocks):
        assert number * pool.stride == number * strides[0]
