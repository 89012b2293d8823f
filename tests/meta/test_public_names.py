"""The public surface of the package."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import tracekit

ROOT = Path(__file__).parent.parent.parent


def test_every_public_name_exists_and_the_list_is_sorted():
    assert tracekit.__all__ == sorted(tracekit.__all__)
    for name in tracekit.__all__:
        assert getattr(tracekit, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'analyse'"):
        _ = tracekit.analyse


def test_every_public_name_has_one_home_and_is_typed():
    tree = ast.parse(Path(tracekit.__file__).read_text())
    typed = [
        (node.module, name.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module.startswith("tracekit.")
        for name in node.names
    ]
    homes = [(home, name) for home, names in tracekit._HOMES.items() for name in names]
    assert sorted(typed) == sorted(homes)
    assert sorted(name for _, name in homes) == [n for n in tracekit.__all__ if n[0] != "_"]
    assert set(tracekit.__all__) <= set(dir(tracekit))


def test_the_version_is_stated_once_more_in_the_package_data_only():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == tracekit.__version__


def test_importing_the_package_loads_nothing_heavy():
    heavy = "{'numpy', 'polars', 'numba', 'pandas', 'matplotlib', 'rich', 'click'}"
    code = f"import sys, tracekit; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
