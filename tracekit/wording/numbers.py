"""Text of a number with its unit: the one place that rounds, for verdicts and reports alike.

Three significant digits, decimal units, a space before the unit (none before %), and ``-`` for a
number that was not measured. A headline and the table below it print one value through the same
function, so that they never disagree in a digit. Nothing here is ever read back: JSON carries the
plain numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

__all__ = [
    "NOT_MEASURED",
    "Number",
    "Scale",
    "bounds",
    "count",
    "count_of",
    "duration",
    "moment",
    "quantity",
    "rate",
    "ratio",
    "scale_of",
    "share",
    "significant",
    "size",
    "span",
    "suffix_of_column",
    "threshold",
    "unit_of_column",
]

NOT_MEASURED = "-"
_TIME = ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns"))
_BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))
_DIGITS = 3
_TINY_PERCENT = 0.001
_SUFFIXES = (
    ("_bytes_per_s", "B/s"),
    ("_gbps", "GB/s"),
    ("_gb_per_s", "GB/s"),
    ("_bytes", "bytes"),
    ("_frac", "1"),
    ("_pct", "%"),
    ("_ns", "ns"),
    ("_us", "us"),
    ("_hz", "Hz"),
    ("_ratio", "x"),
    ("_x", "x"),
)
Number = int | float


def significant(value: Number, digits: int = _DIGITS) -> str:
    """Return `value` with `digits` significant digits, never in exponent form."""
    if value == 0:
        return "0"
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    # Rounding may carry into one more digit (9.996 -> 10.0): ask again with what is left.
    rounded = round(float(value), decimals)
    decimals = digits - 1 - math.floor(math.log10(abs(rounded)))
    return f"{rounded:,.{max(0, decimals)}f}"


def _scaled(value: Number, steps: Sequence[tuple[float, str]]) -> str:
    for factor, unit in steps:
        # 999.6 us reads as 1.00 ms: compare what will be printed.
        if float(f"{abs(value) / factor:.{_DIGITS - 1}e}") >= 1:
            return f"{_exact(value / factor, factor)} {unit}"
    return f"{significant(value)} {steps[-1][1]}"


def _exact(value: float, factor: float) -> str:
    whole = factor == 1.0 and value == int(value)
    return f"{int(value):,}" if whole else significant(value)


def duration(ns: Number | None, unknown: str = NOT_MEASURED) -> str:
    """Return a length of time given in ns: ``31.6 us``.

    Args:
        ns: Length; None or not finite when it was not measured.
        unknown: Text for that: sentences want a word.
    """
    return unknown if _absent(ns) else _scaled(ns or 0, _TIME)


def moment(ns: int | None) -> str:
    """Return a point in session time given in ns, to the microsecond: ``1.234567 s``."""
    return NOT_MEASURED if ns is None else f"{ns / 1e9:.6f} s"


def size(n_bytes: Number | None, unknown: str = NOT_MEASURED) -> str:
    """Return bytes in decimal units: ``1.07 MB``, `unknown` without a number."""
    return unknown if _absent(n_bytes) else _scaled(n_bytes or 0, _BYTES)


def rate(bytes_per_s: Number | None) -> str:
    """Return bytes per second: ``278 GB/s``."""
    return NOT_MEASURED if _absent(bytes_per_s) else f"{size(bytes_per_s)}/s"


def share(frac: Number | None, unknown: str = NOT_MEASURED) -> str:
    """Return a share (0..1) in percent: ``34.4%``, ``<0.001%``; `unknown` without a number."""
    return unknown if _absent(frac) else percent((frac or 0) * 100)


def percent(value: Number) -> str:
    """Return percent (0..100), with two digits below one."""
    if 0 < abs(value) < _TINY_PERCENT:
        return f"<{_TINY_PERCENT}%"
    return f"{significant(value, _DIGITS if abs(value) >= 1 else _DIGITS - 1)}%"


def ratio(value: Number | None) -> str:
    """Return a ratio: ``1.65x``."""
    return NOT_MEASURED if _absent(value) else f"{significant(value or 0)}x"


def count(value: int | None) -> str:
    """Return a whole number with thousands separators."""
    return NOT_MEASURED if value is None else f"{value:,}"


def count_of(n: int, noun: str) -> str:
    """Return a number of things: ``1 collective``, ``2 collectives``."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def quantity(value: Number | str | bool | None, unit: str) -> str:
    """Return `value` of `unit` ("ns", "bytes", "1", "%", "x", "GB/s", "B/s", "") as text."""
    if isinstance(value, str):
        return value
    if _absent(value) or value is None:
        return NOT_MEASURED
    if isinstance(value, bool):
        return "yes" if value else "no"
    if unit in _PRINTED:
        return _PRINTED[unit](value)
    if unit == "us":
        return duration(value * 1e3)
    if unit == "GB/s":
        return rate(value * 1e9)
    number = count(value) if isinstance(value, int) else significant(value)
    return f"{number} {unit}".rstrip()


