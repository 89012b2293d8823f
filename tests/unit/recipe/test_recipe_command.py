from __future__ import annotations

import json
from pathlib import Path

import pytest

from tracekit.cli.shell import app as cli

FILES = ["__init__.py", "diagnosis.ipynb", "metadata.json", "tracekit_diagnosis.py"]


@pytest.fixture
def recipe(capsys):
    """The recipe's folder, as nsys finds it in the one that the command prints."""
    assert cli.call(["recipe", "path"]) == 0
    return Path(capsys.readouterr().out.strip()) / "tracekit_diagnosis"


def test_path_names_the_folder_that_holds_the_recipe(recipe):
    metadata = json.loads((recipe / "metadata.json").read_text())
    assert metadata["module_name"] == "tracekit_diagnosis"
    module = (recipe / "tracekit_diagnosis.py").read_text()
    assert f"class {metadata['class_name']}(recipe.Recipe):" in module
    assert metadata["display_name"]
    assert "".join(metadata["description"]).endswith(".")


def test_install_copies_the_recipe_and_replaces_an_earlier_copy(tmp_path, capsys):
    target = tmp_path / "new" / "tracekit_diagnosis"
    assert cli.call(["recipe", "install", str(tmp_path / "new")]) == 0
    assert capsys.readouterr().out.strip() == str(target)
    assert sorted(p.name for p in target.iterdir()) == FILES
    module = target / "tracekit_diagnosis.py"
    text = module.read_text()
    module.write_text("old")
    assert cli.call(["recipe", "install", str(tmp_path / "new")]) == 0
    assert module.read_text() == text


@pytest.mark.parametrize("content", [None, "[]", "{", '{"module_name": "other"}'])
def test_install_never_writes_over_anything_else(tmp_path, capsys, content):
    target = tmp_path / "tracekit_diagnosis"
    target.mkdir()
    if content is not None:
        (target / "metadata.json").write_text(content)
    before = sorted(target.iterdir())
    assert cli.call(["recipe", "install", str(tmp_path)]) == 2
    assert "something else than tracekit's recipe" in capsys.readouterr().err
    assert sorted(target.iterdir()) == before


def test_install_where_nothing_can_be_written_says_so(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert cli.call(["recipe", "install", str(tmp_path / "file" / "folder")]) == 3
    assert "cannot be copied there" in capsys.readouterr().err
