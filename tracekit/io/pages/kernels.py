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
from tracekit.io.pages.records import assemble, cell, known_layout, new_layout, parse
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
def _reject(buffer, cells, n, i, plan, layouts, filters, members, keep):
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


@compiled(**FAST)
def _keep(cells, n, keep, probes, counters):
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


@compiled(**FAST)
def _store_numbers(buffer, cells, n, s, plan, layouts, first, arena, nulls, losses):
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


@compiled(**FAST)
def _store_texts(buffer, cells, n, s, plan, layouts, first, arena, nulls, losses, text, state):
    """Store a column as Arrow views of 16 bytes: short values inline, others as an offset."""
    seen, counters = state
    kind, place, code = plan[s, f.KIND], plan[s, f.BYTE0] + first * 16, np.int64(0)
    for i in range(n):
        k = np.uintp(cells[i, f.LAYOUT])
        size = layouts[k, s, f.LENGTH]
        p = cells[i, f.AT] + layouts[k, s, f.END] + 8 - size
        low, high = np.uint64(size), np.uint64(0)
        if layouts[k, s, f.STATE] == f.NULL:
            nulls[s, first + i] = 1
            losses[f.NULLS, s] += 1
        elif size <= 12:
            if kind == f.TEXT and not is_utf8(buffer, p, p + size):
                code = np.int64(f.BAD_TEXT)
            low |= (load_word(buffer, p) & MASKS[min(size, 4), 0]) << np.uint64(32)
            high = load_word(buffer, p + 4) & MASKS[max(size - 4, 0), 0]
        else:
            offset = keep_text(buffer, p, size, kind, text, seen, counters)
            code = min(code, offset)
            low |= load_word(buffer, p) << np.uint64(32)
            high = np.uint64(counters[f.CHUNK]) | (np.uint64(offset) << np.uint64(32))
        store_word(arena, place, low)
        store_word(arena, place + 8, high)
        place += 16
    return code


@compiled(**FAST)
def _text_bytes(cells, n, s, layouts):
    """Most bytes that a text column of some rows can add to the text buffer."""
    total = np.int64(0)
    for i in range(n):
        total += layouts[cells[i, f.LAYOUT], s, f.LENGTH]
    return total


@compiled(**FAST)
def _emit(buffer, cells, n, tables, memory, out, probes, text, counters):
    """Filter and store some rows of one buffer; the text buffer, and 0 or a code."""
    plan, filters, members = tables
    layouts, keep = memory[0], out[4]
    for i in range(n):
        keep[i] = 1
    for i in range(filters.shape[0]):
        _reject(buffer, cells, n, i, plan, layouts, filters, members, keep)
    n = _keep(cells, n, keep, probes, counters)
    first = counters[f.ROWS]
    code = np.int64(0)
    for slot in range(plan.shape[0]):
        s = np.uintp(slot)
        if plan[s, f.WIDTH] == 16:
            text = with_room(text, counters[f.TEXT_USED], _text_bytes(cells, n, s, layouts))
            if text.size == 0:
                return text, np.int64(f.TOO_MUCH)
            state = (out[3], counters)
            code = _store_texts(
                buffer, cells, n, s, plan, layouts, first, out[0], out[1], out[2], text, state
            )
        elif plan[s, f.WIDTH] > 0:
            _store_numbers(buffer, cells, n, s, plan, layouts, first, out[0], out[1], out[2])
        if code < 0:
            return text, code
    counters[f.ROWS] += n
    return text, code


@compiled(**FAST)
def _spilled(geometry, buffer, p, payload, local, rowid, slots, tables, memory, cells, out, more):
    """Decode one record that continues on overflow pages; the text buffer, and 0 or a code."""
    probes, text, counters = more
    counters[f.SPILLED] += payload
    # Overflow pages belong to one row only, so together they cannot exceed the file.
    if counters[f.SPILLED] > geometry[f.PAGES] * geometry[f.PAGE]:
        return text, np.int64(f.BAD_OVERFLOW)
    record = assemble(geometry, buffer, p, payload, local)
    if record.size == 0:
        return text, np.int64(f.BAD_OVERFLOW)
    code = parse(record, np.int64(f.LEAD), payload, slots, tables[0], memory[0], memory[1], np.int64(0))
    if code < 0:
        return text, code
    cells[0, f.AT], cells[0, f.LAYOUT], cells[0, f.ID] = f.LEAD, 0, rowid
    return _emit(record, cells, np.int64(1), tables, memory, out, probes, text, counters)


@compiled(**FAST)
def _leaf(buffer, base, head, geometry, slots, tables, memory, cells, out, probes, text, counters):
    """Decode one leaf page; the text buffer, and 0 or a code."""
    plan, layouts, heads, keys, index = tables[0], memory[0], memory[1], memory[2], memory[3]
    usable, key_bytes, n = geometry[f.USABLE], geometry[f.KEY_BYTES], np.int64(0)
    for i in range(u16(buffer, head + 3)):
        start = u16(buffer, head + 8 + 2 * i)
        if start < 8 or start + 4 > usable:
            return text, np.int64(f.BAD_CELL)
        p, payload, local, rowid = cell(buffer, base, usable, base + start)
        if payload < 0:
            return text, payload
        if rowid <= counters[f.LAST_ID]:
            return text, np.int64(f.BAD_ORDER)
        counters[f.LAST_ID] = rowid
        if i == 0 and counters[f.CELLS] == 0:
            counters[f.FIRST_ID] = rowid
        k = known_layout(buffer, p, payload, key_bytes, heads, keys, index)
        if k == 0:
            k = new_layout(
                buffer,
                p,
                payload,
                local,
                key_bytes,
                slots,
                plan,
                layouts,
                heads,
                keys,
                index,
                counters,
            )
        if k > 0 and heads[k, f.NEED] <= local:
            cells[n, f.AT], cells[n, f.LAYOUT], cells[n, f.ID] = p, k, rowid
            n += 1
            continue
        if k < 0 and k != f.SPILLS:
            return text, k
        text, code = _emit(buffer, cells, n, tables, memory, out, probes, text, counters)
        if code == 0:
            n, more = np.int64(0), (probes, text, counters)
            text, code = _spilled(
                geometry, buffer, p, payload, local, rowid, slots, tables, memory, cells, out, more
            )
        if code < 0:
            return text, code
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
    keep = np.empty(cells.shape[0], np.uint8)
    out = (arena, nulls, losses, seen, keep)
    for i in range(leaves.size):
        base = f.LEAD + i * geometry[f.PAGE]
        head = base + (100 if leaves[i] == 1 else 0)
        if counters[f.LAYOUTS] + u16(buffer, head + 3) >= layouts.shape[0]:
            for j in range(index.size):
                index[j] = 0
            counters[f.LAYOUTS] = 1
        text, code = _leaf(
            buffer, base, head, geometry, slots, tables, memory, cells, out, probes, text, counters
        )
        if code < 0:
            return text, code
    return text, np.int64(0)
