"""The compiled part of the page reader: leaf pages of a table B-tree to columns.

Everything here runs without the GIL on one chunk of leaves in a private buffer. Rows are located
leaf by leaf; some hundreds at a time are then filtered and stored column by column.

All counts and offsets are int64; `fields` names the positions. A negative result is one of the
codes of `fields.REASONS`, and then nothing of the chunk may be used.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracekit.io.pages import columns as c
from tracekit.io.pages import fields as f
from tracekit.io.pages.machine import (
    address,
    copy_bytes,
    int_at,
    prefetch,
    put_byte,
    u16,
    with_room,
)
from tracekit.io.pages.records import assemble, cell, locate, new_layout, parse, recognize, survey
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


@compiled(**FAST)
def _spilled(
    geometry: f.Ints,
    buffer: f.Bytes,
    p: f.Int,
    payload: f.Int,
    local: f.Int,
    rowid: f.Int,
    slots: f.Ints,
    tables: Any,
    memory: Any,
    cells: f.Ints,
    out: Any,
    more: Any,
) -> Any:
    """Decode one record that continues on overflow pages; the text buffer, and 0 or a code."""
    probes, text, counters = more
    layouts, heads = memory[0], memory[1]
    # Overflow pages belong to one row only, so together they cannot exceed the file.
    if counters[f.SPILLED] + payload > geometry[f.PAGES] * geometry[f.PAGE]:
        return text, np.int64(f.BAD_OVERFLOW)
    record = assemble(geometry, buffer, p, payload, local)
    if record.size == 0:
        return text, np.int64(f.BAD_OVERFLOW)
    zero = np.int64(0)
    code = parse(record, np.int64(f.LEAD), payload, slots, tables[0], layouts, heads, zero)
    if code < 0:
        return text, code
    survey(tables[0], layouts, zero, counters)
    _wait(address(record) + f.LEAD, zero, rowid, layouts, cells, counters)
    text, code = emit(cells, tables, out, probes, text, counters)
    # An array lives until its last use, and the address of its bytes is none: hence here.
    counters[f.SPILLED] += record.size - f.LEAD - f.TAIL
    return text, code


@compiled(**FAST)
def _wait(
    at: f.Int,
    k: f.Int,
    rowid: f.Int,
    layouts: f.Ints,
    cells: f.Ints,
    counters: f.Ints,
) -> None:
    """Add a row to those that wait."""
    n = counters[f.WAITING]
    cells[f.AT, n], cells[f.ID, n] = at, rowid
    cells[f.LAYOUT, n] = address(layouts) + k * layouts.shape[1] * f.SLOT_BYTES
    counters[f.WAITING], counters[f.LAST_ID] = n + 1, rowid


@compiled(**FAST)
def _unusual(
    buffer: f.Bytes,
    base: f.Int,
    start: f.Int,
    geometry: f.Ints,
    slots: f.Ints,
    tables: Any,
    memory: Any,
    cells: f.Ints,
    out: Any,
    probes: f.Ints,
    text: f.Bytes,
    counters: f.Ints,
) -> Any:
    """Decode one row of a leaf without shortcuts; the text buffer, and 0 or a code."""
    layouts, heads, index = memory
    p, payload, local, rowid = cell(buffer, base, geometry[f.USABLE], base + start)
    if payload < 0:
        return text, payload
    if rowid <= counters[f.LAST_ID]:
        return text, np.int64(f.BAD_ORDER)
    k = new_layout(
        buffer,
        p,
        payload,
        local,
        geometry[f.KEY_BYTES],
        slots,
        tables[0],
        layouts,
        heads,
        index,
        counters,
    )
    if k > 0 and heads[k, f.NEED] <= local:
        _wait(address(buffer) + p, k, rowid, layouts, cells, counters)
        return text, np.int64(0)
    if k < 0 and k != f.SPILLS:
        return text, k
    text, code = emit(cells, tables, out, probes, text, counters)
    if code < 0:
        return text, code
    more = (probes, text, counters)
    return _spilled(
        geometry, buffer, p, payload, local, rowid, slots, tables, memory, cells, out, more
    )


@compiled(**FAST)
def _usual(
    buffer: f.Bytes,
    base: f.Int,
    head: f.Int,
    first: f.Int,
    count: f.Int,
    geometry: f.Ints,
    memory: Any,
    cells: f.Ints,
    counters: f.Ints,
) -> Any:
    """Have the rows of a leaf wait, up to the first unusual one; that one, and 0 or a code."""
    layouts, heads, index = memory
    n, row = counters[f.WAITING], 8 * cells.shape[1]
    at = address(cells) + 8 * n
    found, code = locate(
        address(buffer) + base,
        address(buffer) + head,
        geometry[f.USABLE],
        first,
        count,
        at,
        at + row,
        at + 2 * row,
        counters[f.LAST_ID],
    )
    known = recognize(
        found,
        geometry[f.KEY_BYTES],
        address(heads),
        address(index),
        address(layouts),
        layouts.shape[1] * f.SLOT_BYTES,
        at,
        at + row,
    )
    if known > 0:
        counters[f.WAITING], counters[f.LAST_ID] = n + known, cells[f.ID, n + known - 1]
    return first + known, code if known == found else np.int64(0)


@compiled(**FAST)
def _look_ahead(page: f.Int, size: f.Int, count: f.Int) -> None:
    """Fetch what the next page is entered by: its end, and pointers to so many cells."""
    for i in range(0, f.AHEAD_BYTES, f.LINE_BYTES):
        prefetch(page + size - f.LINE_BYTES - i)
    for i in range(0, 2 * count, f.LINE_BYTES):
        prefetch(page + i)


@compiled(
    "Tuple((uint8[::1], int64))(int64[::1], ro(int64[::1]), uint8[::1], int64[::1], int64[:, ::1],"
    " int64[:, ::1], int64[::1], int64[:, ::1], int64[:, :, ::1], int64[:, ::1], int64[::1],"
    " int64[:, ::1], int64[:, ::1], int64[::1], int64[:, ::1], uint8[::1], int64[::1])",
    **FAST,
)
def decode(
    geometry: f.Ints,
    leaves: f.Ints,
    buffer: f.Bytes,
    slots: f.Ints,
    plan: f.Ints,
    filters: f.Ints,
    members: f.Ints,
    probes: f.Ints,
    layouts: f.Ints,
    heads: f.Ints,
    index: f.Ints,
    cells: f.Ints,
    losses: f.Ints,
    entries: f.Ints,
    seen: f.Ints,
    text: f.Bytes,
    counters: f.Ints,
) -> Any:
    """Decode the leaves that `load_leaves` put into a buffer.

    Args:
        geometry: See `fields`.
        leaves: Their page numbers.
        buffer: Their bytes.
        slots: First slot of each column of the table that is read, or -1.
        plan: What each slot is and where it is stored, `PLAN_FIELDS` per slot. Nothing is written
            to the values of rows that are null together with some hundreds of their neighbours.
        filters: The row filters, `FILTER_FIELDS` each.
        members: The values or the bitmaps of the filters.
        probes: Cells to report on, 3 per probe, ordered; the answers are written here.
        layouts: Memory of the layouts seen; its content does not matter, nor that of the next two.
        heads: More of it.
        index: More of it: layout by hashed header.
        cells: Scratch, int64[3, BATCH_CELLS and the cells of a page].
        losses: int64[2, slots], added to; see `fields`.
        entries: Receives where each text of the chunk begins in `text`, by its number; the
            next one's number says where it ends, less a zero byte.
        seen: Scratch; 3 per text remembered, zero before.
        text: First buffer for text.
        counters: See `fields`; LAST_ID must be below the first row id.

    Returns:
        The text buffer that was used in the end, and 0 or a code.
    """
    tables, memory = (plan, filters, members), (layouts, heads, index)
    keep, narrow = np.empty(cells.shape[1], np.uint8), np.empty(8 * cells.shape[1], np.uint8)
    out = (losses, entries, seen, keep, narrow)
    code = np.int64(0)
    counters[f.ANY_SPECIAL], counters[f.ALL_EMPTY], counters[f.VARIED] = 0, -1, 0
    counters[f.LAYOUTS], heads[0, f.KEY] = 1, f.NO_KEY
    index[:] = 0
    for i in range(leaves.size):
        base = np.int64(f.LEAD + i * geometry[f.PAGE])
        head = base + (100 if leaves[i] == 1 else 0)
        count, first = u16(buffer, head + 3), np.int64(0)
        full = counters[f.LAYOUTS] + count >= layouts.shape[0]
        if full or counters[f.WAITING] >= f.BATCH_CELLS:
            text, code = emit(cells, tables, out, probes, text, counters)
            if code < 0:
                return text, code
        if full:
            index[:] = 0
            counters[f.ANY_SPECIAL], counters[f.ALL_EMPTY], counters[f.VARIED] = 0, -1, 0
            counters[f.LAYOUTS] = 1
        _look_ahead(address(buffer) + base + geometry[f.PAGE], geometry[f.PAGE], count)
        while first < count:
            first, code = _usual(
                buffer, base, head, first, count, geometry, memory, cells, counters
            )
            if code == 0 and first < count:
                start = u16(buffer, head + 8 + 2 * first)
                first += 1
                text, code = _unusual(
                    buffer,
                    base,
                    start,
                    geometry,
                    slots,
                    tables,
                    memory,
                    cells,
                    out,
                    probes,
                    text,
                    counters,
                )
            if code < 0:
                return text, code
    return emit(cells, tables, out, probes, text, counters)
