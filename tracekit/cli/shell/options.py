"""Values of options: time windows, parameters, and the spelling of each."""

from __future__ import annotations

import re
from collections.abc import Sequence

import click

__all__ = [
    "BYTES",
    "END_OF_TIME",
    "SETTING",
    "WINDOW",
    "Bytes",
    "Setting",
    "Window",
    "merged_params",
]

END_OF_TIME = 2**63 - 1
_UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_BYTES = {"b": 1, "kb": 1_000, "mb": 1_000_000, "gb": 1_000_000_000, "": 1_000_000}
_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?) ?(?P<unit>[kmg]?b|)", re.IGNORECASE)
_MOMENT = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>ns|us|ms|s)")


class Window(click.ParamType[tuple[int, int]]):
    """``START:END`` in session time; either side may be left out."""

    name = "START:END"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """Return (start, end) in ns, half-open."""
        if isinstance(value, tuple):
            return value
        first, colon, last = str(value).partition(":")
        if not colon:
            self.fail(f"{value!r} is not START:END, for example 1.2s:1300ms", param, ctx)
        start = self._moment(first, param, ctx) if first else 0
        end = self._moment(last, param, ctx) if last else END_OF_TIME
        if end <= start:
            self.fail(f"{value!r} ends before it starts", param, ctx)
        return start, end

    def _moment(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if text == "0":
            return 0
        match = _MOMENT.fullmatch(text)
        if match is None:
            self.fail(f"{text!r} is not a time with its unit (ns, us, ms, s)", param, ctx)
        # Exact also where a double is not: 123456789.123456789 s has 18 digits.
        whole, _, part = match["number"].partition(".")
        unit = _UNITS[match["unit"]]
        scaled = int(part) * unit // 10 ** len(part) if part else 0
        return int(whole) * unit + scaled


class Setting(click.ParamType[tuple[str, str]]):
    """``group.name=value``."""

    name = "NAME=VALUE"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Return (group.name, value)."""
        if isinstance(value, tuple):
            return value
        key, equals, text = str(value).partition("=")
        if not equals or "." not in key.strip("."):
            self.fail(f"{value!r} is not ANALYSIS.NAME=VALUE", param, ctx)
        return key, text


class Bytes(click.ParamType[int]):
    """A size such as ``10MB``; a number without a unit is MB."""

    name = "SIZE"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Return bytes."""
        if isinstance(value, int):
            return value
        match = _SIZE.fullmatch(str(value))
        if match is None or not float(match["number"]):
            self.fail(f"{value!r} is not a size, for example 10MB or 500kB", param, ctx)
        return round(float(match["number"]) * _BYTES[match["unit"].lower()])


BYTES = Bytes()
WINDOW = Window()
SETTING = Setting()


def merged_params(pairs: Sequence[tuple[str, str]], peak_gbps: float | None) -> dict[str, str]:
    """Return parameters as the engine takes them.

    The last of a name wins, except that every pattern of a kernel class counts.
    """
    given: dict[str, str] = {}
    for name, text in pairs:
        is_more = name.startswith("kernels.") and name in given
        given[name] = f"{given[name]}|{text}" if is_more else text
    if peak_gbps is not None:
        given["hardware.peak_gbps"] = repr(peak_gbps)
    return given
