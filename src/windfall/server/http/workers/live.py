"""Output of attempts that still run, while somebody follows it. Memory only: it is gone with the server."""

from __future__ import annotations

import time

from windfall.core.events import Key

FOLLOWED_S = 30.0
"""How long after the last look a worker is still asked for live output."""
CAP_BYTES = 1 << 20
MOST_FOLLOWED = 256
"""Attempts that are followed at the same time: beyond that, the one that was looked at longest ago is not."""


class Stream:
    """What has come so far of one stream, from `start` on."""

    def __init__(self) -> None:
        self.start = 0
        self.data = bytearray()

    def add(self, offset: int, data: bytes) -> None:
        if offset != self.start + len(self.data):
            self.start, self.data = offset, bytearray()
        self.data += data
        if len(self.data) > CAP_BYTES:
            cut = len(self.data) - CAP_BYTES
            del self.data[:cut]
            self.start += cut

    def read(self, offset: int) -> tuple[int, bytes]:
        offset = max(offset, self.start)
        return offset, bytes(self.data[offset - self.start :])


class LiveOutput:
    """The attempts whose output is followed, and what they have written."""

    def __init__(self) -> None:
        self._wanted: dict[Key, float] = {}
        self._streams: dict[Key, tuple[Stream, Stream]] = {}

    def follow(self, key: Key) -> None:
        self._wanted.pop(key, None)
        self._wanted[key] = time.monotonic() + FOLLOWED_S
        if len(self._wanted) > MOST_FOLLOWED:
            oldest = next(iter(self._wanted))
            del self._wanted[oldest]
            self._streams.pop(oldest, None)

    def watched(self, held: dict[Key, None]) -> list[Key]:
        """Those of a host's attempts that somebody follows."""
        if not self._wanted:
            return []
        now = time.monotonic()
        for key in [key for key, until in self._wanted.items() if until < now]:
            del self._wanted[key]
            self._streams.pop(key, None)
        return [key for key in self._wanted if key in held]

    def add(self, key: Key, stdout_at: int, stdout: bytes, stderr_at: int, stderr: bytes) -> None:
        if key not in self._wanted:
            return
        out, err = self._streams.setdefault(key, (Stream(), Stream()))
        out.add(stdout_at, stdout)
        err.add(stderr_at, stderr)

    def read(self, key: Key, stdout_from: int, stderr_from: int) -> tuple[int, bytes, int, bytes]:
        out, err = self._streams.get(key, (Stream(), Stream()))
        return (*out.read(stdout_from), *err.read(stderr_from))
