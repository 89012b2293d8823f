"""CUDA calls through the preload library: what is marked, and that nothing else changes."""

from __future__ import annotations

import pytest

from .conftest import Lab


def test_dynamic_runtime_is_seen_once(lab: Lab) -> None:
    """The runtime calls the driver underneath; only the outer call is a marker."""
    done = lab.run(lab.linked(), "runtime")
    assert done.code == 0, done.err
    seen = [(e.name, e.keys["source"], e.keys["bytes"]) for e in done.named("ALLOC", "FREE")]
    assert seen == [
        ("ALLOC", "cudaMalloc", "4096"),
        ("ALLOC", "cudaMallocAsync", "8192"),
        ("FREE", "cudaFreeAsync", "8192"),
        ("FREE", "cudaFree", "4096"),
        ("ALLOC", "cudaMallocPitch", str(512 * 3)),
        ("ALLOC", "cudaMalloc3D", str(512 * 2 * 5)),
        ("ALLOC", "cudaHostAlloc", "64"),
        ("ALLOC", "cudaMallocFromPoolAsync", "128"),
    ]
    malloc, malloc_async = done.named("ALLOC")[:2]
    addr = malloc.keys["addr"]
    assert malloc.text == f"ALLOC source=cudaMalloc addr={addr} bytes=4096 device=3 rc=0"
    assert malloc_async.keys["stream"] == "0x77"
    assert malloc.category == 2
    assert (
        done.named("FREE")[1].text == f"FREE source=cudaFree addr={addr} bytes=4096 device=3 rc=0"
    )


def test_static_runtime_is_seen_through_the_driver(lab: Lab) -> None:
    """A runtime linked into the program takes the driver by dlsym and cuGetProcAddress."""
    lab.fakes()
    program = lab.compile(
        "static", "linked.c", "-DSTATIC_RUNTIME", str(lab.compile("rt.o", "fake_cudart.c", "-c"))
    )
    done = lab.run(program)
    assert done.code == 0, done.err
    sources = [e.keys["source"] for e in done.named("ALLOC", "FREE")]
    assert sources[:4] == ["cuMemAlloc", "cuMemAllocAsync", "cuMemFreeAsync", "cuMemFree"]
    assert sources[4:] == ["cuMemAlloc", "cuMemAlloc", "cuMemHostAlloc", "cuMemAllocAsync"]


def test_driver_by_handle(lab: Lab) -> None:
    """A program that takes the driver's functions from its handle."""
    done = lab.run(lab.named(), "by_handle")
    assert done.code == 0, done.err
    assert [e.keys["source"] for e in done.named("ALLOC", "FREE")] == ["cuMemAlloc", "cuMemFree"]


@pytest.mark.parametrize("version", ["11040", "12040", "13000"])
def test_driver_lookup_versions(lab: Lab, version: str) -> None:
    """cuGetProcAddress of CUDA 11 and _v2 of CUDA 12 and 13 have different signatures."""
    done = lab.run(lab.named(), "by_lookup", version)
    assert done.code == 0, done.err
    sources = [e.keys["source"] for e in done.named("ALLOC")]
    assert sources == ["cuMemAlloc"] + ["cuMemAllocAsync"] * (int(version) >= 12000)


def test_unknown_future_version_is_wrapped_only_if_exported(lab: Lab) -> None:
    """A later CUDA's answer is wrapped when it is the exported function of the known signature."""
    done = lab.run(lab.named(), "by_lookup", "15000")
    assert done.code == 0, done.err
    assert [e.keys["source"] for e in done.named("ALLOC")] == ["cuMemAlloc", "cuMemAllocAsync"]


def test_old_signature_passes_through(lab: Lab) -> None:
    """Asked for CUDA 3.1, cuMemAlloc is another function: it must not be wrapped."""
    done = lab.run(lab.named(), "old_signature")
    assert done.code == 0, done.err
    assert not done.events


def test_missing_symbols_stay_missing(lab: Lab) -> None:
    """A driver that lacks the newer names answers as it does alone, with its own error text."""
    lab.fakes()
    library = lab.compile("old/libcuda.so.1", "fake_cuda.c", "-DFAKE_OLD")
    done = lab.run(lab.named(), "old_driver", path=library.parent)
    assert done.code == 0, done.err


def test_driver_entry_points(lab: Lab) -> None:
    """The runtime's own lookups hand out wrapped functions too."""
    done = lab.run(lab.named(), "entry_point")
    assert done.code == 0, done.err
    assert [e.keys["source"] for e in done.named("ALLOC")] == ["cuMemCreate", "cuMemAddressReserve"]


def test_untracked_pointers(lab: Lab) -> None:
    """NULL, unseen, refused, doubly freed: the real code comes back and the marker says so."""
    done = lab.run(lab.linked(), "untracked")
    assert done.code == 0, done.err
    texts = [e.text for e in done.named("ALLOC", "FREE")]
    addr = done.named("ALLOC")[2].keys["addr"]
    assert texts == [
        "FREE source=cudaFree addr=0x123000 rc=0 known=0",
        "FREE source=cudaFree addr=0xbad000 rc=1 known=0",
        "ALLOC source=cudaMalloc bytes=4096 rc=1",
        "ALLOC source=cudaMalloc bytes=57005 rc=2",
        f"ALLOC source=cudaMalloc addr={addr} bytes=4096 device=3 rc=0",
        f"FREE source=cudaFree addr={addr} bytes=4096 device=3 rc=0",
        f"FREE source=cudaFree addr={addr} rc=0 known=0",
    ]


