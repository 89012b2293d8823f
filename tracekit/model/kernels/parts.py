"""Take a kernel name apart: the function's qualified name, and what its templates mention."""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["NameParts", "split_name"]

_ANONYMOUS = re.compile(r"\(anonymous namespace\)|<unnamed>|\{anonymous\}|\(unnamed\)")
_RETURN_TYPE = re.compile(r"^(?:__global__\s+)?(?:static\s+)?(?:void|int|unsigned|bool|auto)\s+")
_MANGLED = re.compile(r"_Z(?=[NL]?\d|N?S[a-z]|N?K)")
# Literal (Li512E), substitution (S0_, St) or template parameter (T1_), or a length.
_MANGLED_TOKEN = re.compile(r"L[a-z]n?\d+E|[ST][0-9A-Z]*_|(\d+)")


class NameParts(NamedTuple):
    """The two texts in which rules look.

    Attributes:
        head: Qualified function name, without return type, template and call arguments.
        inner: Text of the template arguments. Call arguments of a demangled name are left out on
            purpose: they name parameter structures, which say nothing about the work.
    """

    head: str
    inner: str

    @property
    def whole(self) -> str:
        """Head and template text, in that order."""
        return f"{self.head} {self.inner}" if self.inner else self.head


def split_name(name: str) -> NameParts:
    """Split a demangled, mangled or plain kernel name.

    Args:
        name: Any spelling of a kernel name.

    Returns:
        Its parts; for a plain name ``inner`` is empty.
    """
    name = name.strip()
    if _MANGLED.match(name):
        return _split_mangled(name)
    return _split_demangled(_RETURN_TYPE.sub("", _ANONYMOUS.sub("anonymous", name)))


def _split_demangled(name: str) -> NameParts:
    """Split at the brackets: depth 0 is the head, inside ``<...>`` is template text."""
    head: list[str] = []
    inner: list[str] = []
    depth = 0
    for char in name:
        if char == "(" and depth == 0:
            break
        if char == "<":
            depth += 1
        (head if depth == 0 else inner).append(char)
        if char == ">":
            depth = max(0, depth - 1)
    return NameParts("".join(head).strip(), "".join(inner))


def _split_mangled(name: str) -> NameParts:
    """Read the length-prefixed identifiers of an Itanium-mangled name; the nested ones first.

    This is no demangler: it collects the words that rules look for. Anonymous namespaces are
    dropped, as they carry the name of a source file.
    """
    head: list[str] = []
    inner: list[str] = []
    words = head
    at = len("_ZN") if name.startswith("_ZN") else len("_Z")
    while at < len(name):
        token = _MANGLED_TOKEN.match(name, at)
        if token is None:
            if name[at] in "IEv":  # template arguments or the end of the nested name
                words = inner
            at += 1
            continue
        at = token.end()
        if token.group(1):
            word = name[at : at + int(token.group(1))]
            at += len(word)
            if not word.startswith("_GLOBAL__N_"):
                words.append(word)
            if not name.startswith("_ZN"):
                words = inner
    return NameParts("::".join(head), " ".join(inner))
