"""Python calls as payloads, and their values back (docs/reference/protocol.md). Pure, but for pickling.

A function is pickled once and remembered. What can be imported travels as its name; anything else by value.
"""

from __future__ import annotations

import functools
import hashlib
import pickle
import threading
import types
from collections.abc import Callable
from typing import Any

from windfall.errors import BadInput

BLOB_BYTES = 64 * 1024
"""A function larger than this is sent once, as a blob, instead of with every call."""
MAX_BYTES = 60 << 20
"""A call goes in one request, and a request has at most 64 MiB."""
_REMEMBERED = 256
_CONSTANT = (types.FunctionType, types.BuiltinFunctionType, type, functools.partial)
_PROTOCOL = 5


class RemoteTraceback(Exception):
    """The traceback of the far side as text: the cause of an exception that came back."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text.rstrip()}\n"""'


class Calls:
    """Turns calls into payloads. `put_blob(sha256, data)` is called once for each large function."""

    def __init__(self, put_blob: Callable[[str, bytes], None]) -> None:
        self._put_blob = put_blob
        # By identity: equal functions may close over different values. The function is kept, so its id stays its own.
        self._functions: dict[int, tuple[Any, bytes | str]] = {}
        self._lock = threading.Lock()

    def payload(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """The pickled call."""
        known = self._functions.get(id(function))
        reference = known[1] if known is not None else self._reference(function)
        payload = _dump((reference, args, kwargs), "an argument of the call")
        if len(payload) > MAX_BYTES:
            raise BadInput(
                f"a call of {len(payload):,} bytes; the limit is {MAX_BYTES:,}",
                hint="put large data into a file that the calls read",
            )
        return payload

    def _reference(self, function: Callable[..., Any]) -> bytes | str:
        """The pickled function, or the name of the blob that it is. Only what does not change is remembered."""
        if not callable(function):
            raise BadInput(f"{function!r} cannot be called", hint="give a function and its arguments")
        data = _dump(function, f"the function {getattr(function, '__qualname__', function)!r}")
        reference: bytes | str = data
        if len(data) > BLOB_BYTES:
            reference = hashlib.sha256(data).hexdigest()
            self._put_blob(reference, data)
        if isinstance(function, _CONSTANT):
            with self._lock:
                # Lambdas and partials made anew for each call must not be kept for ever.
                if len(self._functions) >= _REMEMBERED:
                    self._functions.pop(next(iter(self._functions)))
                self._functions[id(function)] = (function, reference)
        return reference


def _dump(value: Any, what: str) -> bytes:
    """Plain pickle where it will do: ten times quicker. What lives in `__main__` is not there on the far side."""
    import cloudpickle  # here, so that commands that send no function do not load it

    if not cloudpickle.list_registry_pickle_by_value():
        try:
            data = pickle.dumps(value, _PROTOCOL)
            if b"__main__" not in data:
                return data
        except Exception:
            pass  # cloudpickle takes more; what it cannot take either is said below
    try:
        return bytes(cloudpickle.dumps(value, protocol=_PROTOCOL))
    except Exception as error:
        raise BadInput(
            f"{what} cannot be sent: {type(error).__name__}: {error}",
            hint="open files, locks and connections stay here; open them inside the function",
        ) from error


def raised(result: tuple[Any, ...]) -> BaseException:
    """The exception of a call that raised, with the far side's traceback as its cause."""
    error: BaseException = result[1]
    error.__cause__ = RemoteTraceback(result[2])
    return error
