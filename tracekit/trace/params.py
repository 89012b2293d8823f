"""Parameters: frozen dataclasses whose fields state their unit and what they are.

Each analysis has its own; `Settings` are those that all of them share.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal

__all__ = ["NoParams", "Param", "Settings", "param", "parameters"]


@dataclass(frozen=True)
class Param:
    """One parameter of an analysis as options and docs show it."""

    name: str
    default: Any
    unit: str
    help: str


def param(default: Any, *, unit: str = "", help: str) -> Any:  # noqa: A002 - click's word
    """Declare a field of a params dataclass with its unit and help text."""
    return field(default=default, metadata={"unit": unit, "help": help})


def parameters(params: type) -> tuple[Param, ...]:
    """Return the parameters of a params dataclass."""
    return tuple(
        Param(f.name, f.default, f.metadata.get("unit", ""), f.metadata.get("help", ""))
        for f in fields(params)
    )


@dataclass(frozen=True)
class NoParams:
    """Parameters of an analysis that has none."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings that every analysis shares; as text each is ``group.name``.

    Attributes:
        sampling_edge: Edge of its period that a sample's time stamps.
        hardware_peak_gbps: Peak DRAM bandwidth in GB/s, None for the report's.
        hardware_achievable_gbps: DRAM bandwidth measured as achievable in GB/s, None if unknown.
        kernel_overrides: (kind, regular expression) pairs that override the class of the kernels
            whose name matches.
    """

    sampling_edge: Literal["leading", "trailing"] = param(
        "leading", help="edge of its period that a sample's time stamps"
    )
    hardware_peak_gbps: float | None = param(
        None, unit="GB/s", help="peak DRAM bandwidth, overriding the report's"
    )
    hardware_achievable_gbps: float | None = param(
        None, unit="GB/s", help="DRAM bandwidth measured as achievable"
    )
    kernel_overrides: tuple[tuple[str, str], ...] = ()
