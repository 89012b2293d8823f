"""Options of the recipe: nsys's own where this release has them, and those of ``tracekit analyze``.

The framework of nsys changes with every release, so what it offers is asked, never assumed.
"""

from __future__ import annotations

import argparse
import re
from typing import Any

from tracekit import analyses, settings
from tracekit.errors import UsageError
from tracekit.opening import OpenOptions

__all__ = ["END_OF_TIME", "add_options", "analyze_keywords", "setting"]

END_OF_TIME = 2**63 - 1
_FLAGS = {
    "INPUT": "--input",
    "OUTPUT": "--output",
    "FORCE_OVERWRITE": "--force-overwrite",
    "FILTER_TIME": "--filter-time",
    "START": "--start",
    "END": "--end",
    "CSV": "--csv",
}


def add_options(parser: Any, known: type, usage: str) -> Any:
    """Add the recipe's options to a parser and return it.

    Args:
        parser: The framework's parser.
        known: Its ``Option`` enumeration; only members that it has are used.
        usage: Usage of a parser that the framework completed without the recipe: options that
            are in it are the framework's to add.
    """
    taken = set(re.findall(r"--[a-z-]+", usage))
    for name in _wanted(known):
        if _FLAGS[name] not in taken:
            required = {"required": True} if name == "INPUT" else {}
            parser.add_recipe_argument(getattr(known, name), **required)
    _add_own(parser.add_recipe_argument)
    return parser


def _wanted(known: type) -> list[str]:
    """Return members of `known`; the start and end of old releases only without their successor."""
    old = {"START", "END"} if hasattr(known, "FILTER_TIME") else set()
    return [name for name in _FLAGS if hasattr(known, name) and name not in old]


def _add_own(add: Any) -> None:
    add(
        "--only",
        metavar="NAME",
        action="append",
        choices=analyses.names(),
        help=f"Run only this analysis ({', '.join(analyses.names())}); may be repeated",
    )
    add(
        "--param",
        metavar="NAME=VALUE",
        action="append",
        type=setting,
        help="Set a parameter, as 'tracekit list NAME' shows them; may be repeated",
    )
    add("--top", metavar="N", type=_rows, help="Rows of each table in the documents")
    add("--peak-gbps", metavar="GB/S", type=float, help="Peak DRAM bandwidth of the GPUs")
    add(
        "--redact",
        action=argparse.BooleanOptionalAction,
        help="Leave out, or show, names that may reveal a machine, its users or their data;"
        " unless said, only diagnosis.md leaves them out",
    )
    add("--keep-nvtx", action="store_true", help="When redacting, let the program's NVTX text pass")
    add("--salvage", action="store_true", help="Read what is left of a damaged report")


def _rows(text: str) -> int:
    number = int(text)
    if number < 0:
        message = f"{text} is less than 0"
        raise argparse.ArgumentTypeError(message)
    return number


def setting(text: str) -> tuple[str, str]:
    """Return (name, value) of ``name=value``.

    Raises:
        argparse.ArgumentTypeError: It is something else.
    """
    name, equals, value = text.partition("=")
    if not equals or "." not in name.strip("."):
        message = f"{text!r} is not ANALYSIS.NAME=VALUE"
        raise argparse.ArgumentTypeError(message)
    return name, value


def analyze_keywords(parsed: argparse.Namespace) -> dict[str, Any]:
    """Return what `tracekit.engine.analyze` is to be called with, besides paths and redaction.

    Raises:
        UsageError: A parameter does not exist or has a wrong value, or the window is empty.
    """
    params = dict(parsed.param or ())
    if parsed.peak_gbps is not None:
        params["hardware.peak_gbps"] = repr(parsed.peak_gbps)
    settings.parse(analyses.names(), params)
    return {
        "only": tuple(parsed.only or ()),
        "params": params,
        "options": OpenOptions(window_ns=_window(parsed), salvage=parsed.salvage),
    }


def _window(parsed: argparse.Namespace) -> tuple[int, int] | None:
    """Return the half-open part of the session that was requested, in ns."""
    filtered = getattr(parsed, "filter_time", None)
    first, last = filtered or (getattr(parsed, "start", None), getattr(parsed, "end", None))
    if first is None and last is None:
        return None
    window = (first or 0, END_OF_TIME if last is None else last)
    if window[1] <= window[0]:
        message = f"the time filter {window[0]} to {window[1]} ns ends before it starts"
        raise UsageError(message)
    return window
