"""Blobs in an object store: s3://BUCKET/PREFIX, gs:// and az://. Touches that prefix only, through obstore.

PREFIX/windfall-blobs   says that the prefix belongs to a state
PREFIX/aa/SHA256        contents by their hash

Credentials come from the server's environment or its host's role; none is kept, and no message holds any.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast
from urllib.parse import urlsplit

from windfall.errors import BadInput
from windfall.store.checks import check_sha256
from windfall.store.contract import BlobSource, StoreCorrupt, StoreError, StoreReadOnly
from windfall.store.sqlite.files import Hashed, naming

SCHEMES = ("s3", "gs", "az")
MARKER = "windfall-blobs"
_PART_BYTES = 16 << 20
"""Of a large object; stores take 10,000 parts at most."""
_PARTS_AT_ONCE = 2
_READ_BYTES = 4 << 20
_SPOOL_BYTES = 8 << 20
_GIVE_UP_S = 20.0
"""Seconds after which a failed request is not tried again: its caller is told, and asks again."""
_KNOWN_SIZES = 100_000
_REFUSED = ("PermissionDeniedError", "UnauthenticatedError", "PermissionError")
_HINT = "check the address, its credentials in the server's environment, and the network; the same is tried again"
T = TypeVar("T")


def plain_address(address: str) -> str:
    """The address as it is kept: s3://BUCKET/PREFIX without a slash at its end. BadInput if it is none."""
    parts = urlsplit(address)
    if parts.scheme not in SCHEMES or not parts.hostname or not parts.path.strip("/"):
        raise BadInput(f"--blobs {_shown(address)}: no place for files", hint="as in: --blobs s3://bucket/prefix")
    if parts.username is not None or parts.query or parts.fragment or "@" in parts.netloc:
        raise BadInput(
            f"--blobs {_shown(address)}: only a bucket and a prefix may be named",
            hint="give credentials to the server instead: a role, or variables such as AWS_ACCESS_KEY_ID",
        )
    return f"{parts.scheme}://{parts.netloc}/{parts.path.strip('/')}"


