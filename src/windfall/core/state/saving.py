"""How the parts of the state become bytes: structs as msgpack, long arrays beside them as they are. Pure.

A part that is a struct saves itself. A class that is none has `saved()`, which returns plain values, and
`restored(values)`. Arrays are not packed into the msgpack header: a million tasks are copied once, as bytes.
"""

from __future__ import annotations

import struct
from array import array
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, TypeVar, get_origin

import msgspec

T = TypeVar("T")
_LENGTH = struct.Struct(">Q")


if TYPE_CHECKING:
    AnyArray = array[Any]
else:
    # The interpreter's array takes no parameter before 3.12.
    AnyArray = array


class Numbers(AnyArray):
    """An array with a fixed type of items, so that it can be made without naming the type."""

    __slots__ = ()
    CODE = "I"

    def __new__(cls, items: Any = ()) -> Any:
        return super().__new__(cls, cls.CODE, items)


class Bytes(Numbers):
    """8-bit unsigned numbers."""

    __slots__ = ()
    CODE = "B"


class SignedShorts(Numbers):
    """16-bit signed numbers."""

    __slots__ = ()
    CODE = "h"


class Doubles(Numbers):
    """64-bit floats."""

    __slots__ = ()
    CODE = "d"


class Ints(Numbers):
    """32-bit unsigned numbers."""

    __slots__ = ()
    CODE = "I"


class Floats(Numbers):
    """32-bit floats."""

    __slots__ = ()
    CODE = "f"


class Writer:
    """Encodes one object: a header, and behind it the arrays that it holds."""

    def __init__(self, shared: bool = False) -> None:
        """`shared`: arrays are not copied; the pieces are right until one of them changes."""
        self._shared = shared
        self._arrays: list[bytes | memoryview] = []
        self._encoder = msgspec.msgpack.Encoder(enc_hook=self._hook)

    def _hook(self, value: Any) -> Any:
        if isinstance(value, array):
            self._arrays.append(memoryview(value).cast("B") if self._shared else value.tobytes())
            return len(value) * value.itemsize
        return value.saved()

    def pieces(self, value: Any) -> list[bytes | memoryview]:
        """The parts of the encoding in order. Unless shared, nothing changes them: another thread may join them."""
        header = self._encoder.encode(value)
        return [_LENGTH.pack(len(header)), header, *self._arrays]


class Reader:
    """Decodes what a `Writer` made. Arrays are met in the order in which they were written."""

    def __init__(self, data: bytes) -> None:
        (length,) = _LENGTH.unpack_from(data)
        view = memoryview(data)[_LENGTH.size :]
        self._header, self._arrays, self._at = view[:length], view[length:], 0

    def read(self, type_: type[T]) -> T:
        return msgspec.msgpack.decode(self._header, type=type_, dec_hook=self._hook)

    def _hook(self, type_: Any, value: Any) -> Any:
        if get_origin(type_) is OrderedDict:
            return OrderedDict(value)
        if issubclass(type_, array):
            found = type_()
            found.frombytes(self._arrays[self._at : self._at + value])
            self._at += value
            return found
        return type_.restored(value)
