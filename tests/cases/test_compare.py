"""Two runs side by side."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from tests.support.builders import Export
from tracekit.cli.shell.app import group
from tracekit.comparison import compare

FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)"


def test_helper_kernels_of_a_replay_are_new_names_with_their_time(tmp_path):
    eager, replay = Export(), Export()
    for e in (eager, replay):
        for i in range(10):
            e.kernel(i * 1_000, i * 1_000 + 100, "nvjet_tst_64x8")
    for i in range(100):
        replay.kernel(20_000 + 10 * i, 20_005 + 10 * i, FILL)
    found = compare([eager.write(tmp_path / "a.sqlite")], [replay.write(tmp_path / "b.sqlite")])
    rows = found.by_name.select("name", "seen", "n_before", "n_after", "change_ns").rows()
    assert rows == [(FILL, "new", 0, 100, 500.0), ("nvjet_tst_64x8", "both", 10, 10, 0.0)]
    assert dict(found.by_kind.select("kind", "change_ns").iter_rows()) == {
        "elementwise": 500.0,
        "gemm": 0.0,
    }


def test_quantised_against_half_precision_per_step_without_a_claim_on_traffic(tmp_path):
    half, quantised = Export(), Export()
    for e, n in ((half, 2), (quantised, 4)):
        for i in range(n):
            e.range(i * 100, i * 100 + 50, f"step {i}")
            e.kernel(i * 1_000, i * 1_000 + 200, "nvjet_tst_64x8", launch=i * 100 + 5)
    for i in range(4):
        at = i * 1_000 + 300
        quantised.kernel(at, at + 100, "dequantize_int4_kernel", launch=i * 100 + 6)
    paths = [half.write(tmp_path / "fp16.sqlite"), quantised.write(tmp_path / "int4.sqlite")]
    found = compare(paths[:1], paths[1:])
    assert (found.n_steps, found.per_step) == ((2, 4), True)
    changes = dict(found.by_kind.select("kind", "change_ns").iter_rows())
    assert changes == {"dequant": 100.0, "gemm": 0.0}
    printed = CliRunner().invoke(group, ["compare", *map(str, paths)])
    assert printed.exit_code == 0
    assert "less time is no proof of less memory traffic" in printed.output
    assert "+100 ns" in printed.output


def test_runs_without_steps_are_compared_in_all(tmp_path):
    a = Export().kernel(0, 100, "nvjet_tst_64x8").write(tmp_path / "a.sqlite")
    b = Export().kernel(0, 70, "nvjet_tst_64x8").write(tmp_path / "b.sqlite")
    found = compare([a], [b])
    assert not found.per_step
    assert found.by_kind["change_ns"].to_list() == pytest.approx([-30.0])
    assert found.by_kind["before_per_step_ns"].to_list() == [None]


def test_what_a_run_did_not_record_is_unknown_and_no_change(tmp_path):
    seen = Export().kernel(0, 100, "nvjet_tst_64x8").write(tmp_path / "seen.sqlite")
    hidden = Export().graph(0, 100).kernel(200, 210, FILL).write(tmp_path / "hidden.sqlite")
    host = Export().range(0, 100, "load").write(tmp_path / "host.sqlite")
    columns = ("kind", "n_before", "n_after", "before_ns", "after_ns", "change_ns")
    found = compare([hidden], [seen])
    assert sorted(found.by_kind.select(columns).rows()) == [
        ("elementwise", 1, 0, 10, 0, None),
        ("gemm", None, 1, None, 100, None),
        ("opaque graph", 1, 0, 100, 0, -100.0),
    ]
    assert found.by_name.select("name", "seen").rows() == [
        ("nvjet_tst_64x8", "unknown"),
        (FILL, "gone"),
    ]
    assert found.opaque_frac == (pytest.approx(100 / 110), 0.0)
    printed = CliRunner().invoke(group, ["compare", str(hidden), str(seen)]).output
    assert "90.9% of busy time is opaque" in printed
    assert "-100 ns" in printed
    found = compare([host], [seen])
    assert found.by_kind.select(columns).rows() == [("gemm", None, 1, None, 100, None)]
    assert found.by_name["seen"].to_list() == ["unknown"]
    printed = CliRunner().invoke(group, ["compare", str(host), str(seen)]).output
    assert "no accelerator activity recorded" in printed
    assert "new" not in printed


def test_the_median_span_of_a_step_is_compared(tmp_path):
    paths = []
    for length in (200, 150):
        e = Export()
        for i in range(3):
            e.range(i * 100, i * 100 + 50, f"step {i}")
            e.kernel(i * 1_000, i * 1_000 + length, "nvjet_tst_64x8", launch=i * 100 + 5)
        paths.append(e.write(tmp_path / f"{length}.sqlite"))
    assert compare(paths[:1], paths[1:]).step_ns == (200.0, 150.0)
    printed = CliRunner().invoke(group, ["compare", *map(str, paths)]).output
    assert "median GPU span of a step: 200 ns -> 150 ns (-25.0%)" in printed


def test_one_kernel_in_four_spellings_is_one_row_under_the_names_recorded(tmp_path):
    spellings = (
        "void ns::<unnamed>::scale_kernel<(int)128, ns::f(int)::[lambda(int) (instance 1)]>(T1 *)",
        "void ns::(anonymous namespace)::scale_kernel<128, ns::f(int)::{lambda(int)#1}>(float*)",
        "ns::(anonymous namespace)::scale_kernel<128, ns::f(int)::{lambda(int)#1}>(float*)",
        "ns::(anonymous namespace)::scale_kernel<128, ns::f(int)::'lambda'(int)>(float*)",
    )
    before, after = Export(), Export()
    before.kernel(0, 100, spellings[0]).kernel(200, 310, spellings[0]).kernel(400, 410, "other")
    for i, name in enumerate(spellings[1:]):
        after.kernel(200 * i, 200 * i + 50, name)
    found = compare([before.write(tmp_path / "a.sqlite")], [after.write(tmp_path / "b.sqlite")])
    columns = ("name", "name_before", "seen", "n_before", "n_after", "change_ns")
    assert found.by_name.select(columns).rows() == [
        (spellings[3], spellings[0], "both", 2, 3, -60.0),
        ("other", None, "gone", 1, 0, -10.0),
    ]


def drafts(steps, wait_us):
    """Steps of 0.5 ms of work each, with a wait of the host inside and behind each."""
    e = Export().gpu()
    for step in range(steps):
        at = step * (1_000_000 + 2 * wait_us * 1_000)
        e.range(at - 100, at + 1_000_000 + wait_us * 1_000 - 200, f"step {step}")
        e.kernel(at, at + 500_000, "draft", launch=at - 50)
        late = at + 500_000 + wait_us * 1_000
        e.kernel(late, late + 500_000, "verify", launch=late - 50)
    return e


def test_idle_time_in_steps_and_between_them_is_compared(tmp_path):
    """A wait that is gone shows where it was: inside the step and before the next one."""
    paths = [drafts(20, 500), drafts(31, 0)]
    before, after = (e.write(tmp_path / f"{i}.sqlite") for i, e in enumerate(paths))
    found = compare(before, after)
    assert found.step_ns == (1_500_000, 1_000_000)
    assert found.idle_ns == (500_000, 0)
    assert found.between_ns == (500_000, 0)
    result = CliRunner().invoke(group, ["compare", str(before), str(after)])
    assert "median idle time inside a step: 500 us -> 0 ns (-100%)" in result.output
