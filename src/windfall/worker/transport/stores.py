"""Files in object stores and on the web: read in parts, checked, written whole. Touches the network and files.

s3://, gs:// and az:// need obstore on the host (`pip install obstore`), which takes credentials from the worker's
environment or from the host's role. http:// and https:// need nothing. Messages hold addresses, never credentials.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
import urllib.error
import urllib.request
from typing import Any, BinaryIO, Callable, NamedTuple
from urllib.parse import urlsplit

PART_BYTES = 16 << 20
"""Bytes that one request reads: what is lost when a connection breaks."""
_TIMEOUT_S = 60.0
_MD5 = re.compile(r"[0-9a-f]{32}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class Missing(Exception):
    """There is no such file, or it may not be read or written: a retry does not help."""


class Interrupted(Exception):
    """The connection broke, or the store is busy: a retry goes on where it stopped."""


class Changed(Exception):
    """The file is not the one that was asked for, or changed while it was read."""


class Version(NamedTuple):
    size: int
    etag: str


def is_address(reference: str) -> bool:
    return "://" in reference[:16]


def cache_key(address: str, version: Version) -> str:
    """The name in the cache: of an address with a digest the digest itself, else made of address and version."""
    digest = address.partition("#sha256=")[2]
    if _SHA256.fullmatch(digest):
        return digest
    return hashlib.sha256(f"{address}\n{version.size}\n{version.etag}".encode()).hexdigest()


def look(address: str) -> Version:
    """Size and version of a file."""
    return _store(address).look()


def fetch(address: str, version: Version, partial: str) -> None:
    """Read a file into `partial`, from where an earlier try stopped. `Changed` if it is not what it should be."""
    store = _store(address)
    done = os.path.getsize(partial) if os.path.exists(partial) else 0
    if done > version.size:
        os.unlink(partial)
        done = 0
    with open(partial, "ab") as file:
        while done < version.size:
            data = store.read(done, min(PART_BYTES, version.size - done), version.etag)
            if not data:
                raise Interrupted(f"{_shown(address)} ended early")
            file.write(data)
            done += len(data)
    wanted, found = _wanted(address, version), None
    if wanted is not None:
        found = _digest(partial, wanted[0])
    if wanted is not None and found != wanted[1]:
        os.unlink(partial)
        raise Changed(f"{_shown(address)} does not have the {wanted[0]} that it should have")


def put(address: str, path: str) -> tuple[str, int]:
    """Write a file to a store. Returns its SHA-256 and size; `Changed` if the store has something else then."""
    store = _store(address)
    store.write(path)
    found, size = store.look(), os.path.getsize(path)
    etag = found.etag.strip('"')
    if found.size != size or (_MD5.fullmatch(etag) and etag != _digest(path, "md5") and not _encrypted(address)):
        raise Changed(f"{_shown(address)} arrived damaged")
    return _digest(path, "sha256"), size


def _wanted(address: str, version: Version) -> tuple[str, str] | None:
    """Kind and value of the digest that is known of a file before it is read."""
    digest = address.partition("#sha256=")[2]
    if _SHA256.fullmatch(digest):
        return "sha256", digest
    etag = version.etag.strip('"')
    if address.startswith("s3://") and _MD5.fullmatch(etag) and not _encrypted(address):
        return "md5", etag
    return None


def _encrypted(address: str) -> bool:
    """With a key of its own, S3 makes ETags that are no MD5; `WINDFALL_S3_ETAG=opaque` says so of all buckets."""
    return os.environ.get("WINDFALL_S3_ETAG") == "opaque"


def _digest(path: str, kind: str) -> str:
    digest = hashlib.new(kind)
    with open(path, "rb") as file:
        for data in iter(lambda: file.read(1 << 20), b""):
            digest.update(data)
    return digest.hexdigest()


def _shown(address: str) -> str:
    """An address for messages: without its query."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"


def _store(address: str) -> _Web | _Objects:
    plain = address.partition("#")[0]
    return _Web(plain) if plain.startswith(("http://", "https://")) else _Objects(plain)


