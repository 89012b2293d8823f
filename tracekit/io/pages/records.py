"""Record headers, for compiled code: where in a record the wanted values lie.

A record begins with a header that gives the type of each column, so a value's place in the record
is a function of the header's bytes. the places are kept per distinct header: on a hit a
value is one unaligned load that *ends* at the value, and two shifts, without walking the header.

Source: the SQLite database file format, https://sqlite.org/fileformat.html.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import register_jitable

from tracekit.io.pages import fields as f
from tracekit.io.pages.machine import load_word, read_at, store_word, u32, varint


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
def _put(
    layouts: f.Ints, k: f.Int, s: f.Int, end: f.Int, shift: f.Int, state: f.Int, rest: f.Int
) -> None:
    """Fill a slot of a layout; `shift` is 64 for a value that is not in the record."""
    inside = np.int64(shift < 64)
    word = (end << f.END_AT) | ((shift & 63) << f.SHIFT_AT) | (state << f.STATE_AT) | inside
    layouts[k, s, f.PLACE], layouts[k, s, f.REST] = word, rest


@register_jitable
def _place(kind: f.Int, code: f.Int, offset: f.Int, layouts: f.Ints, k: f.Int, s: f.Int) -> bool:
    """Fill a slot of a layout for a value of a serial type; False if the slot cannot hold it."""
    long = kind in (f.TEXT, f.BINARY)
    if code != 0 and (code >= 12) != long:
        return False
    if code in (10, 11) or (code == 7 and kind != f.FLOAT):
        return False
    size = _length(code)
    end, nothing = offset + size - 8, np.int64(64)
    value = np.int64(f.AS_FLOAT if kind == f.FLOAT and code != 7 else f.VALUE)
    if code == 0:
        _put(layouts, k, s, end, nothing, np.int64(f.NULL), np.int64(0))
    elif long:
        _put(layouts, k, s, end, nothing, np.int64(f.VALUE), size)
    elif code >= 8:
        _put(layouts, k, s, end, nothing, value, code - 8)
    else:
        _put(layouts, k, s, end, 64 - 8 * size, value, np.int64(0))
    return True


@register_jitable
def _marks(plan: f.Ints, layouts: f.Ints, k: f.Int) -> bool:
    """Work out which slots of a layout hold no plain value; False if one is not worked out."""
    special, empty = np.int64(0), np.int64(0)
    for s in range(plan.shape[0]):
        state = (layouts[k, s, f.PLACE] >> f.STATE_AT) & 3
        if plan[s, f.KIND] == f.ROWID:
            continue
        if state == f.UNKNOWN:
            return False
        if s >= f.LAST_BIT:
            special |= np.int64(1) << f.LAST_BIT
        elif state != f.VALUE:
            special |= np.int64(1) << s
            empty |= np.int64(state == f.NULL) << s
    layouts[k, plan.shape[0], f.SPECIAL], layouts[k, plan.shape[0], f.EMPTY] = special, empty
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
        default, state = plan[s, f.DEFAULT], plan[s, f.DEFAULT_STATE]
        _put(layouts, k, s, np.int64(-8), np.int64(64), state, default)
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
        while s >= 0:
            if not _place(plan[s, f.KIND], code, offset, layouts, k, s):
                return np.int64(f.MIXED)
            need = offset + _length(code)
            s = plan[s, f.NEXT]
        offset += _length(code)
    if q > end or offset > payload or (q == end and offset != payload):
        return np.int64(f.BAD_RECORD)
    if not _marks(plan, layouts, k):
        return np.int64(f.MIXED)
    heads[k, f.NEED], heads[k, f.TOTAL] = need, offset
    heads[k, f.ROOM] = 0 if q == end else f.MOST_TEXT
    return np.int64(q)
