"""What a recording lacks or has wrong: counted, named, and never taken for an answer."""

from __future__ import annotations

import pytest

from tests.support.builders import COLUMNS, Export
from tracekit.engine import analyze
from tracekit.inspection import inspect
from tracekit.model.finding import Level
from tracekit.opening import OpenOptions
from tracekit.report import text

US, MS, S = 1_000, 1_000_000, 1_000_000_000
GEMM = "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNT"
ATTENTION = "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128>>(Flash_fwd_params)"


@pytest.fixture
def answer(tmp_path):
    def found(export, *only):
        path = export.write(tmp_path / "a.sqlite")
        return analyze([path], only=only or ["dequant_stall"])

    return found


@pytest.fixture
def raw_table(monkeypatch):
    """Let tests write a table that the builders do not know, with the columns of copies."""

    def add(name):
        columns = COLUMNS["CUPTI_ACTIVITY_KIND_MEMCPY"]
        monkeypatch.setitem(COLUMNS, name, columns)

    return add


def _lines(diagnosis, level=None):
    return [q.text for q in diagnosis.quality if level is None or q.level is level]


def _shown(diagnosis):
    return " ".join(text.render(diagnosis, width=200).split())


def _captured(export, length_ns):
    return export.add(
        "ANALYSIS_DETAILS", globalVid=1, duration=length_ns, startTime=0, stopTime=length_ns
    )


def _peers(raw_table, n, *, with_others):
    raw_table("CUPTI_ACTIVITY_KIND_MEMCPY2")
    e = Export().gpu()
    if with_others:
        e.memcpy(1 * MS, 2 * MS, kind=1)
    for i in range(n):
        e.add(
            "CUPTI_ACTIVITY_KIND_MEMCPY2",
            start=(5 + i) * MS,
            end=(6 + i) * MS,
            deviceId=0,
            contextId=1,
            streamId=9,
            correlationId=900 + i,
            globalPid=(1 << 56) | (100 << 24),
            bytes=7000,
            copyKind=10,
        )
    return e


@pytest.mark.parametrize("with_others", [True, False])
def test_peer_copies_in_a_table_of_their_own_are_read(raw_table, answer, tmp_path, with_others):
    e = _peers(raw_table, 1, with_others=with_others)
    d = answer(e)
    kinds = {c.kind: (c.n, c.time_ns) for c in d.overview.classes}
    assert kinds["memcpy PtoP"] == (1, MS)
    assert d.overview.gpus[0].busy_ns == (2 * MS if with_others else MS)
    assert inspect(tmp_path / "a.sqlite").rows["peer_copies"] == 1


def test_device_work_in_an_unknown_table_is_named(raw_table, answer):
    raw_table("CUPTI_ACTIVITY_KIND_JPEG_ENGINE")
    e = Export().gpu().kernel(1 * MS, 2 * MS, GEMM)
    for i in range(3):
        e.add("CUPTI_ACTIVITY_KIND_JPEG_ENGINE", start=i * MS, end=(i + 1) * MS, deviceId=0)
    d = answer(e)
    (line,) = _lines(d, Level.WARN)
    assert line.startswith("CUPTI_ACTIVITY_KIND_JPEG_ENGINE: 3 rows of device work")
    assert d.reports[0].unread == {"CUPTI_ACTIVITY_KIND_JPEG_ENGINE": 3}


def test_a_table_without_device_or_times_is_no_device_work(raw_table, answer, monkeypatch):
    monkeypatch.setitem(COLUMNS, "CUPTI_ACTIVITY_KIND_NAME", "start end name:TEXT")
    e = Export().gpu().kernel(1 * MS, 2 * MS, GEMM)
    e.columns["CUPTI_ACTIVITY_KIND_NAME"] = COLUMNS["CUPTI_ACTIVITY_KIND_NAME"].split()
    e.add("CUPTI_ACTIVITY_KIND_NAME", start=1, end=2)
    assert answer(e).reports[0].unread == {}


