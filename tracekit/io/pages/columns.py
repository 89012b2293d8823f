"""Rows to columns, for compiled code: filter some rows of a buffer and store their values.

Arguments are integers, most of them addresses: `at` of int64[n] with the addresses of the rows'
payloads, `layout` of int64[n] with those of the rows' layouts. `slot` is what to add to the latter
for the column in question.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import register_jitable

from tracekit.io.pages import fields as f
from tracekit.io.pages.machine import (
    address,
    big_at,
    bits_float,
    byte_at,
    float_bits,
    int_at,
    put_byte,
    put_int,
    text_code,
)

ANY = np.uint64(0xFFFFFFFFFFFFFFFF)
"""The span of a dtype that holds every integer."""


@register_jitable
def _value(at: f.Int, place: f.Int) -> Any:
    """The integer, or the bits of the real, of a slot; 0 for NULL."""
    word = int_at(place + 8 * f.PLACE)
    raw = big_at(at + (word >> f.END_AT))
    shift = (word >> f.SHIFT_AT) & 63
    return ((raw << shift) >> shift) & -(word & 1) | int_at(place + 8 * f.REST)


@register_jitable
def _state(place: f.Int) -> Any:
    return (int_at(place + 8 * f.PLACE) >> f.STATE_AT) & 3


@register_jitable
def reject(
    at: f.Int,
    layout: f.Int,
    slot: f.Int,
    n: f.Int,
    low: f.Int,
    high: f.Int,
    mode: f.Int,
    members: f.Int,
    count: f.Int,
    keep: f.Int,
) -> None:
    """Clear bytes of `keep` for the rows whose cell does not satisfy a filter."""
    for j in range(n):
        place = int_at(layout + 8 * j) + slot
        value = _value(int_at(at + 8 * j), place)
        good = (_state(place) == f.VALUE) & (low <= value) & (value <= high)
        if mode == f.BITMAP:
            good &= int_at(members + 8 * (value - low if good else 0)) != 0
        elif mode == f.SORTED and good:
            good = _among(members, count, value)
        put_byte(keep + j, byte_at(keep + j) & np.int64(good))


@register_jitable
def reject_absent(
    at: f.Int,
    layout: f.Int,
    slot: f.Int,
    n: f.Int,
    low: f.Int,
    span: Any,
    members: f.Int,
    keep: f.Int,
) -> None:
    """As `reject`, for integers none of which is NULL and flags in `members`."""
    for j in range(n):
        value = _value(int_at(at + 8 * j), int_at(layout + 8 * j) + slot) - low
        good = np.int64(np.uint64(value) <= span)
        # Without a branch: which rows pass is hard to foresee.
        good &= int_at(members + 8 * (value & -good))
        put_byte(keep + j, byte_at(keep + j) & good)


@register_jitable
def reject_ids(
    ids: f.Int,
    n: f.Int,
    low: f.Int,
    high: f.Int,
    mode: f.Int,
    members: f.Int,
    count: f.Int,
    keep: f.Int,
) -> None:
    """As `reject`, for the row id."""
    for j in range(n):
        value = int_at(ids + 8 * j)
        good = low <= value <= high
        if good and mode == f.BITMAP:
            good = int_at(members + 8 * (value - low)) != 0
        elif good and mode == f.SORTED:
            good = _among(members, count, value)
        if not good:
            put_byte(keep + j, 0)


@register_jitable
def _among(members: f.Int, count: f.Int, value: f.Int) -> Any:
    """Whether a value is one of some sorted ones."""
    left, right = np.int64(0), count - 1
    while left < right:
        middle = (left + right) >> 1
        if int_at(members + 8 * middle) < value:
            left = middle + 1
        else:
            right = middle
    return int_at(members + 8 * left) == value


@register_jitable
def keep_rows(cells: f.Ints, n: f.Int, keep: f.Bytes, probes: f.Ints, counters: f.Ints) -> Any:
    """Move the rows to keep to the front; their number. Answers the probes."""
    row, kept = 8 * cells.shape[1], np.int64(0)
    at, layout, ids = address(cells), address(cells) + row, address(cells) + 2 * row
    probe, before, rows = counters[f.PROBE], counters[f.CELLS], counters[f.ROWS]
    asked = probes[probe, f.ORDINAL] - before if probe < probes.shape[0] else np.int64(-1)
    flags = address(keep)
    for i in range(n):
        flag = byte_at(flags + i)
        if i == asked:
            probes[probe, f.PROBE_ID] = int_at(ids + 8 * i)
            probes[probe, f.PROBE_ROW] = rows + kept if flag else -1
            probe += 1
            asked = probes[probe, f.ORDINAL] - before if probe < probes.shape[0] else np.int64(-1)
        put_int(at + 8 * kept, int_at(at + 8 * i))
        put_int(layout + 8 * kept, int_at(layout + 8 * i))
        put_int(ids + 8 * kept, int_at(ids + 8 * i))
        kept += flag
    counters[f.PROBE] = probe
    return kept


@register_jitable
def answer_probes(cells: f.Ints, n: f.Int, probes: f.Ints, counters: f.Ints) -> None:
    """Answer the probes of rows that are all kept."""
    probe, before = counters[f.PROBE], counters[f.CELLS]
    while probe < probes.shape[0] and probes[probe, f.ORDINAL] < before + n:
        i = probes[probe, f.ORDINAL] - before
        probes[probe, f.PROBE_ID] = cells[f.ID, i]
        probes[probe, f.PROBE_ROW] = counters[f.ROWS] + i
        probe += 1
    counters[f.PROBE] = probe


@register_jitable
def store_plain(
    at: f.Int, layout: f.Int, slot: f.Int, n: f.Int, low: f.Int, span: Any, out: f.Int, width: f.Int
) -> bool:
    """Store integers none of which is NULL; False as soon as one is out of range."""
    if span == ANY:
        for i in range(n):
            put_int(out + width * i, _value(int_at(at + 8 * i), int_at(layout + 8 * i) + slot))
        return True
    for i in range(n):
        value = _value(int_at(at + 8 * i), int_at(layout + 8 * i) + slot)
        if np.uint64(value - low) > span:
            return False
        # Eight bytes whatever the width: the next row, or the padding, takes what is too much.
        put_int(out + width * i, value)
    return True


@register_jitable
def store_parts(
    at: f.Int,
    layout: f.Int,
    slot: f.Int,
    n: f.Int,
    right: f.Int,
    bits: f.Int,
    add: f.Int,
    out: f.Int,
    width: f.Int,
) -> None:
    """Store parts of integers none of which is NULL."""
    for i in range(n):
        value = _value(int_at(at + 8 * i), int_at(layout + 8 * i) + slot)
        put_int(out + width * i, ((value >> right) & bits) + add)


@register_jitable
def store_uniform(
    at: f.Int,
    place: f.Int,
    n: f.Int,
    low: f.Int,
    span: Any,
    right: f.Int,
    bits: f.Int,
    add: f.Int,
    out: f.Int,
    width: f.Int,
) -> bool:
    """As `store_plain` and `store_parts`, for rows of one layout."""
    word, rest = int_at(place + 8 * f.PLACE), int_at(place + 8 * f.REST)
    end, shift, inside = word >> f.END_AT, (word >> f.SHIFT_AT) & 63, -(word & 1)
    if span == ANY and inside != 0 and right == 0 and bits == -1 and add == 0:
        for i in range(n):
            raw = big_at(int_at(at + 8 * i) + end)
            put_int(out + width * i, (raw << shift) >> shift)
        return True
    for i in range(n):
        raw = big_at(int_at(at + 8 * i) + end)
        value = ((raw << shift) >> shift) & inside | rest
        if np.uint64(value - low) > span:
            return False
        put_int(out + width * i, ((value >> right) & bits) + add)
    return True


@register_jitable
def store_checked(
    at: f.Int,
    layout: f.Int,
    slot: f.Int,
    n: f.Int,
    low: f.Int,
    span: Any,
    right: f.Int,
    bits: f.Int,
    add: f.Int,
    out: f.Int,
    width: f.Int,
    is_float: bool,
    nulls: f.Int,
) -> Any:
    """Store numbers; those outside the range of their dtype become null.

    Returns:
        How many are null, and how many of those for their range.
    """
    empty, lost = np.int64(0), np.int64(0)
    for i in range(n):
        place = int_at(layout + 8 * i) + slot
        value, state = _value(int_at(at + 8 * i), place), _state(place)
        if is_float:
            if state == f.AS_FLOAT:
                value = float_bits(np.float64(value))
            if np.isnan(bits_float(value)):
                state = np.int64(f.NULL)  # SQLite reads a NaN as NULL.
        elif state == f.VALUE and np.uint64(value - low) > span:
            state = np.int64(f.NULL)
            lost += 1
        if state == f.NULL:
            put_byte(nulls + i, 1)
            empty += 1
            put_int(out + width * i, 0)
        else:
            put_int(out + width * i, ((value >> right) & bits) + add)
    return empty, lost


@register_jitable
def store_ids(
    ids: f.Int,
    n: f.Int,
    low: f.Int,
    span: Any,
    right: f.Int,
    bits: f.Int,
    add: f.Int,
    out: f.Int,
    width: f.Int,
    nulls: f.Int,
) -> Any:
    """Store row ids; how many are out of range and become null."""
    lost = np.int64(0)
    for i in range(n):
        value = int_at(ids + 8 * i)
        good = np.uint64(value - low) <= span
        put_int(out + width * i, ((value >> right) & bits) + add if good else 0)
        if not good:
            put_byte(nulls + i, 1)
            lost += 1
    return lost


@register_jitable
def store_texts(
    at: f.Int,
    layout: f.Int,
    slot: f.Int,
    n: f.Int,
    kind: f.Int,
    out: f.Int,
    text: f.Int,
    entries: f.Int,
    seen: f.Int,
    counters: f.Int,
) -> Any:
    """Store a column as numbers of texts, 0 for NULL; how many are null, and 0 or a code."""
    empty, bad = np.int64(0), np.int64(0)
    for i in range(n):
        place, number = int_at(layout + 8 * i) + slot, np.int64(0)
        if _state(place) == f.NULL:
            empty += 1
        else:
            size = int_at(place + 8 * f.REST)
            p = int_at(at + 8 * i) + (int_at(place + 8 * f.PLACE) >> f.END_AT) + 8 - size
            number = text_code(p, size, kind, text, entries, seen, counters)
            bad = min(bad, number)
        put_int(out + f.TEXT_WIDTH * i, number)
    return empty, bad


@register_jitable
def text_bytes(layout: f.Int, slot: f.Int, n: f.Int) -> Any:
    """Most bytes that a text column of some rows can add to the text buffer."""
    total = n
    for i in range(n):
        total += int_at(int_at(layout + 8 * i) + slot + 8 * f.REST)
    return total
