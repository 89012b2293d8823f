"""The cells of a leaf page, for compiled code: each row's payload, its layout and its row id.

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
    swap_bytes,
    varint,
    word_at,
)
from tracekit.io.pages.records import parse

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
