"""Words, varints and file reads, for compiled code.

Loops over rows work on addresses: Numba would count references to arrays in every call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import register_jitable

from tracekit.io.pages import fields as f

# ruff: noqa: ARG001


# MASKS[m, w] keeps of the w-th little-endian word what belongs to the first m bytes.
MASKS = np.array(
    [
        [(1 << 8 * min(max(m - 8 * w, 0), 8)) - 1 for w in range(4)]
        for m in range(f.MOST_KEY_BYTES + 1)
    ],
    np.uint64,
)

_pread: Any = types.ExternalFunction(
    "pread", types.int64(types.int32, types.uintp, types.uintp, types.int64)
)
_memcpy: Any = types.ExternalFunction("memcpy", types.intp(types.intp, types.intp, types.intp))


if TYPE_CHECKING:
    # Callers leave out the typing context.
    def intrinsic(function: object) -> Any:
        """Make an intrinsic."""
else:
    from numba.extending import intrinsic


@intrinsic
def load_word(typing_context: Any, array: Any, position: Any) -> Any:
    """Little-endian uint64 at any byte of a uint8 array."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        pointer = builder.bitcast(builder.gep(data, [args[1]]), ir.IntType(64).as_pointer())
        word = builder.load(pointer)
        word.align = 1
        return word

    return types.uint64(array, types.int64), codegen


@intrinsic
def store_word(typing_context: Any, array: Any, position: Any, word: f.Int) -> Any:
    """Store a uint64 little-endian at any byte of a uint8 array."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        pointer = builder.bitcast(builder.gep(data, [args[1]]), ir.IntType(64).as_pointer())
        builder.store(args[2], pointer).align = 1
        return context.get_dummy_value()

    return types.void(array, types.int64, types.uint64), codegen


@intrinsic
def address(typing_context: Any, array: Any) -> Any:
    """Address of an array's first byte, as int64; the array must outlive its use."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.ptrtoint(data, ir.IntType(64))

    return types.int64(array), codegen


def _loader(bits: int, result: Any, *, swapped: bool = False) -> Any:
    """Make the intrinsic that loads so many bits at any address, zeros above them."""

    @intrinsic
    def load(typing_context: Any, address: f.Int) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = builder.inttoptr(args[0], ir.IntType(bits).as_pointer())
            word = builder.load(pointer)
            word.align = 1
            word = builder.bswap(word) if swapped else word
            return word if bits == 64 else builder.zext(word, ir.IntType(64))

        return result(types.int64), codegen

    return load


word_at = _loader(64, types.uint64)
"""Little-endian uint64 at any address."""
int_at = _loader(64, types.int64)
"""Little-endian int64 at any address."""
big_at = _loader(64, types.int64, swapped=True)
"""Big-endian int64 at any address."""
big16_at = _loader(16, types.int64, swapped=True)
"""Big-endian 16 bits at any address, as int64."""
byte_at = _loader(8, types.int64)
"""A byte, as int64."""


def _storer(bits: int) -> Any:
    """Make the intrinsic that stores the low bits of an int64 at any address."""

    @intrinsic
    def store(typing_context: Any, address: f.Int, value: f.Int) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = ir.IntType(bits)
            word = args[1] if bits == 64 else builder.trunc(args[1], kind)
            builder.store(word, builder.inttoptr(args[0], kind.as_pointer())).align = 1
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), codegen

    return store


put_int = _storer(64)
"""Store an int64 at any address."""
put_byte = _storer(8)
"""Store the lowest byte of an int64 at any address."""


@intrinsic
def prefetch(typing_context: Any, address: f.Int) -> Any:
    """Have the memory at an address, valid or not, brought into the cache."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        call = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        how = [ir.Constant(number, value) for value in (0, 3, 1)]
        builder.call(call, [builder.inttoptr(args[0], pointer), *how])
        return context.get_dummy_value()

    return types.void(types.int64), codegen


@intrinsic
def lowest_bit(typing_context: Any, word: f.Int) -> Any:
    """Number of the lowest bit set in a uint64 that is not 0."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), codegen


@intrinsic
def swap_bytes(typing_context: Any, word: f.Int) -> Any:
    """Reverse the bytes of a uint64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bswap(args[0])

    return types.uint64(types.uint64), codegen


@intrinsic
def float_bits(typing_context: Any, value: f.Int) -> Any:
    """The bits of a float64, as an int64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), codegen


