from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

FRAMEWORK = Path(__file__).parent / "framework"


def forget():
    names = [n for n in sys.modules if n.split(".")[0] == "nsys_recipe"]
    for name in [*names, "tracekit.recipe.tracekit_diagnosis.tracekit_diagnosis"]:
        sys.modules.pop(name, None)


@pytest.fixture(params=["2023.4", "2025.1"])
def framework(request, monkeypatch):
    """Return a function that imports a module of the stand-in, of an old and of a new release."""
    forget()
    monkeypatch.setenv("STANDIN_RELEASE", request.param)
    monkeypatch.syspath_prepend(FRAMEWORK)
    yield importlib.import_module
    forget()
