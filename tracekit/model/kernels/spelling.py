"""One spelling of a kernel's name: tools and compilers write the same kernel in several ways."""

from __future__ import annotations

import re

__all__ = ["one_spelling"]

_ANONYMOUS = re.compile(r"<unnamed>|\{anonymous\}|\(unnamed\)|`anonymous namespace'")
_RETURN_TYPE = re.compile(r"^(?:__global__\s+)?(?:static\s+)?void\s+")
_CAST_LITERAL = re.compile(
    r"\((?:bool|char|signed char|unsigned char|short|unsigned short|int|unsigned int|unsigned"
    r"|long|unsigned long|long long|unsigned long long)\)(?=-?\d)"
)
_SUFFIXED_LITERAL = re.compile(r"(?<=[<,\s(])(-?\d+)(?:[uU]?[lL]{1,2}|[uU])(?=[,>\s)])")
_LAMBDA = re.compile(r"\[lambda\(([^()]*)\)\s*\(instance\s*(\d+)\)\]")
_SPACES = re.compile(r"\s+")
_NEEDLESS_SPACE = re.compile(r"(?<=[<,(])\s+|\s+(?=[>,)*&])")


def one_spelling(name: str) -> str:
    """Return a name as all of its spellings are written here.

    ``(int)128`` is 128, ``<unnamed>::`` is ``(anonymous namespace)::``, a leading ``void`` is left
    out, and the two notations of a lambda are one.

    Args:
        name: A demangled or plain kernel name.
    """
    text = _RETURN_TYPE.sub("", name.strip())
    text = _ANONYMOUS.sub("(anonymous namespace)", text)
    text = _CAST_LITERAL.sub("", text)
    text = _LAMBDA.sub(r"{lambda(\1)#\2}", text)
    text = _SUFFIXED_LITERAL.sub(r"\1", _SPACES.sub(" ", text))
    return _NEEDLESS_SPACE.sub("", text)
