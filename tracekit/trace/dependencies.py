"""Which views and tables a function of a trace reaches, read off its code.

A list by hand repeats what the body says and can be wrong; the body cannot. A function names a
view as a global (or as an attribute of an imported module), and a table as a literal, or as a
global constant, where it calls ``trace.frame``. The functions of views and analyses that it names
are followed, others are not: none of them is given a trace. What the code does not spell is stated
in the decorator `tracekit.trace.view`.

Names and literals are looked at, not what is done with them, which takes a tenth of the time: an
attribute spelled like a view of its module counts as that view, any literal that is a table's name
as that table. Too much is reached then, never too little: `tests/meta` finds both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from tracekit.model.catalog import CATALOG

__all__ = ["Named", "named_by", "reached_from"]

_FOLLOWED = ("tracekit.views.", "tracekit.analyses.")
"""Modules whose functions are followed, besides the package of the function itself."""


class Named(NamedTuple):
    """What the code of one function names.

    Attributes:
        views: Views.
        helpers: Functions.
        tables: Catalog tables, if it calls ``frame``; "gpu_metrics" if it calls ``samples``.
    """

    views: tuple[Any, ...]
    helpers: tuple[FunctionType, ...]
    tables: frozenset[str]


def reached_from(function: FunctionType, kind: type) -> tuple[tuple[Any, ...], frozenset[str]]:
    """Return the views and the catalog tables that a function and its helpers name.

    Args:
        function: Where to begin.
        kind: The type of views. What lies behind a view is its own and is not looked at.

    Returns:
        The views, each once, and the tables.
    """
    package = function.__module__.partition(".")[0]
    followed = _FOLLOWED if package == "tracekit" else (*_FOLLOWED, package)
    views: dict[int, Any] = {}
    tables: set[str] = set()
    seen, todo = {function}, [function]
    while todo:
        named = named_by(todo.pop(), kind)
        tables |= named.tables
        views |= {id(one): one for one in named.views}
        for helper in named.helpers:
            if helper not in seen and helper.__module__.startswith(followed):
                seen.add(helper)
                todo.append(helper)
    return tuple(views.values()), frozenset(tables)


@cache
def named_by(function: FunctionType, kind: type) -> Named:
    """Return what the code of one function names, that of the functions inside it included."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    values = [cell.cell_contents for _, cell in cells]
    codes = tuple(_codes(function.__code__))
    for code in codes:
        values += _values(code.co_names, function.__globals__)
    tables: set[str] = set()
    if any("frame" in code.co_names for code in codes):
        texts = _texts([*values, *(code.co_consts for code in codes)])
        tables |= CATALOG.keys() & set(texts)
    if any("samples" in code.co_names for code in codes):
        tables.add("gpu_metrics")
    views = tuple(value for value in values if isinstance(value, kind))
    helpers = tuple(value for value in values if isinstance(value, FunctionType))
    return Named(views, helpers, frozenset(tables))


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code of a function and of the lambdas and comprehensions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _values(names: tuple[str, ...], scope: Mapping[str, Any]) -> Iterator[Any]:
    """What the names of a code may stand for, the items of containers one by one."""
    for name in names:
        if name not in scope:
            continue  # most are attributes
        value = scope[name]
        if isinstance(value, tuple | list | set | frozenset):
            yield from value
        elif isinstance(value, dict):
            yield from value.values()
        elif isinstance(value, ModuleType) and value.__name__.startswith(_FOLLOWED):
            attributes = vars(value)
            yield from (attributes[n] for n in names if n in attributes)
        else:
            yield value


def _texts(values: Iterable[Any]) -> Iterator[str]:
    """The texts among values, those in tuples and sets included."""
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, tuple | frozenset):
            yield from _texts(value)
