"""Number formats: bytes of a value, and the rate at which a device multiplies it."""

from __future__ import annotations

from tracekit.errors import UsageError
from tracekit.model.hardware import Hardware

__all__ = ["COMPUTE", "WEIGHTS", "bytes_per_value", "compute_rate", "default_compute"]

_BYTES = {
    "fp32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "int4": 0.5,
    "fp4": 0.5,
}
_RATE = {
    "bf16": "fp16_tflops",
    "fp16": "fp16_tflops",
    "fp8": "fp8_tflops",
    "int8": "int8_tops",
    "int4": "int4_tops",
    "fp4": "fp4_tflops",
}
WEIGHTS = tuple(_BYTES)
"""Formats of weights and cache."""
COMPUTE = tuple(_RATE)
"""Formats of the tensor-core multiplication."""


def bytes_per_value(dtype: str) -> float:
    """Return the size of one value, bytes; scales of groups are not counted.

    Raises:
        UsageError: The format is not known.
    """
    if dtype not in _BYTES:
        message = f"no number format {dtype!r}"
        raise UsageError(message, hint=f"there are: {', '.join(_BYTES)}")
    return _BYTES[dtype]


def default_compute(weights: str) -> str:
    """Return the format that weights of a format are usually multiplied in.

    INT4 and INT8 weights are widened to FP16 in the kernel (W4A16, W8A16): their multiplication
    runs at the FP16 rate. FP8 and FP4 weights are multiplied as they are.
    """
    return weights if weights in ("fp8", "fp4", "bf16", "fp16") else "fp16"


def compute_rate(device: Hardware, dtype: str) -> float | None:
    """Return the dense peak of a device in a format, FLOP/s; None if it is not known.

    Raises:
        UsageError: The format is not known, or the device has no hardware for it.
    """
    if dtype not in _RATE:
        message = f"no compute format {dtype!r}"
        raise UsageError(message, hint=f"there are: {', '.join(_RATE)}")
    field = _RATE[dtype]
    if field in device.unsupported:
        message = f"{device.key} has no {dtype} tensor rate"
        raise UsageError(message, hint="choose another with --compute-dtype (W4A16 runs as fp16)")
    value = getattr(device, field)
    return None if value is None else value * 1e12
