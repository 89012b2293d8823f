"""Markers by hand: for engines that no hook knows.

All functions are safe to call anywhere: without a tool and without a sidecar they return at once.
They never look at a tensor; pass addresses and sizes as integers (``tensor.data_ptr()`` and
``tensor.untyped_storage().nbytes()`` read no device memory).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from .emitter import emitter
from .grammar import Value, word

__all__ = ["kv_block", "kv_free", "kv_pool", "kv_realloc", "kv_table", "layer", "moe_route", "step"]


def kv_pool(
    *,
    layer: int,
    kind: str,
    addr: int,
    bytes: int,  # noqa: A002
    stride: int | None = None,
    blocks: int | None = None,
    block_bytes: int | None = None,
    block_tokens: int | None = None,
    token_pitch: int | None = None,
    row_bytes: int | None = None,
    head_pitch: int | None = None,
    device: int | None = None,
    engine: str | None = None,
    group: int | None = None,
) -> None:
    """State where a paged KV pool of one layer lies.

    Block ``i`` lies at ``addr + i * stride``. The pool is stated again when a recording starts.

    Args:
        layer: Layer index.
        kind: ``k``, ``v`` or ``kv``.
        addr: Address of block 0.
        bytes: Size of the pool's memory, bytes.
        stride: Distance of neighbouring blocks, bytes.
        blocks: Number of blocks.
        block_bytes: Bytes of one block that hold data.
        block_tokens: Tokens that a block holds.
        token_pitch: Distance of neighbouring tokens of one head, bytes.
        row_bytes: Contiguous bytes of one token and head.
        head_pitch: Distance of neighbouring heads of one token, bytes; None when there are none.
        device: CUDA ordinal as the process sees it.
        engine: Name that joins pools with the block tables of their scheduler.
        group: Number of the KV-cache group whose block tables fill this layer, when there are
            several.
    """
    if emitter.active:
        place = (layer, kind, addr, bytes, stride, blocks, block_bytes, block_tokens)
        name = engine and word(engine)
        _tell_pool(*place, token_pitch, row_bytes, head_pitch, device, name, group)


def _tell_pool(*values: Value) -> None:
    key = ("KV_POOL", *values[:2], *values[-2:])
    emitter.mark("KV_POOL", (*values, None))
    emitter.on_again(key, lambda: emitter.mark("KV_POOL", (*values, 1)))


def kv_table(
    *,
    seq: int,
    first: int,
    op: str,
    ids: Iterable[int],
    engine: str | None = None,
    group: int | None = None,
) -> None:
    """State that blocks joined or left a sequence's block table.

    Args:
        seq: Number of the sequence.
        first: Index in the table of the first block of `ids`.
        op: ``alloc``, ``share`` or ``free``.
        ids: Block ids.
        engine: Name that joins tables with the pools of their workers.
        group: Number of the KV-cache group, when there are several.
    """
    if not emitter.active:
        return
    name = None if engine is None else word(engine)
    emitter.mark("KV_TABLE", (seq, first, op, ",".join(map(str, ids)), name, group))


def kv_block(
    *,
    layer: int,
    addr: int,
    bytes: int,  # noqa: A002
    kind: str | None = None,
    seq: int | None = None,
    block: int | None = None,
    used: int | None = None,
    op: str | None = None,
    device: int | None = None,
) -> None:
    """State one block of KV memory.

    Args:
        layer: Layer index.
        addr: Address.
        bytes: Size, bytes.
        kind: ``k``, ``v`` or ``kv``.
        seq: Number of the sequence.
        block: Number of the block within the sequence or the pool.
        used: Bytes that hold data.
        op: ``alloc``, ``append``, ``share`` or ``move``.
        device: CUDA ordinal as the process sees it.
    """
    if not emitter.active:
        return
    emitter.mark("KV_BLOCK", (layer, seq, block, kind, addr, bytes, used, op, device))


def kv_realloc(
    *,
    layer: int,
    kind: str,
    addr: int,
    bytes: int,  # noqa: A002
    seq: int | None = None,
    used: int | None = None,
    seq_len: int | None = None,
    device: int | None = None,
) -> None:
    """State that a sequence's KV moved to a new place, or came into being.

    Args:
        layer: Layer index.
        kind: ``k``, ``v`` or ``kv``.
        addr: New address.
        bytes: New size, bytes.
        seq: Number of the sequence.
        used: Bytes that hold data.
        seq_len: Tokens held.
        device: CUDA ordinal as the process sees it.
    """
    if not emitter.active:
        return
    emitter.mark("KV_REALLOC", (layer, kind, seq, addr, bytes, used, seq_len, device))


def kv_free(
    *,
    layer: int | None = None,
    kind: str | None = None,
    seq: int | None = None,
    block: int | None = None,
    addr: int | None = None,
    device: int | None = None,
) -> None:
    """State that KV memory was given up.

    Args:
        layer: Layer index.
        kind: ``k``, ``v`` or ``kv``.
        seq: Number of the sequence.
        block: Number of the block.
        addr: Address.
        device: CUDA ordinal as the process sees it.
    """
    if not emitter.active:
        return
    emitter.mark("KV_FREE", (layer, kind, seq, block, addr, device))


def moe_route(
    *,
    layer: int,
    counts: Iterable[int],
    step: int | None = None,
    batch: int | None = None,
    k: int | None = None,
) -> None:
    """State how many tokens each expert of a layer got.

    Args:
        layer: Layer index.
        counts: Tokens of each expert, on the host already.
        step: Number of the step.
        batch: Number of the batch.
        k: Experts a token goes to.
    """
    if emitter.active:
        emitter.mark("MOE_ROUTE", (layer, step, batch, k, ",".join(map(str, counts))))


@contextmanager
def step(
    number: int,
    *,
    phase: str | None = None,
    n_seq: int | None = None,
    n_tok: int | None = None,
    kv_tokens: int | None = None,
) -> Iterator[None]:
    """Mark the work of one step.

    Args:
        number: Number of the step.
        phase: ``prefill``, ``decode`` or ``mixed``.
        n_seq: Sequences in the batch.
        n_tok: Tokens computed.
        kv_tokens: Tokens in the KV cache that are read.

    Yields:
        Nothing; the range closes when the block ends, also by an exception.
    """
    token = emitter.push("STEP", (number, phase, n_seq, n_tok, kv_tokens))
    try:
        yield
    finally:
        emitter.pop(token)


@contextmanager
def layer(index: int) -> Iterator[None]:
    """Mark the work of one layer.

    Args:
        index: Layer index.

    Yields:
        Nothing; the range closes when the block ends, also by an exception.
    """
    token = emitter.push("LAYER", (index,))
    try:
        yield
    finally:
        emitter.pop(token)
