"""Nsight Compute's raw page: units, numbers, banners, and what its L2 counters say."""

from __future__ import annotations

import lzma
from pathlib import Path

import polars as pl
import pytest

from tests.conftest import FIXTURES
from tracekit.errors import InputError, NotAReportError
from tracekit.io.ncu import number, read_raw_csv, to_base
from tracekit.model.ncu import CACHE_CAVEAT, join_timeline, miss_share, worst_stall

HEADER = '"ID","Process ID","Kernel Name","Block Size","Grid Size","Device",'
TEX, READ = "lts__t_sectors_srcunit_tex", "lts__t_sectors_op_read"


def page(*rows: str, metrics: str = '"gpu__time_duration.sum","dram__bytes_read.sum"') -> str:
    return "\n".join([HEADER + metrics, *rows]) + "\n"


def row(number_: int, name: str, *values: str) -> str:
    cells = [str(number_), "7", name.replace('"', '""'), "(128, 1, 1)", "(32, 4, 1)", "0", *values]
    return ",".join(f'"{cell}"' for cell in cells)


UNITS = '"","","","","","","us","Mbyte"'


@pytest.fixture
def read(tmp_path: Path):
    def go(text: str, **how: str):
        path = tmp_path / "k.csv"
        path.write_text(text, encoding=how.get("encoding", "utf-8"), newline=how.get("newline"))
        return read_raw_csv(path)

    return go


@pytest.fixture
def fixture(tmp_path: Path):
    def go(name: str):
        path = tmp_path / name
        path.write_bytes(lzma.decompress((FIXTURES / f"{name}.xz").read_bytes()))
        return read_raw_csv(path)

    return go


def test_the_row_of_units_is_no_kernel(read):
    found = read(page(UNITS, row(0, "a", "1,234.56", "2"), row(1, "b", "3", "n/a")))
    assert found.kernels["name"].to_list() == ["a", "b"]
    assert found.units == {"gpu__time_duration.sum": "ns", "dram__bytes_read.sum": "bytes"}
    assert found.kernels["gpu__time_duration.sum"].to_list() == [1_234_560.0, 3_000.0]
    assert found.kernels["dram__bytes_read.sum"].to_list() == [2e6, None]
    first = found.kernels.row(0, named=True)
    assert (first["grid_x"], first["grid_y"], first["block_x"]) == (32, 4, 128)


@pytest.mark.parametrize(
    ("text", "unit", "want"),
    [
        ("1,234.56", "usecond", 1_234_560.0),
        ("2.5", "msecond", 2_500_000.0),
        ("7", "nsecond", 7.0),
        ("1.5", "Kbyte", 1_500.0),
        ("0.7", "Tbyte/s", 0.7e12),
        ("1.98", "Ghz", 1.98e9),
        ("63.9", "%", 63.9),
    ],
)
def test_numbers_come_out_in_base_units(text, unit, want):
    value = number(text)
    assert value is not None
    assert value * to_base(unit)[0] == pytest.approx(want)


@pytest.mark.parametrize("text", ["n/a", "N/A", "no data", "", " "])
def test_absent_values_are_missing(text):
    assert number(text) is None


@pytest.mark.parametrize("text", ["1.234,56", "1,23", "12,34.5"])
def test_a_decimal_comma_is_refused(text, read):
    with pytest.raises(InputError, match="ambiguous number"):
        number(text)
    with pytest.raises(InputError, match="ambiguous number"):
        read(page(UNITS, row(0, "a", text, "1")))


def test_names_with_commas_and_quotes(read):
    found = read(page(UNITS, row(0, 'f<int, "x">(A, B)', "1", "2")))
    assert found.kernels["name"].to_list() == ['f<int, "x">(A, B)']


def test_banners_program_output_crlf_and_byte_order_mark(read):
    lines = [
        "==PROF== Connected to process 7",
        "loading, model, now",
        *page(UNITS, row(0, "a", "1", "2")).splitlines(),
        "step 3 done",
        "==WARNING== Metric lts__t_sectors.sum could not be collected: not accessible",
        row(1, "b", "3", "4"),
        "==PROF== Disconnected",
    ]
    found = read("\r\n".join(lines), encoding="utf-8-sig", newline="")
    assert found.kernels["name"].to_list() == ["a", "b"]
    assert len(found.warnings) == 1
    assert found.inaccessible == ("lts__t_sectors.sum",)


def test_another_file_is_refused_with_what_to_do(read):
    with pytest.raises(NotAReportError, match="--page raw"):
        read("a,b\n1,2\n")


def test_the_caveat_names_the_options():
    assert "--cache-control none" in CACHE_CAVEAT
    assert "--replay-mode application" in CACHE_CAVEAT


def test_misses_over_sectors():
    found = miss_share({f"{TEX}.sum": 1_000_000, f"{TEX}_lookup_miss.sum": 237_000})
    assert (found.share, found.inconsistent) == (pytest.approx(0.237), False)


def test_a_ratio_of_sums_is_no_mean_of_ratios():
    found = miss_share({f"{TEX}.sum": 1000 + 20, f"{TEX}_lookup_miss.sum": 100 + 10})
    assert found.share == pytest.approx(0.107843, abs=1e-6)


