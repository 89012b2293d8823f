"""The text form of the marker grammar ``tk1``, as the Python hooks write it.

A marker is ``EVENT key=value ...`` in ASCII. `ORDER` gives the keys of an event in the order of
writing; a key that is not known is left out, because absence means unknown and zero does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = ["CATEGORY", "CATEGORY_NUMBER", "GRAMMAR", "ORDER", "Value", "text"]

GRAMMAR = "tk1"
CATEGORY_NUMBER = {"kv": 1, "alloc": 2, "coll": 3, "step": 4, "moe": 5, "meta": 6}

Value = int | str | bool | Iterable[int] | None

_TABLE = {
    "META": ("meta", "version grammar pid markers dlsym min_bytes degraded again"),
    "SYNC": ("meta", "mono_ns"),
    "ALLOC": ("alloc", "source addr bytes requested handle stream device rc again"),
    "FREE": ("alloc", "source addr bytes handle stream device rc known"),
    "COLL": ("coll", "op comm seq bytes count dtype redop nranks rank peer root stream depth"),
    "COLL_FAILED": ("coll", "comm seq rc"),
    "COMM": ("coll", "event comm nranks rank device rc again"),
    "GROUP": ("coll", "event depth rc"),
    "KV_POOL": (
        "kv",
        "layer kind addr bytes stride blocks block_bytes block_tokens token_pitch row_bytes"
        " head_pitch device engine again",
    ),
    "KV_TABLE": ("kv", "seq first op ids engine group"),
    "KV_BLOCK": ("kv", "layer seq block kind addr bytes used op device"),
    "KV_REALLOC": ("kv", "layer kind seq addr bytes used seq_len device"),
    "KV_FREE": ("kv", "layer kind seq block addr device"),
    "STEP": ("step", "step phase n_seq n_tok kv_tokens"),
    "LAYER": ("step", "layer"),
    "MOE_ROUTE": ("moe", "layer step batch k counts"),
}
CATEGORY = {event: category for event, (category, _) in _TABLE.items()}
ORDER = {event: tuple(keys.split()) for event, (_, keys) in _TABLE.items()}
_HEX = frozenset({"addr", "handle", "comm", "stream"})


def text(event: str, values: Mapping[str, Value]) -> str:
    """Write one marker.

    Args:
        event: A key of `ORDER`.
        values: Value by key; None means unknown. Addresses, handles, communicators and streams
            are written in hexadecimal, iterables of int as a comma-separated list.

    Returns:
        The marker, ASCII. Blanks inside a word are replaced by ``_``, since a blank ends it.
    """
    parts = [event]
    for key in ORDER[event]:
        value = values.get(key)
        if value is None:
            continue
        if key in _HEX:
            parts.append(f"{key}={value:#x}")
        elif isinstance(value, str):
            word = "_".join(value.split()).encode("ascii", "replace").decode("ascii")
            parts.append(f"{key}={word}")
        elif isinstance(value, int):
            parts.append(f"{key}={int(value)}")
        else:
            parts.append(f"{key}={','.join(map(str, value))}")
    return " ".join(parts)
