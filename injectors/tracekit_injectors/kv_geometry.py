"""From a KV tensor's shape and strides to the geometry that a ``KV_POOL`` marker states.

Layouts differ by attention backend and version, and a permuted view keeps its logical shape while
the memory order changes. So nothing is assumed but the sizes of the axes: which axis counts
blocks, keys against values, heads and tokens follows from the sizes, and every distance from the
strides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

__all__ = ["Pool", "Spec", "pools"]


@dataclass(frozen=True)
class Spec:
    """What the engine says about one layer's KV.

    Attributes:
        blocks: Number of scheduler blocks.
        block_tokens: Tokens a scheduler block holds.
        heads: KV heads; None when unknown.
        head_size: Elements of a key; None when unknown.
        head_size_v: Elements of a value; None when unknown.
    """

    blocks: int
    block_tokens: int
    heads: int | None = None
    head_size: int | None = None
    head_size_v: int | None = None


@dataclass(frozen=True)
class Pool:
    """Geometry of one layer's keys, values or both; every size and distance in bytes.

    Attributes:
        kind: ``k``, ``v`` or ``kv``.
        offset: Distance of block 0 from the tensor's address.
        stride: Distance of neighbouring scheduler blocks.
        blocks: Number of scheduler blocks.
        block_bytes: Bytes of a block that hold data.
        block_tokens: Tokens a block holds.
        token_pitch: Distance of neighbouring tokens of one head; None when unknown.
        row_bytes: Contiguous bytes of one token and head; None when unknown.
        head_pitch: Distance of neighbouring heads; None when there is no such axis.
    """

    kind: str
    offset: int
    stride: int
    blocks: int
    block_bytes: int
    block_tokens: int
    token_pitch: int | None
    row_bytes: int | None
    head_pitch: int | None


def pools(shape: Sequence[int], strides: Sequence[int], item_bytes: int, spec: Spec) -> list[Pool]:
    """Work out the pools that a layer's KV tensor holds.

    Args:
        shape: Sizes of the axes.
        strides: Strides of the axes, in elements.
        item_bytes: Bytes of an element.
        spec: What the engine says.

    Returns:
        One pool of kind ``kv``, or one of kind ``k`` and one of kind ``v`` when an axis of size 2
        separates them; empty when no axis counts the blocks.
    """
    for split_axis, block_axis in _candidates(shape, spec):
        halves = (0,) if split_axis is None else (0, strides[split_axis] * item_bytes)
        kinds = ("kv",) if split_axis is None else ("k", "v")
        whole = _pool(shape, strides, item_bytes, spec, (split_axis, block_axis))
        return [replace(whole, kind=k, offset=o) for k, o in zip(kinds, halves, strict=True)]
    return []


def _pool(
    shape: Sequence[int],
    strides: Sequence[int],
    item_bytes: int,
    spec: Spec,
    outer: tuple[int | None, int],
) -> Pool:
    """Return the pool behind the axes of keys against values and of blocks."""
    block_axis = outer[1]
    kernel_blocks = shape[block_axis] // spec.blocks
    rest = [axis for axis in range(len(shape)) if axis not in outer]
    token_axis, head_axis = _inner_axes(shape, rest, spec, kernel_blocks)
    content = rest[-1] if rest and rest[-1] not in (token_axis, head_axis) else None
    contiguous = content is not None and strides[content] == 1

    def pitch(axis: int | None) -> int | None:
        return None if axis is None else strides[axis] * item_bytes

    return Pool(
        kind="kv",
        offset=0,
        stride=strides[block_axis] * item_bytes * kernel_blocks,
        blocks=spec.blocks,
        block_bytes=prod(shape[axis] for axis in rest) * kernel_blocks * item_bytes,
        block_tokens=spec.block_tokens,
        token_pitch=pitch(token_axis),
        row_bytes=shape[content] * item_bytes if content is not None and contiguous else None,
        head_pitch=pitch(head_axis),
    )


def _candidates(shape: Sequence[int], spec: Spec) -> Iterator[tuple[int | None, int]]:
    """Yield (axis of keys against values, axis of blocks), the likeliest first.

    A five-axis tensor is keys and values apart; a kernel may cut a scheduler block into equal
    parts, so the axis of blocks may be a multiple.
    """
    orders: list[tuple[int | None, int]] = [(None, 0), (None, 1)]
    if len(shape) >= 5:
        orders = [(0, 1), (1, 0), *orders]
    for exact in (True, False):
        for split_axis, block_axis in orders:
            if split_axis is not None and shape[split_axis] != 2:
                continue
            if block_axis >= len(shape) or spec.blocks <= 0:
                continue
            count = shape[block_axis]
            parts = count // spec.blocks
            if exact and count == spec.blocks:
                yield split_axis, block_axis
            cut = parts > 1 and count == parts * spec.blocks and spec.block_tokens % parts == 0
            if not exact and cut:
                yield split_axis, block_axis


def _inner_axes(
    shape: Sequence[int], rest: Sequence[int], spec: Spec, kernel_blocks: int
) -> tuple[int | None, int | None]:
    """Return (axis of tokens, axis of heads); None when there is none or it is ambiguous."""
    tokens = spec.block_tokens // kernel_blocks
    inner = list(rest[:-1])
    token_axes = [axis for axis in inner if shape[axis] == tokens]
    head_axes = [axis for axis in inner if shape[axis] == spec.heads]
    if len(inner) == 2 and len(token_axes) == len(head_axes) == 2:
        packed = shape[rest[-1]] == (spec.head_size or 0) + (spec.head_size_v or 0)
        # Equal sizes: a packed view is [blocks, heads, tokens, content], the others are
        # [.., tokens, heads, content] in logical order.
        return (inner[1], inner[0]) if packed else (inner[0], inner[1])
    token_axis = token_axes[0] if token_axes else None
    head_axis = next((axis for axis in head_axes if axis != token_axis), None)
    return token_axis, head_axis
