from __future__ import annotations

import subprocess
import sys

import click
import pytest

from tracekit import __version__
from tracekit.cli.shell import app as cli

HEAVY = ["numpy", "polars", "pandas", "numba", "matplotlib", "rich", "jinja2", "dask"]


def in_child(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("words", [[], *([name] for name in cli.names())], ids=str)
def test_help_loads_nothing_heavier_than_click(words):
    code = (
        "import sys; from tracekit.cli.shell import app;"
        f"assert app.call({[*words, '--help']!r}) == 0;"
        f"print('LOADED', sorted(set({HEAVY}) & set(sys.modules)))"
    )
    assert in_child(code).endswith("LOADED []\n")


def test_the_folder_is_the_list_of_commands():
    assert {"analyze", "info", "list"} <= set(cli.names())
    assert not any(name.startswith("_") for name in cli.names())
    with click.Context(cli.group) as context:
        for name in cli.names():
            command = cli.group.get_command(context, name)
            assert command is not None
            assert command.name == name
            assert command.help
            assert command.short_help


def test_version(capsys):
    assert cli.call(["--version"]) == 0
    assert __version__ in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing"],
        ["analyze"],
        ["analyze", "x", "--format", "yaml"],
        ["analyze", "x", "--window", "1:2"],
        ["analyze", "x", "--top", "-1"],
        ["analyze", "x", "--param", "oops"],
        ["list", "nothing"],
    ],
)
def test_wrong_usage_is_2(arguments, capsys):
    assert cli.call(arguments) == 2
    assert capsys.readouterr().out == ""


def test_list_names_every_analysis_and_how_to_record(capsys):
    from tracekit import analyses

    assert cli.call(["list"]) == 0
    out = capsys.readouterr().out
    for name in analyses.names():
        assert (
            f"{name}\n  {analyses.load(name).question}" in " ".join(out.split(" ")) or name in out
        )
    assert "nsys profile -t cuda" in out
    assert "hardware.peak_gbps" in out
    assert "Needs        markers that say where KV blocks lie" in out
    assert "nothing in particular" not in out
    assert "    tracekit run -o run -- YOUR_COMMAND\n" in out


def test_list_of_one_analysis_shows_its_parameters(capsys):
    assert cli.call(["list", "dequant_stall"]) == 0
    out = capsys.readouterr().out
    assert "dequant_stall.warn_frac" in out
    assert "kv_fragmentation" not in out
