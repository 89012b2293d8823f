from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tracekit_injectors import grammar

from tracekit.model import markers

EXTRA = {"META": {"degraded"}, "ALLOC": {"requested"}}


def test_events_keys_and_categories_agree_with_what_readers_know() -> None:
    assert set(grammar.ORDER) == set(markers.EVENTS)
    assert grammar.GRAMMAR == markers.GRAMMAR
    assert grammar.CATEGORY_NUMBER == markers.CATEGORIES
    for name, event in markers.EVENTS.items():
        ours = [k for k in grammar.ORDER[name] if k not in EXTRA.get(name, set())]
        assert tuple(ours) == event.keys, name
        assert grammar.CATEGORY[name] == event.category


def test_text_as_in_recorded_traces() -> None:
    values = {"layer": 1, "kind": "k", "addr": 0x7F5AB96D9C00, "bytes": 65536, "seq_len": 64}
    row = grammar.row("KV_REALLOC", values)
    wanted = "KV_REALLOC layer=1 kind=k addr=0x7f5ab96d9c00 bytes=65536 seq_len=64"
    assert grammar.text("KV_REALLOC", row) == wanted


def test_an_unknown_value_is_left_out_and_zero_is_not() -> None:
    row = grammar.row("KV_FREE", {"layer": 0, "addr": 0})
    assert grammar.text("KV_FREE", row) == "KV_FREE layer=0 addr=0x0"


def test_a_foreign_word_stays_one_word() -> None:
    assert grammar.word("my engine\n1") == "my_engine_1"
    assert grammar.word(" ") == "_"


@settings(deadline=None)
@given(st.data())
def test_every_event_reads_back(data: st.DataObject) -> None:
    event = data.draw(st.sampled_from(sorted(markers.EVENTS)))
    values: dict[str, int | str] = {}
    wanted: dict[str, int | str | tuple[int, ...]] = {}
    for key in markers.EVENTS[event].keys:
        if not data.draw(st.booleans()):
            continue
        if key in markers.LIST_KEYS:
            numbers = tuple(data.draw(st.lists(st.integers(0, 2**31), min_size=1)))
            values[key], wanted[key] = ",".join(map(str, numbers)), numbers
        elif key in markers.WORD_KEYS:
            values[key] = wanted[key] = data.draw(
                st.from_regex(r"[A-Za-z0-9_.\-]+", fullmatch=True)
            )
        else:
            values[key] = wanted[key] = data.draw(st.integers(0, 2**63))
    text = grammar.text(event, grammar.row(event, values))
    assert markers.parse(text) == markers.Marker(event, wanted)


@pytest.mark.parametrize("event", sorted(grammar.ORDER))
def test_a_row_without_values_is_the_event_alone(event: str) -> None:
    assert grammar.text(event, grammar.row(event, {})) == event
