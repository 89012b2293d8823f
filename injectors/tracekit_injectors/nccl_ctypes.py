"""NCCL called through ctypes, which a preloaded library cannot see.

vLLM's pynccl opens ``libnccl.so`` by path and takes functions from the handle. Each function so
taken is replaced by one of the same ctypes type that marks the call: ``COLL`` ranges for
collectives and point-to-point calls, ``COMM`` and ``GROUP`` marks. When the address that ctypes
found lies in tracekit's own native library, that one marks the call already and nothing is
replaced here.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

from .emitter import emitter
from .grammar import Value, row
from .patching import guarded, wrap

__all__ = ["attach", "collective"]

NATIVE_NAME = "tracekit_inject"
_FEATURE = "NCCL markers for ctypes"
_ITEM_BYTES = {0: 1, 1: 1, 2: 4, 3: 4, 4: 8, 5: 8, 6: 2, 7: 4, 8: 8, 9: 2, 10: 1, 11: 1}
_DTYPES = (
    *("int8", "uint8", "int32", "uint32", "int64", "uint64"),
    *("float16", "float32", "float64", "bfloat16", "float8e4m3", "float8e5m2"),
)
_REDOPS = ("sum", "prod", "max", "min", "avg")

_CALLS = {
    "ncclAllReduce": ("AllReduce", "_ _ count dtype redop comm stream"),
    "ncclReduce": ("Reduce", "_ _ count dtype redop root comm stream"),
    "ncclReduceScatter": ("ReduceScatter", "_ _ count dtype redop comm stream"),
    "ncclAllGather": ("AllGather", "_ _ count dtype comm stream"),
    "ncclBroadcast": ("Broadcast", "_ _ count dtype root comm stream"),
    "ncclBcast": ("Bcast", "_ count dtype root comm stream"),
    "ncclSend": ("Send", "_ count dtype peer comm stream"),
    "ncclRecv": ("Recv", "_ count dtype peer comm stream"),
}
_OTHERS = frozenset({"ncclCommInitRank", "ncclGroupStart", "ncclGroupEnd"})

_comms: dict[int, dict[str, Value]] = {}
_sequence: dict[int, int] = {}


class _Depth(threading.local):
    """Depth of group calls on this thread."""

    value = 0


_depth = _Depth()


class _DlInfo(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("symbol_address", ctypes.c_void_p),
    )


def attach() -> None:
    """Watch which functions are taken from libraries that ctypes opened."""
    wrap(ctypes.CDLL, "__getitem__", _watch_lookups)


def _watch_lookups(original: Callable[..., Any]) -> Callable[..., Any]:
    replace = guarded(_FEATURE, _replacement)

    def look_up(library: Any, name: Any) -> Any:
        function = original(library, name)
        if isinstance(name, str) and (name in _CALLS or name in _OTHERS):
            return replace(library, name, function) or function
        return function

    return look_up


def _replacement(library: Any, name: str, function: Any) -> Any:
    if not emitter.active or _is_native(function):
        return None
    begin, end = _observers(name)

    class Watched(library._FuncPtr):  # type: ignore[misc]
        """The same function, marked."""

        # A class of function pointers must state these itself.
        _flags_ = library._FuncPtr._flags_
        _restype_ = library._FuncPtr._restype_

        def __call__(self, *args: Any) -> Any:
            token = begin(args)
            result = None
            try:
                result = super().__call__(*args)
            finally:
                end(token, args, result)
            return result

    watched = Watched((name, library))
    watched.__name__ = name
    return watched


def _is_native(function: Any) -> bool:
    """Return whether the function's address lies in tracekit's native library."""
    info = _DlInfo()
    address = ctypes.cast(function, ctypes.c_void_p)
    found = ctypes.CDLL(None).dladdr(address, ctypes.byref(info))
    return bool(found) and NATIVE_NAME.encode() in (info.name or b"")


def _observers(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    if name in _CALLS:

        def begin(args: tuple[Any, ...]) -> Any:
            values = collective(name, args)
            return emitter.push("COLL", row("COLL", values)), values

        return guarded(_FEATURE, begin), guarded(_FEATURE, _end_call)
    return (lambda _args: name), guarded(_FEATURE, _end_other)


def collective(name: str, args: tuple[Any, ...]) -> dict[str, Value]:
    """Read a call's arguments.

    Args:
        name: NCCL function.
        args: Its arguments, ctypes objects or plain numbers.

    Returns:
        The values of its ``COLL`` marker; ``bytes`` is the message size as NCCL counts it: per
        rank times ranks for gathers and scatters.
    """
    operation, layout = _CALLS[name]
    found: dict[str, Value] = {"op": operation}
    for key, argument in zip(layout.split(), args, strict=False):
        if key != "_":
            found[key] = _number(argument)
    comm = _as_int(found.get("comm"))
    dtype, redop, count = found.get("dtype"), found.get("redop"), _as_int(found.get("count"))
    known = _comms.get(comm, {})
    found.update(nranks=known.get("nranks"), rank=known.get("rank"), depth=_depth.value)
    found["seq"] = _sequence[comm] = _sequence.get(comm, -1) + 1
    if isinstance(dtype, int):
        size = _ITEM_BYTES.get(dtype)
        ranks = _as_int(known.get("nranks")) if operation in ("AllGather", "ReduceScatter") else 1
        found["bytes"] = count * size * ranks if size and ranks else None
        found["dtype"] = _DTYPES[dtype] if dtype < len(_DTYPES) else None
    if isinstance(redop, int):
        found["redop"] = _REDOPS[redop] if redop < len(_REDOPS) else "custom"
    return found


def _end_call(opened: Any, _args: Any, result: Any) -> None:
    if opened is None:
        return
    token, values = opened
    emitter.pop(token)
    if isinstance(result, int) and result != 0:
        emitter.mark("COLL_FAILED", row("COLL_FAILED", {**values, "rc": result}))


def _end_other(name: str, args: tuple[Any, ...], result: Any) -> None:
    code = result if isinstance(result, int) else None
    if name == "ncclGroupStart":
        _depth.value += 1
        emitter.mark("GROUP", row("GROUP", {"event": "start", "depth": _depth.value, "rc": code}))
    elif name == "ncclGroupEnd":
        _depth.value = max(0, _depth.value - 1)
        emitter.mark("GROUP", row("GROUP", {"event": "end", "depth": _depth.value, "rc": code}))
    elif len(args) >= 4:
        comm = _number(getattr(args[0], "_obj", args[0]))
        facts: dict[str, Value] = {"nranks": _number(args[1]), "rank": _number(args[3])}
        if comm is not None and not code:
            _comms[comm] = facts
        values = {"event": "init", "comm": comm, **facts, "rc": code}
        emitter.mark("COMM", row("COMM", values))


def _number(argument: Any) -> int | None:
    """Return the number in a ctypes object; None when it holds none."""
    contents = getattr(argument, "contents", argument)
    value = getattr(contents, "value", contents)
    return value if isinstance(value, int) else None


def _as_int(value: object) -> int:
    return value if isinstance(value, int) else 0