def test_more_misses_than_look_ups_are_flagged():
    hit = miss_share(
        {f"{READ}.sum": 100, f"{READ}_lookup_miss.sum": 125, f"{READ}_lookup_hit.sum": 4}
    )
    assert (hit.share, hit.inconsistent) == (pytest.approx(0.96), True)
    nothing = miss_share({f"{TEX}.sum": 100, f"{TEX}_lookup_miss.sum": 139})
    assert (nothing.share, nothing.inconsistent) == (None, True)


def test_recorded_sweep_of_strides(fixture):
    found = fixture("ncu_kv_stride.csv")
    assert found.kernels.height == 22
    layout = pl.col("range").str.extract(r"layout=(\w+) rep=0", 1).alias("layout")
    layouts = found.kernels.with_columns(layout).drop_nulls("layout")
    share = {r["layout"]: miss_share(r) for r in layouts.iter_rows(named=True)}
    assert 1 - share["stride64"].share == pytest.approx(0.66, abs=0.01)
    assert 1 - share["random64"].share == pytest.approx(0.44, abs=0.01)
    assert 1 - share["stride512"].share == pytest.approx(0.03, abs=0.02)
    assert share["stride96"].inconsistent
    assert share["stride96"].share == pytest.approx(0.957, abs=0.005)
    time = found.kernels.filter(pl.col("range").str.contains("stride64 "))
    assert time["gpu__time_duration.sum"].mean() == pytest.approx(239_000, rel=0.01)


def test_recorded_full_set(fixture):
    found = fixture("ncu_int4_dequant_full.csv")
    assert found.kernels.height == 24
    assert "dequantize_int4_kernel" in found.kernels["name"].to_list()
    first = found.kernels.row(0, named=True)
    assert first["range"] == "layer=0"
    assert first["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"] == 2_113_536
    assert first["dram__bytes.sum.per_second"] == pytest.approx(2.689523e12)
    assert found.units["dram__bytes.sum.per_second"] == "bytes/s"


def shaped(names: list[str], **more: list[int]) -> pl.DataFrame:
    axes = {f"{kind}_{axis}": [1] * len(names) for kind in ("grid", "block") for axis in "xyz"}
    schema = {"name": pl.String, **dict.fromkeys(axes, pl.Int32), **dict.fromkeys(more, pl.Int64)}
    return pl.DataFrame({"name": names, **axes, **more}, schema=schema)


def test_join_by_name_and_shape():
    timeline = shaped(["void a<int>(A*)"] * 100 + ["b"] * 50, time_ns=[2] * 100 + [4] * 50)
    joined = join_timeline(timeline, shaped(["a"] * 5 + ["c"]))
    status = {r["name"]: (r["status"], r["n_timeline"], r["n_profiled"]) for r in joined.to_dicts()}
    assert status == {
        "a": ("matched", 100, 5),
        "b": ("not profiled", 50, 0),
        "c": ("only in ncu", 0, 1),
    }
    matched = joined.filter(pl.col("status") == "matched")["time_ns"].sum()
    assert matched / joined["time_ns"].sum() == pytest.approx(0.5)


def test_collectives_that_ncu_cannot_replay_are_not_profiled():
    timeline = shaped(["ncclDevKernel_AllReduce", "a"], time_ns=[10, 1])
    joined = join_timeline(timeline, shaped(["a"]))
    assert joined["status"].to_list() == ["not profiled", "matched"]


LATENCY, ISSUE = 10.4, 0.45


def stalled(**values: float | None) -> dict[str, float | None]:
    base = {"warp_latency": LATENCY, "issue_active": ISSUE, "stall_long_scoreboard": 6.2}
    return base | values


def test_the_longest_stall_as_a_share_of_a_warp_s_time():
    found = worst_stall(stalled(stall_wait=1.0))
    assert found.reason == "long_scoreboard"
    assert found.share == pytest.approx(0.596154, abs=1e-6)
    assert (found.flagged, found.reading) == (True, "waiting for global memory")


@pytest.mark.parametrize(
    ("values", "flagged"),
    [
        ({"issue_active": 0.8}, False),
        ({"issue_active": None}, None),
        ({"stall_long_scoreboard": 0.3 * LATENCY}, False),
    ],
    ids=["schedulers busy", "issue unknown", "short"],
)
def test_a_stall_is_flagged_only_when_schedulers_idle(values, flagged):
    assert worst_stall(stalled(**values)).flagged is flagged


def test_a_full_arithmetic_pipe_is_conversion_when_tensor_cores_are_not_it():
    full = {"stall_math_pipe_throttle": 8.0}
    assert worst_stall(stalled(**full)).reading == "an arithmetic pipe is full"
    converting = worst_stall(stalled(**full, alu_pct=80.0, tensor_pct=10.0))
    assert converting.reading.startswith("conversion bound")


def test_without_stall_counters_nothing_is_said():
    assert worst_stall({"warp_latency": 10.0}) == ("", None, None, "")
    assert worst_stall({"stall_wait": 1.0}) == ("", None, None, "")
