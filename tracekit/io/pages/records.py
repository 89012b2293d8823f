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
from tracekit.io.pages.machine import (
    MASKS,
    big16_at,
    byte_at,
    int_at,
    load_word,
    lowest_bit,
    prefetch,
    put_int,
    read_at,
    store_word,
    swap_bytes,
    u32,
    varint,
    word_at,
)


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


FACTORS = np.array(
    [0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93], np.uint64
)


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
def _hash(mixed: Any) -> Any:
    """Place in the index for a mix of the words of a header."""
    return np.int64(mixed >> np.uint64(64 - f.INDEX_BITS))


@register_jitable
def survey(plan: f.Ints, layouts: f.Ints, k: f.Int, counters: f.Ints) -> None:
    """Note what sets a layout apart from the others of the chunk."""
    counters[f.ANY_SPECIAL] |= layouts[k, plan.shape[0], f.SPECIAL]
    counters[f.ALL_EMPTY] &= layouts[k, plan.shape[0], f.EMPTY]
    for s in range(plan.shape[0]):
        place, rest = layouts[k, s, f.PLACE], layouts[k, s, f.REST]
        if s >= f.LAST_BIT or place != layouts[1, s, f.PLACE] or rest != layouts[1, s, f.REST]:
            counters[f.VARIED] |= np.int64(1) << min(s, f.LAST_BIT)


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
    survey(plan, layouts, k, counters)
    m = np.uintp(min(np.int64(buffer[p]), key_bytes))
    if read - p <= np.int64(m):
        mixed = np.uint64(0)
        for w in range(f.NEED - f.KEY):
            word = load_word(buffer, p + 8 * w) & MASKS[m, w]
            heads[k, f.KEY + w] = np.int64(word)
            mixed ^= word * FACTORS[w]
        index[_hash(mixed)] = k
    return k


@register_jitable
def _packed(word: Any, stop: f.Int) -> Any:
    """The integer of up to eight bytes whose last one has its highest bit at `stop`."""
    # The groups of seven bits, most significant first, pushed together.
    big = swap_bytes(word) >> np.uint64(63 - stop)
    big &= np.uint64(0x7F7F7F7F7F7F7F7F)
    big = (big & np.uint64(0x007F007F007F007F)) | (
        (big & np.uint64(0x7F007F007F007F00)) >> np.uint64(1)
    )
    big = (big & np.uint64(0x00003FFF00003FFF)) | (
        (big & np.uint64(0x3FFF00003FFF0000)) >> np.uint64(2)
    )
    big = (big & np.uint64(0x000000000FFFFFFF)) | (
        (big & np.uint64(0x0FFFFFFF00000000)) >> np.uint64(4)
    )
    return np.int64(big)


@register_jitable
def locate(
    base: f.Int,
    head: f.Int,
    usable: f.Int,
    first: f.Int,
    count: f.Int,
    at: f.Int,
    payloads: f.Int,
    ids: f.Int,
    last: f.Int,
) -> Any:
    """Find the rows of a leaf from cell `first` on, as long as nothing is unusual about them.

    All but `usable`, `first`, `count` and `last` are addresses; nothing but integers, since Numba
    would count references for every row otherwise.

    Returns:
        How many rows were found, and 0 or a code.
    """
    n, code = np.int64(0), np.int64(0)
    # The row id of the row before as it was stored, and what one more changes in it.
    stored, step, id_bytes, id_mask = np.uint64(0), np.uint64(0), np.int64(0), np.uint64(0)
    for i in range(first, count):
        start = big16_at(head + 8 + 2 * i)
        if start < 8 or start + 4 > usable:
            code = np.int64(f.BAD_CELL)
            break
        p = base + start
        prefetch(p - f.AHEAD_BYTES)
        payload = byte_at(p)
        p += 1
        if payload >= 128:
            payload = ((payload & 127) << 7) | byte_at(p)
            p += 1
            if byte_at(p - 1) >= 128:
                break
        word = word_at(p)
        rowid = last + 1
        if (word & id_mask) != stored + step or rowid & 127 == 0 or step == 0:
            stops = ~word & np.uint64(0x8080808080808080)
            if stops == 0:
                break
            stop = lowest_bit(stops)
            rowid, id_bytes = _packed(word, stop), (stop + 1) >> 3
            id_mask = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(63 - stop)
            step = np.uint64(1) << np.uint64(stop - 7)
        stored = word & id_mask
        p += id_bytes
        if payload < 1 or payload > usable - 35:
            break
        if p + payload > base + usable:
            code = np.int64(f.BAD_CELL)
            break
        if rowid <= last:
            code = np.int64(f.BAD_ORDER)
            break
        put_int(at + 8 * n, p)
        put_int(payloads + 8 * n, payload)
        put_int(ids + 8 * n, rowid)
        last = rowid
        n += 1
    return n, code


@register_jitable
def recognize(
    n: f.Int,
    key_bytes: f.Int,
    heads: f.Int,
    index: f.Int,
    layouts: f.Int,
    layout_bytes: f.Int,
    at: f.Int,
    layout: f.Int,
) -> Any:
    """Replace the payload bytes of rows with their layouts, up to the first one that is not known.

    All but `n`, `key_bytes` and `layout_bytes` are addresses; `layout` holds the payload bytes.

    Returns:
        Number of rows with known layouts.
    """
    header = np.int64(-1)
    mask0 = mask1 = mask2 = mask3 = np.uint64(0)
    for i in range(n):
        p = int_at(at + 8 * i)
        if byte_at(p) != header:
            header = byte_at(p)
            m = np.uintp(min(header, key_bytes))
            mask0, mask1, mask2, mask3 = MASKS[m, 0], MASKS[m, 1], MASKS[m, 2], MASKS[m, 3]
        word = word_at(p) & mask0
        mixed = word * FACTORS[0]
        if mask1 == 0:
            known = heads + int_at(index + 8 * _hash(mixed)) * f.HEAD_BYTES
            differ = word_at(known + 8 * f.KEY) ^ word
        else:
            word1, word2 = word_at(p + 8) & mask1, word_at(p + 16) & mask2
            word3 = word_at(p + 24) & mask3
            mixed ^= (word1 * FACTORS[1]) ^ (word2 * FACTORS[2]) ^ (word3 * FACTORS[3])
            known = heads + int_at(index + 8 * _hash(mixed)) * f.HEAD_BYTES
            differ = word_at(known + 8 * f.KEY) ^ word
            differ |= word_at(known + 8 * f.KEY + 8) ^ word1
            differ |= word_at(known + 8 * f.KEY + 16) ^ word2
            differ |= word_at(known + 8 * f.KEY + 24) ^ word3
        more = np.uint64(int_at(layout + 8 * i) - int_at(known + 8 * f.TOTAL))
        if differ != 0 or more > np.uint64(int_at(known + 8 * f.ROOM)):
            return i
        number = (known - heads) // f.HEAD_BYTES
        put_int(layout + 8 * i, layouts + number * layout_bytes)
    return n