def threshold(value: Number, unit: str) -> str:
    """Return a limit as it was set, without digits that nobody set: ``1%``, ``1.1x``.

    Args:
        value: A parameter or constant, not a measurement.
        unit: "1" for a share, else printed behind the number.
    """
    return f"{100 * value:g}%" if unit == "1" else f"{value:g}{unit}"


_PRINTED: Mapping[str, Callable[[Number], str]] = {
    "ns": duration,
    "bytes": size,
    "1": share,
    "x": ratio,
    "B/s": rate,
    "%": percent,
}


def span(lo: Number | None, hi: Number | None, unit: str) -> str:
    """Return a range in words, ``1.10x to 1.65x``; one number where both ends read the same."""
    low, high = quantity(lo, unit), quantity(hi, unit)
    return low if low == high else f"{low} to {high}"


def bounds(lo: Number | None, hi: Number | None, unit: str) -> str:
    """Return a 95% interval as ``[lo, hi]``, "" without one."""
    if _absent(lo) and _absent(hi):
        return ""
    return f"[{quantity(lo, unit)}, {quantity(hi, unit)}]"


def unit_of_column(name: str) -> tuple[str, str]:
    """Return (heading, unit) of a column from its name: ``gap_ns`` is ("gap", "ns")."""
    suffix = suffix_of_column(name)
    unit = dict(_SUFFIXES).get(suffix, "")
    return (name.removesuffix(suffix) if suffix else name).replace("_", " "), unit


def suffix_of_column(name: str) -> str:
    """Return the part of a column's name that states its unit: ``_ns``; "" without one."""
    return next((s for s, _ in _SUFFIXES if name.endswith(s) and len(name) > len(s)), "")


class Scale(NamedTuple):
    """One scale for a whole column, so that its cells compare at a glance.

    Attributes:
        factor: Values are divided by it.
        unit: Unit after dividing, "" for none.
        decimals: Digits after the point.
    """

    factor: float
    unit: str
    decimals: int

    def cell(self, value: Number | None) -> str:
        """Return one value without its unit."""
        if value is None or _absent(value):
            return NOT_MEASURED
        return f"{value / self.factor:,.{self.decimals}f}"


def scale_of(values: Sequence[Number | None], unit: str) -> Scale:
    """Return the scale that suits the typical magnitude of `values`."""
    known = sorted(abs(v) for v in values if v is not None and not _absent(v) and v != 0)
    typical = known[(len(known) - 1) // 2] if known else 0.0
    # Digits suit the smaller values, but not those that are negligible next to the largest.
    weighty = [v for v in known if v >= known[-1] / 100]
    small = weighty[len(weighty) // 4] if weighty else 0.0
    steps = {"ns": _TIME, "bytes": _BYTES}.get(unit)
    if steps:
        factor, name = next((s for s in steps if typical >= s[0]), steps[-1])
    elif unit == "1":
        factor, name = 0.01, "%"
    elif unit == "B/s":
        factor, name = 1e9, "GB/s"
    else:
        factor, name = 1.0, unit
    whole = factor == 1.0 and all(float(v).is_integer() for v in known)
    return Scale(factor, name, 0 if whole else _decimals(small / factor))


def _decimals(typical: float) -> int:
    if typical <= 0:
        return 0
    return min(6, max(0, _DIGITS - 1 - math.floor(math.log10(typical))))


def _absent(value: Number | str | None) -> bool:
    return value is None or (isinstance(value, float) and not math.isfinite(value))
