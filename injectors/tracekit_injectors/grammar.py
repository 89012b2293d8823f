"""The text form of the marker grammar ``tk1``, as the Python hooks write it.

A marker is ``EVENT key=value ...`` in ASCII. `ORDER` gives the keys of an event in the order of
writing; a key that is not known is left out, because absence means unknown and zero does not.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["CATEGORY", "CATEGORY_NUMBER", "GRAMMAR", "ORDER", "Row", "Value", "row", "text", "word"]

GRAMMAR = "tk1"
CATEGORY_NUMBER = {"kv": 1, "alloc": 2, "coll": 3, "step": 4, "moe": 5, "meta": 6}

Value = int | str | None
Row = tuple[Value, ...]
"""The values of an event, one for each key of `ORDER`, None for unknown."""

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
        " head_pitch device engine group again",
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
_WORDS = {"version", "grammar", "markers", "source", "op", "dtype", "redop", "event", "kind"}
_WORDS |= {"engine", "phase", "ids", "counts"}


def _piece(key: str) -> str:
    return f"{key}=%{'s' if key in _WORDS else '#x' if key in _HEX else 'd'}"


_FULL = {event: " ".join([event, *map(_piece, keys)]) for event, keys in ORDER.items()}
_PARTIAL: dict[tuple[str, tuple[bool, ...]], str] = {}


def row(event: str, values: Mapping[str, Value]) -> Row:
    """Put values in the order of an event's keys; keys that it does not have are dropped."""
    return tuple(map(values.get, ORDER[event]))


def word(value: str) -> str:
    """Return a foreign string as one word: a blank would end it."""
    return "_".join(value.split()) or "_"


def text(event: str, values: Row) -> str:
    """Write one marker.

    Args:
        event: A key of `ORDER`.
        values: One value for each of its keys; None leaves the key out. Addresses, handles,
            communicators and streams are written in hexadecimal. Lists are strings already.

    Returns:
        The marker.
    """
    if None not in values:
        return _FULL[event] % values
    known = tuple([value is not None for value in values])
    form = _PARTIAL.get((event, known))
    if form is None:
        present = [key for key, there in zip(ORDER[event], known, strict=True) if there]
        form = _PARTIAL[event, known] = " ".join([event, *map(_piece, present)])
    return form % tuple([value for value in values if value is not None])
