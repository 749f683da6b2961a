"""Outputs that clients send: certificates, partial files, whole ones. Touches the folder `uploads` of the front.

A file is visible under its name only when it is whole, has the announced size and MD5, and is on the disk.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from windfall.boinc.names import read_output
from windfall.boinc.rsa import hex_lines

MAX_HEAD_BYTES = 8192
STALLED_S = 300.0
"""Clients give up a transfer that stands still for as long. The server does, too: the next one may begin then."""
CLEARED_EVERY_S = 3600.0
DONE, LATER, NEVER = 0, 1, -1
"""How a client goes on: it is done, it tries again later, it gives up."""
_DATA = b"<data>\n"
_FIELD = re.compile(r"<(name|max_nbytes|nbytes|md5_cksum|offset)>([^<\n]{0,250})</\1>")
_SIGNATURE = re.compile(r"<xml_signature>([0-9a-f\s.]{0,4096})</xml_signature>")
_QUERY = re.compile(r"<get_file_size>([^<\n]{1,250})</get_file_size>")
_MD5 = re.compile(r"[0-9a-f]{32}\Z")


class Refused(Exception):
    """Why a file is not taken, and whether the client shall try again."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class UploadHead(Struct):
    """What stands before the bytes of a file."""

    name: str
    most_bytes: int
    size: int
    md5: str
    offset: int
    certificate: str


def split(data: bytes) -> tuple[str, bytes] | None:
    """The head of an upload and the first of its bytes; None until the head is whole."""
    at = data.find(_DATA, 0, MAX_HEAD_BYTES + len(_DATA))
    if at < 0:
        return None
    return data[:at].decode("latin-1"), data[at + len(_DATA) :]


def query(text: str) -> str:
    """The file whose stored size is asked for; empty if none is."""
    match = _QUERY.search(text)
    return match[1] if match else ""


def read_head(text: str) -> UploadHead:
    """Refused if something is missing or out of bounds."""
    said: dict[str, str] = {}
    for match in _FIELD.finditer(text):
        said.setdefault(match[1], match[2].strip())
    signature = _SIGNATURE.search(text)
    numbers = [said.get(name, "") for name in ("max_nbytes", "nbytes", "offset")]
    if not all(number.isdecimal() and len(number) <= 15 for number in numbers):
        raise Refused(NEVER, "sizes are missing")
    if not _MD5.match(said.get("md5_cksum", "")):
        raise Refused(NEVER, "the MD5 is missing")
    most, size, offset = map(int, numbers)
    return UploadHead(
        said.get("name", ""), most, size, said["md5_cksum"], offset, "" if signature is None else signature[1]
    )


class Uploads:
    """The outputs of one front that have come and have not been reported yet."""

    def __init__(self, folder: Path, secret: bytes) -> None:
        self._folder, self._secret = folder, secret
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._busy: set[str] = set()
        self._cleared_t: float | None = None

    def certificate(self, name: str, most_bytes: int) -> str:
        """The signature that a client must show to upload a file of this name, of at most `most_bytes`."""
        said = f"<name>{name}</name><max_nbytes>{most_bytes}</max_nbytes>"
        return hex_lines(hmac.new(self._secret, f"upload\0{said}".encode(), hashlib.sha256).digest())

    def check(self, head: UploadHead) -> None:
        """Refused unless the certificate is ours, for this name and size."""
        made = "".join(self.certificate(head.name, head.most_bytes).split())
        if not hmac.compare_digest(made, "".join(head.certificate.split())):
            raise Refused(NEVER, "the signature of the upload does not match its name and size")
        if read_output(head.name) is None:
            raise Refused(NEVER, "no such file was asked for")
        if head.size > head.most_bytes:
            raise Refused(NEVER, "the file is larger than was allowed")
        if head.offset > head.size or head.offset > self.stored(head.name):
            raise Refused(LATER, "the file would have a gap")

    def stored(self, name: str) -> int:
        """Bytes that are there, whole or in part; names that are none of ours have none."""
        if read_output(name) is None:
            return 0
        for path in (self._folder / name, self._part(name)):
            try:
                return path.stat().st_size
            except OSError:
                continue
        return 0

    def _part(self, name: str) -> Path:
        return self._folder / f"{name}.part"

    async def receive(self, head: UploadHead, first: bytes, pieces: AsyncIterator[bytes]) -> None:
        """Store what comes; Refused if it is not what was announced."""
        if head.name in self._busy:
            raise Refused(LATER, "this file is just being sent")
        whole = self._folder / head.name
        if whole.exists() and head.offset == whole.stat().st_size == head.size and not first:
            return
        self._busy.add(head.name)
        try:
            part = self._part(head.name)
            if head.offset and whole.exists():
                whole.replace(part)
            with open(part, "r+b" if head.offset else "wb") as file:
                file.seek(head.offset)
                file.truncate()
                await self._fill(file, head, first, pieces)
            if await asyncio.to_thread(_md5, part) != head.md5:
                part.unlink()
                raise Refused(LATER, "the MD5 is not that of the bytes")
            await asyncio.to_thread(_keep, part, whole)
        finally:
            self._busy.discard(head.name)

    async def _fill(self, file: BinaryIO, head: UploadHead, first: bytes, pieces: AsyncIterator[bytes]) -> None:
        at = head.offset
        piece = first
        while True:
            if at + len(piece) > head.size:
                raise Refused(LATER, "more bytes than were announced")
            file.write(piece)
            at += len(piece)
            try:
                async with asyncio.timeout(STALLED_S):
                    piece = await anext(pieces)
            except StopAsyncIteration:
                break
            except TimeoutError:
                raise Refused(LATER, "the transfer stands still") from None
        if at != head.size:
            raise Refused(LATER, "fewer bytes than were announced")

    def whole(self, name: str, md5: str) -> Path | None:
        """The path of a whole file with this MD5; None if there is none."""
        path = self._folder / name
        return path if read_output(name) is not None and path.is_file() and _md5(path) == md5 else None

    def forget(self, name: str) -> None:
        if read_output(name) is not None:
            (self._folder / name).unlink(missing_ok=True)
            self._part(name).unlink(missing_ok=True)

    def clear(self, now: float, is_awaited: Callable[[str], bool]) -> None:
        """Remove outputs that nobody waits for any more, of jobs that were cancelled for instance; once an hour."""
        if self._cleared_t is not None and self._cleared_t <= now < self._cleared_t + CLEARED_EVERY_S:
            return
        self._cleared_t = now
        for name in {path.name.removesuffix(".part") for path in self._folder.iterdir()}:
            if not is_awaited(name):
                self.forget(name)


def _md5(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _keep(part: Path, whole: Path) -> None:
    with open(part, "rb") as file:
        os.fsync(file.fileno())
    part.replace(whole)
    folder = os.open(whole.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
