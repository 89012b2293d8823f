"""Views and tables are found wherever a function, or a helper of it, names them."""

from __future__ import annotations

from types import FunctionType

import polars as pl
import pytest

from tracekit.numerics import threads
from tracekit.trace import Trace, UndeclaredTableError, View, view
from tracekit.trace.dependencies import reached_from
from tracekit.views.device import activity as module
from tracekit.views.device.activity import activity
from tracekit.views.nvtx.ranges import ranges

TABLES = {"kernel": "kernels", "copy": "memcpy"}
NAME = "memset"
DRAWN = (activity, ranges)


def by_global(trace):
    return activity(trace)


def by_attribute_of_a_module(trace):
    return module.activity(trace)


def by_helper(trace):
    return _helper(trace)


def _helper(trace):
    return by_global(trace).height + trace.frame("runtime").height


def in_a_lambda(trace):
    return (lambda: activity(trace))()


def in_a_container(trace):
    return [one(trace) for one in DRAWN]


def literal(trace):
    return trace.frame("nvtx")


def literals(trace):
    return [trace.frame(name) for name in ("nvtx", "sync")]


def constant(trace):
    return trace.frame(NAME)


def constants_in_a_comprehension(trace):
    return [trace.frame(name) for name in TABLES.values()]


def samples(trace):
    return trace.samples(["a"])


def name_without_frame(trace):
    return trace.has("kernels")


def helper_elsewhere(trace):
    return threads.each(len, trace.reports)


def calls_itself(trace):
    return calls_itself(trace) or ranges(trace)


@pytest.mark.parametrize(
    ("function", "views", "tables"),
    [
        (by_global, {activity}, set()),
        (by_attribute_of_a_module, {activity}, set()),
        (by_helper, {activity}, {"runtime"}),
        (in_a_lambda, {activity}, set()),
        (in_a_container, {activity, ranges}, set()),
        (literal, set(), {"nvtx"}),
        (literals, set(), {"nvtx", "sync"}),
        (constant, set(), {"memset"}),
        (constants_in_a_comprehension, set(), {"kernels", "memcpy"}),
        (samples, set(), {"gpu_metrics"}),
        (name_without_frame, set(), set()),
        (helper_elsewhere, set(), set()),
        (calls_itself, {ranges}, set()),
    ],
    ids=lambda value: value.__name__ if isinstance(value, FunctionType) else "",
)
def test_what_a_function_reaches(function, views, tables):
    found = reached_from(function, View)
    assert (set(found[0]), found[1]) == (views, tables)


def test_a_view_from_outside_the_package_has_its_helpers_followed():
    @view
    def mine(trace: Trace) -> int:
        return _helper(trace)

    assert (mine.of, mine.tables) == ((activity,), {"runtime"})
    assert mine.uses == {"runtime"} | activity.uses


def test_what_no_name_spells_is_stated():
    @view("sync", of=[ranges])
    def mine(trace: Trace) -> pl.DataFrame:
        return literal(trace)

    assert (mine.of, mine.tables) == ((ranges,), {"nvtx", "sync"})
    with pytest.raises(UndeclaredTableError, match="unknown tables: \\['nothing'\\]"):
        view("nothing")


def test_views_that_name_each_other_end():
    @view
    def first(trace: Trace) -> int:
        return second(trace) + trace.frame("nvtx").height

    @view
    def second(trace: Trace) -> int:
        return first(trace) + trace.frame("sync").height

    assert first.uses == second.uses == {"nvtx", "sync"}
    assert (first.of, second.of) == ((second,), (first,))
