from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.wording.names import printable, short_name, shorten


@pytest.mark.parametrize(
    ("raw", "seen"),
    [
        ("plain", "plain"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\x9b31m", "\\x9b31m"),
        ("\u202eevil", "\\u202eevil"),
        ("a\u2028b", "a\\u2028b"),
        ("\ud800", "\\ud800"),
        ("résumé 层", "résumé 层"),
        ("[bold]x[/bold]", "[bold]x[/bold]"),
    ],
)
def test_control_characters_become_visible(raw, seen):
    assert printable(raw) == seen


def test_a_megabyte_of_name_is_short():
    assert len(short_name("k" * 1_000_000)) == 60


def test_a_long_kernel_name_loses_arguments_then_templates_then_its_middle():
    name = "void at::native::elementwise_kernel<(int)128, Functor<float, 3>>(int, at::Tensor)"
    assert short_name(name, 100) == name
    assert short_name(name, 70) == "at::native::elementwise_kernel<(int)128, Functor<float, 3>>"
    assert short_name(name, 40) == "at::native::elementwise_kernel<>"
    assert short_name(name, 20) == "at::native::...nel<>"


def test_an_unbalanced_name_is_only_cut():
    assert short_name("operator<<" + "x" * 80, 20) == "operator<<xx...xxxxx"


@given(st.text(), st.integers(1, 40))
def test_shortened_text_fits_and_holds_nothing_unprintable(text, width):
    out = shorten(text, width)
    assert len(out) <= width
    assert all(c.isprintable() for c in out)
