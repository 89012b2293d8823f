"""Both ways of matching against a dictionary of first rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.numerics import numbering

KEYS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from([0, 1, 2, 5, 9, numbering.NO_ID])), max_size=30
)

KERNELS = (numbering._bounds, numbering._match_dense)


@pytest.fixture(params=["machine code", "plain Python"], scope="module", autouse=True)
def both_ways(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every property holds for what Numba makes of the kernels and for what they say."""
    before = [kernel._dispatcher for kernel in KERNELS]
    for kernel in KERNELS:
        kernel._dispatcher = kernel.python
        if request.param == "machine code":
            kernel._dispatcher = None
            kernel.build()
    yield
    for kernel, dispatcher in zip(KERNELS, before, strict=True):
        kernel._dispatcher = dispatcher


@settings(deadline=None)
@given(KEYS, KEYS, st.sampled_from([1, 2**28]))
def test_match(a: list[tuple[int, int]], b: list[tuple[int, int]], spread: int) -> None:
    first: dict[tuple[int, int], int] = {}
    for row, key in enumerate(b):
        first.setdefault(key, row)
    expected = [first.get(key, -1) if key[1] != numbering.NO_ID else -1 for key in a]
    (pa, ia), (pb, ib) = (np.array(rows, np.int64).reshape(-1, 2).T for rows in (a, b))
    ia, ib = (np.where(ids == numbering.NO_ID, ids, ids * spread) for ids in (ia, ib))
    # Numbers of processes that stand for themselves, and a place of its own for each row.
    keys_a, keys_b = (pa, range(4), ia), (range(len(b)), pb, ib)
    assert numbering.match(keys_a, keys_b).tolist() == expected


@settings(deadline=None)
@given(st.lists(st.integers(0, 12), max_size=30))
def test_renumbering_in_one_sweep_is_that_of_tables(values: list[int]) -> None:
    swept, gathered = np.array(values, np.uint32), np.array(values, np.uint32)
    found = numbering._renumber_swept(swept, 13)
    assert found.tolist() == numbering.renumber.plain(gathered, 13).tolist() == sorted(set(values))
    assert swept.tolist() == gathered.tolist() == [sorted(set(values)).index(v) for v in values]
