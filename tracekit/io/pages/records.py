"""Cells and record headers, for compiled code: where in a record the wanted values lie.

A record begins with a header that gives the type of each column, so a value's place in the record
is a function of the header's bytes. the places are kept per distinct header: on a hit a
value is one unaligned load that *ends* at the value, and two shifts, without walking the header.

Source: the SQLite database file format, https://sqlite.org/fileformat.html.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import register_jitable
from numpy.typing import NDArray

from tracekit.io.pages import fields as f
from tracekit.io.pages.words import MASKS, load_word, read_at, store_word, u32, varint


@register_jitable
def assemble(geometry: f.Ints, buffer: f.Bytes, p: f.Int, payload: f.Int, local: f.Int) -> f.Bytes:
    """A record that continues on overflow pages, whole, at LEAD; empty if the chain is broken."""
    page, usable, last = geometry[f.PAGE], geometry[f.USABLE], geometry[f.PAGES]
    nothing = np.empty(0, np.uint8)
    if payload - local > last * (usable - 4):
        return nothing
    record, one = np.empty(f.LEAD + payload + f.TAIL, np.uint8), np.empty(page, np.uint8)
    for i in range(0, local, 8):
        store_word(record, f.LEAD + i, load_word(buffer, p + i))
    number, done = u32(buffer, p + local), local
    while done < payload:
        if number < 1 or number > last or not read_at(geometry, (number - 1) * page, one, 0, page):
            return nothing
        count = min(payload - done, usable - 4)
        for i in range(count):
            record[f.LEAD + done + i] = one[4 + i]
        done += count
        number = u32(one, 0)
    return record


@register_jitable
def _length(code: f.Int) -> Any:
    """Bytes of a value of a serial type."""
    if code < 5:
        return code
    if code >= 12:
        return (code - 12) >> 1
    return np.int64(6) if code == 5 else np.int64(8) if code < 8 else np.int64(0)


@register_jitable
def _place(kind: f.Int, code: f.Int, offset: f.Int, layouts: f.Ints, k: f.Int, s: f.Int) -> bool:
    """Fill a slot of a layout for a value of a serial type; False if the slot cannot hold it."""
    long = kind in (f.TEXT, f.BINARY)
    if code != 0 and (code >= 12) != long:
        return False
    if code in (10, 11) or (code == 7 and kind != f.FLOAT):
        return False
    for i in range(f.LAYOUT_FIELDS):
        layouts[k, s, i] = 0
    layouts[k, s, f.END] = offset + _length(code) - 8
    if code == 0:
        layouts[k, s, f.STATE] = f.NULL
    elif long:
        layouts[k, s, f.LENGTH] = _length(code)
    else:
        layouts[k, s, f.STATE] = f.AS_FLOAT if kind == f.FLOAT and code != 7 else f.VALUE
        if code >= 8:
            layouts[k, s, f.CONSTANT] = code - 8
        else:
            layouts[k, s, f.SHIFT] = 64 - 8 * _length(code)
            layouts[k, s, f.MASK] = -1
    return True


@register_jitable
def parse(
    record: f.Bytes,
    p: f.Int,
    payload: f.Int,
    slots: f.Ints,
    plan: f.Ints,
    layouts: f.Ints,
    heads: f.Ints,
    k: f.Int,
) -> Any:
    """Parse the header of the record at p into layout k; the end of what was read, or a code."""
    for s in range(plan.shape[0]):
        for i in range(f.LAYOUT_FIELDS):
            layouts[k, s, i] = 0
        layouts[k, s, f.CONSTANT] = plan[s, f.DEFAULT]
        layouts[k, s, f.STATE] = plan[s, f.DEFAULT_STATE]
    size, q = varint(record, p)
    end, offset, need = p + size, size, np.int64(0)
    if size < 1 or size > payload:
        return np.int64(f.BAD_RECORD)
    for column in range(slots.size):
        if q >= end:
            break  # The record is older than a column that was added later.
        code, q = varint(record, q)
        if code < 0 or _length(code) > payload:
            return np.int64(f.BAD_RECORD)
        s = slots[column]
        if s >= 0:
            if not _place(plan[s, f.KIND], code, offset, layouts, k, s):
                return np.int64(f.MIXED)
            need = offset + _length(code)
        offset += _length(code)
    if q > end or offset > payload or (q == end and offset != payload):
        return np.int64(f.BAD_RECORD)
    for s in range(plan.shape[0]):
        if layouts[k, s, f.STATE] == f.UNKNOWN:
            return np.int64(f.MIXED)
    heads[k, f.NEED], heads[k, f.TOTAL], heads[k, f.WHOLE] = need, offset, q == end
    return np.int64(q)


@register_jitable
def cell(buffer: f.Bytes, base: f.Int, usable: f.Int, p: f.Int) -> Any:
    """Payload position, payload bytes (or a code), how many of them are in the page, row id."""
    payload, q = varint(buffer, p)
    rowid, q = varint(buffer, q)
    if payload < 1 or payload > f.MOST_TEXT:
        return q, np.int64(f.BAD_RECORD), payload, rowid
    local, most = payload, usable - 35
    if payload > most:
        least = ((usable - 12) * 32) // 255 - 23
        local = least + (payload - least) % (usable - 4)
        local = least if local > most else local
    if q + local + (4 if local < payload else 0) > base + usable:
        return q, np.int64(f.BAD_CELL), local, rowid
    return q, payload, local, rowid


@register_jitable
def _key(buffer: f.Bytes, p: f.Int, m: f.Int) -> Any:
    """Hash of the first m bytes of a header, as a place in the index."""
    mixed = (load_word(buffer, p) & MASKS[m, 0]) * np.uint64(0x9E3779B97F4A7C15)
    for w in range(1, (np.int64(m) + 7) >> 3):
        mixed ^= mixed >> np.uint64(32)
        mixed = (mixed ^ load_word(buffer, p + 8 * w) & MASKS[m, w]) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    return np.uintp((mixed * np.uint64(0xC2B2AE3D27D4EB4F)) >> np.uint64(64 - f.INDEX_BITS))


@register_jitable
def known_layout(
    buffer: f.Bytes,
    p: f.Int,
    payload: f.Int,
    key_bytes: f.Int,
    heads: f.Ints,
    keys: NDArray[np.uint64],
    index: f.Ints,
) -> Any:
    """The layout of the record at p if one for the same header is remembered, else 0.

    Nothing but loads and one exit: Numba would count references for every row otherwise.
    """
    m = np.uintp(min(np.int64(buffer[p]), key_bytes))
    k = np.uintp(index[_key(buffer, p, m)])
    total = heads[k, f.TOTAL]
    fits = (total == payload) | ((total < payload) & (heads[k, f.WHOLE] == 0))
    fits &= keys[k, 0] == load_word(buffer, p) & MASKS[m, 0]
    for w in range(1, (np.int64(m) + 7) >> 3):
        fits &= keys[k, w] == load_word(buffer, p + 8 * w) & MASKS[m, w]
    return np.int64(k) if fits else np.int64(0)


@register_jitable
def new_layout(
    buffer: f.Bytes,
    p: f.Int,
    payload: f.Int,
    local: f.Int,
    key_bytes: f.Int,
    slots: f.Ints,
    plan: f.Ints,
    layouts: f.Ints,
    heads: f.Ints,
    keys: NDArray[np.uint64],
    index: f.Ints,
    counters: f.Ints,
) -> Any:
    """Parse the record at p and remember its layout; the layout, a code, or SPILLS."""
    if local < payload and np.int64(buffer[p]) > local:
        return np.int64(f.SPILLS)  # A length of two bytes reads as 128 or more: never too late.
    k = counters[f.LAYOUTS]
    read = parse(buffer, p, payload, slots, plan, layouts, heads, k)
    if read < 0:
        return read
    counters[f.LAYOUTS] += 1
    m = np.uintp(min(np.int64(buffer[p]), key_bytes))
    if read - p <= np.int64(m):
        for w in range(4):
            keys[k, w] = load_word(buffer, p + 8 * w) & MASKS[m, w]
        index[_key(buffer, p, m)] = k
    return k
