"""The values of Python calls as JSON, without trusting the pickles that workers sent. Touches nothing."""

from __future__ import annotations

import base64
import io
import pickle
import pickletools
from typing import Any

MAX_SHOWN_BYTES = 16 << 20
"""Larger pickles are shown as they are."""
MAX_PARTS = 100_000
"""A pickle of a few bytes can name one list in itself a billion times."""
_MEMO = frozenset({"PUT", "BINPUT", "LONG_BINPUT", "GET", "BINGET", "LONG_BINGET"})


def shown_value(data: bytes) -> Any:
    """The value of a call as JSON; what JSON cannot say, or what is too large to show, as {"pickle": base64}."""
    if not data:
        return None
    try:
        _check(data)
        return _Parts().plain(_Plain(io.BytesIO(data)).load()[1])
    except (
        pickle.UnpicklingError, TypeError, ValueError, EOFError, AttributeError, LookupError, RecursionError,
        MemoryError, OverflowError,
    ):  # fmt: skip
        return {"pickle": base64.b64encode(data).decode()}


class _Plain(pickle.Unpickler):
    """Reads numbers, texts, lists and the like. A pickle may run anything; looking at results must not."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name}")


def _check(data: bytes) -> None:
    """ValueError if reading the pickle would take memory beyond its own size."""
    if len(data) > MAX_SHOWN_BYTES:
        raise ValueError("too large to show")
    for code, argument, _ in pickletools.genops(data):
        # The reader makes room for every number below the one that a value is remembered by.
        if code.name in _MEMO and int(argument or 0) > len(data):
            raise ValueError(f"remembers {argument} values")


class _Parts:
    """Turns a value into JSON as long as it has few enough parts."""

    def __init__(self) -> None:
        self._left = MAX_PARTS

    def plain(self, value: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise ValueError("too many parts to show")
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float):
            if value != value or value in (float("inf"), float("-inf")):
                raise ValueError(value)
            return value
        if isinstance(value, list | tuple):
            return [self.plain(item) for item in value]
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            return {key: self.plain(item) for key, item in value.items()}
        raise TypeError(type(value))
