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
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import TypeVar

from windfall.bounds import MAX_BLOB_BYTES, MAX_INTEGER, MAX_UPLOADS
from windfall.errors import BadInput
from windfall.server.limits import RETRY_AFTER_S, TooBusy, TooLarge
from windfall.store.checks import wrong_hash
from windfall.store.contract import Store
from windfall.store.sqlite.files import naming

PIECE_BYTES = 1 << 20
WRITERS = 4
"""Threads that write what has arrived; more would only wait for the same disk."""
TURN_S = 5.0
"""How long an upload waits for its turn before its sender is told to come back."""
STALLED_S = 60.0
"""Seconds without a byte after which an upload is given up."""
REMEMBERED_SIZES = 100_000
"""Blobs whose sizes are kept in mind: a result names its outputs soon after they were sent."""
MOST_AWAITED, AWAITED_S = 100_000, 86_400.0
"""Files of attempts that wait for their result: how many, and for how many seconds. A task may send files for hours."""
T = TypeVar("T")


class Stalled(BadInput):
    """The sender has stopped in the middle."""

    code = "stalled"
    retryable = True


class Uploads:
    """The blobs that are being received: a few at a time, each within the limit."""

    def __init__(
        self, store: Store, max_bytes: int = MAX_BLOB_BYTES, at_once: int = MAX_UPLOADS, quota_bytes: int = MAX_INTEGER
    ) -> None:
        self.max_bytes = max_bytes
        self._store, self._quota_bytes = store, quota_bytes
        self._kept_bytes: int | None = None
        """Bytes of all blobs; counted when the first one comes, if there is a quota."""
        self._arriving_bytes = 0
        self.touched: set[str] = set()
        """Blobs that somebody has sent or asked for since the last look for those that nobody needs (sweeping.py)."""
        self.removing: set[str] = set()
        self.unnamed = 0
        """How often something was sent that nobody names: the sweeper looks for it."""
        self._awaited: dict[str, float] = {}
        """Files that were sent for attempts and that nothing names yet, with the time at which they came."""
        self._sizes: dict[str, int] = {}
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

    def touch(self, sha256: str) -> None:
        """Somebody sends a blob or asks for it: it stays, or it is on its way out and has to be sent again."""
        if sha256 in self.removing:
            raise TooBusy(f"blob {sha256[:12]} is being removed", hint=f"try again in {RETRY_AFTER_S} s")
        self.touched.add(sha256)

    def wait_for_result(self, sha256: str) -> None:
        """A file was sent for an attempt. It is not removed before the result that names it, or for a day."""
        self._awaited.pop(sha256, None)
        if len(self._awaited) >= MOST_AWAITED:
            del self._awaited[next(iter(self._awaited))]
        self._awaited[sha256] = monotonic()

    def named(self, sha256: str) -> None:
        """A result, or a checkpoint, names a file: it is needed if that is taken."""
        self._awaited.pop(sha256, None)

    def awaited(self) -> set[str]:
        since_s = monotonic() - AWAITED_S
        return {sha256 for sha256, came_s in self._awaited.items() if came_s > since_s}

    async def look(self, sha256: str) -> int | None:
        """Bytes of a blob that somebody needs from now on, as the store says; None if there is none."""
        self.touch(sha256)
        size = await asyncio.to_thread(self._store.blob_size, sha256)  # a database or an object store is asked
        if size is not None:
            self._remember(sha256, size)
        return size

    async def size(self, sha256: str) -> int | None:
        """The same; the store is not asked for a blob that has come lately."""
        self.touch(sha256)
        known = self._sizes.get(sha256)
        return await self.look(sha256) if known is None else known

    def _remember(self, sha256: str, size: int) -> None:
        if len(self._sizes) >= REMEMBERED_SIZES:
            del self._sizes[next(iter(self._sizes))]
        self._sizes[sha256] = size

    async def receive(
        self, sha256: str, pieces: AsyncIterator[bytes], take: Callable[[int], None] | None = None
    ) -> int:
        """Keep what arrives, if it is what its name says; its size. `take`: is told of every piece, and may refuse."""
        self.touch(sha256)
        if self._quota_bytes < MAX_INTEGER and self._kept_bytes is None:
            self._kept_bytes = await self._in_thread(lambda: sum(size for _, size in self._store.blobs()))
        incoming = Incoming(self._store, sha256)
        gathered, size = bytearray(), 0
        try:
            async for piece in _unstalled(pieces):
                size += len(piece)
                self._arriving_bytes += len(piece)
                if size > self.max_bytes:
                    raise TooLarge(f"a blob of more than {self.max_bytes:,} bytes", limit=self.max_bytes)
                self._refuse_over_quota()
                if take is not None:
                    take(len(piece))
                gathered += piece
                if len(gathered) >= PIECE_BYTES:
                    full, gathered = bytes(gathered), bytearray()
                    await self._in_thread(lambda full=full: incoming.write(full))  # type: ignore[misc]
            kept = await self._in_thread(lambda: incoming.finish(bytes(gathered)))
            if self._kept_bytes is not None:
                self._kept_bytes += kept
            self._remember(sha256, kept)
            return kept
        finally:
            self._arriving_bytes -= size
            # Not awaited: also where this request was cancelled while a piece was being written.
            self._writers.submit(incoming.discard)

    def _refuse_over_quota(self) -> None:
        if self._kept_bytes is not None and self._kept_bytes + self._arriving_bytes > self._quota_bytes:
            raise TooLarge(
                f"the server keeps {self._kept_bytes:,} bytes of files and takes at most {self._quota_bytes:,}",
                limit=self._quota_bytes, hint="forget jobs that are not needed: windfall forget --older-than 30d",
            )  # fmt: skip

    def removed(self, blobs: Iterable[str], size: int) -> None:
        """Take removed blobs, of `size` bytes together, off what is counted."""
        for blob in blobs:
            self._sizes.pop(blob, None)
        if self._kept_bytes is not None:
            self._kept_bytes -= size

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
