"""NCCL taken from a handle that ctypes opened, with a stand-in library."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tracekit_injectors import nccl_ctypes, patching

NCCL = r"""
#include <stddef.h>
typedef void *Comm;
int ncclCommInitRank(Comm *comm, int nranks, char id, int rank) { *comm = (Comm)0x5000; return 0; }
int ncclAllReduce(const void *s, void *r, size_t n, int dtype, int op, Comm c, void *stream) {
  return n == 13 ? 5 : 0; }
int ncclAllGather(const void *s, void *r, size_t n, int dtype, Comm c, void *stream) { return 0; }
int ncclSend(const void *s, size_t n, int dtype, int peer, Comm c, void *stream) { return 0; }
int ncclGroupStart(void) { return 0; }
int ncclGroupEnd(void) { return 0; }
int ncclGetVersion(int *v) { *v = 22809; return 0; }
"""


@pytest.fixture
def library(tool: Any, watched: ctypes.CDLL) -> ctypes.CDLL:
    return watched


@pytest.fixture
def watched(
    compiled: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> Iterator[ctypes.CDLL]:
    monkeypatch.setattr(nccl_ctypes, "_comms", {})
    monkeypatch.setattr(nccl_ctypes, "_sequence", {})
    original = ctypes.CDLL.__getitem__
    nccl_ctypes.attach()
    yield ctypes.CDLL(str(compiled("libfake_nccl.so.2", NCCL)))
    ctypes.CDLL.__getitem__ = original


def start(library: ctypes.CDLL) -> ctypes.c_void_p:
    comm = ctypes.c_void_p()
    library.ncclCommInitRank(ctypes.byref(comm), 4, b"x"[0], 2)
    return comm


def test_a_collective_through_ctypes_is_marked(library: ctypes.CDLL, tool: Any) -> None:
    comm = start(library)
    library.ncclAllReduce.argtypes = [
        *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int),
        *(ctypes.c_void_p, ctypes.c_void_p),
    ]
    library.ncclAllReduce.restype = ctypes.c_int
    stream = ctypes.c_void_p(0x77)
    assert library.ncclAllReduce(None, None, 1024, 9, 0, comm, stream) == 0
    assert library.ncclAllReduce(None, None, 1024, 9, 0, comm, stream) == 0
    assert tool.texts("COMM") == ["COMM event=init comm=0x5000 nranks=4 rank=2 rc=0"]
    tail = "bytes=2048 count=1024 dtype=bfloat16 redop=sum nranks=4 rank=2 stream=0x77 depth=0"
    assert tool.texts("COLL") == [
        f"COLL op=AllReduce comm=0x5000 seq=0 {tail}",
        f"COLL op=AllReduce comm=0x5000 seq=1 {tail}",
    ]
    assert [kind for kind, _ in tool.events[-4:]] == ["push", "pop", "push", "pop"]


def test_a_gather_counts_every_rank(library: ctypes.CDLL, tool: Any) -> None:
    comm = start(library)
    library.ncclAllGather(None, None, ctypes.c_size_t(10), 7, comm, None)
    assert "bytes=160 count=10 dtype=float32" in tool.texts("COLL")[0]


def test_point_to_point(library: ctypes.CDLL, tool: Any) -> None:
    comm = start(library)
    library.ncclSend(None, 8, 1, 3, comm, None)
    assert tool.texts("COLL")[0].startswith("COLL op=Send comm=0x5000 seq=0 bytes=8 count=8")
    assert " peer=3 " in tool.texts("COLL")[0]


def test_groups_and_errors(library: ctypes.CDLL, tool: Any) -> None:
    library.ncclGroupEnd()
    library.ncclGroupStart()
    library.ncclGroupStart()
    library.ncclGroupEnd()
    library.ncclGroupEnd()
    assert library.ncclAllReduce(None, None, 13, 0, 9, None, None) == 5
    depths = [t.split()[2] for t in tool.texts("GROUP")]
    assert depths == ["depth=0", "depth=1", "depth=2", "depth=1", "depth=0"]
    assert tool.texts("COLL_FAILED") == ["COLL_FAILED seq=0 rc=5"]
    assert "redop=custom" in tool.texts("COLL")[0]
    assert tool.events[-2] == ("pop", "")


def test_other_functions_are_left_alone(library: ctypes.CDLL, tool: Any) -> None:
    version = ctypes.c_int()
    assert library.ncclGetVersion(ctypes.byref(version)) == 0
    assert version.value == 22809
    assert type(library.ncclGetVersion) is library._FuncPtr
    with pytest.raises(AttributeError):
        _ = library.ncclReduce


def test_the_replacement_is_a_ctypes_function(library: ctypes.CDLL, tool: Any) -> None:
    function = library.ncclAllReduce
    assert isinstance(function, library._FuncPtr)
    assert ctypes.cast(function, ctypes.c_void_p).value
    assert library.ncclAllReduce is function


def test_what_the_native_library_marks_is_not_marked_twice(
    compiled: Callable[[str, str], Path], tool: Any, library: ctypes.CDLL
) -> None:
    native = ctypes.CDLL(str(compiled("libtracekit_inject_fake.so", NCCL)))
    native.ncclGroupStart()
    assert type(native.ncclGroupStart) is native._FuncPtr
    assert tool.texts("GROUP") == []


def test_without_a_tool_ctypes_is_as_it_was(watched: ctypes.CDLL, no_tool: Any) -> None:
    assert type(watched.ncclSend) is watched._FuncPtr
    assert patching.is_compiling() is False
