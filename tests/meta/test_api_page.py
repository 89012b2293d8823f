"""The examples of docs/api.md run and print what the page says, and show every public name."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import tracekit

PAGE = Path(__file__).parent.parent.parent / "docs" / "api.md"
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def test_the_examples_run(tmp_path, fixture_path, monkeypatch, capsys):
    (tmp_path / "run.sqlite").symlink_to(fixture_path("int4_dequant"))
    (tmp_path / "other.sqlite").symlink_to(fixture_path("hf_dynamic_cache"))
    (tmp_path / "notes.txt").write_text("no report\n")
    whole = fixture_path("int4_dequant").read_bytes()
    (tmp_path / "truncated.sqlite").write_bytes(whole[: len(whole) // 2])
    monkeypatch.chdir(tmp_path)
    failed, tried = doctest.testfile(str(PAGE), module_relative=False, optionflags=FLAGS)
    assert failed == 0, capsys.readouterr().out
    assert tried > 40


def test_every_public_name_is_on_the_page():
    text = PAGE.read_text()
    missing = [n for n in tracekit.__all__ if not re.search(rf"\b{n}\b", text)]
    assert missing == ["__version__"]
