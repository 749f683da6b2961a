"""Blobs that are being received: a few at a time, each within the limit. Touches the store's blobs and its spool.

An upload gathers on the event loop and is written piece by piece: a thread is held while the disk writes, never while
the network is waited for. What does not end well leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import tempfile
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from windfall.bounds import MAX_BLOB_BYTES, MAX_UPLOADS
from windfall.errors import BadInput, WindfallError
from windfall.server.http.bodies import TooLarge
from windfall.store.checks import wrong_hash
from windfall.store.contract import Store
from windfall.store.files import naming

PIECE_BYTES = 1 << 20
WRITERS = 4
"""Threads that write what has arrived; more would only wait for the same disk."""
TURN_S = 5.0
"""How long an upload waits for its turn before its sender is told to come back."""
RETRY_AFTER_S = 2
STALLED_S = 60.0
"""Seconds without a byte after which an upload is given up."""
T = TypeVar("T")


class TooBusy(WindfallError):
    """Enough is being received at the moment."""

    code = "too-busy"
    retryable = True
    retry_after_s = RETRY_AFTER_S


class Stalled(BadInput):
    """The sender has stopped in the middle."""

    code = "stalled"
    retryable = True


class Uploads:
    """The blobs that are being received: a few at a time, each within the limit."""

    def __init__(self, store: Store, max_bytes: int = MAX_BLOB_BYTES, at_once: int = MAX_UPLOADS) -> None:
        self.max_bytes = max_bytes
        self._store = store
        self._turns = asyncio.Semaphore(at_once)
        self._writers = ThreadPoolExecutor(WRITERS, thread_name_prefix="blobs")

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Until it is this upload's turn nothing of it is read, so its sender waits, too."""
        try:
            async with asyncio.timeout(TURN_S):
                await self._turns.acquire()
        except TimeoutError:
            raise TooBusy(
                "too many uploads at the same time", hint=f"try again in {RETRY_AFTER_S} s, as workers do by themselves"
            ) from None
        try:
            yield
        finally:
            self._turns.release()

    async def receive(self, sha256: str, pieces: AsyncIterator[bytes]) -> int:
        """Keep what arrives, if it is what its name says; its size."""
        incoming = Incoming(self._store, sha256)
        gathered, size = bytearray(), 0
        try:
            async for piece in _unstalled(pieces):
                size += len(piece)
                if size > self.max_bytes:
                    raise TooLarge(f"a blob of more than {self.max_bytes:,} bytes", limit=self.max_bytes)
                gathered += piece
                if len(gathered) >= PIECE_BYTES:
                    full, gathered = bytes(gathered), bytearray()
                    await self._in_thread(lambda full=full: incoming.write(full))  # type: ignore[misc]
            return await self._in_thread(lambda: incoming.finish(bytes(gathered)))
        finally:
            # Not awaited: also where this request was cancelled while a piece was being written.
            self._writers.submit(incoming.discard)

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._writers, call)


async def _unstalled(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The pieces, as long as they come."""
    while True:
        try:
            async with asyncio.timeout(STALLED_S):
                piece = await anext(pieces)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise Stalled(f"nothing of the blob has come for {STALLED_S:g} s", hint="send it again") from None
        yield piece


class Incoming:
    """One blob on its way to the store: a small one in memory, a large one in a file. Its methods run in threads."""

    def __init__(self, store: Store, sha256: str) -> None:
        self._store, self._sha256 = store, sha256
        self._hash = hashlib.sha256()
        self._lock = threading.Lock()
        self._handle = -1
        self._path: Path | None = None

    def write(self, piece: bytes) -> None:
        spool = self._store.spool()
        with self._lock, naming(spool):
            if self._path is None:
                self._handle, name = tempfile.mkstemp(prefix="tmp-", dir=spool)
                self._path = Path(name)
            self._hash.update(piece)
            left = memoryview(piece)
            while left:
                left = left[os.write(self._handle, left) :]

    def finish(self, rest: bytes) -> int:
        if self._path is None:
            return self._store.put_blob(self._sha256, rest)
        if rest:
            self.write(rest)
        if self._hash.hexdigest() != self._sha256:
            raise wrong_hash(self._sha256, self._hash.hexdigest())
        with self._lock:
            return self._store.adopt_blob(self._sha256, self._path)

    def discard(self) -> None:
        """Leave nothing behind. After a blob was kept there is nothing left."""
        with self._lock:
            if self._path is not None:
                os.close(self._handle)
                self._path.unlink(missing_ok=True)
                self._path = None
