"""How a run is opened, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import tracekit
from tests.support.builders import Export
from tracekit.errors import UsageError
from tracekit.opening import OpenOptions, as_paths, open_trace
from tracekit.settings import SETTINGS, parse
from tracekit.trace.params import Settings


@pytest.mark.parametrize(
    ("given", "paths"),
    [
        ("a", ["a"]),
        (Path("a"), ["a"]),
        (["a", Path("b")], ["a", "b"]),
        ((), []),
    ],
)
def test_a_path_or_several_of_any_kind(given, paths):
    assert as_paths(given) == tuple(Path(p) for p in paths)


@pytest.mark.parametrize("kind", [str, Path, os.fsencode], ids=["str", "Path", "bytes"])
def test_every_function_takes_a_path(tmp_path, kind):
    path = Export().kernel(1, 2, "nvjet_tst_64x8").write(tmp_path / "r.sqlite")
    if kind is os.fsencode:
        with pytest.raises(TypeError):
            tracekit.analyze(kind(path))
        return
    assert tracekit.analyze(kind(path)).overview.n_kernels == 1
    assert tracekit.analyze([kind(path)]).overview.n_kernels == 1
    assert tracekit.inspect(kind(path)).rows["kernels"] == 1
    with tracekit.open_trace(kind(path)) as trace:
        assert trace.frame("kernels").height == 1


def test_nothing_is_no_run():
    with pytest.raises(UsageError, match="no report was given"), open_trace([]):
        pass


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"window_ns": (5, 5)}, "ends before it starts"),
        ({"redact": "please"}, "redact is one of no, yes, keep nvtx, not 'please'"),
    ],
)
def test_what_could_be_misread_is_refused(keywords, message):
    with pytest.raises(UsageError, match=message):
        OpenOptions(**keywords)


def test_inputs_that_could_not_be_used_are_named_by_the_trace(tmp_path):
    good = Export().kernel(1, 2, "nvjet_tst_64x8").write(tmp_path / "r.sqlite")
    bad = tmp_path / "secret.sqlite"
    bad.write_bytes(b"")
    with open_trace([good, bad]) as trace:
        assert list(trace.unreadable) == ["secret.sqlite"]
    with open_trace([good, bad], options=OpenOptions(redact="yes")) as trace:
        assert trace.unreadable == {"input-0": "could not be used"}


def test_settings_are_named_by_group_and_what_is_not_given_stays():
    assert [p.name for p in SETTINGS] == [
        *("sampling.edge", "hardware.peak_gbps", "hardware.achievable_gbps")
    ]
    before = Settings(hardware_peak_gbps=3350.0, kernel_overrides=(("gemm", "x"),))
    assert parse([], {}, before)[1] == before
    given = {"sampling.edge": "trailing", "kernels.copy": "y"}
    assert parse([], given, before)[1] == Settings(
        sampling_edge="trailing", hardware_peak_gbps=3350.0, kernel_overrides=(("copy", "y"),)
    )
