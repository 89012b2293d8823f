"""Text in compiled code: UTF-8, comparison, and numbers for the distinct values of a chunk."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import register_jitable

from tracekit.io.pages import fields as f
from tracekit.io.pages.words import MASKS, load_word, store_word


@register_jitable
def is_utf8(data: f.Bytes, p: f.Int, end: f.Int) -> Any:
    """Whether bytes p to end are well-formed UTF-8 (no surrogates, nothing overlong)."""
    while p < end:
        if p + 8 <= end and load_word(data, p) & np.uint64(0x8080808080808080) == 0:
            p += 8
            continue
        lead = data[p]
        p += 1
        if lead < 0x80:
            continue
        more = 1 if lead < 0xE0 else 2 if lead < 0xF0 else 3
        if lead < 0xC2 or lead > 0xF4 or p + more > end:
            return False
        low = 0xA0 if lead == 0xE0 else 0x90 if lead == 0xF0 else 0x80
        high = 0x9F if lead == 0xED else 0x8F if lead == 0xF4 else 0xBF
        for i in range(more):
            if data[p + i] < low or data[p + i] > high:
                return False
            low, high = 0x80, 0xBF
        p += more
    return True


@register_jitable
def same_bytes(a: f.Bytes, p: f.Int, b: f.Bytes, q: f.Int, n: f.Int) -> Any:
    """Whether n bytes at p of a equal those at q of b; both can be read 7 bytes further."""
    rest = n & 7
    for i in range(0, n - rest, 8):
        if load_word(a, p + i) != load_word(b, q + i):
            return False
    i = n - rest
    return (load_word(a, p + i) ^ load_word(b, q + i)) & MASKS[rest, 0] == 0


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
    source: f.Bytes,
    p: f.Int,
    n: f.Int,
    kind: f.Int,
    text: f.Bytes,
    entries: f.Ints,
    seen: f.Ints,
    counters: f.Ints,
) -> Any:
    """Number of a value among the chunk's texts, added unless it is remembered; or a code."""
    first = load_word(source, p) & MASKS[min(n, 8), 0]
    last = load_word(source, p + max(n - 8, 0)) & MASKS[min(n, 8), 0]
    mixed = (first * np.uint64(0x9E3779B97F4A7C15)) ^ (last * np.uint64(0xC2B2AE3D27D4EB4F))
    mixed = (mixed ^ np.uint64(n) ^ (mixed >> np.uint64(29))) * np.uint64(0x165667B19E3779F9)
    place = np.uintp(mixed >> np.uint64(64 - f.SEEN_BITS))
    known = seen[place, 0]
    if (
        known > 0
        and seen[place, 1] == n
        and seen[place, 2] == kind
        and same_bytes(source, p, text, entries[known], n)
    ):
        return known
    if kind == f.TEXT and not is_utf8(source, p, p + n):
        return np.int64(f.BAD_TEXT)
    start, code = counters[f.TEXT_USED], counters[f.TEXTS] + 1
    for i in range(0, n, 8):
        store_word(text, start + i, load_word(source, p + i))
    text[start + n] = 0
    seen[place, 0], seen[place, 1], seen[place, 2] = code, n, kind
    counters[f.TEXT_USED], counters[f.TEXTS] = start + n + 1, code
    entries[code], entries[code + 1] = start, start + n + 1
    return code
