"""NVTX payloads reduced to the numbers that are understood, in one layout of our own.

A payload is bytes that a program wrote: beside the size of a collective it can hold anything. So
no byte of it is copied. The fields that `tracekit.views.nvtx.payloads` understands are decoded, and
written anew with a schema that names only them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import polars as pl

from tracekit.model.catalog import CATALOG
from tracekit.model.nvtx import HEADER_BYTES, PAYLOAD_FIELDS
from tracekit.views.nvtx.payloads import decode

__all__ = ["KnownPayloads", "known_payloads"]

_NAMES = {
    "comm": "NCCL communicator ID",
    "bytes": "Message size [bytes]",
    "redop": "Reduction operation",
    "nranks": "No. of ranks",
    "rank": "Rank",
    "peer": "Peer",
    "root": "Root",
    "device": "CUDA device",
}
_FIRST_SCHEMA = 1 << 24
_SIGNED, _UNSIGNED, _WIDTH = 17, 18, 8


@dataclass(frozen=True)
class KnownPayloads:
    """Payloads written anew.

    Attributes:
        blobs: Binary, one a row of the NVTX frame; null where nothing was understood.
        schemas: Catalog frame ``nvtx_schemas``.
        entries: Catalog frame ``nvtx_schema_entries``.
    """

    blobs: pl.Series
    schemas: pl.DataFrame
    entries: pl.DataFrame


def known_payloads(nvtx: pl.DataFrame, entries: pl.DataFrame) -> KnownPayloads:
    """Decode the payloads of an NVTX frame and write what was understood anew.

    Args:
        nvtx: Catalog frame ``nvtx``.
        entries: Catalog frame ``nvtx_schema_entries``; names that are not known must be gone.
    """
    rows = nvtx.select("report", "domain", "payload").with_row_index("nvtx_row")
    records = decode(rows.drop_nulls("payload"), entries).records
    domains = nvtx["domain"].fill_null(0)
    blobs: list[bytes | None] = [None] * nvtx.height
    layouts: dict[tuple[int, int, int], tuple[str, ...]] = {}
    for record in records.iter_rows(named=True):
        fields = tuple(f for f in PAYLOAD_FIELDS if record[f] is not None)
        if not fields:
            continue
        row, domain = record["nvtx_row"], domains[record["nvtx_row"]]
        schema = _FIRST_SCHEMA + sum(1 << i for i, f in enumerate(PAYLOAD_FIELDS) if f in fields)
        layouts[record["report"], domain, schema] = fields
        blobs[row] = _blob(domain, schema, [record[f] for f in fields])
    known = sorted(layouts.items())
    return KnownPayloads(
        pl.Series("payload", blobs, dtype=pl.Binary),
        pl.DataFrame(
            [(r, d, s, None, _WIDTH * len(fields)) for (r, d, s), fields in known],
            schema=CATALOG["nvtx_schemas"].table.schema,
            orient="row",
        ),
        pl.DataFrame(
            [
                (r, d, s, i, _UNSIGNED if f == "comm" else _SIGNED, _NAMES[f], _WIDTH * i)
                for (r, d, s), fields in known
                for i, f in enumerate(fields)
            ],
            schema=CATALOG["nvtx_schema_entries"].table.schema,
            orient="row",
        ),
    )


def _blob(domain: int, schema: int, values: list[int]) -> bytes:
    """Return header and payload; a communicator fills all 64 bits, so words are unsigned."""
    header = (domain, schema, _WIDTH * len(values), HEADER_BYTES)
    words = [w % (1 << 64) for w in (*header, *values)]
    return struct.pack(f"<{len(words)}Q", *words)
