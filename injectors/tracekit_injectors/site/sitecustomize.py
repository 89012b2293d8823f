"""Found first on ``PYTHONPATH`` by every Python that a recorded program starts.

Installs tracekit's hooks, then gives way: the folder leaves ``sys.path``, and the program's own
``sitecustomize``, if there is one, runs under its own name. ``python -I``, ``-E`` and ``-S`` never
come here and run without hooks.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import PathFinder
from pathlib import Path

_HERE = Path(__file__).resolve().parent


def _leave_path() -> None:
    sys.path[:] = [entry for entry in sys.path if not entry or Path(entry).resolve() != _HERE]


def _load_hooks() -> None:
    """Import ``tracekit_injectors`` from where it lies, without adding its folder to the path."""
    if sys.version_info < (3, 11):  # noqa: UP036  (the program's Python, not tracekit's)
        print("tracekit: no hooks: this Python is older than 3.11", file=sys.stderr)
        return
    package = _HERE.parent
    if package.name not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            package.name, package / "__init__.py", submodule_search_locations=[str(package)]
        )
        if spec is None or spec.loader is None:
            return
        module = importlib.util.module_from_spec(spec)
        sys.modules[package.name] = module
        spec.loader.exec_module(module)
    sys.modules[package.name].install()


def _run_own() -> None:
    """Run the ``sitecustomize`` that this one hides, as that module."""
    sys.path_importer_cache.pop(str(_HERE), None)
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_leave_path()
_load_hooks()
_run_own()
