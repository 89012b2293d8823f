"""NVTX from Python without a package: torch's own client, else one in ctypes.

NVTX is header-only: a process that wants to be traced loads the library that the tool names in
``NVTX_INJECTION64_PATH`` and hands it a table of function-pointer slots, which the tool fills. A
CUDA build of torch has such a client compiled in, and every tool knows it, so it is used where the
program has imported torch; its markers stand in the default domain. Otherwise this module is that
client itself, with a domain and categories of its own. Messages are unregistered either way, so
that they arrive in the export's ``text`` column. Without a tool nothing is loaded.

Source: NVTX's public C headers (``nvtxInit.h``, ``nvtxTypes.h``), version 3.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

__all__ = ["PATH_VARIABLE", "Nvtx", "connect"]

PATH_VARIABLE = "NVTX_INJECTION64_PATH"
_NVTX_VERSION = 3
_ETID_CALLBACKS, _ETID_VERSION_INFO = 1, 3
_CORE, _CORE2 = 1, 5
_SLOTS = {_CORE: 16, 2: 9, 3: 15, 4: 7, _CORE2: 16, 6: 7}
"""Slots of each function table (core, CUDA, OpenCL, CUDART, core2, sync); slot 0 is unused."""
_MARK_EX, _PUSH_EX, _POP, _NAME_CATEGORY, _DOMAIN_CREATE = 1, 4, 5, 8, 12
_MESSAGE_ASCII = 1

_Pointer = ctypes.c_void_p


class _Attributes(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint16),
        ("size", ctypes.c_uint16),
        ("category", ctypes.c_uint32),
        ("color_type", ctypes.c_int32),
        ("color", ctypes.c_uint32),
        ("payload_type", ctypes.c_int32),
        ("reserved0", ctypes.c_int32),
        ("payload", ctypes.c_uint64),
        ("message_type", ctypes.c_int32),
        ("message", ctypes.c_char_p),
    )


_GetTable = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_int, ctypes.POINTER(_Pointer), ctypes.POINTER(ctypes.c_uint)
)
_SetVersion = ctypes.CFUNCTYPE(None, ctypes.c_uint32)
_GetExport = ctypes.CFUNCTYPE(_Pointer, ctypes.c_uint32)
# Called with the interpreter's lock held: giving it up and taking it back costs more than the call.
_Create = ctypes.PYFUNCTYPE(_Pointer, ctypes.c_char_p)
_NameCategory = ctypes.PYFUNCTYPE(None, _Pointer, ctypes.c_uint32, ctypes.c_char_p)
_Event = ctypes.PYFUNCTYPE(ctypes.c_int, _Pointer, _Pointer)
_PopRange = ctypes.PYFUNCTYPE(ctypes.c_int, _Pointer)


class _Callbacks(ctypes.Structure):
    _fields_ = (("struct_size", ctypes.c_size_t), ("get_table", _GetTable))


class _VersionInfo(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("version", ctypes.c_uint32),
        ("reserved0", ctypes.c_uint32),
        ("set_version", _SetVersion),
    )


class _Client:
    """The tables that one NVTX client shows to the tool."""

    def __init__(self) -> None:
        self.slots = {module: (_Pointer * size)() for module, size in _SLOTS.items()}
        self.tables = {module: (_Pointer * (size + 1))() for module, size in _SLOTS.items()}
        for module, table in self.tables.items():
            first = ctypes.addressof(self.slots[module])
            for index in range(1, _SLOTS[module]):
                table[index] = first + index * ctypes.sizeof(_Pointer)
        self.callbacks = _Callbacks(ctypes.sizeof(_Callbacks), _GetTable(self._table))
        self.version = _VersionInfo(
            ctypes.sizeof(_VersionInfo), _NVTX_VERSION, 0, _SetVersion(lambda _version: None)
        )
        self.export = _GetExport(self._export)

    def _export(self, identifier: int) -> int | None:
        if identifier == _ETID_CALLBACKS:
            return ctypes.addressof(self.callbacks)
        if identifier == _ETID_VERSION_INFO:
            return ctypes.addressof(self.version)
        return None

    def _table(self, module: int, out_table: object, out_size: object) -> int:
        if module not in self.tables:
            return 0
        if out_table:
            out_table[0] = ctypes.addressof(self.tables[module])  # type: ignore[index]
        if out_size:
            out_size[0] = _SLOTS[module]  # type: ignore[index]
        return 1

    def function(self, index: int, prototype: Callable[..., object]) -> Callable[..., object]:
        address = self.slots[_CORE2][index]
        return prototype(address) if address else _nothing  # type: ignore[return-value]


def _nothing(*_arguments: object) -> int:
    return 0


class Nvtx(Protocol):
    """Functions through which a listening tool receives events."""

    def mark(self, category: int, text: str) -> None:
        """Emit one mark with an unregistered ASCII message."""

    def push(self, category: int, text: str) -> None:
        """Open a range on this thread."""

    def pop(self) -> None:
        """Close the innermost range of this thread."""


class _Torch:
    """The client that a CUDA build of torch has compiled in.

    Args:
        module: ``torch._C._nvtx``.
    """

    def __init__(self, module: Any) -> None:
        self._mark = module.markA
        self._push = module.rangePushA
        self._pop = module.rangePop

    def mark(self, _category: int, text: str) -> None:
        self._mark(text)

    def push(self, _category: int, text: str) -> None:
        self._push(text)

    def pop(self) -> None:
        self._pop()


class _Direct:
    """A domain of a listening tool, through the client in this module.

    Args:
        client: The filled tables.
        domain: Name of the domain.
        categories: Number of each category, by name.
    """

    def __init__(self, client: _Client, domain: str, categories: Mapping[str, int]) -> None:
        self._mark = client.function(_MARK_EX, _Event)
        self._push = client.function(_PUSH_EX, _Event)
        self._pop = client.function(_POP, _PopRange)
        self._domain = client.function(_DOMAIN_CREATE, _Create)(domain.encode("ascii"))
        name_category = client.function(_NAME_CATEGORY, _NameCategory)
        for name, number in categories.items():
            name_category(self._domain, number, name.encode("ascii"))

    def mark(self, category: int, text: str) -> None:
        self._mark(self._domain, _filled(category, text))

    def push(self, category: int, text: str) -> None:
        self._push(self._domain, _filled(category, text))

    def pop(self) -> None:
        self._pop(self._domain)


class _Scratch(threading.local):
    """One event structure a thread, filled anew for every event: cheaper than a new one."""

    def __init__(self) -> None:
        self.attributes = _Attributes(_NVTX_VERSION, ctypes.sizeof(_Attributes))
        self.attributes.message_type = _MESSAGE_ASCII
        self.address = ctypes.addressof(self.attributes)


_scratch = _Scratch()


def _filled(category: int, text: str) -> int:
    attributes = _scratch.attributes
    attributes.category = category
    attributes.message = text.encode("ascii", "replace")
    return _scratch.address


def connect(domain: str, categories: Mapping[str, int], path: str | None = None) -> Nvtx | None:
    """Attach to the tool that traces this process.

    Args:
        domain: Name of the domain to create.
        categories: Number of each category, by name.
        path: The tool's library; None takes ``NVTX_INJECTION64_PATH``.

    Returns:
        The way to it, or None when no tool listens or it does not take NVTX.
    """
    path = path or os.environ.get(PATH_VARIABLE)
    if not path or ctypes.sizeof(_Pointer) != 8:
        return None
    module = getattr(sys.modules.get("torch._C"), "_nvtx", None)
    if all(hasattr(module, name) for name in ("markA", "rangePushA", "rangePop")):
        return _Torch(module)
    client = _Client()
    try:
        initialize = ctypes.CDLL(path).InitializeInjectionNvtx2
    except (OSError, AttributeError):
        return None
    initialize.argtypes, initialize.restype = [_GetExport], ctypes.c_int
    # The tool keeps these addresses until the process ends, so the tables must outlive this
    # module, whose globals go away while the interpreter shuts down.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))
    if not initialize(client.export):
        return None
    if not client.slots[_CORE2][_MARK_EX]:
        return None
    return _Direct(client, domain, categories)
