"""Builds the preload library, the fakes and the test programs; runs each case in a child."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent / "sources"
NATIVE = Path(__file__).parents[2] / "injectors" / "native"
CHILD_LIMIT_S = 120


def nvtx_include() -> Path | None:
    """Return the folder that holds the NVTX headers, if the package is installed."""
    for root in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for header in sorted(Path(root).glob("nvidia/*/include/nvtx3/nvToolsExtPayload.h")):
            return header.parents[1]
    return None


def compiler() -> str:
    """Return the C compiler, or skip."""
    found = shutil.which(os.environ.get("CC", "cc"))
    if found is None or sys.platform != "linux":
        pytest.skip("needs a C compiler on Linux")
    return found


@dataclass(frozen=True)
class Event:
    """One line of the listener: a mark, a push or a pop."""

    what: str
    thread: int
    domain: str
    category: int = 0
    payload: str = "-"
    text: str = ""

    @property
    def name(self) -> str:
        """First word of the text."""
        return self.text.partition(" ")[0]

    @property
    def keys(self) -> dict[str, str]:
        """Keys and values of the text, as written."""
        return dict(pair.split("=", 1) for pair in self.text.split()[1:])


@dataclass
class Outcome:
    """What a child did and what the listener heard."""

    code: int
    out: str
    err: str
    events: list[Event] = field(default_factory=list)
    schemas: dict[str, tuple[int, int, list[tuple[str, int, int]]]] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)
    domains: list[str] = field(default_factory=list)

    def named(self, *names: str) -> list[Event]:
        """Return the marks and pushes of domain tracekit with these names, in order."""
        return [e for e in self.events if e.domain == "tracekit" and e.name in names]

    def decoded(self, event: Event) -> dict[str, int]:
        """Decode an event's payload through the schema that was registered for it."""
        schema_id, _, raw = event.payload.partition(":")
        data = bytes.fromhex(raw)
        for number, size, entries in self.schemas.values():
            if number == int(schema_id):
                assert len(data) == size
                return {
                    name: struct.unpack_from(FORMATS[kind], data, at)[0]
                    for name, kind, at in entries
                }
        raise AssertionError(f"no schema {schema_id}")


# NVTX_PAYLOAD_ENTRY_TYPE_*: UINT8 12, INT32 15, UINT64 18.
FORMATS = {12: "<B", 15: "<i", 18: "<Q"}


def _read_log(log: Path, outcome: Outcome) -> None:
    for line in log.read_text().splitlines() if log.exists() else ():
        what, *rest = line.split("\t")
        if what == "domain":
            outcome.domains.append(rest[0])
        elif what == "schema":
            number, name, size, entries = rest
            parts = [entry.split(":") for entry in entries.split(",")]
            outcome.schemas[name] = (
                int(number),
                int(size),
                [(n, int(k), int(o)) for n, k, o in parts],
            )
        elif what == "totals":
            outcome.totals = {k: int(v) for k, v in (p.split("=") for p in rest[0].split())}
        elif what == "pop":
            outcome.events.append(Event("pop", int(rest[0]), rest[1]))
        else:
            outcome.events.append(
                Event(what, int(rest[0]), rest[1], int(rest[2]), rest[3], rest[4])
            )


class Lab:
    """A folder with everything built, and a way to run children in it."""

    def __init__(self, root: Path, library: Path) -> None:
        self.root = root
        self.library = library
        self.cc = compiler()
        include = nvtx_include()
        assert include is not None
        self.include = include
        self._runs = 0

    def compile(self, output: str, source: str, *flags: str) -> Path:
        """Compile one source (or nothing again, if it is there)."""
        target = self.root / output
        if target.exists():
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        shared = ["-shared", "-fPIC"] if ".so" in output else []
        command = [self.cc, "-std=gnu11", "-O1", "-w", *shared, "-isystem", str(self.include)]
        command += ["-o", str(target), str(SOURCES / source), *flags, "-ldl", "-lpthread"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return target

    def fakes(self) -> list[str]:
        """Build the fake libraries and return the flags that link to them."""
        for name, source in (("cuda.so.1", "fake_cuda.c"), ("cudart.so.12", "fake_cudart.c"),
                             ("nccl.so.2", "fake_nccl.c")):  # fmt: skip
            library = self.compile(f"lib{name}", source, f"-Wl,-soname,lib{name}")
            link = self.root / f"lib{name.partition('.so')[0]}.so"
            if not link.exists():
                link.symlink_to(library.name)
        return [f"-L{self.root}", "-lcudart", "-lnccl", "-lcuda"]

    def linked(self) -> Path:
        """Build the program that the loader binds."""
        return self.compile("linked", "linked.c", *self.fakes())

    def named(self) -> Path:
        """Build the program that takes everything by name."""
        self.fakes()
        return self.compile("named", "named.c")

    def run(self, *command: object, preload: str | None = None, listen: bool = True,
            path: Path | None = None, **env: str) -> Outcome:  # fmt: skip
        """Run a command under the preload library, with the listener, and read what it heard."""
        self._runs += 1
        log = self.root / f"log{self._runs}"
        listener = self.compile("liblistener.so", "listener.c")
        environment = {
            "PATH": os.environ["PATH"],
            "LD_PRELOAD": str(self.library) if preload is None else preload,
            "LD_LIBRARY_PATH": str(path or self.root),
            "LISTENER_LOG": str(log),
            **({"NVTX_INJECTION64_PATH": str(listener)} if listen else {}),
            **env,
        }
        words = [str(word).replace("{log}", str(log)) for word in command]
        done = subprocess.run(
            words,
            env=environment,
            capture_output=True,
            text=True,
            timeout=CHILD_LIMIT_S,
            check=False,
        )
        outcome = Outcome(done.returncode, done.stdout, done.stderr)
        _read_log(log, outcome)
        return outcome


def build_library(build: Path, *options: str, env: dict[str, str] | None = None) -> Path:
    """Configure and build the preload library with CMake; return its path."""
    cmake = shutil.which("cmake")
    if cmake is None:
        pytest.skip("needs cmake")
    compiler()
    include = nvtx_include()
    if include is None:
        pytest.skip("needs the NVTX headers (package nvidia-nvtx)")
    environment = {**os.environ, **(env or {})}
    command = [
        cmake,
        "-S",
        str(NATIVE),
        "-B",
        str(build),
        f"-DNVTX_INCLUDE_DIR={include}",
        *options,
    ]
    for step in (command, [cmake, "--build", str(build)]):
        done = subprocess.run(step, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return build / "libtracekit_inject.so"


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """Everything built, with the library as it is shipped."""
    return _built(tmp_path_factory.mktemp("release"), "Release")


@pytest.fixture(scope="session")
def unoptimised(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """Everything built, with the library at -O0."""
    return _built(tmp_path_factory.mktemp("debug"), "Debug")


@pytest.fixture(params=["release", "unoptimised"])
def lab(request: pytest.FixtureRequest) -> Lab:
    """Both builds, one after the other."""
    built: Lab = request.getfixturevalue(request.param)
    return built


def _built(root: Path, build_type: str) -> Lab:
    return Lab(root, build_library(root / "build", f"-DCMAKE_BUILD_TYPE={build_type}"))