@intrinsic
def bits_float(typing_context: Any, word: f.Int) -> Any:
    """The float64 of the bits of an int64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), codegen


@register_jitable
def copy_bytes(to: f.Int, source: f.Int, count: f.Int) -> None:
    """Copy bytes from one address to another; the two ranges are apart."""
    _memcpy(to, source, count)


@register_jitable
def u16(data: f.Bytes, p: f.Int) -> Any:
    """Big-endian 16 bits."""
    return (np.int64(data[p]) << 8) | np.int64(data[p + 1])


@register_jitable
def u32(data: f.Bytes, p: f.Int) -> Any:
    """Big-endian 32 bits."""
    return (u16(data, p) << 16) | u16(data, p + 2)


@register_jitable
def varint(data: f.Bytes, p: f.Int) -> Any:
    """SQLite's variable-length integer at p, and the position after it."""
    byte = np.int64(data[p])
    if byte < 128:
        return byte, p + 1
    value = byte & 127
    byte = np.int64(data[p + 1])
    value = (value << 7) | (byte & 127)
    if byte < 128:
        return value, p + 2
    for i in range(2, 8):
        byte = np.int64(data[p + i])
        value = (value << 7) | (byte & 127)
        if byte < 128:
            return value, p + i + 1
    return (value << 8) | np.int64(data[p + 8]), p + 9


@register_jitable
def read_at(geometry: f.Ints, offset: f.Int, buffer: f.Bytes, start: f.Int, count: f.Int) -> bool:
    """Read bytes of the file into a buffer; False at the file's end or on an error."""
    done = np.int64(0)
    while done < count:
        address = np.uint64(buffer.ctypes.data) + np.uint64(start + done)
        got = _pread(np.int32(geometry[f.FD]), address, np.uint64(count - done), offset + done)
        if got <= 0:
            return False
        done += got
    return True


@register_jitable
def is_utf8(p: f.Int, end: f.Int) -> Any:
    """Whether the bytes from p to end are well-formed UTF-8 (no surrogates, nothing overlong)."""
    while p < end:
        if p + 8 <= end and word_at(p) & np.uint64(0x8080808080808080) == 0:
            p += 8
            continue
        lead = byte_at(p)
        p += 1
        if lead < 0x80:
            continue
        more = 1 if lead < 0xE0 else 2 if lead < 0xF0 else 3
        if lead < 0xC2 or lead > 0xF4 or p + more > end:
            return False
        low = 0xA0 if lead == 0xE0 else 0x90 if lead == 0xF0 else 0x80
        high = 0x9F if lead == 0xED else 0x8F if lead == 0xF4 else 0xBF
        for i in range(more):
            if byte_at(p + i) < low or byte_at(p + i) > high:
                return False
            low, high = 0x80, 0xBF
        p += more
    return True


@register_jitable
def same_bytes(p: f.Int, q: f.Int, n: f.Int) -> Any:
    """Whether n bytes at p equal those at q; both can be read 7 bytes further."""
    rest = n & 7
    for i in range(0, n - rest, 8):
        if word_at(p + i) != word_at(q + i):
            return False
    i = n - rest
    return (word_at(p + i) ^ word_at(q + i)) & MASKS[np.uintp(rest), 0] == 0


@register_jitable
def with_room(text: f.Bytes, used: f.Int, more: f.Int) -> f.Bytes:
    """The buffer, or a larger copy with room for more bytes; empty if that is too large."""
    needed = used + more + 16
    if needed <= text.size:
        return text
    if needed > f.MOST_TEXT:
        return np.empty(0, np.uint8)
    wider = np.empty(min(max(2 * text.size, needed), f.MOST_TEXT), np.uint8)
    for i in range(0, used, 8):
        store_word(wider, i, load_word(text, i))
    return wider


@register_jitable
def text_code(
    p: f.Int,
    n: f.Int,
    kind: f.Int,
    text: f.Int,
    entries: f.Int,
    seen: f.Int,
    counters: f.Int,
) -> Any:
    """Number of a value among the chunk's texts, added unless it is remembered; or a code.

    All but n and kind are addresses.
    """
    mask = MASKS[np.uintp(min(n, 8)), 0]
    first, last = word_at(p) & mask, word_at(p + max(n - 8, 0)) & mask
    mixed = (first * np.uint64(0x9E3779B97F4A7C15)) ^ (last * np.uint64(0xC2B2AE3D27D4EB4F))
    mixed = (mixed ^ np.uint64(n) ^ (mixed >> np.uint64(29))) * np.uint64(0x165667B19E3779F9)
    place = seen + f.SEEN_BYTES * np.int64(mixed >> np.uint64(64 - f.SEEN_BITS))
    known = int_at(place)
    if (
        known > 0
        and int_at(place + 8) == n
        and int_at(place + 16) == kind
        and same_bytes(p, text + int_at(entries + 8 * known), n)
    ):
        return known
    if kind == f.TEXT and not is_utf8(p, p + n):
        return np.int64(f.BAD_TEXT)
    start, code = int_at(counters + 8 * f.TEXT_USED), int_at(counters + 8 * f.TEXTS) + 1
    for i in range(0, n, 8):
        put_int(text + start + i, int_at(p + i))
    put_byte(text + start + n, 0)
    put_int(place, code)
    put_int(place + 8, n)
    put_int(place + 16, kind)
    put_int(counters + 8 * f.TEXT_USED, start + n + 1)
    put_int(counters + 8 * f.TEXTS, code)
    put_int(entries + 8 * code, start)
    put_int(entries + 8 * code + 8, start + n + 1)
    return code
