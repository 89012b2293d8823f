from __future__ import annotations

import json
import math
from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tests.support.diagnoses import CRITICAL, DEQUANT, FINE, NO_GPU, OPAQUE, OVERVIEW
from tracekit.model.finding import Metric
from tracekit.model.table import Column, Table
from tracekit.report.document import document, render, schema

VALIDATOR = Draft202012Validator(schema())


def with_frame(**columns):
    return replace(DEQUANT, frames={"a": {"t": pl.DataFrame(columns)}})


def test_the_schema_is_itself_valid():
    Draft202012Validator.check_schema(schema())


def test_confidence_and_its_parts_are_written_out_in_words():
    (confidence, *_) = [f["confidence"] for f in document(DEQUANT)["findings"] if f["confidence"]]
    assert list(confidence) == [
        *("coverage", "n", "n_hi", "provenance", "clock", "why", "value", "label")
    ]
    assert document(DEQUANT)["schema_version"] == 2


@pytest.mark.parametrize(
    "diagnosis", [DEQUANT, NO_GPU, OPAQUE], ids=["dequant", "no gpu", "opaque"]
)
def test_every_document_satisfies_the_schema(diagnosis):
    VALIDATOR.validate(json.loads(render(diagnosis)))


def test_text_and_values_agree():
    assert json.loads(render(DEQUANT)) == document(DEQUANT)


def test_an_unmeasured_number_is_null_with_its_reason():
    tensor = document(DEQUANT)["findings"][0]["metrics"][2]
    assert (tensor["value"], tensor["reason"]) == (None, "not measured")
    overview = document(NO_GPU)["overview"]
    assert overview["span_ns"] is None
    assert overview["unmeasured"]["span_ns"] == "no device activity was recorded"


def test_the_schema_refuses_a_null_without_a_reason():
    whole = document(DEQUANT)
    del whole["findings"][0]["metrics"][2]["reason"]
    assert not VALIDATOR.is_valid(whole)
    whole = document(NO_GPU)
    del whole["overview"]["unmeasured"]["span_ns"]
    assert not VALIDATOR.is_valid(whole)


def test_infinity_is_null_and_says_so():
    finding = replace(CRITICAL, metrics=(Metric("a_x", math.inf, "x", math.nan, 2.0),))
    metric = document(replace(DEQUANT, findings=(finding,)))["findings"][0]["metrics"][0]
    assert (metric["value"], metric["lo"], metric["hi"]) == (None, None, 2.0)
    assert metric["reason"] == "no finite value"


def test_integers_that_a_double_cannot_hold_are_strings():
    columns = document(with_frame(a=[2**53, 2**53 + 1, -(2**63)]))["frames"]["a"]["t"]["columns"]
    assert columns["a"] == [2**53, "9007199254740993", "-9223372036854775808"]


def test_frames_are_capped_and_say_how_many_rows_there_are():
    frame = document(with_frame(a=range(5_000)))["frames"]["a"]["t"]
    assert (frame["rows"], frame["rows_shown"], len(frame["columns"]["a"])) == (5_000, 1_000, 1_000)
    assert document(DEQUANT, top=2)["frames"]["dequant_stall"]["steps"]["rows_shown"] == 2


def test_nested_and_null_columns_survive():
    whole = document(with_frame(a=[[1, 2], None], b=[None, float("nan")], c=[b"\x01", b""]))
    columns = whole["frames"]["a"]["t"]["columns"]
    assert columns == {"a": [[1, 2], None], "b": [None, None], "c": ["01", ""]}


def test_same_input_same_bytes_whatever_the_order_of_mappings():
    frames = {"b": {"y": pl.DataFrame({"q": [1]}), "x": pl.DataFrame({"q": [2]})}, "a": {}}
    twisted = {"a": {}, "b": dict(reversed(frames["b"].items()))}
    assert render(replace(DEQUANT, frames=frames)) == render(replace(DEQUANT, frames=twisted))


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=())))
def test_any_name_becomes_valid_utf8(name):
    finding = replace(FINE, title=name, scope=((name, name),))
    diagnosis = replace(
        DEQUANT, findings=(finding,), overview=replace(OVERVIEW, step_groups={name: (1, 2.0)})
    )
    whole = json.loads(render(diagnosis).encode("utf-8"))
    VALIDATOR.validate(whole)


def test_columns_carry_unit_and_meaning_where_the_analysis_states_them():
    gap = Column("gap_ns", pl.Int64, "ns", "from the last one to the consumer")
    table = Table("t", (Column("id", pl.Int64), gap), "one gap")
    frames = {"a": {"t": pl.DataFrame({"id": [1], "gap_ns": [2]})}}
    whole = document(
        replace(DEQUANT, frames=frames, tables={"a": (table,)}, questions={"a": "Why?"})
    )
    VALIDATOR.validate(whole)
    frame = whole["frames"]["a"]["t"]
    assert (frame["doc"], frame["units"]) == ("one gap", {"gap_ns": "ns"})
    assert frame["docs"] == {"gap_ns": "from the last one to the consumer"}
    assert whole["questions"] == {"a": "Why?"}
