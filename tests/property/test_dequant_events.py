"""Consumers that events tell, against a walk through the host's calls one by one."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.builders import Export, gid
from tracekit.analyses import load
from tracekit.engine import run
from tracekit.opening import open_trace

D, G, OTHER = "dequantize_weights_kernel", "nvjet_tst_64x8", "void at::native::reduce_kernel<512>"
STREAMS = (7, 8, 9)
call = st.one_of(
    st.tuples(st.sampled_from([D, D, G, OTHER]), st.sampled_from(STREAMS), st.integers(1, 60)),
    st.tuples(st.just("record"), st.sampled_from(STREAMS), st.just(0)),
    st.tuples(st.just("wait"), st.sampled_from(STREAMS), st.integers(0, 3)),
)
Calls = list[tuple[str, int, int]]


def written(calls: Calls) -> tuple[Export, list[dict[str, Any]]]:
    """The calls as an export, each after the one before; kernels queue on their stream."""
    e, log, free, records = Export(), [], dict.fromkeys(STREAMS, 1_000), 0
    for number, (what, stream, value) in enumerate(calls):
        at = number * 10 + 1
        entry = {"what": what, "stream": stream, "at": at}
        where = {"contextId": 1, "streamId": stream, "globalPid": gid(100), "eventId": 1}
        where["correlationId"] = 10_000 + number
        if what == "record":
            records += 1
            e.call(at, at + 1, "cudaEventRecord", correlation=10_000 + number)
            e.add("CUPTI_ACTIVITY_KIND_CUDA_EVENT", **where, eventSyncId=records)
            entry["number"] = records
        elif what == "wait":
            entry["number"] = records - value
            e.call(at, at + 1, "cudaStreamWaitEvent", correlation=10_000 + number)
            e.add(
                "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
                **where,
                start=at,
                end=at + 1,
                deviceId=0,
                syncType=2,
                eventSyncId=entry["number"],
            )
        else:
            start = free[stream]
            free[stream] = end = start + value
            e.kernel(start, end, what, stream=stream, launch=at)
            entry |= {"start": start, "end": end}
        log.append(entry)
    return e, log


def walked(log: list[dict[str, Any]]) -> set[tuple[int, int, int, int]]:
    """(stream, end, consumer's stream, its start) of every dequantisation that one waits for."""
    kernels = [x for x in log if "start" in x]
    found: dict[int, list[tuple[int, int]]] = {}
    for place, one in enumerate(log):
        if one["what"] != "wait":
            continue
        record = next(
            (x for x in log[:place] if x["what"] == "record" and x["number"] == one["number"]), None
        )
        if record is None or record["stream"] == one["stream"]:
            continue
        before = [k for k in kernels if k["stream"] == record["stream"] and k["at"] < record["at"]]
        after = [k for k in kernels if k["stream"] == one["stream"] and k["at"] > one["at"]]
        if not before or not after or before[-1]["what"] != D or after[0]["what"] != G:
            continue
        if after[0]["start"] >= before[-1]["end"]:
            target = (after[0]["start"], after[0]["stream"])
            found.setdefault(before[-1]["at"], []).append(target)
    out = set()
    for k in kernels:
        own = [x for x in kernels if x["stream"] == k["stream"] and x["at"] > k["at"]]
        if k["what"] == D and own and own[0]["what"] == G:
            out.add((k["stream"], k["end"], k["stream"], own[0]["start"]))
        elif k["what"] == D and k["at"] in found:
            start, stream = min(found[k["at"]])
            out.add((k["stream"], k["end"], stream, start))
    return out


def handed_over(streams: tuple[int, int], length: int, late: int) -> Calls:
    """A dequantisation whose event another stream waits for before its product."""
    a, b = streams
    return [(D, a, length), ("record", a, 0), ("wait", b, late), (G, b, 5)]


hand_over = st.builds(
    handed_over,
    st.tuples(st.sampled_from(STREAMS), st.sampled_from(STREAMS)),
    st.integers(1, 60),
    st.integers(0, 1),
)
several = st.lists(st.one_of(call.map(lambda c: [c]), hand_over), min_size=1, max_size=8)


@settings(deadline=None, max_examples=60)
@given(several)
def test_periods_end_where_a_walk_through_the_calls_says(parts):
    export, log = written([c for part in parts for c in part])
    if not any("start" in x for x in log):
        return
    analysis = load("dequant_stall")
    with tempfile.TemporaryDirectory() as folder:
        path = export.write(Path(folder) / "r.sqlite")
        with open_trace([path]) as trace:
            frames, _ = run(analysis, trace, analysis.params())
    periods = frames["periods"]
    last_ns = periods["end_ns"] - periods["gap_ns"]
    columns = (periods["stream"], last_ns, periods["consumer_stream"], periods["end_ns"])
    assert set(zip(*columns, strict=True)) == walked(log)
