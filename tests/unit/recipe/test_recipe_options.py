from __future__ import annotations

import argparse
from types import SimpleNamespace

import pytest

from tracekit.errors import UsageError
from tracekit.opening import OpenOptions
from tracekit.recipe.options import END_OF_TIME, analyze_keywords, setting

RECIPE = "tracekit.recipe.tracekit_diagnosis.tracekit_diagnosis"


def parsed(framework, *words):
    parser = framework(RECIPE).TracekitDiagnosis.get_argument_parser()
    parser.add_context_arguments()
    return parser.parse_args(words)


@pytest.fixture
def report(tmp_path):
    path = tmp_path / "rank0.nsys-rep"
    path.touch()
    return str(path)


def test_a_release_gets_each_option_once_and_only_those_that_it_has(framework, report):
    found = parsed(framework, "--input", report, "--output", "out", "--force-overwrite", "--csv")
    assert (found.input, found.output, found.force_overwrite) == ([report], "out", True)
    assert found.csv
    old = framework("nsys_recipe").OLD
    assert hasattr(found, "start") is old
    assert hasattr(found, "filter_time") is not old


def test_reports_are_required(framework, capsys):
    with pytest.raises(SystemExit):
        parsed(framework)
    assert "--input" in capsys.readouterr().err


def test_the_time_filter_of_each_release_is_the_window(framework, report):
    words = ("--start", "5", "--end", "90") if framework("nsys_recipe").OLD else ()
    words = words or ("--filter-time", "5/90")
    found = analyze_keywords(parsed(framework, "--input", report, *words))
    assert found["options"] == OpenOptions(window_ns=(5, 90))


def test_options_of_analyze_reach_it(framework, report):
    words = ["--only", "l2_miss", "--only", "dequant_stall", "--salvage", "--peak-gbps", "4800"]
    words += ["--param", "dequant_stall.warn_frac=0.2", "--param", "sampling.edge=trailing"]
    assert analyze_keywords(parsed(framework, "--input", report, *words)) == {
        "only": ("l2_miss", "dequant_stall"),
        "params": {
            "dequant_stall.warn_frac": "0.2",
            "sampling.edge": "trailing",
            "hardware.peak_gbps": "4800.0",
        },
        "options": OpenOptions(salvage=True),
    }


@pytest.mark.parametrize(
    "words", [("--only", "nope"), ("--top", "-1"), ("--top", "x"), ("--param", "nope")]
)
def test_a_wrong_value_is_wrong_usage(framework, report, words, capsys):
    with pytest.raises(SystemExit, match="2"):
        parsed(framework, "--input", report, *words)
    assert words[0] in capsys.readouterr().err


def namespace(**values):
    known = {"only": None, "param": None, "peak_gbps": None, "salvage": False}
    return SimpleNamespace(**{**known, **values})


@pytest.mark.parametrize(
    ("start", "end", "window"),
    [(None, None, None), (7, None, (7, END_OF_TIME)), (None, 9, (0, 9)), (0, 9, (0, 9))],
)
def test_either_side_of_the_window_may_be_left_out(start, end, window):
    assert analyze_keywords(namespace(start=start, end=end))["options"].window_ns == window
    assert analyze_keywords(namespace(filter_time=(start, end)))["options"].window_ns == window


def test_a_release_without_a_time_filter_sees_all():
    assert analyze_keywords(namespace())["options"].window_ns is None


def test_a_window_that_ends_before_it_starts_is_refused():
    with pytest.raises(UsageError, match="9 to 7 ns ends before it starts"):
        analyze_keywords(namespace(start=9, end=7))


def test_an_unknown_parameter_is_refused():
    with pytest.raises(UsageError, match="no parameter 'nope'"):
        analyze_keywords(namespace(param=[("l2_miss.nope", "1")]))


def test_a_setting_is_a_name_with_a_dot_and_a_value():
    assert setting("a.b=c=d") == ("a.b", "c=d")
    for wrong in ("a.b", "a=b", ".a=b"):
        with pytest.raises(argparse.ArgumentTypeError, match="is not"):
            setting(wrong)
