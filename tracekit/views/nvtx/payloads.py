"""NVTX payload blobs decoded by the schemas that the export itself holds.

A blob is a header of four little-endian u64 (domain, schema, payload size, payload offset) and the
payload. The export lists each schema's entries (type, offset) once per process, so entries are
taken distinct. Entries are looked up by what they say ("Message size [bytes]"), not by position:
NCCL's schemas differ between versions.
"""

from __future__ import annotations

import re
from typing import NamedTuple, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.model.nvtx import HEADER_BYTES, PAYLOAD_FIELDS
from tracekit.trace import Trace, view

__all__ = ["PAYLOAD_SCHEMA", "Payloads", "decode", "payloads"]

PAYLOAD_SCHEMA = {
    "nvtx_row": pl.UInt32(),
    "report": pl.UInt16(),
    "schema": pl.Int64(),
    **{name: pl.UInt64() if name == "comm" else pl.Int64() for name in PAYLOAD_FIELDS},
}
Bytes: TypeAlias = NDArray[np.uint8]

# Predefined NVTX entry types: character, integer and pointer types by width in bytes. The larger
# numbers are types defined by the program, enumerations in NCCL's case: a C int.
_UNSIGNED = {2: 1, 4: 2, 6: 4, 8: 8, 10: 8, 12: 1, 14: 2, 16: 4, 18: 8, 22: 8, 23: 8}
_SIGNED = {1: 1, 3: 2, 5: 4, 7: 8, 9: 8, 11: 1, 13: 2, 15: 4, 17: 8}
_FIRST_OWN_TYPE = 1 << 24
_OFTEN_ZERO = 7
"""A byte of the header by which almost all raw blobs differ from text."""
_IS_HEX = np.isin(np.arange(256), list(b"0123456789abcdefABCDEF"))


class Payloads(NamedTuple):
    """Decoded payloads.

    Attributes:
        records: Frame of `PAYLOAD_SCHEMA`, one row a decoded blob, in the order of the catalog
            frame; a field that the schema does not have is null.
        n_blobs: NVTX rows with a blob.
        n_undecodable: Blobs that are truncated or whose schema is not in the export.
    """

    records: pl.DataFrame
    n_blobs: int
    n_undecodable: int


class _Entry(NamedTuple):
    column: str
    offset: int
    width: int
    signed: bool


@view
def payloads(trace: Trace) -> Payloads:
    """Return the decoded payloads of the NVTX rows of `trace`."""
    rows = trace.frame("nvtx").select("report", "domain", "payload")
    at = rows["payload"].is_not_null().arg_true().cast(pl.UInt32).alias("nvtx_row")
    return decode(rows[at].with_columns(at), trace.frame("nvtx_schema_entries"))


def decode(rows: pl.DataFrame, entries: pl.DataFrame) -> Payloads:
    """Decode blobs.

    Args:
        rows: Frame with nvtx_row UInt32, report UInt16, domain Int64, payload Binary (raw bytes or
            their hexadecimal text).
        entries: Catalog frame ``nvtx_schema_entries``.

    Returns:
        The records and what could not be decoded.
    """
    table = rows.select("nvtx_row", "report", pl.col("domain").fill_null(0))
    blobs, layouts = rows["payload"], _layouts(entries)
    sizes = blobs.bin.size()
    parts: list[pl.DataFrame] = []
    for length in sizes.unique().sort().to_list():
        if length <= HEADER_BYTES:
            continue
        where = (sizes == length).arg_true()
        # Blobs of one length are a matrix as they are.
        of_length = pl.Array(pl.UInt8, length)
        matrix = blobs.gather(where).bin.reinterpret(dtype=of_length).to_numpy()
        is_text = _looks_like_text(matrix)
        if not is_text.any():
            parts += _decode_sized(table[where], matrix, layouts)
            continue
        raw, text = (where.filter(pl.Series(mask)) for mask in (~is_text, is_text))
        parts += _decode_sized(table[raw], matrix[~is_text], layouts)
        parts += _decode_sized(table[text], _unhexed(matrix[is_text]), layouts)
    found = pl.concat(parts) if parts else pl.DataFrame(schema=PAYLOAD_SCHEMA)
    if len(parts) > 1:
        found = found.sort("nvtx_row")
    return Payloads(found, len(blobs), len(blobs) - found.height)


