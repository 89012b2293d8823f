"""Text in compiled code: UTF-8, comparison, and numbers for the distinct values of a chunk."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import register_jitable

from tracekit.io.pages import fields as f
from tracekit.io.pages.machine import (
    MASKS,
    byte_at,
    int_at,
    load_word,
    put_byte,
    put_int,
    store_word,
    word_at,
)


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
