"""Take a kernel name apart: function, the scopes around it, what its templates mention."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["ANONYMOUS", "OPERATOR", "NameParts", "split_name"]

ANONYMOUS = re.compile(r"\(anonymous namespace\)|<unnamed>|\{anonymous\}|\(unnamed\)")
OPERATOR = re.compile(r"\boperator\s*(?:\(\s*\)|<<=?|>>=?|<=>|<=|>=|->\*?|[<>])")
"""Operators whose spelling holds brackets that pair with nothing."""
_BRACKET = re.compile(r"->|[<>()\[\]{}]")
_OPENS = {"<": ">", "(": ")", "[": "]", "{": "}"}
_RETURN_TYPE = re.compile(r"^(?:__global__\s+)?(?:static\s+)?(?:void|int|unsigned|bool|auto)\s+")
_CONTINUES = re.compile(r"\s*(?:const)?\s*::")
_NAMELESS = frozenset({"operator", "lambda"})
_MANGLED = re.compile(r"_Z(?=[NL]?\d|N?S[a-z]|N?K)")
# Literal (Li512E), substitution (S0_, St) or template parameter (T1_), or a length.
_MANGLED_TOKEN = re.compile(r"L[a-z]n?\d+E|[ST][0-9A-Z]*_|(\d+)")


class NameParts(NamedTuple):
    """The texts in which rules look.

    Attributes:
        function: The function's own name, without template and call arguments. Of a lambda or an
            ``operator()`` it is the name of what encloses it.
        scope: Namespaces, classes and functions around it, joined by ``::``.
        inner: Text of the template arguments. Call arguments of a demangled name are left out on
            purpose: they name parameter structures, which say nothing about the work.
    """

    function: str
    scope: str
    inner: str

    @property
    def head(self) -> str:
        """Qualified function name."""
        return f"{self.scope}::{self.function}" if self.scope else self.function

    @property
    def whole(self) -> str:
        """Head and template text, in that order."""
        return f"{self.head} {self.inner}" if self.inner else self.head

    def lower(self) -> NameParts:
        """Return the same in lower case."""
        return NameParts(self.function.lower(), self.scope.lower(), self.inner.lower())


def split_name(name: str) -> NameParts:
    """Split a demangled, mangled or plain kernel name.

    Args:
        name: Any spelling of a kernel name.

    Returns:
        Its parts; for a plain name ``scope`` and ``inner`` are empty.
    """
    name = name.strip()
    if _MANGLED.match(name):
        return _split_mangled(name)
    name = _RETURN_TYPE.sub("", ANONYMOUS.sub("anonymous", OPERATOR.sub("operator", name)))
    is_cxx = "<" in name or "(" in name
    head, inner = [""], [""]
    for text, is_inner in _segments(name):
        if is_inner:
            inner.append(text)
            continue
        own = text.rstrip()
        blank = own.rfind(" ") if is_cxx else -1
        if blank >= 0:  # outside all brackets it ends a return type, whose templates do not count
            head, inner = [""], [""]
        head.append(own[blank + 1 :])
    return _parts("".join(head).strip().split("::"), "".join(inner))


def _segments(name: str) -> Iterator[tuple[str, bool]]:
    """Pieces of a demangled name up to its call arguments: text, and whether it is of a template.

    A bracket closes only what it opened, so that the arrow of ``decltype(x)->y`` and the comparison
    of ``enable_if<((4)>(3))>`` end nothing. Names cut short are common: what an open bracket holds
    ends with them.
    """
    closing: list[str] = []
    at = start = 0
    for found in _BRACKET.finditer(name):
        bracket = found[0]
        if bracket in _OPENS:
            if not closing:
                if at <= found.start():
                    yield name[at : found.start()], False
                start = found.start()
            closing.append(_OPENS[bracket])
        elif bracket in closing and (bracket == closing[-1] or bracket != ">"):
            while closing.pop() != bracket:
                pass
            if closing:
                continue
            at = found.end()
            if bracket == ">":
                yield name[start:at], True
            elif bracket == ")" and not _CONTINUES.match(name, at):
                return
            elif bracket in "]}":
                yield "lambda", False
            if bracket == ")":
                at = name.index("::", at)
    if not closing:
        yield name[at:], False
    elif closing[0] == ">":
        yield name[start:], True


def _parts(components: list[str], inner: str) -> NameParts:
    """Parts of a qualified name; a lambda is named after what encloses it."""
    while len(components) > 1 and components[-1] in _NAMELESS:
        components.pop()
    return NameParts(components[-1], "::".join(components[:-1]), inner)


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
    return _parts(head or [""], " ".join(inner))