def _looks_like_text(matrix: Bytes) -> NDArray[np.bool_]:
    """Which rows are hexadecimal text: a real header has zero bytes, so it never looks like it."""
    size = matrix.shape[1]
    if size % 2 or size < 2 * HEADER_BYTES:
        return np.zeros(matrix.shape[0], np.bool_)
    is_text: NDArray[np.bool_] = _IS_HEX[matrix[:, _OFTEN_ZERO]]
    if is_text.any():
        is_text[is_text] = _IS_HEX[matrix[is_text]].all(axis=1)
    return is_text


def _unhexed(matrix: Bytes) -> Bytes:
    raw = bytes.fromhex(matrix.tobytes().decode("ascii"))
    return np.frombuffer(raw, np.uint8).reshape(matrix.shape[0], matrix.shape[1] // 2)


def _decode_sized(
    table: pl.DataFrame, matrix: Bytes, layouts: dict[tuple[int, int, int], list[_Entry]]
) -> list[pl.DataFrame]:
    """Decode blobs of one length, whatever their schemas."""
    length = matrix.shape[1]
    if table.is_empty() or length <= HEADER_BYTES:
        return []
    words = np.ascontiguousarray(matrix[:, :HEADER_BYTES]).view("<u8")
    table = table.with_columns(
        pl.Series("schema", words[:, 1].astype(np.int64)),
        pl.Series("_offset", words[:, 3].astype(np.int64)),
        pl.Series("_at", np.arange(table.height)),
    )
    parts = []
    keys = ["report", "domain", "schema", "_offset"]
    for (report, domain, schema, offset), group in table.partition_by(keys, as_dict=True).items():
        layout = layouts.get((report, domain, schema))
        if layout is not None:
            # The last word of the header is the payload's offset where it makes sense.
            start = offset if HEADER_BYTES <= offset < length else HEADER_BYTES
            is_all = group.height == table.height
            own = matrix if is_all else matrix[group["_at"].to_numpy()]
            part = _decode_alike(group, own, layout, start)
            parts += [part] if part is not None else []
    return parts


def _layouts(entries: pl.DataFrame) -> dict[tuple[int, int, int], list[_Entry]]:
    """Known fields of each (report, domain, schema)."""
    columns = ["report", "domain", "schema", "index", "type", "name", "offset_bytes"]
    distinct = entries.select(columns).unique().sort(columns)
    layouts: dict[tuple[int, int, int], list[_Entry]] = {}
    for report, domain, schema, _, kind, name, offset in distinct.iter_rows():
        layout = layouts.setdefault((report, domain or 0, schema), [])
        column = _column_of(name or "")
        shape = _shape(kind)
        if column is not None and shape is not None and column not in {e.column for e in layout}:
            layout.append(_Entry(column, offset or 0, *shape))
    return layouts


def _column_of(name: str) -> str | None:
    hits = (
        c
        for c, pattern in PAYLOAD_FIELDS.items()
        if re.search(pattern, name.strip(), re.IGNORECASE)
    )
    return next(hits, None)


def _shape(kind: int | None) -> tuple[int, bool] | None:
    """Width in bytes and signedness of an entry type; None for text, floats and unknown types."""
    if kind is None:
        return None
    if kind >= _FIRST_OWN_TYPE:
        return 4, True
    if kind in _UNSIGNED:
        return _UNSIGNED[kind], False
    return (_SIGNED[kind], True) if kind in _SIGNED else None


def _decode_alike(
    group: pl.DataFrame, matrix: Bytes, layout: list[_Entry], start: int
) -> pl.DataFrame | None:
    """Decode blobs of one schema and length at once; None when they are too short for it."""
    if any(start + e.offset + e.width > matrix.shape[1] for e in layout):
        return None
    columns = {e.column: _integers(matrix, start + e.offset, e) for e in layout}
    return group.select(
        "nvtx_row",
        "report",
        "schema",
        *(
            pl.Series(name, columns[name]).cast(PAYLOAD_SCHEMA[name])
            if name in columns
            else pl.lit(None, PAYLOAD_SCHEMA[name]).alias(name)
            for name in PAYLOAD_FIELDS
        ),
    )


def _integers(matrix: Bytes, at: int, entry: _Entry) -> NDArray[np.int64] | NDArray[np.uint64]:
    raw = np.ascontiguousarray(matrix[:, at : at + entry.width])
    values = raw.view(f"<{'i' if entry.signed else 'u'}{entry.width}").ravel()
    if entry.column == "comm":
        return values.astype(np.uint64)
    # A size beyond the signed range is no size; it wraps to a negative number, checked by users.
    return values.astype(np.int64)