def _graph_launches_without_rows():
    e = Export().gpu()
    for i in range(1000):
        at = (i + 1) * 10 * MS
        e.call(at, at + 20 * US, "cudaGraphLaunch_v10000", correlation=50_000 + i)
    for i in range(20):
        at = (i + 1) * 400 * MS
        e.kernel(at, at + 1500 * US, GEMM, launch=at - 20 * US)
    return e


def test_graph_launches_without_device_rows(answer):
    d = answer(_graph_launches_without_rows())
    said = "device activity incomplete: 1,000 of 1,000 graph launches without device rows"
    assert d.overview.incomplete == said
    assert said in _lines(d, Level.WARN)
    assert d.overview.perspective == (f"{said}; how long the GPU was idle is not known",)
    shown = _shown(d)
    assert "busy at least 30.0 ms of 7.60 s, idle not known, device records are missing" in shown
    assert "No problem found in what was recorded, which is not the whole run" in shown
    assert d.overview.n_steps == 0
    assert "waits for the host" not in shown


def test_launches_without_device_rows(answer):
    e = Export().gpu()
    for i in range(100):
        at = (i + 1) * MS
        if i % 2:
            e.kernel(at, at + 10 * US, GEMM, launch=at - 20 * US)
        else:
            e.call(at, at + 5 * US, "cudaLaunchKernel_v7000", correlation=70_000 + i)
    d = answer(e)
    assert d.overview.incomplete == (
        "device activity incomplete: 50 of 100 kernel launches without device rows"
    )
    assert not any("waits for the host" in line for line in d.overview.perspective)


def test_the_last_launches_of_a_capture_may_have_no_row_yet(answer):
    e = Export().gpu()
    for i in range(100):
        e.kernel((i + 1) * MS, (i + 1) * MS + 900 * US, GEMM, launch=(i + 1) * MS - 20 * US)
    for i in range(5):
        e.call((101 + i) * MS, (101 + i) * MS + 5, "cudaLaunchKernel", correlation=70_000 + i)
    assert answer(e).overview.incomplete == ""


def test_launches_into_a_captured_graph_leave_no_rows_and_miss_none(answer):
    e = Export().gpu()
    e.call(10 * US, 11 * US, "cudaStreamBeginCapture_v10000", correlation=1001)
    for i in range(50):
        e.call((12 + i) * US, (12 + i) * US + 500, "cudaLaunchKernel", correlation=2000 + i)
    e.call(90 * US, 91 * US, "cudaStreamEndCapture_v10000", correlation=1002)
    for i in range(3):
        e.call(MS * (i + 1), MS * (i + 1) + 5, "cudaGraphLaunch_v10000", correlation=3000 + i)
        e.kernel(
            MS * (i + 1) + 10, MS * (i + 1) + 900_000, GEMM, correlation=3000 + i, graphNodeId=7
        )
    assert answer(e).overview.incomplete == ""


def test_calls_before_a_window_miss_no_device_rows(tmp_path):
    e = Export().gpu()
    for i in range(100):
        e.kernel((i + 1) * MS, (i + 1) * MS + 900 * US, GEMM, launch=(i + 1) * MS - 20 * US)
    path = e.write(tmp_path / "a.sqlite")
    d = analyze([path], only=["dequant_stall"], options=OpenOptions(window_ns=(90 * MS, 200 * MS)))
    assert (d.overview.n_kernels, d.overview.incomplete) == (11, "")


def test_calls_but_no_device_records(answer):
    e = Export().gpu()
    for i in range(2):
        e.call(i * S + 1, i * S + 1 + 299 * MS, "cudaMemcpy_v3020", correlation=10 + i)
    e.call(3 * S, 3 * S + 5 * US, "cudaLaunchKernel_v7000", correlation=20)
    d = answer(e)
    assert d.overview.perspective[0].startswith(
        "1 kernel launch and 2 copies (598 ms of host time) on the host but 0 device records"
    )


