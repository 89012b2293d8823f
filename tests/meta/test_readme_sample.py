"""The sample in the README is what the program prints; ``--update`` pastes it anew."""

from __future__ import annotations

import re
from pathlib import Path

from tracekit.cli.shell import app as cli

ROOT = Path(__file__).parent.parent.parent
SAMPLE = re.compile(r"(<!-- sample: tracekit (.*?) -->\n```text\n)(.*?)(```\n)", re.S)
CUT = "  ..."


def test_the_sample_in_the_readme_is_real(capsys, monkeypatch, update):
    monkeypatch.chdir(ROOT)
    text = Path("README.md").read_text()
    found = SAMPLE.search(text)
    assert found
    assert cli.call(found[2].split()) == 0
    out = capsys.readouterr().out.splitlines()
    shown = [*out[: out.index("  Share by step group")], CUT]
    if update:
        page = text[: found.start(3)] + "\n".join(shown) + "\n" + text[found.end(3) :]
        Path("README.md").write_text(page)
        return
    assert found[3].splitlines() == shown, "run this test with --update to paste it anew"
