"""Numbers given on the command line that are no use: not finite, enormous, negative peaks."""

from __future__ import annotations

import pytest

from tracekit import analyses, settings
from tracekit.cli.shell import app as cli
from tracekit.errors import UsageError
from tracekit.trace.analysis import parameters as fields

NUMBERS = [
    f"{name}.{field.name}"
    for name in analyses.names()
    for field in fields(analyses.load(name).params)
    if isinstance(field.default, int | float) and not isinstance(field.default, bool)
]
PEAKS = ["hardware.peak_gbps", "hardware.achievable_gbps"]


@pytest.mark.parametrize("key", [*NUMBERS, *PEAKS])
@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e400", "9" * 30, "9" * 5_000, "", "x"])
def test_every_number_is_a_finite_one_that_fits(key, text):
    with pytest.raises(UsageError, match=key.partition(".")[2]):
        settings.parse(analyses.names(), {key: text})


@pytest.mark.parametrize("key", PEAKS)
@pytest.mark.parametrize("text", ["0", "-5", "-0.0"])
def test_a_peak_is_greater_than_zero(key, text):
    with pytest.raises(UsageError, match="greater than 0"):
        settings.parse((), {key: text})


@pytest.mark.parametrize("text", ["0", "-5", "nan", "inf"])
@pytest.mark.parametrize("command", ["analyze", "bundle"])
def test_the_option_is_as_strict_as_the_parameter(command, text, capsys):
    assert cli.call([command, "--peak-gbps", text, "none.sqlite"]) == 2
    assert "peak" in capsys.readouterr().err