def _shown(address: str) -> str:
    """For messages: without what may be a credential."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}" if parts.scheme else address


class ObjectBlobs:
    """Contents by their sha256 below one prefix. `ours`: only this server adds and removes."""

    at_once = False

    def __init__(self, address: str, spool: Path, ours: bool = True) -> None:
        self.address, self._spool, self._ours = address, spool, ours
        self._store = _opened(address)
        self._sizes: dict[str, int] = {}
        """Of blobs that this server has seen: a job of 1,500 files is not asked for one by one."""

    @property
    def directory(self) -> Path:
        return self._spool

    def begin(self) -> None:
        """Take an unused prefix. BadInput if anything is below it."""
        import obstore

        if self._said(lambda: next(iter(obstore.list(self._store, chunk_size=1)), None)):
            raise BadInput(
                f"{self.address} is not empty", hint="name a prefix that nothing else uses; a state needs its own"
            )
        self._said(lambda: obstore.put(self._store, MARKER, b"files of a state of Windfall\n"))

    def check(self) -> None:
        """StoreCorrupt if the prefix is not the one that the state has used; StoreError if it cannot be reached."""
        if self._head(MARKER) is None:
            raise StoreCorrupt(
                f"{self.address} holds no files of a state any more",
                hint="is it the right bucket?  restore it, or a backup of the state:  windfall state restore BACKUP",
            )

    def size(self, sha256: str) -> int | None:
        known = self._sizes.get(check_sha256(sha256))
        if known is None:
            known = self._head(_name(sha256))
            if known is not None:
                self._know(sha256, known)
        return known

    def put(self, sha256: str, source: BlobSource) -> int:
        """The hash is known to be right before anything is sent: a prefix never holds a wrong content."""
        check_sha256(sha256)
        content = Hashed(source)
        with tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES, dir=str(self._spool)) as spool:
            with naming(self._spool, content):
                for piece in content.verified(sha256):
                    spool.write(piece)
                spool.seek(0)
            return self._send(sha256, cast(BinaryIO, spool), content.size)

    def adopt(self, sha256: str, file: Path) -> int:
        with naming(self._spool), open(file, "rb") as content:
            size = self._send(check_sha256(sha256), content, file.stat().st_size)
            file.unlink()
        return size

    def _send(self, sha256: str, content: BinaryIO, size: int) -> int:
        import obstore

        def send() -> None:
            body: Any = content.read() if size < _PART_BYTES else content
            obstore.put(
                self._store, _name(sha256), body, chunk_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE,
                use_multipart=size >= _PART_BYTES,
            )  # fmt: skip

        self._said(send)
        if self._head(_name(sha256)) != size:
            raise StoreError(f"{self.address}: a file arrived damaged", hint="send it again")
        self._know(sha256, size)
        return size

    def open(self, sha256: str) -> BinaryIO:
        size = self.size(sha256)
        if size is None:
            raise KeyError(sha256)
        return io.BufferedReader(_Content(self, _name(sha256), size), _READ_BYTES)

    def read(self, name: str, start: int, end: int) -> bytes:
        """Bytes of an object; KeyError if it is gone."""
        import obstore

        return self._said(lambda: bytes(obstore.get_range(self._store, name, start=start, end=end)))

    def all(self) -> Iterator[tuple[str, int]]:
        import obstore

        pages = self._said(lambda: iter(obstore.list(self._store, chunk_size=1000)))
        while page := self._said(lambda: next(pages, None)):
            for found in page:
                name = found["path"].rpartition("/")[2]
                if found["path"] == _name(name) and len(name) == 64:
                    yield name, found["size"]

    def remove(self, sha256: str, writer: Any = None) -> None:
        import obstore

        self._sizes.pop(check_sha256(sha256), None)
        try:
            self._said(lambda: obstore.delete(self._store, _name(sha256)))
        except KeyError:
            return

    def clear(self) -> None:
        """Remove everything, the marker last."""
        import obstore

        for sha256, _ in list(self.all()):
            self.remove(sha256)
        self._said(lambda: obstore.delete(self._store, MARKER))

    def _know(self, sha256: str, size: int) -> None:
        if self._ours and len(self._sizes) < _KNOWN_SIZES:
            self._sizes[sha256] = size

    def _head(self, name: str) -> int | None:
        import obstore

        try:
            return int(self._said(lambda: obstore.head(self._store, name))["size"])
        except KeyError:
            return None

    def _said(self, work: Callable[[], T]) -> T:
        return _said(self.address, work)


class _Content(io.RawIOBase):
    """An object read from its beginning, a piece with each request: a broken connection costs one piece."""

    def __init__(self, blobs: ObjectBlobs, name: str, size: int) -> None:
        self._blobs, self._name, self._size, self._at = blobs, name, size, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        end = min(self._at + len(buffer), self._size)
        if end <= self._at:
            return 0
        data = self._blobs.read(self._name, self._at, end)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def _name(sha256: str) -> str:
    return f"{sha256[:2]}/{sha256}"


def _opened(address: str) -> Any:
    try:
        from obstore.store import from_url
    except ImportError:
        raise BadInput(f"{address} needs obstore", hint="install it: pip install obstore") from None
    # Options of the client are left to the environment (AWS_ALLOW_HTTP, AWS_TIMEOUT): any given here would hide those.
    patience: Any = {"max_retries": 4, "retry_timeout": timedelta(seconds=_GIVE_UP_S)}
    return _said(address, lambda: from_url(address, retry_config=patience))


def _said(address: str, work: Callable[[], T]) -> T:
    """Do it; KeyError if there is no such object. Other errors are told by their kind: their texts may hold headers."""
    try:
        return work()
    except (FileNotFoundError, KeyError):
        raise KeyError(address) from None
    except StoreError:
        raise
    except Exception as error:
        kind = type(error).__name__
        if kind == "NotFoundError":
            raise KeyError(address) from None
        if kind in _REFUSED:
            raise StoreReadOnly(f"{address}: the object store refuses this server ({kind})", hint=_HINT) from None
        raise StoreError(f"{address}: the object store cannot do it now ({kind})", hint=_HINT) from None
