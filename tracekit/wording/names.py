"""Names from traces made safe to print: visible escapes, and shortened kernel names.

A name comes from somebody else's program. It can hold line breaks, terminal escape sequences,
markup and a megabyte of template arguments; none of that may reach a terminal or a page.
"""

from __future__ import annotations

import re
import unicodedata

__all__ = ["printable", "short_name", "shorten"]

_ELLIPSIS = "..."
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_PASS = re.compile(r"[ -~]*")
_LONGEST_INPUT = 20_000
"""Names are cut to this many characters before anything looks at them."""


def printable(text: str) -> str:
    """Return `text` on one line, every control, format and surrogate character spelled out."""
    text = text[:_LONGEST_INPUT]
    if _PASS.fullmatch(text):
        return text
    return "".join(_visible(c) for c in text)


def _visible(char: str) -> str:
    if char in _NAMED:
        return _NAMED[char]
    if char.isprintable():
        return char
    if unicodedata.category(char) == "Zs":
        return " "
    code = ord(char)
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"


def shorten(text: str, width: int) -> str:
    """Return printable `text` of at most `width` characters, its middle cut out if need be."""
    text = printable(text)
    if len(text) <= width:
        return text
    if width <= len(_ELLIPSIS) + 1:
        return text[:width]
    keep = width - len(_ELLIPSIS)
    tail = keep // 3
    return text[: keep - tail] + _ELLIPSIS + (text[-tail:] if tail else "")


def short_name(name: str, width: int = 60) -> str:
    """Return a kernel or function name of at most `width` characters.

    A name that is too long loses its return type and argument list, then its template arguments,
    then its middle.
    """
    name = printable(name)
    if len(name) <= width:
        return name
    name = _without_arguments(name.removeprefix("void "))
    if len(name) > width:
        name = _without_templates(name)
    return shorten(name, width)


def _without_arguments(name: str) -> str:
    """Drop a trailing ``(...)`` that closes the name."""
    if not name.endswith(")"):
        return name
    depth = 0
    for i in range(len(name) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(name[i], 0)
        if depth == 0:
            return name[:i] or name
    return name


def _without_templates(name: str) -> str:
    """Replace the outermost template arguments by ``<>``; an unbalanced name stays."""
    out: list[str] = []
    depth = 0
    for char in name:
        if char == "<":
            out += [char] * (depth == 0)
            depth += 1
        elif char == ">" and depth:
            depth -= 1
            out += [char] * (depth == 0)
        elif depth == 0:
            out.append(char)
    return "".join(out) if depth == 0 else name
