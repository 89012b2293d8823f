"""Whether this machine can record, one finding a line, each with what to do."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tracekit_injectors import environment as injector
from tracekit_injectors.nvtx import PATH_VARIABLE

from tracekit.recording import nsys as nsys_module
from tracekit.recording.nsys import INSTALL_HINT, Nsys, ask, find
from tracekit.recording.options import metric_devices

__all__ = ["Check", "State", "checks"]

_NCU_PATTERNS = ("opt/nvidia/nsight-compute/*/ncu", "usr/local/cuda*/bin/ncu")
_DRIVER = Path("/proc/driver/nvidia/version")
_DRIVER_SETTINGS = Path("/proc/driver/nvidia/params")
_CAPABILITIES = Path("/proc/self/status")
_CAP_SYS_ADMIN, _CAP_PERFMON = 21, 38


class State(StrEnum):
    """How a check came out."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"
    UNKNOWN = "?"


@dataclass(frozen=True)
class Check:
    """One finding.

    Attributes:
        name: What was looked at.
        state: How it came out; FAIL means that nothing can be recorded.
        found: What was found.
        advice: What to do, or "".
    """

    name: str
    state: State
    found: str
    advice: str = ""


def checks() -> Iterator[Check]:
    """Yield every finding, in the order in which a recording needs things."""
    nsys = find("auto")
    yield _nsys(nsys)
    yield _importer(nsys)
    yield _ncu()
    yield _driver()
    yield _gpus()
    yield _counters(nsys)
    yield from _injector()
    yield _nvtx()
    yield from _reach()


def _nsys(nsys: Nsys | None) -> Check:
    if nsys is None:
        broken = [str(path) for path in nsys_module.candidates() if path.is_file()]
        found = f"found, but silent: {broken[0]}" if broken else "not found"
        return Check("nsys", State.FAIL, found, INSTALL_HINT)
    options = nsys.profile_options
    old = "" if "gpu-metrics-devices" in options else "; older spelling of options is used"
    return Check("nsys", State.OK, f"{nsys.version_text} at {nsys.path}{old}")


def _importer(nsys: Nsys | None) -> Check:
    if nsys is None:
        return Check("nsys importer", State.UNKNOWN, "no nsys")
    if nsys.importer is None:
        advice = "install the full package: without it a recording stays a .qdstrm"
        return Check("nsys importer", State.WARN, "QdstrmImporter not found", advice)
    code, said = ask([nsys.importer, "--version"])
    if code == 0:
        return Check("nsys importer", State.OK, str(nsys.importer))
    missing = re.search(r"(lib[\w.\-+]+): cannot open", said)
    advice = f"install the package with {missing.group(1)}" if missing else "see its own message"
    last = said.strip().splitlines()[-1] if said.strip() else f"exit {code}"
    return Check("nsys importer", State.WARN, f"{nsys.importer} does not start: {last}", advice)


def _ncu() -> Check:
    on_path = shutil.which("ncu")
    places = [Path(on_path)] if on_path else []
    for pattern in _NCU_PATTERNS:
        places += sorted(Path("/").glob(pattern), reverse=True)
    for place in places:
        version = re.search(r"Version (\d[\w.]*)", ask([place, "--version"])[1])
        if version:
            return Check("ncu", State.OK, f"{version.group(1)} at {place}")
    advice = "install Nsight Compute for L2 and stall counters of single kernels"
    return Check("ncu", State.WARN, "not found", advice)


def _driver() -> Check:
    if not _DRIVER.is_file():
        advice = "record where the GPUs are; analyses run anywhere"
        return Check("driver", State.WARN, "no NVIDIA driver is loaded", advice)
    version = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", _DRIVER.read_text(errors="replace"))
    return Check("driver", State.OK, version.group(1) if version else "loaded")


def _gpus() -> Check:
    code, said = ask(["nvidia-smi", "--query-gpu=index,name,compute_cap", "--format=csv,noheader"])
    gpus = [line.strip() for line in said.splitlines() if re.match(r"\d+, ", line)]
    if code or not gpus:
        return Check("GPU", State.WARN, "none seen by nvidia-smi", "check the driver's state")
    return Check("GPU", State.OK, "; ".join(gpus))


