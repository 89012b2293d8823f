from __future__ import annotations

import click
import pytest

from tracekit.cli.shell.options import END_OF_TIME, SETTING, WINDOW, merged_params


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("0:10s", (0, 10_000_000_000)),
        ("1.2s:1300ms", (1_200_000_000, 1_300_000_000)),
        ("5us:7.5us", (5_000, 7_500)),
        (":3ns", (0, 3)),
        ("2s:", (2_000_000_000, END_OF_TIME)),
        ("123456789.123456789s:", (123_456_789_123_456_789, END_OF_TIME)),
    ],
)
def test_windows_are_exact_nanoseconds(text, window):
    assert WINDOW.convert(text, None, None) == window


@pytest.mark.parametrize(
    "text", ["1s", "1:2", "2s:1s", "1s:1s", "-1s:2s", "a:b", "1e3s:2s", "1 s:2s"]
)
def test_other_windows_are_refused(text):
    with pytest.raises(click.BadParameter):
        WINDOW.convert(text, None, None)


def test_settings_are_name_and_value():
    assert SETTING.convert("a.b=c=d", None, None) == ("a.b", "c=d")
    assert SETTING.convert("kernels.gemm=x.y", None, None) == ("kernels.gemm", "x.y")
    for text in ("a=b", "a.b", ".=b", "=b"):
        with pytest.raises(click.BadParameter):
            SETTING.convert(text, None, None)


def test_the_last_of_a_name_wins_and_the_peak_is_a_setting():
    assert merged_params([("a.b", "1"), ("a.b", "2")], None) == {"a.b": "2"}
    patterns = [("kernels.moe", "a"), ("kernels.gemm", "b"), ("kernels.moe", "c")]
    assert merged_params(patterns, None) == {"kernels.moe": "a|c", "kernels.gemm": "b"}
    assert merged_params([], 4800.0) == {"hardware.peak_gbps": "4800.0"}
