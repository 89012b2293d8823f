"""What views read and call is derived from their code: it is what they use, and all of it."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import textwrap
from collections import defaultdict
from collections.abc import Iterator
from contextvars import ContextVar
from functools import cache
from types import FunctionType

import polars as pl

import tracekit.analyses
import tracekit.views
from tracekit import analyses, engine
from tracekit.trace import Trace, View
from tracekit.trace.dependencies import named_by

FIXTURES = (
    *(["int4_dequant"], ["allreduce_2gpu"], ["kv_stride_l2"], ["hf_dynamic_cache"]),
    *(["graph_nodes"], ["tp_decode_rank0", "tp_decode_rank1"]),
)


@cache
def views() -> dict[str, View]:
    found = {}
    for package in (tracekit.views, tracekit.analyses):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            scope = vars(importlib.import_module(module.name))
            found |= {v.name: v for v in scope.values() if isinstance(v, View)}
    return found


def functions() -> Iterator[FunctionType]:
    """Every function of views and analyses that is defined at the top of a module."""
    for package in (tracekit.views, tracekit.analyses):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            for value in vars(importlib.import_module(module.name)).values():
                one = value.compute if isinstance(value, View) else value
                if isinstance(one, FunctionType) and one.__module__ == module.name:
                    yield one


def test_the_views_are_found():
    assert len(views()) > 90


def test_no_view_is_reached_dynamically():
    """Nothing is imported in a body, and no view or table is looked up by a computed name."""
    found = []
    for function in functions():
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        scope = function.__globals__
        for node in ast.walk(tree):
            match node:
                case ast.ImportFrom(module=str() as module) if module.startswith("tracekit.views"):
                    found.append((function.__qualname__, f"import of {module}"))
                case ast.Call(func=ast.Name(id="getattr" | "globals" as name)):
                    args = [ast.unparse(a) for a in node.args]
                    if args[:1] != ["params"]:
                        found.append((function.__qualname__, name))
                case ast.Call(func=ast.Attribute(attr="frame"), args=[ast.Name() as table]):
                    if "TABLES" not in scope:
                        found.append((function.__qualname__, f"frame({table.id})"))
    assert found == []


def _as_global(function: FunctionType) -> set[str]:
    """Names of the views that a function names as globals, by its source."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    found = set()
    for node in ast.walk(tree):
        value = None
        if isinstance(node, ast.Name) and node.id not in function.__code__.co_varnames:
            value = function.__globals__.get(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            value = getattr(function.__globals__.get(node.value.id), node.attr, None)
        values = value if isinstance(value, tuple | list) else (value,)
        found |= {v.name for v in values if isinstance(v, View)}
    return found


def test_no_attribute_is_spelled_like_a_view_of_its_module():
    more = {}
    for function in functions():
        own = {f"{function.__module__}.{function.__qualname__}"}
        derived = {v.name for v in named_by(function, View).views} - own
        source = _as_global(function) - own
        assert derived >= source
        if derived - source:
            more[function.__qualname__] = derived - source
    assert more == {}


def test_views_form_no_circle():
    def below(one: View, above: tuple[View, ...]) -> None:
        assert one not in above, [v.name for v in (*above, one)]
        for other in one.of:
            if other.name not in done:
                below(other, (*above, one))
        done.add(one.name)

    done: set[str] = set()
    for one in views().values():
        below(one, ())


def test_a_run_uses_what_was_derived(fixture_path, monkeypatch):
    """Views and tables that each view, and each analysis, really used on the bundled traces."""
    owner: ContextVar[str] = ContextVar("owner", default="")
    called, read = defaultdict(set), defaultdict(set)
    view_of, frame_of, samples_of, run = Trace.view, Trace.frame, Trace.samples, engine.run

    def viewed(self: Trace, which: View) -> object:
        called[owner.get()].add(which.name)
        before = owner.set(which.name)
        try:
            return view_of(self, which)
        finally:
            owner.reset(before)

    def framed(self: Trace, name: str) -> pl.DataFrame:
        read[owner.get()].add(name)
        return frame_of(self, name)

    def sampled(self: Trace, names: object) -> pl.DataFrame:
        read[owner.get()].add("gpu_metrics")
        return samples_of(self, names)

    def analysed(analysis: object, trace: Trace, params: object) -> object:
        before = owner.set(analysis.name)
        try:
            return run(analysis, trace, params)
        finally:
            owner.reset(before)

    for target, name, new in (
        *((Trace, "view", viewed), (Trace, "frame", framed), (Trace, "samples", sampled)),
        (engine, "run", analysed),
    ):
        monkeypatch.setattr(target, name, new)
    for names in FIXTURES:
        engine.analyze([fixture_path(name) for name in names], with_pictures=True)

    derived = {n: ({o.name for o in v.of}, v.tables) for n, v in views().items()}
    for name in analyses.names():
        one = analyses.load(name)
        derived[name] = ({v.name for v in one.views}, one.tables)
    used = {n: (called[n], read[n]) for n in derived if n in called or n in read}
    assert {n: u for n, u in used.items() if not u[0] <= derived[n][0]} == {}
    assert {n: u for n, u in used.items() if not u[1] <= derived[n][1]} == {}
    unused = {n: {*derived[n][0], *derived[n][1]} - {*u[0], *u[1]} for n, u in used.items()}
    short = {n.rpartition(".")[2]: {x.rpartition(".")[2] for x in u} for n, u in unused.items()}
    assert {n: u for n, u in short.items() if u} == NOT_IN_FIXTURES


_OTHER_COUNTERS = {"sampled", "gpu_metrics"}
"""`counter` reads counters that `sampled` does not hold; nothing needs one of those here."""
NOT_IN_FIXTURES = {
    "attribution": {"graph_replays"},
    "comm_facts": _OTHER_COUNTERS,
    "contention_groups": _OTHER_COUNTERS,
    "contention_windows": _OTHER_COUNTERS,
    "dequant_stall": _OTHER_COUNTERS,
    "hit_counters": {"gpu_metrics"},
    "host_evidence": {
        *("attribution", "cpu_frames", "gap_rows", "host_calls", "idle_parts", "range_names"),
        "strings",
    },
    "kernel_floor": {"gpu_metrics"},
    "kernel_hits": {"counters", "gpu_metrics"},
    "timelines": {"queues"},
    "kv_copies": {"clock_spans"},
    "l2_miss": {"matched"},
    "launch_facts": {"group_sizes"},
    "overview": {"unseen_work"},
    "recording": {"diagnostics"},
    "shared_gpus": {"activity"},
    "shared_time": _OTHER_COUNTERS,
    "timeline_samples": _OTHER_COUNTERS,
}
"""What the bundled traces give no reason to use, by view or analysis."""
