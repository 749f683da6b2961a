"""How deep the JSON of a peer may be nested, and how large its numbers may be, before anything decodes it. Pure.

Types bound both once more (windfall.bounds), but skip what they do not know. Here all of it counts.
"""

from __future__ import annotations

import re

from windfall import bounds
from windfall.server.limits import Limits, TooLarge

_ESCAPED = re.compile(rb"\\.", re.DOTALL)
_NUMBER = re.compile(rb"[0-9][0-9.eE+-]*")
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def check_json(data: bytes | memoryview, limits: Limits, what: str) -> None:
    """TooLarge if a text is deeper than `limits.depth`, or has a number above `limits.number`."""
    text = bytes(data)
    if text.count(b"[") + text.count(b"{") > limits.depth and is_deeper(text, limits.depth):
        raise TooLarge(
            f"{what}: nested deeper than {limits.depth} levels", limit=limits.body_bytes,
            hint="no message needs as many; the operator sets it by `windfall server --limit depth=N`",
        )  # fmt: skip
    # At its default every number has a type that is as narrow, and which names the field.
    if limits.number < bounds.MAX_INTEGER and has_above(text, limits.number):
        raise TooLarge(
            f"{what}: a number is larger than {limits.number:,}", limit=limits.body_bytes,
            hint="send a smaller one; the operator sets it by `windfall server --limit number=N`",
        )  # fmt: skip


def is_deeper(text: bytes, depth: int) -> bool:
    """Whether JSON is nested deeper than this. What is no JSON may be called either: nothing decodes it."""
    kept = _without_strings(text).translate(_BRACKETS, _NOT_BRACKETS)
    for _ in range(depth):
        fewer = kept.replace(b"[]", b"")  # the innermost pairs, all at once
        if len(fewer) == len(kept):
            break
        kept = fewer
    return b"[]" in kept or kept.count(b"[") > depth


def has_above(text: bytes, most: int) -> bool:
    """Whether a number in JSON is further from zero than this."""
    return any(_size(found) > most for found in _NUMBER.findall(_without_strings(text)))


def _size(number: bytes) -> float:
    try:
        return abs(float(number))
    except ValueError:
        return 0.0  # no number: the decoder says so


def _without_strings(text: bytes) -> bytes:
    if b"\\" in text:
        text = _ESCAPED.sub(b"", text)
    return b" ".join(text.split(b'"')[::2])
