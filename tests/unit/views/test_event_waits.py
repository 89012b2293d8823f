"""Waits of streams for events, in a recording of two ranks."""

from __future__ import annotations

import polars as pl

from tests.support.builders import Export
from tracekit.opening import open_trace
from tracekit.views.launches.attribution import event_waits


def test_every_wait_of_a_real_recording_names_its_record(fixture_path):
    with open_trace([fixture_path("allreduce_2gpu")]) as trace:
        waits = event_waits(trace)
    assert waits.height == 386
    assert waits.drop_nulls().height == 386
    assert (waits["record_ns"] < waits["wait_ns"]).all()
    assert (waits["record_stream"] != waits["wait_stream"]).all()
    streams = waits.group_by("record_stream", "wait_stream").len().sort("len", "record_stream")
    assert streams.rows() == [(7, 14, 96), (7, 142, 145), (142, 7, 145)]


def test_without_waits_there_are_none(traced):
    waits = event_waits(traced(Export().kernel(0, 10)))
    assert waits.is_empty()
    assert waits.schema["record_ns"] == pl.Int64
