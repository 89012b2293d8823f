"""No word that readers stumble over: a private dialect reads as if translated."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PLACES = ("tracekit", "injectors", "docs")
SUFFIXES = {".py", ".md", ".c", ".h", ".js", ".css", ".html", ".json"}
INSTEAD = {
    r"told|untold": "known, given, stated, emitted",
    r"asked for": "requested",
    r"speaks? for": "covers, represents",
    r"let(s|ting)? go of": "drops, deletes",
    r"(held|holds?|holding) up(?! to)": "blocks, delays",
    r"felt": "observed, blocking",
    r"put down to": "attributed to",
    r"for want of": "for lack of",
    r"in vain": "without effect",
    r"beside": "overlapping, concurrent; next to",
    r"as far as its name tells": "by its name",
    r"stands? for nothing": "is a placeholder",
}
"""Words, and what to write instead."""
BANNED = re.compile(rf"\b({'|'.join(INSTEAD)})\b".replace(" ", r"[\s#*/]+"), re.IGNORECASE)
"""A phrase may go on in the next line, even of a comment."""
FILES = sorted(
    {
        *(p for place in PLACES for p in (ROOT / place).rglob("*") if p.suffix in SUFFIXES),
        *ROOT.glob("*.md"),
    }
)


def words_in(text):
    """Line and wording of every banned phrase in a text."""
    return [(text.count("\n", 0, m.start()) + 1, m[0]) for m in BANNED.finditer(text)]


def test_phrases_are_found_at_any_place_of_a_sentence():
    assert words_in("a\nWhat was asked for, Beside it") == [(2, "asked for"), (2, "Beside")]
    assert [line for line, _ in words_in("# what is put\n# down to it\n")] == [1]
    assert words_in("besides, retold, foretold, unfelt") == []


def test_there_are_files_to_look_at():
    assert len(FILES) > 200


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_there_is_no_word_that_readers_stumble_over(path):
    assert words_in(path.read_text(encoding="utf-8")) == []
