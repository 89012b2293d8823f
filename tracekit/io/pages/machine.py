"""Words, varints and file reads, for compiled code.

Loops over rows work on addresses: Numba would count references to arrays in every call.

Numba keeps compiled kernels by the date of the file of the kernel alone. Whoever changes this
file, `fields` or `texts` touches `walk.py` and `kernels.py` too.
"""
# ruff: noqa: ARG001

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import register_jitable

from tracekit.io.pages import fields as f

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
