"""``tracekit recipe``: the recipe for ``nsys recipe``, where it is or copied."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import click

from tracekit.errors import InputError, UsageError

__all__ = ["command"]

_FOLDER = Path(__file__).parent.parent / "recipe"
_NAME = "tracekit_diagnosis"


@click.group("recipe", short_help="Let `nsys recipe` run tracekit.")
def command() -> None:
    """Let `nsys recipe tracekit_diagnosis` find tracekit.

    Either `export NSYS_RECIPE_PATH="$(tracekit recipe path)"`, or copy the recipe into the
    working directory with `tracekit recipe install .`.
    """


@command.command("path")
def path() -> None:
    """Print the folder to put into NSYS_RECIPE_PATH."""
    click.echo(_FOLDER)


@command.command("install")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
def install(folder: Path) -> None:
    """Copy the recipe into DIR, replacing an earlier copy.

    nsys finds it there when DIR is the working directory or in NSYS_RECIPE_PATH.
    """
    target = folder / _NAME
    if target.exists() and not _is_copy(target):
        message = "something else than tracekit's recipe is there"
        raise UsageError(message, path=target, hint="give another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        skipped = shutil.ignore_patterns("__pycache__")
        shutil.copytree(_FOLDER / _NAME, target, ignore=skipped, dirs_exist_ok=True)
    except (OSError, shutil.Error) as error:
        message = f"the recipe cannot be copied there: {error}"
        raise InputError(message, path=folder) from None
    click.echo(target)


def _is_copy(target: Path) -> bool:
    """Whether `target` is the recipe, of any version."""
    try:
        found = json.loads((target / "metadata.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and found.get("module_name") == _NAME
