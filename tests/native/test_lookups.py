"""dlsym under the preload library answers as without it, but for wrapped names in libraries."""

from __future__ import annotations

import pytest

from .conftest import Lab


def test_a_process_without_cuda(lab: Lab) -> None:
    """Names of ours that nobody defines are not there, with dlerror's own words."""
    alone = lab.run(lab.named(), "absent", preload="", listen=False)
    under = lab.run(lab.named(), "absent")
    assert (alone.code, alone.err) == (0, "")
    assert (under.code, under.err) == (0, "")
    assert not under.events
    assert not under.domains


@pytest.mark.parametrize("setting", ["0", "1"])
def test_next_is_relative_to_the_caller(lab: Lab, setting: str) -> None:
    """RTLD_NEXT from a library (also in its constructor) is the library after it, never ours."""
    base = lab.compile("libchain_base.so", "libraries.c", "-DCHAIN_BASE")
    flags = ("-DCHAIN_TOP", "-Wl,--no-as-needed", str(base))
    top = lab.compile("libchain_top.so", "libraries.c", *flags)
    preload = f"{lab.library}:{top}:{base}"
    done = lab.run(lab.named(), "next", top, preload=preload, TRACEKIT_DLSYM=setting)
    assert done.code == 0, done.err


def test_whole_program_lookups_are_wrapped(lab: Lab) -> None:
    """RTLD_DEFAULT and dlopen(NULL) find the exported wrapper when the real one is there."""
    done = lab.run(lab.named(), "defaults")
    assert done.code == 0, done.err
    assert [e.keys["bytes"] for e in done.named("ALLOC")] == ["4096", "8192"]


def test_switched_off(lab: Lab) -> None:
    """TRACEKIT_DLSYM=0: functions taken by name are not seen, linked ones are, META says so."""
    assert not lab.run(lab.named(), "by_handle", TRACEKIT_DLSYM="0").events
    done = lab.run(lab.linked(), "runtime", TRACEKIT_DLSYM="0")
    assert done.code == 0, done.err
    assert done.named("META")[0].keys["dlsym"] == "0"
    assert len(done.named("ALLOC")) == 6


def test_origin_and_neighbours(lab: Lab) -> None:
    """dlopen is not hooked: a library finds its neighbour through its own $ORIGIN."""
    lab.compile("apart/libneighbour.so", "libraries.c", "-DNEIGHBOUR")
    user = lab.compile(
        "apart/libuser.so", "libraries.c", "-DNEIGHBOUR_USER", "-Wl,-rpath,$ORIGIN", "-Wl,-z,origin"
    )
    done = lab.run(lab.named(), "open", user)
    assert done.code == 0, done.err


def test_other_preloads_keep_working(lab: Lab) -> None:
    """Another wrapper of cudaMalloc sees the call whether it stands before or after ours."""
    other = lab.compile("libother.so", "libraries.c", "-DOTHER_PRELOAD")
    for preload in (f"{other}:{lab.library}", f"{lab.library}:{other}"):
        done = lab.run(lab.linked(), "caching", preload=preload)
        assert done.code == 0, done.err
        assert done.err.count("other saw cudaMalloc") == 3
        assert len(done.named("ALLOC")) == 3


def test_private_libraries(lab: Lab) -> None:
    """Linked libraries that were opened RTLD_LOCAL are out of RTLD_NEXT's sight; still found."""
    user = lab.compile("libprivate.so", "libraries.c", "-DPRIVATE_USER", *lab.fakes())
    done = lab.run(lab.named(), "open", user)
    assert done.code == 0, done.err
    assert [e.name for e in done.named("ALLOC", "COLL")] == ["ALLOC", "COLL"]


@pytest.mark.parametrize("visible", ["none", "12", "13"])
def test_two_linked_runtimes(lab: Lab, visible: str) -> None:
    """Libraries linked to different majors of the runtime each reach their own, as without us."""
    lab.fakes()
    runtimes = [
        lab.compile(f"rt/libcudart.so.{n}", "fake_cudart.c", f"-Wl,-soname,libcudart.so.{n}")
        for n in (12, 13)
    ]
    users = [
        lab.compile(f"rt/libuser{path.name[-2:]}.so", "libraries.c", "-DRUNTIME_USER", str(path))
        for path in runtimes
    ]
    extra = [lab.root / "rt" / f"libcudart.so.{visible}"] if visible != "none" else []
    paths = {"LD_LIBRARY_PATH": f"{lab.root / 'rt'}:{lab.root}"}
    done = lab.run(lab.named(), "two_runtimes", *users, *runtimes, *extra, **paths)
    assert done.code == 0, done.err
    assert done.out.split()[:2] == ["4", "2"]
    assert len(done.named("ALLOC")) == 6


def test_calls_from_constructors(lab: Lab) -> None:
    """A library that allocates while it is being loaded, privately or before main."""
    user = lab.compile("libearly.so", "libraries.c", "-DEARLY_USER", *lab.fakes())
    for done in (
        lab.run(lab.named(), "open", user),
        lab.run(lab.named(), "absent", preload=f"{lab.library}:{user}"),
    ):
        assert [e.keys["bytes"] for e in done.named("ALLOC")] == ["12345"], done.err


def test_processes_without_cuda_are_left_alone(lab: Lab) -> None:
    """Shells and tools run as ever: no output, no domain, no marker."""
    done = lab.run("sh", "-c", "echo one | cat; exec true")
    assert (done.code, done.out, done.err, done.domains, done.events) == (0, "one\n", "", [], [])
