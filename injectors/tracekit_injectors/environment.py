"""The environment that switches hooks on in a program and in its children."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path

__all__ = ["LIBRARY", "SITE", "can_preload", "hooked", "native_library", "with_preload"]

SITE = Path(__file__).resolve().parent / "site"
"""Folder that goes to the front of ``PYTHONPATH``; it holds nothing but ``sitecustomize.py``."""
LIBRARY = "libtracekit_inject.so"


def native_library() -> Path | None:
    """Return the preload library of this installation, or None when it was not built.

    An editable installation keeps it in site-packages, away from the sources, so the
    distribution's own list of files is asked too.
    """
    library = Path(__file__).resolve().parent / LIBRARY
    if library.is_file():
        return library
    from importlib import metadata

    try:
        files = metadata.files("tracekit-gpu") or []
    except metadata.PackageNotFoundError:
        return None
    for file in files:
        path = Path(str(file.locate()))
        if file.name == LIBRARY and path.is_file():
            return path.resolve()
    return None


def hooked(environment: Mapping[str, str], *, preload: bool = True) -> dict[str, str]:
    """Return `environment` with the Python hooks switched on.

    Args:
        environment: What the program would get otherwise.
        preload: Whether the native library is preloaded too.
    """
    found = dict(environment)
    parts = [part for part in found.get("PYTHONPATH", "").split(os.pathsep) if part]
    found["PYTHONPATH"] = os.pathsep.join([str(SITE), *(p for p in parts if p != str(SITE))])
    library = native_library() if preload and platform.system() == "Linux" else None
    if library is not None:
        found["LD_PRELOAD"] = with_preload(found.get("LD_PRELOAD", ""), library)
    return found


def can_preload(library: Path) -> bool:
    """Return whether the loader can be given `library`: it splits its list at blanks and colons."""
    return not any(sign in str(library) for sign in " :\t\n")


def with_preload(setting: str, library: Path) -> str:
    """Append a library to an ``LD_PRELOAD`` value; what was there keeps its place.

    Args:
        setting: The value so far, maybe empty.
        library: The library; one that cannot be preloaded (`can_preload`) is left out.
    """
    present = str(library) in setting.replace(":", " ").split()
    if present or not can_preload(library):
        return setting
    return f"{setting}:{library}" if setting else str(library)