def test_no_context_leaves_the_device_out(lab: Lab) -> None:
    """Without a current context the device is unknown, not 0."""
    done = lab.run(lab.linked(), "untracked", FAKE_NO_CONTEXT="1")
    assert done.code == 0, done.err
    assert all("device" not in e.keys for e in done.named("ALLOC", "FREE"))


def test_a_pool_elsewhere_leaves_the_device_out(lab: Lab) -> None:
    """Memory of a pool, of the host or managed is not on the current device for being current."""
    done = lab.run(lab.linked(), "runtime")
    assert done.code == 0, done.err
    on_device = {e.keys["source"]: "device" in e.keys for e in done.named("ALLOC")}
    assert not on_device["cudaMallocFromPoolAsync"]
    assert not on_device["cudaHostAlloc"]
    assert on_device["cudaMallocAsync"]


def test_expandable_segments(lab: Lab) -> None:
    """Reserved addresses, physical memory and mappings are three different things."""
    done = lab.run(lab.linked(), "expandable")
    assert done.code == 0, done.err
    page = 20 << 20
    events = done.named("ALLOC", "FREE")
    by_source = {
        source: [e for e in events if e.keys["source"] == source]
        for source in (
            "cuMemAddressReserve",
            "cuMemCreate",
            "cuMemMap",
            "cuMemUnmap",
            "cuMemRelease",
        )
    }
    assert {k: len(v) for k, v in by_source.items()} == {
        "cuMemAddressReserve": 1,
        "cuMemCreate": 3,
        "cuMemMap": 3,
        "cuMemUnmap": 1,
        "cuMemRelease": 1,
    }
    mapped = sum(int(e.keys["bytes"]) for e in by_source["cuMemMap"])
    unmapped = sum(int(e.keys["bytes"]) for e in by_source["cuMemUnmap"])
    assert mapped - unmapped == 2 * page
    assert by_source["cuMemAddressReserve"][0].keys["bytes"] == str(64 * page)
    created = by_source["cuMemCreate"][1].text
    handle = by_source["cuMemCreate"][1].keys["handle"]
    assert created == f"ALLOC source=cuMemCreate bytes={page} handle={handle} device=5 rc=0"
    released = by_source["cuMemRelease"][0].text
    assert released == f"FREE source=cuMemRelease bytes={page} handle={handle} device=5 rc=0"
    assert {e.keys["device"] for e in by_source["cuMemMap"] + by_source["cuMemUnmap"]} == {"5"}
    assert by_source["cuMemUnmap"][0].keys["handle"] == handle


def test_one_unmap_over_two_mappings(lab: Lab) -> None:
    """Both mappings end: the second one is unknown afterwards."""
    done = lab.run(lab.linked(), "vmm_range")
    assert done.code == 0, done.err
    unmaps = [e.keys for e in done.named("FREE") if e.keys["source"] == "cuMemUnmap"]
    assert [(k["bytes"], k.get("known")) for k in unmaps] == [("2097152", None), ("1048576", "0")]
    assert "device" not in done.named("ALLOC")[1].keys  # no properties were given


def test_caching_allocator(lab: Lab) -> None:
    """500 tensors in three segments are three reservations, and that is what is marked."""
    done = lab.run(lab.linked(), "caching")
    assert done.code == 0, done.err
    assert [e.keys["bytes"] for e in done.named("ALLOC")] == [str(20 << 20)] * 3
    assert not done.named("FREE")


def test_errno_is_kept(lab: Lab) -> None:
    """Even when the tool changes it."""
    done = lab.run(lab.linked(), "errno")
    assert done.code == 0, done.err


def test_nothing_is_said_when_no_tool_listens(lab: Lab) -> None:
    """No tool, or one that refuses the domain: the same results and no thread of ours."""
    for options in ({"listen": False}, {"LISTENER_DEAF": "1"}):
        done = lab.run(lab.linked(), "runtime", **options)
        assert done.code == 0, done.err
        assert not done.events


def test_sync_and_meta_come_first(lab: Lab) -> None:
    """The first wrapped call introduces the library."""
    done = lab.run(lab.linked(), "runtime")
    meta, sync = done.events[:2]
    assert list(meta.keys) == [
        "version",
        "grammar",
        "pid",
        "markers",
        "dlsym",
        "min_bytes",
        "again",
    ]
    assert (meta.keys["grammar"], meta.keys["markers"], meta.keys["dlsym"]) == ("tk1", "text", "1")
    assert (meta.category, meta.keys["min_bytes"], meta.keys["again"]) == (6, str(1 << 20), "0")
    assert int(sync.keys["mono_ns"]) > 0
    assert done.domains == ["tracekit"]
