"""Blobs: inputs fetched once into a cache, declared outputs sent before the result. Touches the network and a folder.

They have a few threads of their own, so that a large file does not delay other work. During an outage a transfer waits;
it fails only on an answer that will not change (missing, too large, not allowed).
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import http.client
import os
import queue
import random
import re
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, List, Sequence

from windfall.wire import ATTEMPT
from windfall.worker.transport import link, stores

_THREADS = 3
_CHUNK_BYTES = 1 << 20
_CACHE_BYTES = 20 << 30
_MOST_INTERRUPTIONS = 6
"""Broken connections to a store after which an attempt is given up: another host may reach it."""
_SHA256 = re.compile(r"[0-9a-f]{64}")

Outputs = List[List[Any]]  # evaluated when imported, and Python 3.8 has no list[...]


class Failed(Exception):
    """The transfer cannot succeed; a retry does not help."""


class OverQuota(Failed):
    """The files of the job would be more than the server lets one job have."""


class Transfers:
    """Fetches and sends; callbacks run in the agent's own thread, when it calls `finish`."""

    def __init__(self, address: link.Address, folder: str) -> None:
        self._address = address
        self._cache = os.path.join(folder, "cache")
        os.makedirs(self._cache, exist_ok=True)
        self._jobs: queue.SimpleQueue[tuple[Callable[[_Carrier], Any], Callable[[Any], None]]] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[Callable[[Any], None], Any]] = queue.SimpleQueue()
        self._fetching: dict[str, list[Callable[[str | Failed], None]]] = {}
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        self._closed = threading.Event()
        self._threads: list[threading.Thread] = []
        self._tidy()

    def fileno(self) -> int:
        return self._wake_read

    def fetch(self, sha256: str, callback: Callable[[str | Failed], None]) -> None:
        """Fetch a blob, or a file by its address; the callback gets its path, or the error."""
        if not _SHA256.fullmatch(sha256) and not stores.is_address(sha256):
            callback(Failed(f"{sha256[:80]!r} is not a SHA-256"))
            return
        waiting = self._fetching.setdefault(sha256, [])
        waiting.append(callback)
        if len(waiting) == 1:
            path = self._path(sha256)
            if stores.is_address(sha256):
                self._start(lambda carrier: carrier.fetch_address(sha256, self._cache), partial(self._fetched, sha256))
            else:
                self._start(lambda carrier: carrier.fetch(sha256, path), partial(self._fetched, sha256))

    def send(
        self,
        files: list[tuple[str, str, int]],
        callback: Callable[[Outputs | Failed], None],
        destinations: Sequence[tuple[str, str]] = (),
        attempt: tuple[Any, Any, int] | None = None,
    ) -> None:
        """Send the outputs `(name, path, mode)` of an attempt; the callback gets their rows, or the error.

        `destinations`: patterns of those that go to a store, with its address, which is the fifth field of their rows.
        """
        shown = "" if attempt is None else ".".join(map(str, attempt))
        self._start(
            lambda carrier: [carrier.send(*file, destination_of(file[0], destinations), shown) for file in files],
            callback,
        )

    def finish(self) -> None:
        """Call back for everything that has ended since the last time."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_read, 4096)
        with contextlib.suppress(queue.Empty):
            while True:
                callback, outcome = self._done.get_nowait()
                callback(outcome)

    def close(self) -> None:
        self._closed.set()

    def _fetched(self, sha256: str, found: str | Failed) -> None:
        for callback in self._fetching.pop(sha256, []):
            callback(found)

    def _path(self, sha256: str) -> str:
        return os.path.join(self._cache, sha256)

    def _start(self, work: Callable[[_Carrier], Any], callback: Callable[[Any], None]) -> None:
        self._jobs.put((work, callback))
        if len(self._threads) < _THREADS:
            thread = threading.Thread(target=self._work, daemon=True, name="transfer")
            self._threads.append(thread)
            thread.start()

    def _work(self) -> None:
        carrier = _Carrier(self._address, self._closed)
        while True:
            work, callback = self._jobs.get()
            try:
                outcome = work(carrier)
            except Failed as failure:
                outcome = failure
            except OSError as error:
                outcome = Failed(str(error))
            self._done.put((callback, outcome))
            os.write(self._wake_write, b".")

    def _tidy(self) -> None:
        """At the start: delete incomplete files, and the oldest blobs beyond the size of the cache."""
        files = []
        for entry in os.scandir(self._cache):
            if _SHA256.fullmatch(entry.name):
                found = entry.stat()
                files.append((found.st_mtime, found.st_size, entry.path))
            else:
                os.unlink(entry.path)
        kept = 0
        for _, size, path in sorted(files, reverse=True):
            kept += size
            if kept > _CACHE_BYTES:
                os.unlink(path)


class _Carrier:
    """Transfers blobs over one connection."""

    def __init__(self, address: link.Address, closed: threading.Event) -> None:
        self._address = address
        self._closed = closed
        self._connection: http.client.HTTPConnection | None = None

    def fetch(self, sha256: str, path: str) -> str:
        if not os.path.exists(path):
            self._insist(lambda: self._fetch_once(sha256, path))
        else:
            os.utime(path)
        return path

    def fetch_address(self, address: str, cache: str) -> str:
        """Fetch a file from a store or the web; once for each version of it."""
        found: list[str] = []

        def attempt() -> None:
            version = stores.look(address)
            path = os.path.join(cache, stores.cache_key(address, version))
            if os.path.exists(path):
                os.utime(path)
            else:
                # Two addresses may name one content: each is read into a file of its own.
                partial_path = f"{path}.{hashlib.sha256(address.encode()).hexdigest()[:8]}"
                stores.fetch(address, version, partial_path)
                os.replace(partial_path, path)
            found.append(path)

        self._insist(attempt)
        return found[0]

    def send(self, name: str, path: str, mode: int, address: str = "", attempt: str = "") -> list[Any]:
        if address:
            sent: list[tuple[str, int]] = []
            self._insist(lambda: sent.append(stores.put(address, path)))
            return [name, *sent[0], mode, address]
        sha256, size = _digest(path)
        self._insist(lambda: self._send_once(sha256, path, size, attempt))
        return [name, sha256, size, mode]

    def _insist(self, attempt: Callable[[], None]) -> None:
        """Repeat until the transfer succeeds or cannot succeed."""
        backoff, wrong, broken = self._address.backoff(random.Random()), 0, 0
        while True:
            pause_s, asked, at_store = 0.0, self._address.current, False
            try:
                return attempt()
            except stores.Missing as missing:
                raise Failed(str(missing)) from None
            except (_Damaged, stores.Changed) as damage:
                at_store = isinstance(damage, stores.Changed)
                wrong += 1
                if wrong >= 3:
                    raise Failed(str(damage)) from None
            except link.Expired:
                pass  # the next exchange brings a new one, or ends the worker
            except link.Refused as refusal:
                raise Failed(str(refusal)) from None
            except link.TooLarge as over:
                kind = OverQuota if over.code == "job-quota" else Failed
                raise kind(f"larger than the server takes: {over}") from None
            except link.Unavailable as unavailable:
                # What the server asks for is the least; the rest spreads the senders out.
                pause_s = unavailable.retry_after_s
            except stores.Interrupted as interruption:
                at_store = True
                broken += 1
                if broken >= _MOST_INTERRUPTIONS:
                    raise Failed(f"{interruption}, {broken} times") from None
            except (http.client.HTTPException, ConnectionError, TimeoutError):
                pass
            # What is wrong with a store is no reason to leave the server.
            if not at_store:
                self._drop()
                if self._address.move_on(asked):
                    continue
            if self._closed.wait(pause_s + backoff.next_s()):
                raise Failed("the worker left before the transfer was over")

    def _fetch_once(self, sha256: str, path: str) -> None:
        response = self._request("GET", sha256)
        if response.status == 404:
            response.read()
            raise Failed(f"the server has no blob {sha256[:12]}")
        if response.status != 200:
            link.check(response.status, response.read(), response.headers)
        partial = f"{path}.{threading.get_ident()}"
        digest = hashlib.sha256()
        try:
            with open(partial, "wb") as file:
                while chunk := response.read(_CHUNK_BYTES):
                    digest.update(chunk)
                    file.write(chunk)
            if digest.hexdigest() != sha256:
                raise _Damaged(f"blob {sha256[:12]} arrived damaged three times")
            os.rename(partial, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(partial)

    def _send_once(self, sha256: str, path: str, size: int, attempt: str) -> None:
        response = self._request("HEAD", sha256)
        response.read()
        if response.status == 200:
            return
        if response.status != 404:
            link.check(response.status, b"", response.headers)
        with open(path, "rb") as file:
            response = self._request("PUT", sha256, file, size, attempt)
            body = response.read()
        if response.status in (400, 422):
            raise _Damaged(f"{os.path.basename(path)} changed while it was sent")
        link.check(response.status, body, response.headers)

    def _request(
        self, method: str, sha256: str, body: Any = None, size: int = 0, attempt: str = ""
    ) -> http.client.HTTPResponse:
        if self._connection is None:
            self._connection = self._address.connect()
        headers = dict(self._address.headers)
        if body is not None:
            headers.update({"Content-Length": str(size), "Content-Type": "application/octet-stream"})
        if attempt:
            headers[ATTEMPT] = attempt
        self._connection.request(method, self._address.path(f"/v1/blobs/{sha256}"), body, headers)
        if self._connection.sock is not None:
            self._connection.sock.settimeout(self._address.answer_s)
        return self._connection.getresponse()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection:
            connection.close()


def destination_of(name: str, destinations: Sequence[tuple[str, str]]) -> str:
    """The address that an output goes to: that of its pattern, with its name behind a `/`; "" if to the server."""
    for pattern, address in destinations:
        below = pattern.rstrip("/") + "/"
        if name == pattern or name.startswith(below) or fnmatch.fnmatchcase(name, pattern):
            return address + name if address.endswith("/") else address
    return ""


class _Damaged(Exception):
    """The bytes are not those that the hash names."""


def _digest(path: str) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return digest.hexdigest(), size
