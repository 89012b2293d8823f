"""One key for all spellings of a kernel's name, for comparing runs.

Profilers demangle differently: nsys writes ``(int)128``, ``<unnamed>::`` and
``[lambda(int) (instance 1)]`` where c++filt writes ``128``, ``(anonymous namespace)::`` and
``{lambda(int)#1}``, and only one of them leaves ``T1`` in the arguments of a template.
"""

from __future__ import annotations

import re

from tracekit.model.kernels.parts import ANONYMOUS, OPERATOR

__all__ = ["kernel_key"]

_INTEGER = (
    r"(?:(?:un)?signed|char|short|int|long|bool|size_t|u?int(?:8|16|32|64)_t|__int128)"
    r"(?:\s+(?:char|short|int|long))*"
)
_BOOL = re.compile(r"\(bool\)\s*([01])")
_CAST = re.compile(rf"\(\s*{_INTEGER}\s*\)\s*(?=-?\d)")
_SUFFIX = re.compile(r"(?<![\w.])(-?\d+)[uUlL]+\b")
_NSYS_LAMBDA = re.compile(r"\[lambda\(([^\[\]]*)\)\s*\(instance (\d+)\)\]")
_LLVM_LAMBDA = re.compile(r"'lambda(\d*)'\(([^()']*)\)")
_QUALIFIER = re.compile(r"\b(?:__global__|static|void)\s+(?=[\w<(@{])")
_CONST_FIRST = re.compile(r"\bconst ([\w:]+)")
_BLANK = re.compile(r"(?<!\w)\s+|\s+(?!\w)")
_BRACKET = re.compile(r"->|[<>()\[\]{}]")
_CLOSES = {">": "<", ")": "(", "]": "[", "}": "{"}
_ENCLOSED = re.compile(r"(?:const)?::")


def kernel_key(name: str) -> str:
    """Return the key under which two spellings of one kernel's name are equal.

    The arguments of a function that others are declared in, and those of a template, are left out:
    spellings differ there, and the template arguments tell such kernels apart. Overloads that are
    no templates keep theirs.

    Args:
        name: Demangled, mangled or plain name, as recorded.

    Returns:
        The normalised name; a mangled or plain one is returned as it is.
    """
    name = ANONYMOUS.sub("@", name.strip())
    name = _NSYS_LAMBDA.sub(r"{lambda(\1)#\2}", name)
    name = _LLVM_LAMBDA.sub(_lambda, name)
    name = OPERATOR.sub(_operator, name)
    name = _BOOL.sub(lambda found: "true" if found[1] == "1" else "false", name)
    name = _SUFFIX.sub(r"\1", _CAST.sub("", name))
    name = _CONST_FIRST.sub(r"\1 const", _QUALIFIER.sub("", name))
    return _without_arguments(_BLANK.sub("", name))


def _operator(found: re.Match[str]) -> str:
    """Spell an operator without brackets, which would pair with others."""
    return "operator@" + "".join(found[0].split())[len("operator") :].encode().hex()


def _lambda(found: re.Match[str]) -> str:
    """LLVM counts lambdas from none, 0, 1, ...; the others from 1."""
    return f"{{lambda({found[2]})#{int(found[1]) + 2 if found[1] else 1}}}"


def _without_arguments(name: str) -> str:
    """Leave out argument lists of templates and of functions that enclose something."""
    opened: list[tuple[str, int]] = []
    kept, at = [], 0
    for found in _BRACKET.finditer(name):
        bracket = found[0]
        if bracket in "<([{":
            opened.append((bracket, found.start()))
            continue
        if bracket == "->" or not opened or opened[-1][0] != _CLOSES[bracket]:
            continue
        _, start = opened.pop()
        if bracket != ")" or start < at:
            continue
        enclosed = _ENCLOSED.match(name, found.end())
        is_template = not opened and name[start - 1 : start] == ">" and found.end() == len(name)
        if enclosed or is_template:
            kept.append((start, enclosed.end() - 2 if enclosed else found.end()))
    # A list inside one that is left out goes with it.
    text = []
    for start, end in sorted(kept):
        if start >= at:
            text.append(name[at:start])
            at = end
    return "".join(text) + name[at:]
