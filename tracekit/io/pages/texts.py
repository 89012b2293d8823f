"""Text in compiled code: UTF-8, comparison, and a buffer that keeps a repeated value once."""
# ruff: noqa: ANN001

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from tracekit.io.pages import fields as f
from tracekit.io.pages.words import MASKS, load_word, store_word


@register_jitable
def is_utf8(data, p, end) -> bool:
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
def same_bytes(a, p, b, q, n):
    """Whether n bytes at p of a equal those at q of b; both can be read 7 bytes further."""
    rest = n & 7
    for i in range(0, n - rest, 8):
        if load_word(a, p + i) != load_word(b, q + i):
            return False
    i = n - rest
    return (load_word(a, p + i) ^ load_word(b, q + i)) & MASKS[rest, 0] == 0


@register_jitable
def with_room(text, used, more):
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
def keep_text(source, p, n, kind, text, seen, counters):
    """Put a value of at least 13 bytes into the buffer unless it is there; its offset or a code."""
    first, last = load_word(source, p), load_word(source, p + n - 8)
    mixed = (first * np.uint64(0x9E3779B97F4A7C15)) ^ (last * np.uint64(0xC2B2AE3D27D4EB4F))
    mixed = (mixed ^ np.uint64(n) ^ (mixed >> np.uint64(29))) * np.uint64(0x165667B19E3779F9)
    place = np.int64(mixed >> np.uint64(64 - f.SEEN_BITS))
    offset = seen[place, 0]
    if seen[place, 1] == n and seen[place, 2] == kind and same_bytes(source, p, text, offset, n):
        return offset
    if kind == f.TEXT and not is_utf8(source, p, p + n):
        return np.int64(f.BAD_TEXT)
    offset = counters[f.TEXT_USED]
    for i in range(0, n, 8):
        store_word(text, offset + i, load_word(source, p + i))
    seen[place, 0], seen[place, 1], seen[place, 2] = offset, n, kind
    counters[f.TEXT_USED] = offset + n
    return offset
