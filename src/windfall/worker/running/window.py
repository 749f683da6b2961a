"""The head and the tail of a stream under a cap, with a marker for what was dropped in between. Reads files."""

from __future__ import annotations

from collections import deque


class OutputWindow:
    """Keeps the first half of the cap and the last half; counts every byte."""

    def __init__(self, cap_bytes: int) -> None:
        self._head_room = max(0, cap_bytes - cap_bytes // 2)
        self._tail_room = max(0, cap_bytes // 2)
        self._head: list[bytes] = []
        self._tail: deque[bytes] = deque()
        self._head_bytes = 0
        self._tail_bytes = 0
        self.total_bytes = 0

    def add(self, data: bytes) -> None:
        self.total_bytes += len(data)
        if (room := self._head_room - self._head_bytes) > 0:
            self._head.append(data[:room])
            self._head_bytes += min(room, len(data))
            data = data[room:]
        if data and self._tail_room:
            data = data[-self._tail_room :]
            self._tail.append(data)
            self._tail_bytes += len(data)
            while self._tail_bytes - len(self._tail[0]) >= self._tail_room:
                self._tail_bytes -= len(self._tail.popleft())

    @property
    def dropped_bytes(self) -> int:
        return self.total_bytes - self._head_bytes - min(self._tail_bytes, self._tail_room)

    def pieces(self) -> list[tuple[int, bytes]]:
        """The kept pieces, each with its offset in the whole stream."""
        head = b"".join(self._head)
        tail = self._kept_tail()
        pieces = [(0, head)] if head else []
        return [*pieces, (self.total_bytes - len(tail), tail)] if tail else pieces

    def value(self) -> bytes:
        """Head, marker (if something was dropped) and tail."""
        if not self.dropped_bytes:
            return b"".join([*self._head, *self._tail])
        return b"".join([*self._head, marker(self.dropped_bytes), self._kept_tail()])

    def _kept_tail(self) -> bytes:
        return b"".join(self._tail)[-self._tail_room :] if self._tail_room else b""


def marker(dropped_bytes: int) -> bytes:
    return b"\n[... %s bytes dropped ...]\n" % f"{dropped_bytes:,}".encode()


def shrink(data: bytes, cap_bytes: int) -> tuple[bytes, int]:
    """Data cut down to about `cap_bytes`, and how many bytes that dropped."""
    if len(data) <= cap_bytes:
        return data, 0
    window = OutputWindow(cap_bytes)
    window.add(data)
    return window.value(), window.dropped_bytes


def read_capped(path: str, cap_bytes: int) -> bytes:
    """The head and the tail of a file; nothing if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return shrink(file.read(cap_bytes * 4 + 1), cap_bytes)[0]
    except OSError:
        return b""
