"""Spelling a recording for the nsys at hand: names and values differ from version to version."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tracekit.errors import UsageError
from tracekit.recording.nsys import Nsys, ask

__all__ = ["L2_SETS", "Metrics", "metric_devices", "metric_options", "profile_options"]

_WANTED = (
    ("trace", "cuda,nvtx"),
    ("sample", "none"),
    ("cpuctxsw", "none"),
    ("cuda-graph-trace", "node"),
    ("cuda-memory-usage", "true"),
    ("force-overwrite", "true"),
)
"""What the analyses rest on. CPU samples and context switches serve none of them and cost most."""
_DEVICES = ("gpu-metrics-devices", "gpu-metrics-device")
_GENERAL_HZ, _TRIAGE_HZ = 20_000, 100_000
_DEVICE = re.compile(r"^\s*\[?(\d+)\]?\s*[:\]\t ]", re.MULTILINE)
_SET = re.compile(r"^\s*\[(\d+)\]\s*\[([\w\-]+)\]", re.MULTILINE)
_SET_ALIAS = re.compile(r"^\s*\[?([a-z][\w]*\d\w*(?:-[a-z]+)?)\]?\s", re.MULTILINE)
_CHIPS = {
    "7.5": "tu10x",
    "8.0": "ga100",
    "8.6": "ga10x",
    "8.9": "ad10x",
    "9.0": "gh100",
    "10.0": "gb10x",
    "12.0": "gb20x",
}
"""Prefix of the metric sets' names, by compute capability."""
L2_SETS = ("l2", "ct", "compute-triage")
"""Short names for the compute-triage set of whatever GPU there is."""


@dataclass(frozen=True)
class Metrics:
    """Sampling of GPU counters, as requested.

    Attributes:
        choice: ``auto`` (general set if the machine allows), ``none``, or the name of a set.
        frequency_hz: Samples a second; None for what suits the set.
        device: nsys's number of the one GPU to sample; None for all.
    """

    choice: str = "auto"
    frequency_hz: int | None = None
    device: int | None = None


def profile_options(nsys: Nsys) -> list[str]:
    """Return the options without GPU metrics, as far as this version has them."""
    known = nsys.profile_options
    return [f"--{name}={value}" for name, value in _WANTED if not known or name in known]


def metric_devices(nsys: Nsys) -> tuple[str, list[int], str]:
    """Ask which GPUs' counters can be sampled.

    Returns:
        The option's name in this version, nsys's numbers of the GPUs, and the reason when there
        are none.
    """
    option = next((name for name in _DEVICES if name in nsys.profile_options), "")
    if not option:
        return "", [], "this nsys cannot sample GPU metrics"
    said = nsys.values_of(option)
    devices = sorted({int(number) for number in _DEVICE.findall(said)})
    if "ERR_NVGPUCTRPERM" in said or "rivilege" in said:
        return (
            option,
            [],
            (
                "no permission for GPU counters: run as root, or load the driver with"
                " NVreg_RestrictProfilingToAdminUsers=0"
                " (https://developer.nvidia.com/ERR_NVGPUCTRPERM)"
            ),
        )
    if not devices:
        lines = [line.strip() for line in said.splitlines()[1:] if line.strip()]
        return option, [], lines[0] if lines else "nsys names no GPU"
    return option, devices, ""


def metric_options(nsys: Nsys, metrics: Metrics) -> tuple[list[str], str]:
    """Return the options for GPU metrics and, when there are none, why.

    Raises:
        UsageError: A set or GPU was requested that this nsys or machine does not have.
    """
    if metrics.choice == "none":
        return [], "not requested"
    option, devices, reason = metric_devices(nsys)
    asked = metrics.choice != "auto"
    if not devices:
        if asked:
            message = f"--metrics {metrics.choice}: {reason}"
            raise UsageError(message, hint="--metrics none records without counters")
        return [], reason
    which = "all" if metrics.device is None else str(metrics.device)
    if metrics.device is not None and metrics.device not in devices:
        return [], f"nsys has no GPU {metrics.device}"
    found = [f"--{option}={which}"]
    frequency_hz = metrics.frequency_hz
    if asked:
        name = _set_name(nsys, metrics.choice)
        found.append(f"--gpu-metrics-set={name}")
        frequency_hz = frequency_hz or (_TRIAGE_HZ if metrics.choice in L2_SETS else None)
        frequency_hz = frequency_hz or (_TRIAGE_HZ if "-ct" in metrics.choice else None)
    found.append(f"--gpu-metrics-frequency={frequency_hz or _GENERAL_HZ}")
    return found, ""


def _set_name(nsys: Nsys, choice: str) -> str:
    """Return how this version wants the set called: by name, or by its number in a list."""
    said = nsys.values_of("gpu-metrics-set")
    numbers = {alias: number for number, alias in _SET.findall(said)}
    names = set(numbers) | set(_SET_ALIAS.findall(said))
    name = f"{_chip()}-ct" if choice in L2_SETS else choice
    if name not in names:
        message = f"--metrics {choice}: this nsys has no set {name}"
        raise UsageError(message, hint=f"it has: {', '.join(sorted(names)) or 'none'}")
    by_number = "one of indices" in nsys.help_text
    return numbers.get(name, name) if by_number else name


def _chip() -> str:
    """Return the name of the first GPU's chip as metric sets spell it, or ``unknown``."""
    _, said = ask(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"])
    return _CHIPS.get(said.strip().partition("\n")[0].strip(), "unknown")
