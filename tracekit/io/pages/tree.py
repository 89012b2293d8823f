"""Down a table's B-tree: interior pages to the list of leaves, and leaves into a buffer."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracekit.io.pages import fields as f
from tracekit.io.pages.machine import read_at, u16, u32
from tracekit.numerics.jit import compiled

LEAF, INTERIOR = 13, 5


@compiled("int64(int64[::1], ro(int64[::1]), int64[::1])", error_model="numpy")
def children(geometry: f.Ints, pages: f.Ints, out: f.Ints) -> Any:
    """List the pages one level below some interior pages.

    Args:
        geometry: See `fields`.
        pages: Interior pages, in key order.
        out: Receives the page numbers, in key order; a sound tree has no more than fit.

    Returns:
        How many there are, or a code.
    """
    page, usable, last = geometry[f.PAGE], geometry[f.USABLE], geometry[f.PAGES]
    buffer, n = np.empty(page, np.uint8), 0
    for number in pages:
        if not read_at(geometry, (number - 1) * page, buffer, 0, page):
            return np.int64(f.BAD_PAGE)
        head = 100 if number == 1 else 0
        cells = u16(buffer, head + 3)
        if buffer[head] != INTERIOR or head + 12 + 2 * cells > usable or n + cells >= out.size:
            return np.int64(f.BAD_PAGE)
        for i in range(cells):
            cell = u16(buffer, head + 12 + 2 * i)
            if cell + 4 > usable:
                return np.int64(f.BAD_PAGE)
            out[n + i] = u32(buffer, cell)
        out[n + cells] = u32(buffer, head + 8)
        n += cells + 1
    for i in range(n):
        if out[i] < 1 or out[i] > last:
            return np.int64(f.BAD_PAGE)
    return np.int64(n)


@compiled("int64(int64[::1], ro(int64[::1]), uint8[::1])", error_model="numpy")
def load_leaves(geometry: f.Ints, leaves: f.Ints, buffer: f.Bytes) -> Any:
    """Read leaf pages into a buffer, runs of neighbours at once.

    Args:
        geometry: See `fields`.
        leaves: Page numbers; the i-th page lands at byte ``LEAD + i * page``.
        buffer: At least ``LEAD + leaves.size * page + TAIL`` bytes.

    Returns:
        Number of cells in the pages, or a code.
    """
    page, usable, total, i = geometry[f.PAGE], geometry[f.USABLE], np.int64(0), 0
    while i < leaves.size:
        end = i + 1
        while end < leaves.size and leaves[end] == leaves[end - 1] + 1:
            end += 1
        count = (end - i) * page
        if not read_at(geometry, (leaves[i] - 1) * page, buffer, f.LEAD + i * page, count):
            return np.int64(f.BAD_PAGE)
        i = end
    for i in range(leaves.size):
        head = 100 if leaves[i] == 1 else 0
        cells = u16(buffer, f.LEAD + i * page + head + 3)
        # Only a root may be empty; no cell takes less than its pointer and four bytes.
        if buffer[f.LEAD + i * page + head] != LEAF or head + 8 + 6 * cells > usable:
            return np.int64(f.BAD_PAGE)
        if cells == 0 and geometry[f.ALONE] == 0:
            return np.int64(f.BAD_PAGE)
        total += cells
    return total


@compiled("int64(int64[::1], ro(int64[::1]))", error_model="numpy")
def count_cells(geometry: f.Ints, leaves: f.Ints) -> Any:
    """Count the rows in leaf pages by their headers alone.

    Args:
        geometry: See `fields`.
        leaves: Page numbers.

    Returns:
        Number of cells in the pages, or a code.
    """
    page, usable, total = geometry[f.PAGE], geometry[f.USABLE], np.int64(0)
    buffer = np.empty(8, np.uint8)
    for number in leaves:
        head = 100 if number == 1 else 0
        if not read_at(geometry, (number - 1) * page + head, buffer, 0, 8):
            return np.int64(f.BAD_PAGE)
        cells = u16(buffer, 3)
        if buffer[0] != LEAF or head + 8 + 6 * cells > usable:
            return np.int64(f.BAD_PAGE)
        if cells == 0 and geometry[f.ALONE] == 0:
            return np.int64(f.BAD_PAGE)
        total += cells
    return total
