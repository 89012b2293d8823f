"""Some hundreds of rows, for compiled code: those that pass the filters become columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracekit.io.pages import columns as c
from tracekit.io.pages import fields as f
from tracekit.io.pages.machine import address, copy_bytes, int_at, put_byte
from tracekit.io.pages.texts import with_room
from tracekit.numerics.jit import compiled

FAST: Any = {"error_model": "numpy"}


@compiled(**FAST)
def _filter(
    cells: f.Ints,
    n: f.Int,
    plan: f.Ints,
    filters: f.Ints,
    members: f.Ints,
    keep: f.Bytes,
    special: f.Int,
) -> None:
    """Mark the rows that satisfy all filters in `keep`."""
    row, kept = 8 * cells.shape[1], address(keep)
    at, layout, ids = address(cells), address(cells) + row, address(cells) + 2 * row
    for j in range(n):
        keep[j] = 1
    for i in range(filters.shape[0]):
        s, low, high = filters[i, f.SLOT], filters[i, f.FROM], filters[i, f.TO]
        mode, count = filters[i, f.MODE], filters[i, f.COUNT]
        among, slot = address(members) + 8 * filters[i, f.START], s * f.SLOT_BYTES
        plain = (special >> min(s, f.LAST_BIT)) & 1 == 0
        if plan[s, f.KIND] == f.ROWID:
            c.reject_ids(ids, n, low, high, mode, among, count, kept)
        elif plain and mode == f.BITMAP:
            c.reject_absent(at, layout, slot, n, low, np.uint64(high - low), among, kept)
        else:
            c.reject(at, layout, slot, n, low, high, mode, among, count, kept)


@compiled(**FAST)
def _store(
    cells: f.Ints,
    n: f.Int,
    s: f.Int,
    plan: f.Ints,
    out: f.Int,
    nulls: f.Int,
    losses: f.Ints,
    traits: Any,
) -> None:
    """Store a numeric column of some rows, from the addresses `out` and `nulls` on.

    Up to seven bytes behind the last value are overwritten.
    """
    row, slot, bit = 8 * cells.shape[1], s * f.SLOT_BYTES, min(s, f.LAST_BIT)
    at, layout, ids = address(cells), address(cells) + row, address(cells) + 2 * row
    special, _, varied = traits
    low, width, is_float = plan[s, f.LOW], plan[s, f.WIDTH], plan[s, f.KIND] == f.FLOAT
    span = np.uint64(plan[s, f.HIGH] - low)
    right, bits, add = plan[s, f.RIGHT], plan[s, f.BITS], plan[s, f.ADD]
    empty, lost, done = np.int64(0), np.int64(0), False
    if plan[s, f.KIND] == f.ROWID:
        lost = c.store_ids(ids, n, low, span, right, bits, add, out, width, nulls)
        empty, done = lost, True
    elif is_float or (special >> bit) & 1:
        pass
    elif (varied >> bit) & 1 == 0:
        place = int_at(layout) + slot
        done = c.store_uniform(at, place, n, low, span, right, bits, add, out, width)
    elif right == 0 and bits == -1 and add == 0:
        done = c.store_plain(at, layout, slot, n, low, span, out, width)
    else:
        c.store_parts(at, layout, slot, n, right, bits, add, out, width)
        done = True
    if not done:
        empty, lost = c.store_checked(
            at, layout, slot, n, low, span, right, bits, add, out, width, is_float, nulls
        )
    losses[f.NULLS, s] += empty
    losses[f.OUT_OF_RANGE, s] += lost


@compiled(**FAST)
def _traits(cells: f.Ints, n: f.Int, slots: f.Int, counters: f.Ints) -> Any:
    """Slots special in any of some rows, empty in all, and not in one place in all: a bit each."""
    special, empty = counters[f.ANY_SPECIAL], counters[f.ALL_EMPTY]
    layout, varied, mixture = address(cells) + 8 * cells.shape[1], counters[f.VARIED], np.int64(0)
    if special != empty:
        special, empty = np.int64(0), np.int64(-1)
        for i in range(n):
            together = int_at(layout + 8 * i) + slots * f.SLOT_BYTES
            special |= int_at(together + 8 * f.SPECIAL)
            empty &= int_at(together + 8 * f.EMPTY)
    if varied != 0:
        for i in range(n):
            mixture |= int_at(layout + 8 * i) ^ int_at(layout)
        varied = varied if mixture != 0 else np.int64(0)
    return special, empty, varied


@compiled(**FAST)
def emit(
    cells: f.Ints, tables: Any, out: Any, probes: f.Ints, text: f.Bytes, counters: f.Ints
) -> Any:
    """Filter and store the rows that wait; the text buffer, and 0 or a code."""
    plan, filters, members = tables
    losses, entries, seen, keep, narrow = out
    n, code = counters[f.WAITING], np.int64(0)
    if n > 0 and counters[f.CELLS] == 0:
        counters[f.FIRST_ID] = cells[f.ID, 0]
    counters[f.WAITING] = 0
    traits = _traits(cells, n, plan.shape[0], counters)
    if filters.shape[0]:
        _filter(cells, n, plan, filters, members, keep, traits[0])
        kept = c.keep_rows(cells, n, keep, probes, counters)
    else:
        c.answer_probes(cells, n, probes, counters)
        kept = n
    counters[f.CELLS] += n
    first, row = counters[f.ROWS], 8 * cells.shape[1]
    for s in range(plan.shape[0] if kept else 0):
        width, kind = plan[s, f.WIDTH], plan[s, f.KIND]
        final, gaps = plan[s, f.OUT] + first * width, plan[s, f.GAPS] + first
        if width == 0:
            continue
        # Values are stored as eight bytes each, and other threads write what comes after the rows.
        place = final if width == 8 else address(narrow)
        is_text = kind == f.TEXT or kind == f.BINARY
        if not is_text and (traits[1] >> min(s, f.LAST_BIT)) & 1:
            for i in range(kept):
                put_byte(gaps + i, 1)
            losses[f.NULLS, s] += kept
            continue
        if not is_text:
            _store(cells, kept, s, plan, place, gaps, losses, traits)
            if width < 8:
                copy_bytes(final, place, kept * width)
            continue
        slot, layout = s * f.SLOT_BYTES, address(cells) + row
        text = with_room(text, counters[f.TEXT_USED], c.text_bytes(layout, slot, kept))
        if text.size == 0:
            return text, np.int64(f.TOO_MUCH)
        empty, code = c.store_texts(
            address(cells),
            layout,
            slot,
            kept,
            kind,
            place,
            address(text),
            address(entries),
            address(seen),
            address(counters),
        )
        copy_bytes(final, place, kept * width)
        losses[f.NULLS, s] += empty
        if code < 0:
            return text, code
    counters[f.ROWS] += kept
    return text, code
