"""The marker grammar ``tk1``: what the injector writes and every reader understands.

A marker is ``EVENT key=value ...`` in ASCII: keys in any order, unknown keys ignored, addresses,
handles, communicators and streams hexadecimal with ``0x``, everything else decimal, lists
comma-separated. It stands in an NVTX message of the default domain or of domain ``tracekit``.
``injectors/native/markers.h`` states the same table for C; a test compares the two.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import NamedTuple

__all__ = [
    "CATEGORIES",
    "DOMAIN",
    "EVENTS",
    "GRAMMAR",
    "WORDS",
    "Event",
    "Kind",
    "Marker",
    "parse",
]

GRAMMAR = "tk1"
DOMAIN = "tracekit"
CATEGORIES = {"kv": 1, "alloc": 2, "coll": 3, "step": 4, "moe": 5, "meta": 6}


class Kind(IntEnum):
    """What a KV block holds."""

    K = 0
    V = 1
    KV = 2


class Event(NamedTuple):
    """One event of the grammar.

    Attributes:
        name: First word of the marker.
        category: Key of `CATEGORIES`.
        keys: Keys in the order in which writers put them.
        is_range: Whether it is a push/pop range (else a mark).
    """

    name: str
    category: str
    keys: tuple[str, ...]
    is_range: bool = False


def _event(name: str, category: str, keys: str, *, is_range: bool = False) -> Event:
    return Event(name, category, tuple(keys.split()), is_range)


EVENTS: dict[str, Event] = {
    e.name: e
    for e in (
        _event("META", "meta", "version grammar pid markers dlsym min_bytes again"),
        _event("SYNC", "meta", "mono_ns"),
        _event("ALLOC", "alloc", "source addr bytes handle stream device rc again"),
        _event("FREE", "alloc", "source addr bytes handle stream device rc known"),
        _event(
            "COLL",
            "coll",
            "op comm seq bytes count dtype redop nranks rank peer root stream depth",
            is_range=True,
        ),
        _event("COLL_FAILED", "coll", "comm seq rc"),
        _event("COMM", "coll", "event comm nranks rank device rc again"),
        _event("GROUP", "coll", "event depth rc"),
        _event(
            "KV_POOL",
            "kv",
            "layer kind addr bytes stride blocks block_bytes block_tokens token_pitch row_bytes"
            " head_pitch device engine group again",
        ),
        _event("KV_TABLE", "kv", "seq first op ids engine group"),
        _event("KV_BLOCK", "kv", "layer seq block kind addr bytes used op device"),
        _event("KV_REALLOC", "kv", "layer kind seq addr bytes used seq_len device"),
        _event("KV_FREE", "kv", "layer kind seq block addr device"),
        _event("STEP", "step", "step phase n_seq n_tok kv_tokens", is_range=True),
        _event("LAYER", "step", "layer", is_range=True),
        _event("MOE_ROUTE", "moe", "layer step batch k counts"),
    )
}
"""Every event, by name."""

_SOURCES = {
    1: "cudaMalloc",
    2: "cudaMallocAsync",
    3: "cudaMallocFromPoolAsync",
    4: "cudaMallocManaged",
    5: "cudaMallocPitch",
    6: "cudaMalloc3D",
    7: "cudaMallocHost",
    8: "cudaHostAlloc",
    9: "cudaFree",
    10: "cudaFreeAsync",
    11: "cudaFreeHost",
    20: "cuMemAlloc",
    21: "cuMemAllocAsync",
    22: "cuMemAllocFromPoolAsync",
    23: "cuMemAllocManaged",
    24: "cuMemAllocPitch",
    25: "cuMemAllocHost",
    26: "cuMemHostAlloc",
    27: "cuMemFree",
    28: "cuMemFreeAsync",
    29: "cuMemFreeHost",
    30: "cuMemCreate",
    31: "cuMemRelease",
    32: "cuMemMap",
    33: "cuMemUnmap",
    34: "cuMemAddressReserve",
    35: "cuMemAddressFree",
}
_OPS = dict(
    enumerate(
        [
            "AllReduce",
            "AllGather",
            "ReduceScatter",
            "Broadcast",
            "Bcast",
            "Reduce",
            "AlltoAll",
            "Gather",
            "Scatter",
            "Send",
            "Recv",
        ],
        start=1,
    )
)
_DTYPES = dict(
    enumerate(
        [
            "int8",
            "uint8",
            "int32",
            "uint32",
            "int64",
            "uint64",
            "float16",
            "float32",
            "float64",
            "bfloat16",
            "float8e4m3",
            "float8e5m2",
        ]
    )
)
WORDS: dict[tuple[str, str], dict[int, str]] = {
    ("ALLOC", "source"): _SOURCES,
    ("FREE", "source"): _SOURCES,
    ("COLL", "op"): _OPS,
    ("COLL", "dtype"): _DTYPES,
    ("COLL", "redop"): dict(enumerate(("sum", "prod", "max", "min", "avg", "custom"))),
    ("COMM", "event"): dict(enumerate(("init", "split", "destroy", "abort", "finalize"), start=1)),
    ("GROUP", "event"): {1: "start", 2: "end"},
}
"""Number in a binary payload (schema ``tracekit.<event>``): word in the text, by event and key."""

HEX_KEYS = frozenset({"addr", "handle", "comm", "stream"})
LIST_KEYS = frozenset({"ids", "counts"})
WORD_KEYS = frozenset(
    {"kind", "op", "source", "dtype", "redop", "event", "phase", "version", "grammar"}
    | {"markers", "engine"}
)
_PAIR = re.compile(r"([a-z_]+)=(\S+)")


class Marker(NamedTuple):
    """One decoded marker: the event's name and its known keys with typed values."""

    event: str
    values: dict[str, int | str | tuple[int, ...]]


def parse(text: str) -> Marker | None:
    """Decode one marker in text form.

    Args:
        text: An NVTX message.

    Returns:
        The marker, or None when the text is not one (any first word that is no event of the
        grammar). A known key whose value cannot be read is left out.
    """
    name, _, rest = text.partition(" ")
    event = EVENTS.get(name)
    if event is None:
        return None
    values: dict[str, int | str | tuple[int, ...]] = {}
    for key, value in _PAIR.findall(rest):
        if key in event.keys or key in {"device", "stream", "again"}:
            typed = _typed(key, value)
            if typed is not None:
                values[key] = typed
    return Marker(name, values)


def _typed(key: str, value: str) -> int | str | tuple[int, ...] | None:
    if key in WORD_KEYS:
        return value
    try:
        if key in LIST_KEYS:
            return tuple(int(part) for part in value.split(",") if part)
        return int(value, 0 if value.startswith("0x") else 10)
    except ValueError:
        return None
