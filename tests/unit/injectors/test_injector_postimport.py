from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from tracekit_injectors import postimport


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    name = "tk_watched"
    folder = tmp_path / name
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "part.py").write_text("VALUE = 4\nLOADER = type(__loader__).__name__\n")
    (folder / "broken.py").write_text("raise RuntimeError('on purpose')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(postimport, "_finder", postimport._Finder())
    meta_path = list(sys.meta_path)
    yield name
    sys.meta_path[:] = meta_path
    for module in [m for m in sys.modules if m.partition(".")[0] == name]:
        del sys.modules[module]


def test_called_once_after_the_module_ran(package: str) -> None:
    seen: list[ModuleType] = []
    postimport.when_imported(f"{package}.part", seen.append)
    assert seen == []
    module = importlib.import_module(f"{package}.part")
    assert [m.VALUE for m in seen] == [4]
    importlib.reload(module)
    assert len(seen) == 1


def test_a_module_that_is_there_is_told_at_once(package: str) -> None:
    module = importlib.import_module(f"{package}.part")
    seen: list[ModuleType] = []
    postimport.when_imported(f"{package}.part", seen.append)
    assert seen == [module]


def test_the_module_keeps_its_own_loader(package: str) -> None:
    postimport.when_imported(f"{package}.part", lambda _module: None)
    module = importlib.import_module(f"{package}.part")
    assert module.LOADER == "SourceFileLoader"
    assert type(module.__spec__.loader).__name__ == "SourceFileLoader"


def test_looking_a_module_up_is_not_importing_it(package: str) -> None:
    seen: list[ModuleType] = []
    postimport.when_imported(f"{package}.part", seen.append)
    spec = importlib.util.find_spec(f"{package}.part")
    assert spec is not None
    assert spec.loader.get_source(f"{package}.part").startswith("VALUE")
    assert seen == []
    importlib.import_module(f"{package}.part")
    assert len(seen) == 1


def test_errors_of_the_module_are_its_own(package: str) -> None:
    seen: list[ModuleType] = []
    postimport.when_imported(f"{package}.broken", seen.append)
    with pytest.raises(RuntimeError, match="on purpose"):
        importlib.import_module(f"{package}.broken")
    assert seen == []
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"{package}.absent")


def test_an_unwatched_module_is_left_alone(package: str) -> None:
    postimport.when_imported(f"{package}.absent", lambda _module: None)
    assert importlib.import_module(f"{package}.part").VALUE == 4
