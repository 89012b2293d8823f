"""The compiled part of the page reader: leaf pages of a table B-tree to columns.

Everything here runs without the GIL on one chunk of leaves in a private buffer. Each leaf takes
three steps: find the cells, drop the rows that the filters reject, store column by column.

All counts and offsets are int64; `fields` names the positions. A negative result is one of the
codes of `fields.REASONS`, and then nothing of the chunk may be used.
"""
# ruff: noqa: ANN001, ANN201, ANN202

from __future__ import annotations

import numpy as np

from tracekit.io.pages import fields as f
from tracekit.io.pages.records import cell, record
from tracekit.io.pages.texts import is_utf8, keep_text, with_room
from tracekit.io.pages.words import (
    MASKS,
    bits_float,
    float_bits,
    load_word,
    store_word,
    swap_bytes,
    u16,
)
from tracekit.numerics.jit import compiled

FAST = {"error_model": "numpy"}


@compiled(**FAST)
def _value(buffer, p, layouts, k, s):
    """The integer, or the bits of the real, of a slot; 0 for NULL."""
    raw = np.int64(swap_bytes(load_word(buffer, p + layouts[k, s, f.END])))
    shift = layouts[k, s, f.SHIFT]
    return ((raw << shift) >> shift) & layouts[k, s, f.MASK] | layouts[k, s, f.CONSTANT]


