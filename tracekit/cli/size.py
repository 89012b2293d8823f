"""``tracekit size``: from a diagnosis to a decision, one verb a module of ``cli/sizing``."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import click

__all__ = ["command", "verbs"]

_FOLDER = Path(__file__).parent / "sizing"


def verbs() -> tuple[str, ...]:
    """Return the names of all verbs, sorted."""
    return tuple(sorted(p.stem for p in _FOLDER.glob("*.py") if p.name[0] != "_"))


class _Verbs(click.Group):
    """Loads a verb's module when it is called for."""

    def list_commands(self, _: click.Context) -> list[str]:
        return list(verbs())

    def get_command(self, _: click.Context, name: str) -> click.Command | None:
        if name not in verbs():
            return None
        found = import_module(f"tracekit.cli.sizing.{name}").command
        assert isinstance(found, click.Command)
        return found


@click.group("size", cls=_Verbs, short_help="Decide: what a GPU, precision or batch can reach.")
def command() -> None:
    """Work out what another GPU, precision or batch would change.

    Predictions are bounds from published peaks; a number that cannot be known is `unknown`, with
    what it would take.
    """
