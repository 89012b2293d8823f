"""Views declare what they call and read: values are let go of by what is declared."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import textwrap
from types import FunctionType

import pytest

import tracekit.views
from tracekit.trace import View
from tracekit.views.counters.metrics import SAMPLED
from tracekit.views.device.activity import TABLES


def _views() -> list[View]:
    found = {}
    for module in pkgutil.walk_packages(tracekit.views.__path__, "tracekit.views."):
        scope = vars(importlib.import_module(module.name))
        found |= {v.name: v for v in scope.values() if isinstance(v, View)}
    return list(found.values())


def _called(function: FunctionType) -> tuple[set[str], set[str]]:
    """Views that a function calls and tables that it reads, its own helpers included."""
    views, tables, seen, todo = set(), set(), set(), [function]
    while todo:
        one = todo.pop()
        if one in seen:
            continue
        seen.add(one)
        tree = ast.parse(textwrap.dedent(inspect.getsource(one)))
        tables |= _named(tree, "frame")
        for node in ast.walk(tree):
            value = _value(node, one.__globals__)
            if value is TABLES:
                tables |= set(TABLES.values())
            if isinstance(value, View):
                views.add(value.name)
            elif isinstance(value, FunctionType) and value.__module__.startswith("tracekit.views"):
                todo.append(value)
    sampled = {v.name for v in SAMPLED}
    return views | (sampled if views & sampled else set()), tables


def _value(node: ast.AST, scope: dict) -> object:
    """What a name, or an attribute of a module, stands for."""
    if isinstance(node, ast.Name):
        return scope.get(node.id)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return getattr(scope.get(node.value.id), node.attr, None)
    return None


def _named(tree: ast.AST, method: str) -> set[str]:
    """Tables named in calls of a method of the trace."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            first = getattr(node.args[0], "value", None) if node.args else None
            if node.func.attr == method and isinstance(first, str):
                found.add(first)
            if (node.func.attr, method) == ("samples", "frame"):
                found.add("gpu_metrics")
    return found


@pytest.mark.parametrize("view", _views(), ids=lambda v: v.name.removeprefix("tracekit.views."))
def test_a_view_declares_what_it_calls_and_reads(view: View) -> None:
    views, tables = _called(view.compute)
    if view not in SAMPLED:
        assert views - {view.name} == {v.name for v in view.of}
    assert tables == view.tables