@compiled(**FAST)
def _matches(value, filters, i, members):
    """Whether an integer satisfies the i-th filter."""
    if value < filters[i, f.FROM] or value > filters[i, f.TO]:
        return False
    mode, start = filters[i, f.MODE], filters[i, f.START]
    if mode == f.BETWEEN:
        return True
    if mode == f.BITMAP:
        return members[start + value - filters[i, f.FROM]] != 0
    low, high = start, start + filters[i, f.COUNT]
    while low < high:
        middle = (low + high) >> 1
        if members[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low < start + filters[i, f.COUNT] and members[low] == value


@compiled(**FAST)
def _keep(buffer, cells, n, layouts, plan, filters, members, probes, counters):
    """Move the rows that pass every filter to the front; their number. Answers the probes."""
    probe, kept = counters[f.PROBE], 0
    before = counters[f.CELLS]
    counters[f.CELLS] += n
    if filters.shape[0] == 0 and (probe == probes.shape[0] or probes[probe, 0] >= before + n):
        return n
    for i in range(n):
        p, k, rowid = cells[i, f.AT], cells[i, f.LAYOUT], cells[i, f.ID]
        good = True
        for j in range(filters.shape[0]):
            s = filters[j, f.SLOT]
            value = rowid if plan[s, f.KIND] == f.ROWID else _value(buffer, p, layouts, k, s)
            known = plan[s, f.KIND] == f.ROWID or layouts[k, s, f.STATE] == f.VALUE
            good = good and known and _matches(value, filters, j, members)
        if probe < probes.shape[0] and probes[probe, f.ORDINAL] == before + i:
            probes[probe, f.PROBE_ID] = rowid
            probes[probe, f.PROBE_ROW] = counters[f.ROWS] + kept if good else -1
            probe += 1
        if good:
            cells[kept, f.AT], cells[kept, f.LAYOUT], cells[kept, f.ID] = p, k, rowid
            kept += 1
    counters[f.PROBE] = probe
    return kept


@compiled(**FAST)
def _store_numbers(buffer, cells, n, s, plan, layouts, first, arena, nulls, losses):
    """Store a numeric column; values outside the range of its dtype become null."""
    kind, width, low, high = plan[s, f.KIND], plan[s, f.WIDTH], plan[s, f.LOW], plan[s, f.HIGH]
    place = plan[s, f.BYTE0] + first * width
    for i in range(n):
        k = cells[i, f.LAYOUT]
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


@compiled(**FAST)
def _store_texts(buffer, cells, n, s, plan, layouts, first, out, text, seen, counters):
    """Store a column as Arrow views of 16 bytes: short values inline, others as an offset."""
    kind, place = plan[s, f.KIND], plan[s, f.BYTE0] + first * 16
    for i in range(n):
        k = cells[i, f.LAYOUT]
        size = layouts[k, s, f.LENGTH]
        p = cells[i, f.AT] + layouts[k, s, f.END] + 8 - size
        low, high = np.uint64(size), np.uint64(0)
        if layouts[k, s, f.STATE] == f.NULL:
            out[1][s, first + i] = 1
            out[2][f.NULLS, s] += 1
        elif size <= 12:
            if kind == f.TEXT and not is_utf8(buffer, p, p + size):
                return text, np.int64(f.BAD_TEXT)
            low |= (load_word(buffer, p) & MASKS[min(size, 4), 0]) << np.uint64(32)
            high = load_word(buffer, p + 4) & MASKS[max(size - 4, 0), 0]
        else:
            text = with_room(text, counters[f.TEXT_USED], size)
            if text.size == 0:
                return text, np.int64(f.TOO_MUCH)
            offset = keep_text(buffer, p, size, kind, text, seen, counters)
            if offset < 0:
                return text, np.int64(offset)
            low |= load_word(buffer, p) << np.uint64(32)
            high = np.uint64(counters[f.CHUNK]) | (np.uint64(offset) << np.uint64(32))
        store_word(out[0], place, low)
        store_word(out[0], place + 8, high)
        place += 16
    return text, np.int64(0)


@compiled(**FAST)
def _emit(buffer, cells, n, tables, memory, out, probes, text, counters):
    """Filter and store some rows of one buffer; the text buffer, and 0 or a code."""
    plan, filters, members = tables
    layouts = memory[0]
    n = _keep(buffer, cells, n, layouts, plan, filters, members, probes, counters)
    first = counters[f.ROWS]
    code = np.int64(0)
    for s in range(plan.shape[0]):
        if plan[s, f.WIDTH] == 16 and code == 0:
            text, code = _store_texts(
                buffer, cells, n, s, plan, layouts, first, out, text, out[3], counters
            )
        elif plan[s, f.WIDTH] > 0:
            _store_numbers(buffer, cells, n, s, plan, layouts, first, out[0], out[1], out[2])
    counters[f.ROWS] += n
    return text, code


@compiled(**FAST)
def _leaf(buffer, base, head, geometry, slots, tables, memory, cells, out, probes, text, counters):
    """Decode one leaf page; the text buffer, and 0 or a code."""
    n = 0
    for i in range(u16(buffer, head + 3)):
        start = u16(buffer, head + 8 + 2 * i)
        if start < 8 or start + 4 > geometry[f.USABLE]:
            return text, np.int64(f.BAD_CELL)
        p, payload, local, rowid = cell(buffer, base, geometry, base + start, counters)
        if payload < 0:
            return text, payload
        k, spilled = record(geometry, buffer, p, payload, local, slots, tables[0], memory, counters)
        if k < 0:
            return text, k
        if spilled.size > 0:
            text, code = _emit(buffer, cells, n, tables, memory, out, probes, text, counters)
            if code < 0:
                return text, code
            n = 0
            cells[0, f.AT], cells[0, f.LAYOUT], cells[0, f.ID] = f.LEAD, 0, rowid
            text, code = _emit(spilled, cells, 1, tables, memory, out, probes, text, counters)
            if code < 0:
                return text, code
        else:
            cells[n, f.AT], cells[n, f.LAYOUT], cells[n, f.ID] = p, k, rowid
            n += 1
    return _emit(buffer, cells, n, tables, memory, out, probes, text, counters)


@compiled(
    "Tuple((uint8[::1], int64))(int64[::1], ro(int64[::1]), uint8[::1], int64[::1], int64[:, ::1],"
    " int64[:, ::1], int64[::1], int64[:, ::1], int64[:, :, ::1], int64[:, ::1], uint64[:, ::1],"
    " int64[::1], int64[:, ::1], uint8[::1], uint8[:, ::1], int64[:, ::1], int64[:, ::1],"
    " uint8[::1], int64[::1])",
    **FAST,
)
def decode(
    geometry,
    leaves,
    buffer,
    slots,
    plan,
    filters,
    members,
    probes,
    layouts,
    heads,
    keys,
    index,
    cells,
    arena,
    nulls,
    losses,
    seen,
    text,
    counters,
):
    """Decode the leaves that `load_leaves` put into a buffer.

    Args:
        geometry: See `fields`.
        leaves: Their page numbers.
        buffer: Their bytes.
        slots: Slot of each column of the table that is read, or -1.
        plan: What each slot is, `PLAN_FIELDS` per slot.
        filters: The row filters, `FILTER_FIELDS` each.
        members: The values or the bitmaps of the filters.
        probes: Cells to report on, 3 per probe, ordered; the answers are written here.
        layouts: Memory of the layouts seen, kept from chunk to chunk.
        heads: More of it.
        keys: More of it.
        index: More of it: layout by hashed header.
        cells: Scratch, 3 per cell of a page.
        arena: Receives the columns, each from its slot's BYTE0 on.
        nulls: Receives 1 where a slot's value is null; zero before.
        losses: int64[2, slots], added to; see `fields`.
        seen: Scratch; 3 per text remembered, -1 before.
        text: First buffer for text longer than 12 bytes.
        counters: See `fields`; LAST_ID must be below the first row id.

    Returns:
        The text buffer that was used in the end, and 0 or a code.
    """
    tables = (plan, filters, members)
    memory = (layouts, heads, keys, index)
    out = (arena, nulls, losses, seen)
    for i in range(leaves.size):
        base = f.LEAD + i * geometry[f.PAGE]
        head = base + (100 if leaves[i] == 1 else 0)
        if counters[f.LAYOUTS] + u16(buffer, head + 3) >= layouts.shape[0]:
            index[:] = 0
            counters[f.LAYOUTS] = 1
        text, code = _leaf(
            buffer, base, head, geometry, slots, tables, memory, cells, out, probes, text, counters
        )
        if code < 0:
            return text, code
    return text, np.int64(0)
