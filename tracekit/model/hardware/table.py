"""The rows, read from ``devices.toml`` or from a file of the user's own in the same form."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import date
from importlib import resources
from typing import Any

from tracekit.errors import InputError
from tracekit.model.hardware.device import Cell, Hardware

__all__ = ["HARDWARE", "merged", "parse_devices"]

_PLAIN = frozenset({"key", "pattern", "chip"})
_DERIVED = frozenset({"unsupported", "unverified", "cells"})
_FIGURES = tuple(f.name for f in fields(Hardware) if f.name not in _PLAIN | _DERIVED)
_WHOLE = frozenset({"l2_bytes", "sm_count", "pcie_gen"})
_REQUIRED = ("memory_nominal_gb", "dram_gb_per_s", "fp16_tflops", "tdp_w")


def parse_devices(text: str, known: Sequence[Hardware] = ()) -> tuple[Hardware, ...]:
    """Return the devices that a TOML text describes.

    Args:
        text: ``[sources]`` (a short name and the document) and one ``[[device]]`` each; every
            figure is ``{ value, source, as_of }``, with ``checked = false`` where it was not
            compared with its source, or ``{ unsupported = true, source, as_of }``.
        known: Rows that a device with the same key changes only in the figures that it gives.

    Returns:
        One row a device, in the order of the text.

    Raises:
        InputError: The text is no TOML, or a device, figure, source or date is missing or wrong.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = f"not a TOML file: {error}"
        raise InputError(message) from None
    sources = document.get("sources", {})
    devices = document.get("device", [])
    if not isinstance(devices, list) or not devices or not isinstance(sources, dict):
        message = "describes no device"
        raise InputError(message, hint="see tracekit/model/hardware/devices.toml for the form")
    by_key = {row.key: row for row in known}
    return tuple(_device(one, sources, by_key) for one in devices)


def merged(known: Sequence[Hardware], own: Sequence[Hardware]) -> tuple[Hardware, ...]:
    """Return both tables as one: own rows replace those of the same key, new ones come first."""
    by_key = {row.key: row for row in own}
    new = [row for row in own if row.key not in {k.key for k in known}]
    return (*new, *(by_key.get(row.key, row) for row in known))


def _device(
    given: Mapping[str, Any], sources: Mapping[str, Any], known: Mapping[str, Hardware]
) -> Hardware:
    key = given.get("key")
    if not isinstance(key, str) or not key:
        message = "a device has no key"
        raise InputError(message)
    if unknown := sorted(set(given) - _PLAIN - set(_FIGURES)):
        message = f"device {key!r} has an unknown figure {unknown[0]!r}"
        raise InputError(message, hint=f"there are: {', '.join(_FIGURES)}")
    base = known.get(key)
    values: dict[str, Any] = {}
    unsupported, unverified, cells = set[str](), set[str](), list[Cell]()
    for name in (n for n in _FIGURES if n in given):
        cell = given[name]
        cells.append(_provenance(key, name, cell, sources))
        if cell.get("unsupported") is True:
            unsupported.add(name)
            values[name] = None
            continue
        values[name] = _figure(key, name, cell.get("value"))
        if cell.get("checked") is False:
            unverified.add(name)
    if base is not None:
        return _changed(base, given, values, unsupported, unverified, cells)
    if missing := [name for name in _REQUIRED if values.get(name) is None]:
        message = f"device {key!r} has no {missing[0]}"
        raise InputError(message)
    return Hardware(
        key=key,
        pattern=_pattern(key, given.get("pattern", re.escape(key))),
        chip=given.get("chip"),
        unsupported=frozenset(unsupported),
        unverified=frozenset(unverified),
        cells=tuple(cells),
        **values,
    )


def _changed(
    base: Hardware,
    given: Mapping[str, Any],
    values: Mapping[str, Any],
    unsupported: set[str],
    unverified: set[str],
    cells: Sequence[Cell],
) -> Hardware:
    """`base` with the figures that were given, and with their sources."""
    for name in _REQUIRED:
        if name in values and values[name] is None:
            message = f"device {base.key!r} cannot be without {name}"
            raise InputError(message)
    named = frozenset(values)
    return replace(
        base,
        pattern=_pattern(base.key, given.get("pattern", base.pattern)),
        chip=given.get("chip", base.chip),
        unsupported=(base.unsupported - named) | unsupported,
        unverified=(base.unverified - named) | unverified,
        cells=(*(c for c in base.cells if c.field not in named), *cells),
        **values,
    )


def _pattern(key: str, pattern: object) -> str:
    try:
        return re.compile(str(pattern)).pattern
    except re.error as error:
        message = f"device {key!r}: pattern {pattern!r} is no regular expression: {error}"
        raise InputError(message) from None


def _provenance(key: str, name: str, cell: object, sources: Mapping[str, Any]) -> Cell:
    where = f"device {key!r}, {name}"
    if not isinstance(cell, dict):
        message = f"{where}: a figure is {{ value = ..., source = ..., as_of = ... }}"
        raise InputError(message)
    source, as_of = cell.get("source"), str(cell.get("as_of", ""))
    if not isinstance(source, str) or not source:
        message = f"{where}: no source"
        raise InputError(message)
    try:
        date.fromisoformat(as_of)
    except ValueError:
        message = f"{where}: as_of is no date such as 2026-12-07"
        raise InputError(message) from None
    return Cell(name, str(sources.get(source, source)), as_of)


def _figure(key: str, name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        message = f"device {key!r}, {name}: value is no number"
        raise InputError(message)
    if not (math.isfinite(value) and value > 0):
        message = f"device {key!r}, {name}: value must be positive, not {value}"
        raise InputError(message)
    return int(value) if name in _WHOLE else value


HARDWARE: tuple[Hardware, ...] = parse_devices(
    resources.files("tracekit.model.hardware").joinpath("devices.toml").read_text(encoding="utf-8")
)
"""Every device with known peaks."""
