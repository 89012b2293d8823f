"""Text in the cells of a terminal: how wide it is, and broken into lines that fit."""

from __future__ import annotations

import re

from rich import cells

__all__ = ["cell_len", "wrapped"]

_WORD = re.compile(r"\s*\S+\s*")
"""A word with the blanks after it; the first one of a text also has those before it."""


def cell_len(text: str) -> int:
    """Return the width of `text` in terminal cells; some characters take two, some none."""
    return len(text) if text.isascii() else cells.cell_len(text)


def wrapped(text: str, width: int) -> list[str]:
    """Break text between words, and words that are too long for a line anywhere.

    Args:
        text: One line without control characters.
        width: Terminal cells of a line.

    Returns:
        The lines, at least one, without the blanks at their ends.
    """
    if cell_len(text) <= width:
        return [text.rstrip()]
    lines: list[str] = []
    used = width + 1
    for word in _WORD.findall(text):
        needed = cell_len(word.rstrip())
        if used + needed <= width:
            lines[-1] += word
            used += cell_len(word)
        else:
            lines += [word] if needed <= width else _chopped(word, width)
            used = cell_len(lines[-1])
    return [line.rstrip() for line in lines] or [""]


def _chopped(word: str, width: int) -> list[str]:
    if not word.isascii():
        return cells.chop_cells(word, width)
    return [word[i : i + width] for i in range(0, len(word), width)]