class _Web:
    """A file on the web."""

    def __init__(self, address: str) -> None:
        self._address = address

    def look(self) -> Version:
        with self._open("HEAD", {}) as answer:
            size = answer.headers.get("Content-Length")
            etag = answer.headers.get("ETag") or answer.headers.get("Last-Modified") or ""
        if size is None:
            raise Missing(f"{_shown(self._address)} does not say how large it is")
        return Version(int(size), etag)

    def read(self, start: int, length: int, etag: str) -> bytes:
        headers = {"Range": f"bytes={start}-{start + length - 1}"}
        if etag:
            headers["If-Range"] = etag
        with self._open("GET", headers) as answer:
            if start and answer.status != 206:
                raise Changed(f"{_shown(self._address)} changed, or cannot be read in parts")
            data: bytes = answer.read(length)
        return data

    def write(self, path: str) -> None:
        raise Missing(f"{_shown(self._address)} cannot be written to")

    @contextlib.contextmanager
    def _open(self, method: str, headers: dict[str, str]) -> Any:
        request = urllib.request.Request(self._address, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
                yield answer
        except urllib.error.HTTPError as error:
            text = f"{_shown(self._address)}: the server answers {error.code}"
            raise (Interrupted if error.code in (408, 429) or error.code >= 500 else Missing)(text) from None
        except (OSError, EOFError) as error:
            raise Interrupted(f"{_shown(self._address)}: {type(error).__name__}") from None


class _Objects:
    """An object of a store, through obstore."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self._address = address
        self._path = parts.path.lstrip("/")
        self._store = _bucket(f"{parts.scheme}://{parts.netloc}/")

    def look(self) -> Version:
        import obstore

        found = _said(self._address, lambda: obstore.head(self._store, self._path))
        return Version(int(found["size"]), str(found.get("e_tag") or found.get("last_modified") or ""))

    def read(self, start: int, length: int, etag: str) -> bytes:
        import obstore

        options: dict[str, Any] = {"range": (start, start + length)}
        if etag.startswith('"'):
            options["if_match"] = etag
        data: bytes = _said(self._address, lambda: bytes(obstore.get(self._store, self._path, options=options).bytes()))
        return data

    def write(self, path: str) -> None:
        import obstore

        def send() -> None:
            file: BinaryIO
            with open(path, "rb") as file:
                obstore.put(self._store, self._path, file)

        _said(self._address, send)


_buckets: dict[str, Any] = {}
_opening = threading.Lock()


def _bucket(root: str) -> Any:
    """One connection pool for each bucket."""
    with _opening:
        if root not in _buckets:
            try:
                from obstore.store import from_url
            except ImportError:
                raise Missing(f"{root} needs obstore on this host: pip install obstore") from None
            _buckets[root] = _said(root, lambda: from_url(root))
        return _buckets[root]


_FINAL = ("NotFoundError", "PermissionDeniedError", "UnauthenticatedError", "NotSupportedError", "InvalidPathError",
          "UnknownConfigurationKeyError", "FileNotFoundError", "PermissionError")  # fmt: skip


_WORDS = {
    "NotFoundError": "there is no such file", "FileNotFoundError": "there is no such file",
    "PermissionDeniedError": "the credentials of this host do not allow it",
    "PermissionError": "the credentials of this host do not allow it",
    "UnauthenticatedError": "this host has no credentials that the store knows",
}  # fmt: skip


def _said(address: str, work: Callable[[], Any]) -> Any:
    """Do it; what goes wrong is told by its kind. obstore's own texts may hold headers of requests."""
    try:
        return work()
    except (Missing, Interrupted, Changed):
        raise
    except Exception as error:
        kind = type(error).__name__
        if kind == "PreconditionError":
            raise Changed(f"{_shown(address)} changed while it was read") from None
        raise (Missing if kind in _FINAL else Interrupted)(f"{_shown(address)}: {_WORDS.get(kind, kind)}") from None
