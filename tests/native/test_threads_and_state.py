"""Threads, forks, telling the state again, payloads, and the library as a file."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from .conftest import NATIVE, Lab, build_library


def test_eight_threads(lab: Lab) -> None:
    """800,000 calls: every one marked once, every range closed on its own thread."""
    done = lab.run(lab.linked(), "threads", LISTENER_COUNT="1")
    assert done.code == 0, done.err
    calls = 8 * 25000
    assert done.totals == {
        "allocs": calls + 1, "frees": calls + 1, "pushes": 2 * calls, "pops": 2 * calls,
        "bad": calls, "depth_errors": 0,
    }  # fmt: skip
    # `bad` counts what is neither ALLOC nor FREE of 4096 bytes: one COLL_FAILED a failing call.


@pytest.mark.parametrize("slow", [{}, {"LISTENER_SLOW": "1"}])
def test_first_calls_at_once(lab: Lab, slow: dict[str, str]) -> None:
    """Nobody waits while the tool starts, and what was allocated meanwhile is told all the same."""
    done = lab.run(lab.linked(), "race", **slow)
    assert done.code == 0, done.err
    freed = [e.keys["addr"] for e in done.named("FREE")]
    assert not [e for e in done.named("FREE") if "known" in e.keys]
    assert freed
    assert set(freed) <= {e.keys["addr"] for e in done.named("ALLOC")}
    assert len(done.named("META")) == 1


def test_fork_in_the_middle(lab: Lab) -> None:
    """Children forked while eight threads allocate go on, say nothing, and end."""
    done = lab.run(lab.linked(), "forks", LISTENER_COUNT="1")
    assert done.code == 0, done.err
    assert done.totals["allocs"] == done.totals["frees"] > 0
    assert done.totals["bad"] == 0


def test_a_child_forked_before_the_first_call_starts_anew(lab: Lab) -> None:
    """It introduces itself under its own process id."""
    done = lab.run(lab.linked(), "forked_first")
    assert done.code == 0, done.err
    assert len({e.keys["pid"] for e in done.named("META")}) == 2
    assert sorted(e.keys["bytes"] for e in done.named("ALLOC")) == ["1", "2"]


def test_state_is_told_again_when_recording_starts(lab: Lab) -> None:
    """cudaProfilerStart: META, SYNC, communicators and the large live allocations, once."""
    done = lab.run(lab.linked(), "state")
    assert done.code == 0, done.err
    again = [e for e in done.events if e.keys.get("again") == "1"]
    assert [e.name for e in again] == ["META", "COMM", "ALLOC"]
    addr = done.named("ALLOC")[0].keys["addr"]
    assert again[2].text == (
        f"ALLOC source=cudaMalloc addr={addr} bytes={4 << 20} device=3 rc=0 again=1"
    )
    assert re.fullmatch(
        r"COMM event=init comm=0x\w+ nranks=4 rank=1 device=1 rc=0 again=1", again[1].text
    )
    assert len(done.named("SYNC")) == 2


def test_state_threshold_is_a_setting(lab: Lab) -> None:
    """TRACEKIT_MIN_BYTES=0 tells small allocations again as well; nonsense changes nothing."""
    for setting, expected in (("0", 2), ("100", 2), ("101", 1), ("many", 1)):
        done = lab.run(lab.linked(), "state", TRACEKIT_MIN_BYTES=setting)
        assert len([e for e in done.named("ALLOC") if "again" in e.keys]) == expected


def test_state_is_told_again_by_itself(lab: Lab) -> None:
    """A program that makes no further call still gets its state told, with clocks."""
    done = lab.run(lab.linked(), "beats", "{log}", TRACEKIT_PERIOD_MS="1")
    assert done.code == 0, done.err
    told = [e for e in done.named("ALLOC") if "again" in e.keys]
    assert len(told) >= 2
    assert {e.thread for e in told} != {done.named("ALLOC")[0].thread}
    clocks = [int(e.keys["mono_ns"]) for e in done.named("SYNC")]
    assert len(clocks) >= 3
    assert clocks == sorted(clocks)


@pytest.mark.parametrize("form", ["payload", "both"])
def test_payloads_say_the_same_as_the_text(lab: Lab, form: str) -> None:
    """Each field decodes to the text's value; what the text leaves out is all ones."""
    words = {e.text for e in lab.run(lab.linked(), "collectives").named("COLL", "COMM", "SYNC")}
    done = lab.run(lab.linked(), "collectives", TRACEKIT_MARKERS=form)
    assert done.code == 0, done.err
    assert set(done.schemas) == {
        f"tracekit.{name}"
        for name in ("sync", "alloc", "free", "coll", "coll_failed", "comm", "group")
    }
    events = [e for e in done.events if e.what != "pop" and e.name != "META"]
    assert len(words) > 12
    assert all(e.payload != "-" for e in events)
    first = next(e for e in events if e.name in {"COLL", "tk.coll"})
    values = done.decoded(first)
    assert (values["op"], values["seq"], values["bytes"], values["count"]) == (1, 0, 2000, 1000)
    assert (values["dtype"], values["redop"], values["nranks"], values["rank"]) == (9, 0, 4, 1)
    assert (values["peer"], values["root"], values["stream"], values["depth"]) == (-1, -1, 0x99, 0)
    if form == "payload":
        assert {e.name for e in events} == {"tk.sync", "tk.coll", "tk.comm"}
        return
    for event in events:
        decoded = done.decoded(event)
        for key, value in event.keys.items():
            if value.lstrip("-").isdigit() or value.startswith("0x"):
                assert decoded[key] == int(value, 0), event
        missing = set(decoded) - set(event.keys)
        assert {decoded[key] for key in missing} <= {-1, 255, 2**64 - 1}, event


