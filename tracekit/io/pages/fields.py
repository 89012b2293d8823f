"""Names for the integers that the page reader and its kernels exchange.

The kernels see plain int64 arrays; these are the meanings of their positions. A number changed here
makes all kernels of the folder compile anew: their cache is named by a digest of its sources.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Int: TypeAlias = Any  # Numba's int64, for which Python has no one type
Ints: TypeAlias = NDArray[np.int64]
Bytes: TypeAlias = NDArray[np.uint8]

# Geometry of the file and the table: one int64 array. ALONE: the root page is the only leaf.
FD, PAGE, USABLE, PAGES, ALONE, KEY_BYTES = range(6)

# Fields of `plan`, one row per slot (a column to store or to filter by). WIDTH 0 is not stored.
# What is stored of an integer is ((value >> RIGHT) & BITS) + ADD. NEXT is another slot of the same
# column, or -1. OUT and GAPS are addresses: of the first value, and of a byte per row that becomes
# 1 where it is null.
KIND, WIDTH, LOW, HIGH, DEFAULT, DEFAULT_STATE, OUT, GAPS, RIGHT, BITS, ADD, NEXT = range(12)
PLAN_FIELDS = 12
INTEGER, FLOAT, TEXT, BINARY, ROWID = range(5)

# State of a value in a layout, and of a default. UNKNOWN: not worked out here.
VALUE, NULL, AS_FLOAT, UNKNOWN = range(4)

# Fields of `layouts[layout, slot]`. PLACE holds, from the lowest bit: whether the value is in the
# record; its state; how far to shift for its sign; from END_AT on where it ends, less 8, counted
# from the payload. REST is the value if it is not in the record, of a text its length.
PLACE, REST = range(2)
# Behind the slots comes what they hold together: the slots without a plain value, and those
# without any, a bit each.
LAYOUT_FIELDS = 2
SPECIAL, EMPTY = range(2)
STATE_AT, SHIFT_AT, END_AT = 1, 8, 16
SLOT_BYTES = 8 * LAYOUT_FIELDS

# Fields of `heads[layout]`: the header's first bytes; bytes of the payload that are needed; offset
# after the last column parsed; how much may follow it. Layout 0 is that of a record that spills.
KEY, NEED, TOTAL, ROOM = 0, 4, 5, 6
HEAD_FIELDS = 8
NO_KEY = 256  # the lowest byte of a header, its length, is not 0 unless there are no other bytes
HEAD_BYTES = 8 * HEAD_FIELDS
LAST_BIT = 63  # stands for all further slots: never empty, always special, never in one place

# Fields of `filters`, bounds inclusive; MODE says how to look in `members`.
SLOT, FROM, TO, MODE, START, COUNT = range(6)
FILTER_FIELDS = 6
BETWEEN, BITMAP, SORTED = range(3)

# Rows of `cells`: address of the payload, address of its layout, row id.
AT, LAYOUT, ID = range(3)
BATCH_CELLS = 256  # rows, or a page's more, that are stored at a time

# Fields of `probes`: ordinal in the chunk (given), row id, row of the result or -1 (answered).
ORDINAL, PROBE_ID, PROBE_ROW = range(3)

# Counters of a chunk.
ROWS, CELLS, TEXT_USED, SPILLED, FIRST_ID, LAST_ID, PROBE, LAYOUTS, TEXTS = range(9)
# Rows that wait to be stored. Of the chunk's layouts: slots special in any, empty in all, and not
# in the same place in all of them.
WAITING, ANY_SPECIAL, ALL_EMPTY, VARIED = range(9, 13)
COUNTERS = 13
NO_ID = -(1 << 63)

# Rows of `losses`: values out of the range of their dtype; all nulls.
OUT_OF_RANGE, NULLS = range(2)

LINE_BYTES = 64  # of the processor's cache
AHEAD_BYTES = 512  # how far before a cell to fetch memory; cells mostly fill a page from its end on
LEAD = 16  # bytes before the first page in a buffer, for loads that end inside the page
TAIL = 64  # bytes after the last one
MOST_KEY_BYTES = 32
INDEX_BITS = 14
SEEN_BYTES = 24
SEEN_BITS = 12  # texts of a chunk that are remembered, to keep a repeated one once
TEXT_WIDTH = 4  # a text is stored as its uint32 number among the chunk's texts; 0 is NULL
MOST_TEXT = 2**31 - 1  # bytes of text in a chunk; as much as one SQLite value may have

OK, BAD_PAGE, BAD_CELL, BAD_RECORD, MIXED, BAD_OVERFLOW, BAD_ORDER, BAD_TEXT, TOO_MUCH = range(
    0, -9, -1
)
SPILLS = -100  # a record of which more is needed than its page holds
REASONS = {
    BAD_PAGE: "an unexpected page",
    BAD_CELL: "a cell outside its page",
    BAD_RECORD: "a record that contradicts its length",
    MIXED: "cells of another type than requested",
    BAD_OVERFLOW: "a broken overflow chain",
    BAD_ORDER: "row ids out of order",
    BAD_TEXT: "text that is not UTF-8",
    TOO_MUCH: "more text than a buffer takes",
}
