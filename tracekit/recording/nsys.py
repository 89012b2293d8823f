"""Finding nsys on a machine and asking it what it can do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tracekit.errors import TracekitError, UsageError

__all__ = ["INSTALL_HINT", "Nsys", "ask", "candidates", "find", "importer_candidates"]

INSTALL_HINT = (
    "install Nsight Systems: https://developer.nvidia.com/nsight-systems"
    " (Debian: apt-get install nsight-systems, component non-free;"
    " NVIDIA's repositories: nsight-systems-cli)"
)
_PATTERNS = (
    "/opt/nvidia/nsight-systems-cli/*/bin/nsys",
    "/opt/nvidia/nsight-systems/*/bin/nsys",
    "/usr/local/cuda*/bin/nsys",
    "/usr/lib/nsight-systems/bin/nsys",
    "/opt/nvidia/nsight-compute/*/host/target-linux-x64/nsys",
    "/opt/nvidia/nsight-compute/*/host/target-linux-*/nsys",
)
"""Where NVIDIA's packages put it, besides ``PATH``; Nsight Compute brings a copy of its own."""
_IMPORTER = "QdstrmImporter"
_HOST_FOLDERS = ("host-linux-x64", "host-linux-*", "linux-desktop-*")
_VERSION = re.compile(r"version (\d+(?:\.\d+)+)")
_OPTION = re.compile(r"^\s*(?:-\w, )?--([a-z0-9][a-z0-9\-]*)", re.MULTILINE)
_ASK_S = 60


def ask(words: Sequence[str | Path], *, timeout_s: float = _ASK_S) -> tuple[int, str]:
    """Run a tool that only answers, and return its exit code and everything it printed.

    Args:
        words: Program and arguments.
        timeout_s: How long it may take, s.

    Returns:
        Exit code (124 when it took too long, 127 when it cannot be started) and its output.
    """
    try:
        done = subprocess.run(
            [str(word) for word in words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
            check=False,
            encoding="utf-8",
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        return 124, "no answer"
    except OSError as problem:
        return 127, problem.strerror or ""
    return done.returncode, done.stdout


@dataclass(frozen=True)
class Nsys:
    """An nsys that answers.

    Attributes:
        path: The program.
        version: Its version, e.g. ``(2025, 3, 2)``.
    """

    path: Path
    version: tuple[int, ...]

    @cached_property
    def profile_options(self) -> frozenset[str]:
        """Long names of the options of ``nsys profile``, from its help."""
        return frozenset(_OPTION.findall(self.help_text))

    @cached_property
    def export_options(self) -> frozenset[str]:
        """Long names of the options of ``nsys export``, from its help."""
        return frozenset(_OPTION.findall(ask([self.path, "export", "--help"])[1]))

    @cached_property
    def help_text(self) -> str:
        """What ``nsys profile --help`` prints."""
        return ask([self.path, "profile", "--help"])[1]

    def values_of(self, option: str) -> str:
        """Return what ``nsys profile --OPTION=help`` prints."""
        return ask([self.path, "profile", f"--{option}=help"])[1]

    @property
    def version_text(self) -> str:
        """The version with dots."""
        return ".".join(map(str, self.version))

    @cached_property
    def importer(self) -> Path | None:
        """The program that makes a report of a ``.qdstrm`` stream, or None."""
        return next((path for path in importer_candidates(self.path) if path.is_file()), None)


def candidates() -> Iterator[Path]:
    """Yield every place where an nsys may be, the preferred first; newer versions before older."""
    on_path = shutil.which("nsys")
    if on_path:
        yield Path(on_path)
    for pattern in _PATTERNS:
        yield from sorted(Path("/").glob(pattern.lstrip("/")), reverse=True)


def importer_candidates(nsys: Path) -> Iterator[Path]:
    """Yield every place where the importer of `nsys` may be.

    Packages differ: the importer lies next to the folder of the real program or next to that of
    the link that was followed to it, in ``host-linux-x64`` or, in Nsight Compute's copy, in a
    folder of another name.
    """
    roots: dict[Path, None] = {}
    link = nsys
    for _ in range(8):
        roots[link.parent.parent] = None
        if not link.is_symlink():
            break
        link = Path(os.path.normpath(link.parent / link.readlink()))
    roots[nsys.resolve().parent.parent] = None
    for folder in roots:
        for name in _HOST_FOLDERS:
            yield from (found / _IMPORTER for found in sorted(folder.glob(name), reverse=True))
    yield Path("/usr/lib/nsight-systems/host-linux-x64") / _IMPORTER


def _opened(path: Path) -> Nsys | None:
    _, said = ask([path, "--version"])
    version = _VERSION.search(said)
    if version is None:
        return None
    return Nsys(path, tuple(int(part) for part in version.group(1).split(".")))


def find(setting: str) -> Nsys | None:
    """Find the nsys that a user requested.

    Args:
        setting: ``never``, ``auto``, ``always``, or a path.

    Returns:
        It, or None for ``never``, and for ``auto`` when there is none that answers.

    Raises:
        UsageError: The path is no nsys.
        TracekitError: ``always``, and there is none.
    """
    if setting == "never":
        return None
    if setting not in ("auto", "always"):
        found = _opened(Path(setting)) if Path(setting).is_file() else None
        if found is None:
            message = f"--nsys {setting}: no nsys that answers to --version"
            raise UsageError(message, hint="give a path to nsys, or auto, always, never")
        return found
    for path in candidates():
        found = _opened(path) if path.is_file() else None
        if found is not None:
            return found
    if setting == "always":
        message = "nsys is not on this machine"
        raise TracekitError(message, hint=INSTALL_HINT)
    return None
