"""NCCL's NVTX payloads, decoded by the schemas in the export."""

from __future__ import annotations

import polars as pl
import pytest

from tests.support.builders import Export
from tests.support.communication import COMM, NCCL, add_schemas, collective, payload, ranks_export
from tracekit.views.nvtx.payloads import PAYLOAD_SCHEMA, decode, payloads


def test_a_no_blobs_means_no_sizes(traced):
    export = collective(ranks_export(1), 100, 200, blob="")
    found = payloads(traced(export))
    assert (found.n_blobs, found.n_undecodable, found.records.height) == (0, 0, 0)


@pytest.mark.parametrize("as_text", [False, True], ids=["blob", "hex text"])
def test_b_schemas_listed_twice_give_one_record(traced, as_text):
    blob = payload("AllReduce", COMM, 8 << 20)
    export = collective(ranks_export(1), 100, 200, blob=blob.hex() if as_text else blob)
    found = payloads(traced(export)).records
    assert found.select("comm", "bytes", "redop").rows() == [(COMM, 8 << 20, 0)]
    assert found["nranks"].to_list() == [None]


def test_c_truncated_blob_is_counted(traced):
    export = ranks_export(1)
    collective(export, 100, 200, blob=payload("AllReduce", COMM, 1)[:44])
    collective(export, 300, 400)
    found = payloads(traced(export))
    assert (found.n_blobs, found.n_undecodable) == (2, 1)
    assert found.records["bytes"].to_list() == [1 << 20]


def test_d_missing_offset_is_zero(traced):
    # The communicator's entry has no offset in the builder's schemas, as in real exports.
    assert payloads(traced(collective(ranks_export(1), 1, 2))).records["comm"].to_list() == [COMM]


def test_unknown_schema_is_undecodable():
    rows = pl.DataFrame(
        {"nvtx_row": [0], "report": [0], "domain": [NCCL], "payload": [payload("AllReduce", 1, 2)]},
        schema={
            "nvtx_row": pl.UInt32,
            "report": pl.UInt16,
            "domain": pl.Int64,
            "payload": pl.Binary,
        },
    )
    entries = pl.DataFrame(
        schema={
            "report": pl.UInt16,
            "domain": pl.Int64,
            "schema": pl.Int64,
            "index": pl.Int64,
            "type": pl.Int64,
            "name": pl.String,
            "offset_bytes": pl.Int64,
        }
    )
    found = decode(rows, entries)
    assert (found.n_undecodable, dict(found.records.schema)) == (1, PAYLOAD_SCHEMA)


def test_communicator_beyond_int64_keeps_all_digits(traced):
    big = 0xFFFFFFFFFFFFFFFE
    assert payloads(traced(collective(ranks_export(1), 1, 2, comm=big))).records["comm"][0] == big


def test_export_without_schema_tables(traced):
    export = Export().domain(NCCL, "NCCL").range(1, 2, "ncclAllReduce", domain=NCCL)
    assert payloads(traced(export)).records.is_empty()


def test_decoding_does_not_depend_on_the_order_of_schema_rows(traced):
    export = collective(add_schemas(ranks_export(1), times=3), 1, 2)
    export.rows["NVTX_PAYLOAD_SCHEMA_ENTRIES"].reverse()
    assert payloads(traced(export)).records["bytes"].to_list() == [1 << 20]
