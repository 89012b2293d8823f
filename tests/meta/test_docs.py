"""The documents say what the program does."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from tracekit.cli.shell import app as cli
from tracekit.report.document import schema

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
COMMANDS_PAGE = (ROOT / "docs" / "commands.md").read_text()


def command(name):
    with click.Context(cli.group) as context:
        found = cli.group.get_command(context, name)
    assert found is not None, f"no command {name}"
    return found


def verbs(found):
    """A command, and the commands below it."""
    yield found
    if isinstance(found, click.Group):
        with click.Context(found) as context:
            for name in found.list_commands(context):
                yield from verbs(found.get_command(context, name))


def params(name):
    """Every option of a command and of its verbs."""
    every = (p for verb in verbs(command(name)) for p in verb.params)
    return [p for p in every if isinstance(p, click.Option) and not p.hidden]


def options(name):
    """Every spelling of every option of a command and of its verbs."""
    return [spelling for p in params(name) for spelling in (*p.opts, *p.secondary_opts)]


def section(name):
    """The part of the commands page about one command."""
    match = re.search(rf"^## tracekit {name}$(.*?)(?=^## |\Z)", COMMANDS_PAGE, re.M | re.S)
    assert match, f"docs/commands.md has no section '## tracekit {name}'"
    return match[1]


@pytest.mark.parametrize("name", cli.names())
def test_every_command_and_option_is_documented(name):
    text = section(name)
    missing = [o for o in options(name) if not re.search(rf"`{re.escape(o)}[ `]", text)]
    assert missing == []


def test_the_commands_page_documents_no_command_that_is_gone():
    assert set(re.findall(r"^## tracekit (\S+)$", COMMANDS_PAGE, re.M)) == set(cli.names())


@pytest.mark.parametrize("name", cli.names())
def test_every_option_has_help(name):
    for param in params(name):
        assert param.help, param.name
        assert param.help.endswith("."), param.help


def commands_in(text):
    """Every ``tracekit ...`` of code spans and blocks, as words."""
    code = re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S) + re.findall(r"`([^`\n]+)`", text)
    for line in "\n".join(code).splitlines():
        for part in re.split(r"&&|\|\||;|\s#\s", line):
            words = shlex.split(part.replace("...", ""), comments=True)
            if words and words[0].rpartition("/")[2] == "tracekit":
                yield words[1:]


FOUND = [(p, words) for p in PAGES for words in commands_in(p.read_text()) if words]


def test_the_readme_shows_commands():
    shown = {words[0] for page, words in FOUND if page.name == "README.md"}
    assert {"analyze", "list", "info"} <= shown


@pytest.mark.parametrize(
    ("page", "words"), FOUND, ids=[f"{p.name}: {' '.join(w)}" for p, w in FOUND]
)
def test_commands_in_documents_exist(page, words):
    if words[0] in {"--version", "--help"}:
        return
    below = [verb.name for verb in verbs(command(words[0]))][1:]
    if below and words[1:2] and words[1].islower():
        assert words[1] in below
    known = [*options(words[0]), "--help", "-h"]
    own = words[1 : words.index("--")] if "--" in words else words[1:]
    unknown = [w for w in own if w.startswith("-") and w.partition("=")[0] not in known]
    assert unknown == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_between_documents_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert [t for t in targets if not (page.parent / t).exists()] == []


def test_files_named_in_the_readme_exist():
    named = re.findall(r"fixtures/\S+?\.xz", (ROOT / "README.md").read_text())
    assert named
    assert [n for n in named if not (ROOT / n).exists()] == []


def test_every_exit_code_is_documented():
    page = (ROOT / "docs" / "exit-codes.md").read_text()
    assert re.findall(r"^\| (\d+) \|", page, re.M) == ["0", "1", "2", "3", "4", "130", "143"]


def test_the_schema_explains_its_fields():
    assert schema()["$schema"].endswith("2020-12/schema")
    assert schema()["description"]


def test_the_changelog_has_an_unreleased_section():
    assert "## Unreleased" in (ROOT / "CHANGELOG.md").read_text()


def test_the_tutorial_shows_code_that_runs():
    example = ROOT / "tests" / "plugin_example"
    code = "\n".join(p.read_text() for p in [*example.rglob("*.py"), *example.glob("*.toml")])
    page = (ROOT / "docs" / "adding-an-analysis.md").read_text()
    blocks = re.findall(r"^```(?:python|toml)\n(.*?)^```", page, re.M | re.S)
    assert len(blocks) >= 7
    assert [block for block in blocks if block not in code] == []