def _counters(nsys: Nsys | None) -> Check:
    name = "GPU counters"
    if not _DRIVER.is_file():
        return Check(name, State.UNKNOWN, "no NVIDIA driver")
    if nsys is not None:
        option, devices, reason = metric_devices(nsys)
        if devices:
            return Check(name, State.OK, f"nsys can sample GPU {', '.join(map(str, devices))}")
        if option and "ERR_NVGPUCTRPERM" not in reason:
            advice = "if another tool holds the counters (DCGM), pause it: dcgmi profile --pause"
            return Check(name, State.WARN, reason, advice)
    restricted = "RmProfilingAdminOnly: 1" in _text(_DRIVER_SETTINGS)
    if restricted and not _may_profile():
        advice = (
            "run as root, or load the driver with NVreg_RestrictProfilingToAdminUsers=0"
            " (https://developer.nvidia.com/ERR_NVGPUCTRPERM)"
        )
        return Check(name, State.WARN, "only for administrators", advice)
    return Check(name, State.UNKNOWN, "permitted, but nsys names no GPU", "try: tracekit run")


def _may_profile() -> bool:
    effective = re.search(r"^CapEff:\s*([0-9a-f]+)", _text(_CAPABILITIES), re.MULTILINE)
    bits = int(effective.group(1), 16) if effective else 0
    return bool(bits & (1 << _CAP_SYS_ADMIN | 1 << _CAP_PERFMON))


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _injector() -> Iterator[Check]:
    library = injector.native_library()
    if library is None:
        advice = "install from a wheel, or with a C compiler and the NVTX headers at hand"
        yield Check("native injector", State.WARN, "was not built", advice)
        return
    probe = "import os; print(os.environ.get('LD_PRELOAD', ''))"
    preload = injector.with_preload("", library)
    code, said = ask(["env", f"LD_PRELOAD={preload}", sys.executable, "-S", "-c", probe])
    if code or "cannot be preloaded" in said:
        last = said.strip().splitlines()[0] if said.strip() else f"exit {code}"
        advice = "rebuild it on this machine: pip install --force-reinstall --no-binary :all: ."
        yield Check("native injector", State.WARN, f"does not load: {last}", advice)
        return
    if not preload:
        found = f"{library}: run links to it, since its path has a blank or a colon"
        yield Check("native injector", State.OK, found)
        return
    yield Check("native injector", State.OK, f"loads: {library}")


def _nvtx() -> Check:
    tool = os.environ.get(PATH_VARIABLE)
    if not tool:
        return Check("NVTX", State.OK, f"no tool listens here; nsys sets {PATH_VARIABLE} in a run")
    if Path(tool).is_file():
        return Check("NVTX", State.OK, f"a tool listens: {tool}")
    advice = f"unset {PATH_VARIABLE}"
    return Check("NVTX", State.WARN, f"{PATH_VARIABLE} names no file: {tool}", advice)


def _reach() -> Iterator[Check]:
    """Return what hooks and preload reach in this Python, without importing anything heavy."""
    yield _hooks_reach()
    folder = _package("torch")
    if folder is None:
        advice = "run doctor with the model's own Python: PYTHON -m tracekit doctor"
        yield Check("preload reach", State.UNKNOWN, "torch is not in this Python", advice)
        return
    yield _runtime_reach(folder)
    settings = os.environ.get("PYTORCH_ALLOC_CONF", "") + os.environ.get(
        "PYTORCH_CUDA_ALLOC_CONF", ""
    )
    if re.search(r"expandable_segments\s*:\s*true", settings, re.IGNORECASE):
        found = "expandable segments: allocations show as cuMemCreate and cuMemMap"
        yield Check("torch allocator", State.OK, found)


def _hooks_reach() -> Check:
    probe = "import sys; print('tracekit_injectors' in sys.modules)"
    found = injector.hooked(os.environ, preload=False)
    words = ["env", f"PYTHONPATH={found['PYTHONPATH']}", sys.executable, "-c", probe]
    code, said = ask(words)
    if code == 0 and said.strip().endswith("True"):
        return Check("Python hooks", State.OK, f"reach this Python ({sys.version.split()[0]})")
    advice = "python -I, -E and -S ignore PYTHONPATH: call tracekit_injectors.install() instead"
    return Check("Python hooks", State.WARN, "do not reach this Python", advice)


def _runtime_reach(torch: Path) -> Check:
    """Return whether torch takes the CUDA runtime and NCCL from shared libraries."""
    places: list[Callable[[str], Iterator[Path]]] = [
        torch.joinpath("lib").glob,
        torch.parent.joinpath("nvidia").rglob,
    ]

    def there(pattern: str) -> bool:
        return any(next(glob(pattern), None) is not None for glob in places)

    if not there("libtorch_cuda.so"):
        return Check("preload reach", State.WARN, "torch is a CPU build: no CUDA calls to see")
    runtime = "allocations" if there("libcudart*.so*") else "driver allocations only"
    nccl = "NCCL" if there("libnccl.so*") else "no NCCL (linked statically or absent)"
    return Check("preload reach", State.OK, f"torch: {runtime}, {nccl}")


def _package(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec is not None and spec.origin else None