def test_one_memset_in_a_long_capture_is_no_work_to_speak_of(answer):
    e = _captured(Export().gpu(), 880 * MS)
    e.add(
        "CUPTI_ACTIVITY_KIND_MEMSET",
        start=400 * MS,
        end=400 * MS + 1470,
        deviceId=0,
        streamId=7,
        correlationId=5,
        globalPid=(1 << 56) | (100 << 24),
        bytes=4,
    )
    d = answer(e)
    assert d.overview.perspective == (
        "no GPU work to speak of in 880 ms: 1 device record, 1.47 us in all",
    )
    assert "100%" not in _shown(d).partition("GPU time")[0]


def _decode_steps(e, n):
    t = MS
    for i in range(n):
        e.range(t - 50 * US, t + 940 * US, f"decode step {i}")
        for k in range(9):
            at = t + k * 100 * US
            e.kernel(at, at + 98 * US, GEMM, launch=at - 30 * US)
        t += MS
    return t


def test_a_capture_that_mostly_holds_a_call_that_never_ends(answer):
    e = _captured(Export().gpu(), 61 * S)
    t = _decode_steps(e, 100)
    e.call(t, t + 60 * S, "cuEventSynchronize")
    d = answer(e)
    (line,) = d.overview.perspective
    assert line.startswith(
        "60.0 s of a capture of 61.0 s the host is inside one call of cuEventSynchronize"
    )
    assert d.overview.stalled_ns == 60 * S
    assert "No problem found in what was recorded, which is not the whole run" in _shown(d)


def test_a_capture_whose_end_holds_nothing(answer):
    e = _captured(Export().gpu(), 61 * S)
    _decode_steps(e, 100)
    (line,) = answer(e).overview.perspective
    assert line.startswith("nothing was recorded in the last 60.9 s of a capture of 61.0 s")


def test_a_long_wait_for_a_busy_device_is_no_hang(answer):
    e = _captured(Export().gpu(), 10 * S).kernel(1 * MS, 9 * S, GEMM, launch=10)
    e.call(1 * MS, 9 * S + 10, "cudaDeviceSynchronize")
    assert answer(e).overview.perspective == ()


@pytest.mark.parametrize(
    ("shift", "said", "level"),
    [(0, "at once for 45.0 ms: they are time-sliced", Level.WARN), (500, "never at", Level.OK)],
)
def test_two_processes_on_one_gpu(answer, shift, said, level):
    e = Export().gpu()
    for i in range(50):
        for pid, late in ((100, 0), (200, shift * US)):
            at = (i + 1) * 2 * MS + late
            length = 400 * US if shift else 900 * US
            e.kernel(at, at + length, GEMM, pid=pid, launch=at - 20 * US)
    (found,) = [q for q in answer(e).quality if "processes share GPU 0" in q.text]
    assert found.text.startswith("2 processes share GPU 0 (pids 100, 200)")
    assert said in found.text
    assert found.level is level


def test_one_process_on_each_gpu_shares_nothing(answer):
    e = Export().gpu(0).gpu(1)
    for device in (0, 1):
        e.kernel(1 * MS, 2 * MS, GEMM, device=device, pid=100 + device)
    assert not any("processes share" in line for line in _lines(answer(e)))


def test_a_duration_that_overflows_all_later_kernels_of_its_stream(answer):
    e = Export().gpu().kernel(1 * MS, 21 * MS, ATTENTION)
    for i in range(80):
        e.kernel((2 * MS) + i * 200 * US, (2 * MS) + i * 200 * US + 150 * US, GEMM)
    (line,) = _lines(answer(e), Level.WARN)
    assert line.startswith("1 device record overlaps more than the neighbour on one stream")
    assert "by 19.0 ms" in line


