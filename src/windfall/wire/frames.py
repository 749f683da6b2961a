"""Frames: a JSON header followed by raw bytes, so that output and pickles need no escaping. Pure."""

from __future__ import annotations

import struct

CONTENT_TYPE = "application/x-windfall"
_LENGTH = struct.Struct(">I")
MAX_HEADER_BYTES = 64 * 1024 * 1024


class BadFrame(ValueError):
    """The bytes are not a frame: truncated, or something else."""


def join(header: bytes, attachments: list[bytes]) -> bytes:
    """A frame made of an encoded JSON header and its attachments, in the order of their lengths in the header."""
    return b"".join([_LENGTH.pack(len(header)), header, *attachments])


def split(frame: bytes) -> tuple[memoryview, memoryview]:
    """The header and the attachments of a frame, without copying."""
    if len(frame) < 4:
        raise BadFrame("shorter than its length field")
    length = int.from_bytes(frame[:4], "big")
    end = 4 + length
    if length > MAX_HEADER_BYTES or end > len(frame):
        raise BadFrame(f"header of {length} bytes in a frame of {len(frame)}")
    view = memoryview(frame)
    return view[4:end], view[end:]
