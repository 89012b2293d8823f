"""The front: worked examples, a slow twin, rows without a value."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.model.hardware import HARDWARE
from tracekit.sizing.choice.pareto import front

USUAL = {"bw": True, "compute": True, "power": False}


def fronted(rows, maximise=USUAL):
    names = [str(i) for i in range(len(rows))]
    columns = {axis: [row[k] for row in rows] for k, axis in enumerate(maximise)}
    return front(names, columns, maximise=maximise)


def test_four_rows_of_which_none_beats_another():
    rows = [(3.35, 1.82, 700), (5.2, 1.31, 760), (0.896, 2.47, 350), (8.5, 0.96, 1200)]
    found = fronted(rows)
    assert found.front == ("0", "1", "2", "3")
    assert found.dominated == {}


def test_the_devices_of_the_table():
    found = front(
        [row.key for row in HARDWARE],
        {
            "bw": [row.dram_gb_per_s for row in HARDWARE],
            "compute": [row.fp16_tflops for row in HARDWARE],
            "power": [row.tdp_w for row in HARDWARE],
        },
        maximise=USUAL,
    )
    assert found.dominated == {"H100 SXM5": "H200 SXM", "L40S": "H100 PCIe"}
    assert set(found.front) == {
        *("H100 PCIe", "H200 SXM", "A100 80 SXM", "A100 80 PCIe", "L4"),
        *("L20", "B200", "GB200", "MI300X", "Gaudi2"),
    }


def test_equal_rows_are_both_kept():
    assert fronted([(1, 1, 1), (1, 1, 1)]).front == ("0", "1")


def test_rows_without_a_value_are_listed_not_guessed():
    found = fronted([(1, None, 1), (1, 1, math.nan), (2, 2, 2)])
    assert found.front == ("2",)
    assert found.missing == {"0": ("compute",), "1": ("power",)}
    assert fronted([(None, None, None)]).front == ()


def slow(rows):
    """Which rows no other beats, one pair at a time; all axes maximised."""

    def beats(a, b):
        return all(x >= y for x, y in zip(a, b, strict=True)) and a != b

    return {str(i) for i, row in enumerate(rows) if not any(beats(other, row) for other in rows)}


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=1, max_size=12))
def test_the_front_equals_its_slow_twin_and_is_idempotent(rows):
    axes = dict.fromkeys("abc", True)
    found = fronted(rows, axes)
    assert set(found.front) == slow(rows)
    assert set(found.dominated) | set(found.front) == {str(i) for i in range(len(rows))}
    assert set(found.dominated.values()) <= set(found.front)
    again = fronted([rows[int(i)] for i in found.front], axes)
    assert len(again.front) == len(found.front)


def test_the_command(said, answered, tmp_path):
    code, out, _ = said("size", "pareto", "-o", tmp_path / "p.svg")
    assert code == 0
    assert "H100 SXM5             3,350          989    700  beaten by H200 SXM" in out
    assert (tmp_path / "p.svg").stat().st_size > 1000
    found = answered("size", "pareto", "--axis", "l2_bytes", "--axis", "link_both_gb_per_s")
    assert found["front"]["missing"]["L4"] == ["link_both_gb_per_s"]
    assert found["front"]["axes"] == {"l2_bytes": True, "link_both_gb_per_s": True}


def test_rows_of_ones_own(answered, tmp_path):
    table = tmp_path / "runs.csv"
    table.write_text("run,rate,watts\na,10,100 W\nb,9,120 W\nc,n/a,1\n")
    words = ("size", "pareto", "--csv", table, "--axis", "rate:max", "--axis", "watts:min")
    found = answered(*words)["front"]
    assert (found["front"], found["dominated"]) == (["a"], {"b": "a"})
    assert found["missing"] == {"c": ["rate"]}


@pytest.mark.parametrize(
    ("text", "words", "code", "error"),
    [
        ("a,b\n1,2\n", ("--axis", "x:max"), 2, "--axis x:max: not a column"),
        ("a,b\n1,2\n", ("--axis", "b:up"), 2, "--axis b:up: not a column"),
        ("a,b\n1,x\n", (), 3, "line 2, column 'b': 'x' is no number"),
        ("a,b\n1\n", (), 3, "line 2 has 1 cells, the first line 2"),
        ("a,a\n1,2\n", (), 3, "two columns have the same name"),
        ("a,b\n", (), 3, "no rows below the names"),
    ],
)
def test_tables_that_cannot_be_used(said, tmp_path, text, words, code, error):
    (tmp_path / "t.csv").write_text(text)
    found, _, line = said("size", "pareto", "--csv", tmp_path / "t.csv", *words)
    assert found == code
    assert error in line
