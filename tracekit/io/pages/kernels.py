"""The compiled part of the page reader: leaf pages of a table B-tree to columns.

Everything here runs without the GIL on one chunk of leaves in a private buffer. Each leaf takes
three steps: find the cells, drop the rows that the filters reject, store column by column.

All counts and offsets are int64; `fields` names the positions. A negative result is one of the
codes of `fields.REASONS`, and then nothing of the chunk may be used.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracekit.io.pages import fields as f
from tracekit.io.pages.columns import keep_rows, reject, store_numbers, store_texts, text_bytes
from tracekit.io.pages.records import assemble, cell, known_layout, new_layout, parse
from tracekit.io.pages.texts import with_room
from tracekit.io.pages.words import u16
from tracekit.numerics.jit import compiled

FAST: Any = {"error_model": "numpy"}


@compiled(**FAST)
def _emit(
    buffer: f.Bytes,
    cells: f.Ints,
    n: f.Int,
    tables: Any,
    memory: Any,
    out: Any,
    probes: f.Ints,
    text: f.Bytes,
    counters: f.Ints,
) -> Any:
    """Filter and store some rows of one buffer; the text buffer, and 0 or a code."""
    plan, filters, members = tables
    layouts, keep = memory[0], out[5]
    for i in range(n):
        keep[i] = 1
    for i in range(filters.shape[0]):
        reject(buffer, cells, n, i, plan, layouts, filters, members, keep)
    n = keep_rows(cells, n, keep, probes, counters)
    first = counters[f.ROWS]
    code = np.int64(0)
    for slot in range(plan.shape[0]):
        s = np.uintp(slot)
        if plan[s, f.WIDTH] == 0:
            continue
        if plan[s, f.KIND] == f.TEXT or plan[s, f.KIND] == f.BINARY:
            text = with_room(text, counters[f.TEXT_USED], text_bytes(cells, n, s, layouts))
            if text.size == 0:
                return text, np.int64(f.TOO_MUCH)
            code = store_texts(
                buffer, cells, n, s, plan, layouts, first, out[0], text, out[3], out[4], counters
            )
            if code < 0:
                return text, code
        else:
            store_numbers(buffer, cells, n, s, plan, layouts, first, out[0], out[1], out[2])
    counters[f.ROWS] += n
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
    counters[f.SPILLED] += payload
    # Overflow pages belong to one row only, so together they cannot exceed the file.
    if counters[f.SPILLED] > geometry[f.PAGES] * geometry[f.PAGE]:
        return text, np.int64(f.BAD_OVERFLOW)
    record = assemble(geometry, buffer, p, payload, local)
    if record.size == 0:
        return text, np.int64(f.BAD_OVERFLOW)
    code = parse(
        record, np.int64(f.LEAD), payload, slots, tables[0], memory[0], memory[1], np.int64(0)
    )
    if code < 0:
        return text, code
    cells[0, f.AT], cells[0, f.LAYOUT], cells[0, f.ID] = f.LEAD, 0, rowid
    return _emit(record, cells, np.int64(1), tables, memory, out, probes, text, counters)


@compiled(**FAST)
def _leaf(
    buffer: f.Bytes,
    base: f.Int,
    head: f.Int,
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
    " int64[::1], int64[:, ::1], uint8[::1], uint8[:, ::1], int64[:, ::1], int64[::1],"
    " int64[:, ::1], uint8[::1], int64[::1])",
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
    keys: NDArray[np.uint64],
    index: f.Ints,
    cells: f.Ints,
    arena: f.Bytes,
    nulls: f.Bytes,
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
        entries: Receives where each text of the chunk begins in `text`, by its number; the
            next one's number says where it ends, less a zero byte.
        seen: Scratch; 3 per text remembered, zero before.
        text: First buffer for text.
        counters: See `fields`; LAST_ID must be below the first row id.

    Returns:
        The text buffer that was used in the end, and 0 or a code.
    """
    tables = (plan, filters, members)
    memory = (layouts, heads, keys, index)
    keep = np.empty(cells.shape[0], np.uint8)
    out = (arena, nulls, losses, entries, seen, keep)
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