def test_dependent_launches_and_graph_branches_may_overlap_their_neighbour(answer):
    e = Export().gpu()
    for i in range(20):
        e.kernel((i + 1) * 100 * US, (i + 1) * 100 * US + 120 * US, GEMM)
        e.kernel(
            (i + 50) * 100 * US, (i + 50) * 100 * US + 900 * US, GEMM, graphNodeId=7 + i, stream=9
        )
    assert not any("overlap" in line for line in _lines(answer(e)))


def test_clock_inversions_are_counted(answer):
    e = Export().gpu()
    for i in range(10):
        at = (i + 1) * MS
        e.kernel(at, at + 900 * US, GEMM, launch=at + (5 * US if i < 3 else -20 * US))
    (line,) = _lines(answer(e), Level.WARN)
    assert line.startswith("3 device records begin before the call that launched them")


def _load_then_decode(*, marked):
    e = Export().gpu()
    t = MS
    for _ in range(2201):
        e.kernel(t, t + 10 * US, "gptq_marlin_repack_kernel", launch=t - 5 * US)
        t += 12 * US
    for i in range(50):
        if marked:
            e.range(t - 5 * US, t + 190 * US, f"decode step {i}")
        e.kernel(t, t + 150 * US, GEMM, launch=t - 3 * US)
        e.kernel(t + 150 * US, t + 200 * US, ATTENTION, launch=t - 2 * US)
        t += 210 * US
    return e


@pytest.mark.parametrize(
    ("marked", "until"), [(True, "the first step"), (False, "the last repacking of weights")]
)
def test_load_is_separate_from_the_steady_state(answer, marked, until):
    (line,) = answer(_load_then_decode(marked=marked)).overview.perspective
    share = 22_010 / (22_010 + 10_000)
    assert line == (
        f"{share:.1%} of GPU time is load, before {until} (repack 100%); the steady state after"
        " it: gemm 75.0%, attention 25.0%"
    )


def test_a_prefill_before_the_first_step_is_no_load(answer):
    e = Export().gpu().kernel(MS, 20 * MS, GEMM, launch=900 * US)
    for i in range(10):
        t = (30 + i) * MS
        e.range(t, t + 900 * US, f"decode step {i}")
        e.kernel(t + 20 * US, t + 880 * US, GEMM, launch=t + 10 * US)
    assert not any("is load" in line for line in answer(e).overview.perspective)


def test_shares_of_classes_have_one_denominator(answer):
    e = Export().gpu().kernel(1 * MS, 5 * MS, "mystery_fwd")
    e.memcpy(10 * MS, 59 * MS, kind=1).memcpy(60 * MS, 107 * MS, kind=2)
    d = answer(e, "kernel_floor")
    shown = _shown(d)
    assert "GPU time memcpy HtoD 49.0%, memcpy DtoH 47.0%, unclassified 4.00%" in shown
    assert "mystery_fwd: 4.00% of GPU time (4.00 ms), 1x" in shown


@pytest.mark.parametrize("where", ["before", "inside", "started"])
def test_a_group_is_named_by_its_calls_never_by_its_end(answer, where):
    e = Export().gpu().domain(1, "NCCL")
    for i in range(4):
        t = (i + 1) * MS
        end = (t if where == "inside" else t + 10 * US, t + 60 * US)
        e.range(*end, "ncclGroupEnd", domain=1)
        if where == "started":
            e.range(t, t + US, "ncclGroupStart", domain=1)
        for k, name in enumerate(["ncclSend"] * 3 + ["ncclRecv"]):
            e.range(t + (2 + k) * US, t + (2 + k) * US + 500, name, domain=1)
        e.kernel(t + 40 * US, t + 240 * US, "ncclDevKernel_SendRecv(int)", launch=t + 20 * US)
    frames = answer(e, "collective_skew").frames["collective_skew"]
    assert frames["raw_durations"].select("op", "n").rows() == [("SendRecv", 4)]
