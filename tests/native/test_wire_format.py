"""markers.h and model/markers.py state one wire format."""

from __future__ import annotations

import re

import pytest

from tracekit.model.markers import CATEGORIES, DOMAIN, EVENTS, GRAMMAR, WORDS

from .conftest import NATIVE

HEADER = (NATIVE / "markers.h").read_text()
TABLES = {
    "SOURCE": "SOURCES", "OP": "OPS", "DTYPE": "DTYPES", "REDOP": "REDOPS",
    "COMM_EVENT": "COMM_EVENTS", "GROUP_EVENT": "GROUP_EVENTS",
}  # fmt: skip


def _macro(name: str) -> str:
    """Return the body of a macro: its line and the continued ones."""
    found = re.search(rf"^#define {name}\(\w\)((?:.*\\\n)*.*)$", HEADER, re.MULTILINE)
    assert found is not None, name
    return found.group(1)


def _numbers(name: str) -> dict[int, str]:
    return {int(n): word for n, word in re.findall(r"X\((\d+), (\w+)", _macro(name))}


def _keys(event: str) -> list[tuple[str, str]]:
    return re.findall(r"K\((\w+), (\w+)\)", _macro(f"TK_KEYS_{event}"))


def _events() -> dict[str, str]:
    return dict(re.findall(r"X\((\w+), \w+, (\w+)\)", _macro("TK_EVENTS")))


def test_domain_grammar_and_categories() -> None:
    """Names and numbers."""
    assert f'#define TK_DOMAIN "{DOMAIN}"' in HEADER
    assert f'#define TK_GRAMMAR "{GRAMMAR}"' in HEADER
    assert {word: number for number, word in _numbers("TK_CATEGORIES").items()} == CATEGORIES


@pytest.mark.parametrize("event", sorted(_events()))
def test_keys_and_their_order(event: str) -> None:
    """Every event that the library writes is in the table, with the same keys in the same order."""
    stated = EVENTS[event]
    assert tuple(key for key, _ in _keys(event)) == stated.keys
    assert _events()[event] == stated.category
    assert stated.is_range == (event == "COLL")


def test_meta_is_written_in_the_stated_order() -> None:
    """META is put together by hand, so its line in the header is compared."""
    line = re.search(r"META ((?:\w+= ?)+)", HEADER)
    assert line is not None
    assert tuple(line.group(1).replace("=", "").split()) == EVENTS["META"].keys


@pytest.mark.parametrize("event", sorted(_events()))
def test_numbers_of_words(event: str) -> None:
    """Each word key has the same table on both sides."""
    for key, kind in _keys(event):
        assert (kind in TABLES) == ((event, key) in WORDS), key
        if kind in TABLES:
            assert _numbers(f"TK_{TABLES[kind]}") == WORDS[event, key]


def test_every_source_has_a_symbol() -> None:
    """A source is a wrapped symbol without its version or stream suffix, and each has one."""
    header = (NATIVE / "interpose.h").read_text()
    lines = re.findall(
        r"X\((\w+), (?:RUNTIME|DRIVER)(?:(?!\bX\().)*?\.source = TK_SOURCE_(\w+)", header, re.S
    )
    assert {re.sub(r"(_v2|_ptsz)+$", "", symbol) for symbol, _ in lines} == set(
        _numbers("TK_SOURCES").values()
    )
    assert all(re.sub(r"(_v2|_ptsz)+$", "", symbol) == source for symbol, source in lines)
