"""Neighbouring parts of a gap with one cause, with a number of the place that they are of."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tracekit.numerics.idle.causes import Parts
from tracekit.numerics.jit import SMALL, compiled

__all__ = ["BY_BUSY", "BY_CALL", "BY_HOST", "BY_WAIT", "Names", "Stretches", "named", "stretches"]

Int32: TypeAlias = NDArray[np.int32]
Int64: TypeAlias = NDArray[np.int64]
UInt8: TypeAlias = NDArray[np.uint8]
UInt32: TypeAlias = NDArray[np.uint32]

BY_WAIT, BY_BUSY, BY_CALL, BY_HOST = 1, 2, 3, 4
"""What names a stretch of a cause: the wait, what held the thread up, the launching call, or what
came before the host work and the launch after it; 0 for nothing."""
_IN_CALL = 1


class Names(NamedTuple):
    """What stretches are named by.

    Attributes:
        code: int64[gaps], number of what all stretches of a gap share.
        call: int32[gaps], call that launched what ended the gap, -1 for none.
        previous: int32[gaps], the enqueuing call before it, -1 for none.
        of_call: uint32[calls], number of the name of each call.
        wait: int64[waits], number of the name of each wait.
        busy: int64[intervals], the same of what else held threads up, -1 for none.
        by: uint8[causes], `BY_WAIT` and so on.
        n_names: Numbers of names are below this.
    """

    code: Int64
    call: Int32
    previous: Int32
    of_call: UInt32
    wait: Int64
    busy: Int64
    by: UInt8
    n_names: int


class Stretches(NamedTuple):
    """Neighbouring parts of a gap with one cause.

    Attributes:
        part: int32[n], the first part of each.
        time_ns: int64[n].
        in_call_ns: int64[n], part of it inside the launching call.
        key: int64[n], equal for stretches of one place, cause and name; see `named`.
    """

    part: Int32
    time_ns: Int64
    in_call_ns: Int64
    key: Int64


def named(key: Int64, n_names: int) -> tuple[Int64, Int64]:
    """Return what keys are named by.

    Args:
        key: int64[n], from `stretches`.
        n_names: That of its `Names`.

    Returns:
        int64[n] each, -1 for none: number of the name, and of the name of the launch that ended
        host work.
    """
    return key // (n_names + 1) % (n_names + 1) - 1, key % (n_names + 1) - 1


def stretches(parts: Parts, names: Names) -> Stretches:
    """Return the stretches that parts form, in order.

    Args:
        parts: Those of one gap together.
        names: What they are named by.
    """
    found = _stretches(
        parts.gap, parts.start, parts.end, parts.cause, parts.place, parts.by, *names
    )
    return Stretches(*found)


@compiled()
def _named(
    how: int,
    by: int,
    call: int,
    previous: int,
    of_call: UInt32,
    wait: Int64,
    busy: Int64,
) -> tuple[int, int]:
    """Numbers of what names a stretch, and of the launch after it; -1 for none."""
    name, after = -1, -1
    if how == BY_HOST and call >= 0:
        after = int(of_call[call])
    if how in (BY_WAIT, BY_HOST) and by >= 0:
        name = int(wait[by])
    elif how == BY_BUSY and by >= 0:
        name = int(busy[by])
    elif how == BY_CALL and call >= 0:
        name = int(of_call[call])
    elif how == BY_HOST and previous >= 0:
        name = int(of_call[previous])
    return name, after


@compiled(
    "Tuple((int32[::1], int64[::1], int64[::1], int64[::1]))("
    "ro(int32[::1]), ro(int64[::1]), ro(int64[::1]), ro(uint8[::1]), ro(uint8[::1]),"
    " ro(int32[::1]), ro(int64[::1]), ro(int32[::1]), ro(int32[::1]), ro(uint32[::1]),"
    " ro(int64[::1]), ro(int64[::1]), ro(uint8[::1]), int64)",
    interpret_below=SMALL,
)
def _stretches(
    gap: Int32,
    start: Int64,
    end: Int64,
    cause: UInt8,
    place: UInt8,
    by: Int32,
    code: Int64,
    call: Int32,
    previous: Int32,
    of_call: UInt32,
    wait: Int64,
    busy: Int64,
    how: UInt8,
    n_names: int,
) -> tuple[Int32, Int64, Int64, Int64]:
    """`stretches` in one pass; memory that is not written to is never taken."""
    part, key = np.empty(gap.size, np.int32), np.empty(gap.size, np.int64)
    time, inside = np.empty(gap.size, np.int64), np.empty(gap.size, np.int64)
    n = -1
    for i in range(gap.size):
        length = end[i] - start[i]
        if i == 0 or gap[i] != gap[i - 1] or cause[i] != cause[i - 1]:
            n += 1
            g = gap[i]
            name, after = _named(how[cause[i]], by[i], call[g], previous[g], of_call, wait, busy)
            place_of = code[g] * how.size + cause[i]
            key[n] = (place_of * (n_names + 1) + name + 1) * (n_names + 1) + after + 1
            part[n], time[n], inside[n] = i, 0, 0
        time[n] += length
        if place[i] == _IN_CALL:
            inside[n] += length
    n += 1
    return part[:n], time[:n], inside[:n], key[:n]
