"""NCCL calls through the preload library."""

from __future__ import annotations

import sys

from .conftest import Event, Lab


def _balanced(events: list[Event]) -> bool:
    depth = 0
    for event in events:
        if event.domain == "tracekit":
            depth += {"push": 1, "pop": -1}.get(event.what, 0)
            if depth < 0:
                return False
    return depth == 0


def test_every_collective_says_what_it_moves(lab: Lab) -> None:
    """Bytes are those of the whole message, as nccl-tests counts them, for 1000 elements a rank."""
    done = lab.run(lab.linked(), "collectives")
    assert done.code == 0, done.err
    comm = done.named("COMM")[0].keys["comm"]
    colls = [e for e in done.named("COLL") if e.keys["comm"] == comm]
    shown = [
        tuple(e.keys.get(k) for k in ("op", "seq", "bytes", "dtype", "redop", "peer", "root"))
        for e in colls
    ]
    assert shown == [
        ("AllReduce", "0", "2000", "bfloat16", "sum", None, None),
        ("AllGather", "1", "16000", "float32", None, None, None),
        ("ReduceScatter", "2", "8000", "float16", "max", None, None),
        ("Broadcast", "3", "1000", "uint8", None, None, "3"),
        ("Bcast", "4", "8000", "float64", None, None, "3"),
        ("Reduce", "5", "8000", "int64", "avg", None, "2"),
        ("AlltoAll", "6", "16000", "int32", None, None, None),
        ("Gather", "7", "4000", "float8e4m3", None, None, "0"),
        ("Scatter", "8", "4000", "float8e5m2", None, None, "0"),
        ("Send", "0", "4000", "float32", None, "2", None),
        ("Recv", "1", "4000", "float32", None, "3", None),
        ("AllReduce", "9", None, "99", "custom", None, None),
    ]
    assert colls[0].text == (
        f"COLL op=AllReduce comm={comm} seq=0 bytes=2000 count=1000 dtype=bfloat16 redop=sum"
        " nranks=4 rank=1 stream=0x99 depth=0"
    )
    assert _balanced(done.events)


def test_communicators_are_told(lab: Lab) -> None:
    """Init, split, finalize, destroy, init of all ranks, abort, a refused init, one never seen."""
    done = lab.run(lab.linked(), "collectives")
    comms = done.named("COMM")
    names = ("event", "nranks", "rank", "device", "rc")
    assert [tuple(e.keys.get(k) for k in names) for e in comms] == [
        ("init", "4", "1", "1", "0"),
        ("split", "2", "1", "1", "0"),
        ("finalize", "2", "1", "1", "0"),
        ("destroy", "2", "1", "1", "0"),
        ("init", "2", "0", "6", "0"),
        ("init", "2", "1", "7", "0"),
        ("abort", "2", "0", "6", "0"),
        ("init", "4", "1", None, "4"),
        ("destroy", "4", "1", "1", "0"),
    ]
    assert "comm" not in comms[7].keys
    unseen = done.named("COLL")[-1].keys
    assert (unseen["nranks"], unseen["rank"], unseen["seq"], unseen["bytes"]) == (
        "8",
        "5",
        "0",
        "1",
    )


def test_groups_and_errors(lab: Lab) -> None:
    """Nested groups, an end without a start, a failing call: codes, depth and ranges are right."""
    done = lab.run(lab.linked(), "groups")
    assert done.code == 0, done.err
    groups = [tuple(e.keys[k] for k in ("event", "depth", "rc")) for e in done.named("GROUP")]
    assert groups == [
        ("end", "0", "5"),
        ("start", "1", "0"),
        ("start", "2", "0"),
        ("end", "1", "0"),
        ("end", "0", "0"),
        ("end", "0", "5"),
    ]
    assert [e.keys["depth"] for e in done.named("COLL")] == ["2", "1", "0"]
    failed = done.named("COLL_FAILED")
    failing = done.named("COLL")[1].keys
    assert [e.text for e in failed] == [
        f"COLL_FAILED comm={failing['comm']} seq={failing['seq']} rc=4"
    ]
    assert _balanced(done.events)


def test_ranges_close_when_a_thread_ends_inside(lab: Lab) -> None:
    """A thread that is unwound in the real call leaves no open range."""
    done = lab.run(lab.linked(), "cancel", FAKE_NCCL_CANCEL="1")
    assert done.code == 0, done.err
    assert len(done.named("COLL")) == 1
    assert _balanced(done.events)


def test_beside_ncc_ls_own_nvtx(lab: Lab) -> None:
    """NCCL's own ranges stay; ours are in their own domain, one a call."""
    done = lab.run(lab.linked(), "ten", FAKE_NCCL_NVTX="1")
    assert done.code == 0, done.err
    pushed = [e.domain for e in done.events if e.what == "push"]
    assert (pushed.count("NCCL"), pushed.count("tracekit"), len(pushed)) == (10, 10, 20)
    assert [e.keys["seq"] for e in done.named("COLL")] == [str(i) for i in range(10)]


def test_python_ctypes(lab: Lab) -> None:
    """A library opened by path with ctypes, its functions taken from the handle."""
    lab.fakes()
    script = (
        "import ctypes, sys\n"
        "lib = ctypes.CDLL(sys.argv[1])\n"
        "lib.fake_comm.restype = ctypes.c_void_p\n"
        "comm = ctypes.c_void_p(lib.fake_comm(4, 2, 1))\n"
        "rc = lib.ncclAllReduce(None, None, ctypes.c_size_t(256), 7, 0, comm, None)\n"
        "assert rc == 0 and lib.fake_nccl_calls() == 1\n"
    )
    done = lab.run(sys.executable, "-c", script, lab.root / "libnccl.so.2")
    assert done.code == 0, done.err
    (call,) = done.named("COLL")
    assert (call.keys["bytes"], call.keys["nranks"], call.keys["rank"]) == ("1024", "4", "2")


def test_two_versions_in_one_process(lab: Lab) -> None:
    """Each caller's function reaches its own library, and both are marked."""
    lab.fakes()
    other = lab.compile("other/libnccl.so.2", "fake_nccl.c", "-DFAKE_TAG=23004")
    done = lab.run(lab.named(), "two_nccls", lab.root / "libnccl.so.2", other)
    assert done.code == 0, done.err
    assert done.out.splitlines()[:2] == ["22809 1", "23004 1"]
    assert [e.keys["nranks"] for e in done.named("COLL")] == ["2", "3"]


def test_more_libraries_than_lanes(lab: Lab) -> None:
    """Beyond the prepared copies a function is handed out unwrapped: unseen, never wrong."""
    lab.fakes()
    copies = [
        lab.compile(f"copy{i}/libnccl.so.2", "fake_nccl.c", f"-DFAKE_TAG={i}") for i in range(6)
    ]
    done = lab.run(lab.named(), "many", *copies)
    assert done.code == 0, done.err
    assert len(done.named("COLL")) == 3