def test_a_tool_without_payloads_gets_text(lab: Lab) -> None:
    """An older tool does not register schemas."""
    done = lab.run(lab.linked(), "runtime", TRACEKIT_MARKERS="payload", LISTENER_NO_PAYLOAD="1")
    assert done.code == 0, done.err
    assert len(done.named("ALLOC")) == 6
    assert {e.payload for e in done.events} == {"-"}


def test_exactly_the_wrapped_names_are_exported(lab: Lab) -> None:
    """What `nm -D` lists is what interpose.h lists, and dlsym."""
    nm = shutil.which("nm")
    if nm is None:
        pytest.skip("needs nm")
    listed = subprocess.run(
        [nm, "-D", "--defined-only", str(lab.library)], capture_output=True, text=True, check=True
    ).stdout
    exported = {line.split()[-1] for line in listed.splitlines()}
    header = (NATIVE / "interpose.h").read_text()
    wrapped = set(re.findall(r"\bX\((\w+), (?:RUNTIME|NCCL|DRIVER)", header))
    assert len(wrapped) > 50
    assert exported == wrapped | {"dlsym"}


def test_a_build_without_nvtx_headers_says_what_to_do(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The configuration fails, in words."""
    cmake = shutil.which("cmake")
    if cmake is None:
        pytest.skip("needs cmake")
    build = tmp_path_factory.mktemp("noheaders")
    done = subprocess.run(
        [cmake, "-S", str(NATIVE), "-B", str(build), f"-DNVTX_INCLUDE_DIR={build}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert "pip install nvidia-nvtx" in " ".join(done.stderr.split())


@pytest.mark.parametrize("cc", ["gcc", "clang"])
def test_both_compilers_build_it_without_a_warning(
    cc: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Warnings are errors in this build."""
    if shutil.which(cc) is None:
        pytest.skip(f"needs {cc}")
    library = build_library(tmp_path_factory.mktemp(cc), env={"CC": cc})
    assert library.stat().st_size > 0


def _gcc_file(gcc: str, name: str) -> str:
    """Where gcc has a file; the bare name if it has not."""
    asked = [gcc, f"-print-file-name={name}"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


def test_sanitizers_find_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The address and undefined-behaviour sanitizers over calls, groups and the state.

    Not over forks: the address sanitizer's allocator keeps its locks in a forked child.
    """
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("needs gcc and its sanitizers")
    runtimes = [_gcc_file(gcc, name) for name in ("libasan.so", "libubsan.so")]
    if not all("/" in path for path in runtimes):
        pytest.skip("needs gcc's libasan and libubsan")
    root = tmp_path_factory.mktemp("sanitized")
    library = build_library(
        root / "build", "-DTRACEKIT_SANITIZE=address,undefined", env={"CC": "gcc"}
    )
    lab = Lab(root, library)
    preload = ":".join([*runtimes, str(library)])
    for case in ("runtime", "untracked", "vmm_range", "collectives", "groups", "state", "errno"):
        done = lab.run(
            lab.linked(), case, preload=preload,
            ASAN_OPTIONS="detect_leaks=0", UBSAN_OPTIONS="halt_on_error=1", TRACEKIT_MARKERS="both",
        )  # fmt: skip
        assert (done.code, done.err) == (0, ""), case
