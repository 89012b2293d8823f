"""An nsys made of a shell script, so that every version can be had."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

OLD_HELP = """
usage: nsys profile [<args>] [application] [<application args>]
\t-t, --trace=
\t-s, --sample=
\t--cpuctxsw=
\t--cuda-graph-trace=
\t--cuda-memory-usage=
\t-f, --force-overwrite=
\t-o, --output=
\t--gpu-metrics-device=
\t--gpu-metrics-frequency=
\t--gpu-metrics-set=
\t   The option argument must be one of indices reported by '--gpu-metrics-set=help' switch.
"""
NEW_HELP = OLD_HELP.replace("gpu-metrics-device=", "gpu-metrics-devices=").replace(
    "must be one of indices", "must be one of metric set aliases"
)
OLD_SETS = """Possible --gpu-metrics-set values are:
\t[0] [tu10x]        General Metrics for NVIDIA TU10x (any frequency)
\t[4] [gh100]        General Metrics for NVIDIA GH100 (any frequency)
\t[5] [gh100-ct]     Compute Triage Metrics for NVIDIA GH100 (any frequency)
"""
NEW_SETS = OLD_SETS
NO_GPU = """Possible --gpu-metrics-device values are:
\tNVIDIA GPUs not found, feature is not available
"""
TWO_GPUS = """Possible --gpu-metrics-devices values are:
\t0: NVIDIA H200 PCI[0000:04:00.0]
\t1: NVIDIA H200 PCI[0000:05:00.0]
\tall: Select all supported GPUs
\tnone: Disable GPU Metrics [Default]
"""
FORBIDDEN = """Possible --gpu-metrics-devices values are:
\tInsufficient privilege, see https://developer.nvidia.com/ERR_NVGPUCTRPERM
"""

SCRIPT = r"""#!/bin/sh
here={here}
case "$1" in
--version) echo "NVIDIA Nsight Systems version {version}"; exit 0 ;;
export)
  case "$2" in --help) cat "$here/export-help"; exit 0 ;; esac
  echo "$@" >> "$here/export-called"
  {export}
  for word in "$@"; do case "$word" in --output=*) echo "SQL" > "${{word#--output=}}" ;; esac; done
  exit 0 ;;
esac
shift
out=
while [ $# -gt 0 ]; do
  case "$1" in
  --help) cat "$here/help"; exit 0 ;;
  --gpu-metrics-device*=help) cat "$here/devices"; exit 0 ;;
  --gpu-metrics-set=help) cat "$here/sets"; exit 0 ;;
  --output=*) out=${{1#--output=}} ;;
  --*) ;;
  *) break ;;
  esac
  echo "$1" >> "$here/profile-called"
  shift
done
{before}
NVTX_INJECTION64_PATH=/nonexistent LD_PRELOAD= "$@"
code=$?
echo stream > "$out.{suffix}"
exit $code
"""

MakeNsys = Callable[..., Path]


@pytest.fixture
def make_nsys(tmp_path: Path) -> MakeNsys:
    """Return a function that makes an nsys and returns the program's path."""

    def make(
        *,
        version: str = "2025.3.2.474",
        help_text: str = NEW_HELP,
        devices: str = NO_GPU,
        sets: str = NEW_SETS,
        export_help: str = "\t--include-blobs=\n\t-t, --type=\n",
        before: str = "",
        export: str = "",
        suffix: str = "nsys-rep",
        importer: str | None = None,
    ) -> Path:
        root = tmp_path / "nsight systems"
        folder = root / "target-linux-x64"
        folder.mkdir(parents=True)
        texts = {"help": help_text, "devices": devices, "sets": sets, "export-help": export_help}
        for name, text in texts.items():
            (folder / name).write_text(text)
        program = folder / "nsys"
        program.write_text(
            SCRIPT.format(
                here=f"'{folder}'", version=version, before=before, export=export, suffix=suffix
            )
        )
        executable(program)
        if importer is not None:
            host = root / "host-linux-x64"
            host.mkdir()
            (host / "QdstrmImporter").write_text(f"#!/bin/sh\n{importer}\n")
            executable(host / "QdstrmImporter")
        return program

    return make


def executable(path: Path) -> None:
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
