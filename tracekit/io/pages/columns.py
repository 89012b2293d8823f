"""Rows to columns, for compiled code: filter some rows of a buffer and store their values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import register_jitable

from tracekit.io.pages import fields as f
from tracekit.io.pages.texts import text_code
from tracekit.io.pages.words import bits_float, float_bits, load_word, store_word, swap_bytes


@register_jitable
def _value(buffer: f.Bytes, p: f.Int, layouts: f.Ints, k: f.Int, s: f.Int) -> Any:
    """The integer, or the bits of the real, of a slot; 0 for NULL."""
    raw = np.int64(swap_bytes(load_word(buffer, p + layouts[k, s, f.END])))
    shift = layouts[k, s, f.SHIFT]
    return ((raw << shift) >> shift) & layouts[k, s, f.MASK] | layouts[k, s, f.CONSTANT]


@register_jitable
def reject(
    buffer: f.Bytes,
    cells: f.Ints,
    n: f.Int,
    i: f.Int,
    plan: f.Ints,
    layouts: f.Ints,
    filters: f.Ints,
    members: f.Ints,
    keep: f.Bytes,
) -> None:
    """Clear `keep` for the rows whose cell does not satisfy the i-th filter."""
    s, low, high = np.uintp(filters[i, f.SLOT]), filters[i, f.FROM], filters[i, f.TO]
    mode, start, count = filters[i, f.MODE], filters[i, f.START], filters[i, f.COUNT]
    is_rowid = plan[s, f.KIND] == f.ROWID
    for j in range(n):
        k = np.uintp(cells[j, f.LAYOUT])
        value = cells[j, f.ID] if is_rowid else _value(buffer, cells[j, f.AT], layouts, k, s)
        good = (is_rowid or layouts[k, s, f.STATE] == f.VALUE) and low <= value <= high
        if good and mode == f.BITMAP:
            good = members[start + value - low] != 0
        elif good and mode == f.SORTED:
            left, right = start, start + count - 1
            while left < right:
                middle = (left + right) >> 1
                if members[middle] < value:
                    left = middle + 1
                else:
                    right = middle
            good = members[left] == value
        if not good:
            keep[j] = 0


@register_jitable
def keep_rows(cells: f.Ints, n: f.Int, keep: f.Bytes, probes: f.Ints, counters: f.Ints) -> Any:
    """Move the rows to keep to the front; their number. Answers the probes."""
    probe, kept, before = counters[f.PROBE], 0, counters[f.CELLS]
    for i in range(n):
        if probe < probes.shape[0] and probes[probe, f.ORDINAL] == before + i:
            probes[probe, f.PROBE_ID] = cells[i, f.ID]
            probes[probe, f.PROBE_ROW] = counters[f.ROWS] + kept if keep[i] else -1
            probe += 1
        if keep[i]:
            cells[kept, f.AT] = cells[i, f.AT]
            cells[kept, f.LAYOUT] = cells[i, f.LAYOUT]
            cells[kept, f.ID] = cells[i, f.ID]
            kept += 1
    counters[f.PROBE] = probe
    counters[f.CELLS] += n
    return kept


@register_jitable
def store_numbers(
    buffer: f.Bytes,
    cells: f.Ints,
    n: f.Int,
    s: f.Int,
    plan: f.Ints,
    layouts: f.Ints,
    first: f.Int,
    arena: f.Bytes,
    nulls: f.Bytes,
    losses: f.Ints,
) -> None:
    """Store a numeric column; values outside the range of its dtype become null."""
    kind, width, low, high = plan[s, f.KIND], plan[s, f.WIDTH], plan[s, f.LOW], plan[s, f.HIGH]
    place = plan[s, f.BYTE0] + first * width
    for i in range(n):
        k = np.uintp(cells[i, f.LAYOUT])
        value = _value(buffer, cells[i, f.AT], layouts, k, s)
        state = layouts[k, s, f.STATE]
        if kind == f.ROWID:
            value, state = cells[i, f.ID], np.int64(f.VALUE)
        elif state == f.AS_FLOAT:
            value = float_bits(np.float64(value))
        if kind == f.FLOAT:
            if np.isnan(bits_float(value)):
                state = np.int64(f.NULL)  # SQLite reads a NaN as NULL.
        elif state == f.VALUE and (value < low or value > high):
            state = np.int64(f.NULL)
            losses[f.OUT_OF_RANGE, s] += 1
        if state == f.NULL:
            nulls[s, first + i] = 1
            losses[f.NULLS, s] += 1
            value = np.int64(0)
        # Eight bytes whatever the width: the next row, or the padding, takes what is too much.
        store_word(arena, place, np.uint64(value))
        place += width


@register_jitable
def store_texts(
    buffer: f.Bytes,
    cells: f.Ints,
    n: f.Int,
    s: f.Int,
    plan: f.Ints,
    layouts: f.Ints,
    first: f.Int,
    arena: f.Bytes,
    text: f.Bytes,
    entries: f.Ints,
    seen: f.Ints,
    counters: f.Ints,
) -> Any:
    """Store a column as numbers of texts, 0 for NULL; 0 or a code."""
    kind, place, bad = plan[s, f.KIND], plan[s, f.BYTE0] + first * f.TEXT_WIDTH, np.int64(0)
    for i in range(n):
        k = np.uintp(cells[i, f.LAYOUT])
        number = np.int64(0)
        if layouts[k, s, f.STATE] != f.NULL:
            size = layouts[k, s, f.LENGTH]
            p = cells[i, f.AT] + layouts[k, s, f.END] + 8 - size
            number = text_code(buffer, p, size, kind, text, entries, seen, counters)
            bad = min(bad, number)
        store_word(arena, place, np.uint64(number))
        place += f.TEXT_WIDTH
    return bad


@register_jitable
def text_bytes(cells: f.Ints, n: f.Int, s: f.Int, layouts: f.Ints) -> Any:
    """Most bytes that a text column of some rows can add to the text buffer."""
    total = n
    for i in range(n):
        total += layouts[cells[i, f.LAYOUT], s, f.LENGTH]
    return total
