"""What two results of a task must have in common to be called equal: a hash of what it wrote. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any

import msgspec

_pack = msgspec.msgpack.Encoder().encode


def fingerprint(stdout: bytes, dropped: int, files: Iterable[Sequence[Any]]) -> str:
    """Of standard output (with the bytes of it that were dropped) and the output files, by name and content.

    Standard error, times and modes differ between hosts that did the same.
    """
    named = sorted((str(file[0]), str(file[1])) for file in files)
    return sha256(_pack([stdout, dropped, named])).hexdigest()[:32]
