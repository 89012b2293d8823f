"""Buffers to Polars without a copy and without pyarrow: the Arrow C data interface.

Source: https://arrow.apache.org/docs/format/CDataInterface.html.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

__all__ = ["number_series", "text_series"]


class _Schema(ctypes.Structure):
    """struct ArrowSchema."""


class _Array(ctypes.Structure):
    """struct ArrowArray."""


_ReleaseSchema = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Schema))
_ReleaseArray = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Array))
_Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_char_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.c_void_p),
    ("dictionary", ctypes.c_void_p),
    ("release", _ReleaseSchema),
    ("private_data", ctypes.c_void_p),
]
_Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.c_void_p),
    ("dictionary", ctypes.c_void_p),
    ("release", _ReleaseArray),
    ("private_data", ctypes.c_void_p),
]
NULLABLE = 2
FORMATS = {
    "i1": b"c",
    "i2": b"s",
    "i4": b"i",
    "i8": b"l",
    "u1": b"C",
    "u2": b"S",
    "u4": b"I",
    "u8": b"L",
    "f8": b"g",
}

# What the consumer still holds, by the private_data of its array.
_held: dict[int, object] = {}


def _drop_schema(schema: Any) -> None:
    schema.contents.release = _ReleaseSchema()


def _drop_array(array: Any) -> None:
    _held.pop(array.contents.private_data, None)
    array.contents.release = _ReleaseArray()


_release_schema = _ReleaseSchema(_drop_schema)
_release_array = _ReleaseArray(_drop_array)
# Frames can outlive this module while the interpreter shuts down: their callbacks must too.
for _callback in (_release_schema, _release_array):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_callback))

_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype = ctypes.py_object
_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class _Column:
    """One array for whoever asks by ``__arrow_c_array__``; it can be taken once."""

    def __init__(
        self, code: bytes, rows: int, buffers: Sequence[NDArray[Any] | None], nullable: bool
    ) -> None:
        self._schema = _Schema(code, b"", None, NULLABLE, 0, None, None, _release_schema, None)
        pointers = (ctypes.c_void_p * len(buffers))(
            *(None if buffer is None else buffer.ctypes.data for buffer in buffers)
        )
        key = id(pointers)
        _held[key] = (pointers, buffers)
        self._array = _Array(
            rows,
            -1 if nullable else 0,
            0,
            len(buffers),
            0,
            ctypes.cast(pointers, ctypes.POINTER(ctypes.c_void_p)),
            None,
            None,
            _release_array,
            key,
        )

    def __arrow_c_schema__(self) -> object:
        """Return the type as a PyCapsule."""
        return _capsule(ctypes.addressof(self._schema), b"arrow_schema", None)

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """Return the type and the array as PyCapsules."""
        del requested_schema
        array = _capsule(ctypes.addressof(self._array), b"arrow_array", None)
        return self.__arrow_c_schema__(), array


def number_series(name: str, values: NDArray[Any], nulls: NDArray[np.uint8] | None) -> pl.Series:
    """Make a numeric column.

    Args:
        name: Name of the column.
        values: The values, of any integer dtype or float64.
        nulls: uint8[rows]: 1 where the value is null; None if it never is.

    Returns:
        The column, sharing the memory of `values`.
    """
    buffers = [_validity(nulls), values]
    column = _Column(FORMATS[values.dtype.str[1:]], values.size, buffers, nulls is not None)
    return pl.Series(column).alias(name)


def text_series(
    name: str,
    views: NDArray[np.uint8],
    nulls: NDArray[np.uint8] | None,
    data: Sequence[NDArray[np.uint8]],
    *,
    binary: bool,
) -> pl.Series:
    """Make a String or Binary column of Arrow views.

    Args:
        name: Name of the column.
        views: uint8[16 * rows]: Arrow's binary views; text must be UTF-8, which is not checked.
        nulls: uint8[rows]: 1 where the value is null; None if it never is.
        data: Buffers that the views refer to by their index.
        binary: Make Binary instead of String.

    Returns:
        The column, sharing the memory of its buffers.
    """
    sizes = np.array([buffer.size for buffer in data], np.int64)
    buffers = [_validity(nulls), views, *data, sizes]
    code = b"vz" if binary else b"vu"
    return pl.Series(_Column(code, views.size // 16, buffers, nulls is not None)).alias(name)


def _validity(nulls: NDArray[np.uint8] | None) -> NDArray[np.uint8] | None:
    return None if nulls is None else np.packbits(nulls ^ 1, bitorder="little")
