"""The compiled part of the page reader: leaf pages of a table B-tree to columns.

Everything here runs without the GIL on one chunk of leaves in a private buffer. Rows are located
leaf by leaf; some hundreds at a time are then filtered and stored column by column.

All counts and offsets are int64; `fields` names the positions. A negative result is one of the
codes of `fields.REASONS`, and then nothing of the chunk may be used.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracekit.io.pages import fields as f
from tracekit.io.pages.batch import FAST, emit
from tracekit.io.pages.leaves import cell, locate, new_layout, recognize, survey
from tracekit.io.pages.machine import address, prefetch, u16
from tracekit.io.pages.records import assemble, parse
from tracekit.numerics.jit import compiled


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
