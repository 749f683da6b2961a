"""Packets and messages between the agent and its runners. Touches sockets; trusts both ends (they are one program).

The queue is a socket that preserves packet boundaries. The agent holds both ends, so it can take back unread packets: a
packet is either begun by the runner or back with the agent. The line is a byte stream with framed messages: results
upwards, orders downwards. Messages are marshalled (version 2: every Python 3 reads it, and it is the fastest serializer
of the standard library).
"""

from __future__ import annotations

import itertools
import marshal
import os
import socket
import struct
from collections.abc import Callable
from typing import Any

MAX_PACKET_BYTES = 128 * 1024
"""Larger messages go through a file: a packet must fit into the socket's buffer whole."""
_FILE = "file"
_large = itertools.count()

_LENGTH = struct.Struct("=I")
_INT = struct.Struct("=i")
_ROOM = 1 << 18


def encode(message: Any) -> bytes:
    return marshal.dumps(message, 2)


decode = marshal.loads


def message_of(packet: bytes | memoryview) -> Any:
    """The message of a packet, once: a file that it names is removed."""
    message = decode(packet)
    if message[0] != _FILE:
        return message
    with open(message[1], "rb") as file:
        message = decode(file.read())
    os.unlink(file.name)
    return message


class Queue:
    """The agent's side of a queue: puts packets in, takes unread ones back."""

    def __init__(self) -> None:
        self._write, self.read_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._write.setblocking(False)

    def put(self, message: tuple[Any, ...], folder: str) -> bool:
        """Send a message; False if the buffer is full or the reader is gone: keep the message and try later.

        A message that is too large for a packet goes into a file of `folder` that the packet names.
        """
        packet, path = encode(message), ""
        if len(packet) > MAX_PACKET_BYTES:
            os.makedirs(folder, 0o700, exist_ok=True)
            path = os.path.join(folder, f"large-{next(_large)}")
            with open(path, "wb") as file:
                file.write(packet)
            packet = encode((_FILE, path))
        try:
            self._write.send(packet)
        except (BlockingIOError, ConnectionError):
            if path:
                os.unlink(path)
            return False
        return True

    def put_descriptors(self, fds: list[int]) -> None:
        """Send a packet that holds only descriptors."""
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f"={len(fds)}i", *fds))
        self._write.sendmsg([b"fds"], [rights])

    def take_back(self) -> list[bytes]:
        """Every packet that the other side has not begun, in order."""
        packets = []
        try:
            while packet := self.read_end.recv(_ROOM, socket.MSG_DONTWAIT):
                packets.append(packet)
        except (BlockingIOError, ConnectionError):
            pass
        return packets

    def close(self) -> None:
        """Close the queue: the other side reads what is left, then sees its end."""
        self._write.close()
        self.read_end.close()


class Inbox:
    """The reading side of a queue, in a runner: one packet at a time."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._buffer = memoryview(bytearray(_ROOM))

    def next(self, before_waiting: Callable[[], None] | None = None) -> Any:
        """Wait for the next packet; `None` when the agent has ended."""
        try:
            try:
                size = self._socket.recv_into(self._buffer, 0, socket.MSG_DONTWAIT)
            except BlockingIOError:
                if before_waiting:
                    before_waiting()
                size = self._socket.recv_into(self._buffer)
        except ConnectionError:
            return None
        return message_of(self._buffer[:size]) if size else None

    def descriptors(self) -> list[int]:
        """The descriptors in the next packet; the packet before it announced them."""
        # By hand: Python 3.8 has no socket.recv_fds.
        _, about, _, _ = self._socket.recvmsg(16, socket.CMSG_LEN(4 * _INT.size))
        sent = [data for level, kind, data in about if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)]
        return [fd for data in sent for (fd,) in _INT.iter_unpack(data[: len(data) - len(data) % _INT.size])]


class Line:
    """Framed messages over a stream socket, both ways."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._received = bytearray()
        self._posted: list[bytes] = []
        self.at_end = False

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: object) -> None:
        """Send a message; blocks while the other side is behind, raises `OSError` when it has ended."""
        self.post(message)
        self.flush()

    def post(self, message: object) -> int:
        """Queue a message for the next `flush`; return how many messages are queued."""
        data = encode(message)
        self._posted.append(_LENGTH.pack(len(data)) + data)
        return len(self._posted)

    def flush(self) -> None:
        if self._posted:
            data, self._posted = b"".join(self._posted), []
            self._socket.sendall(data, socket.MSG_NOSIGNAL)

    def receive(self) -> list[Any]:
        """The messages that have arrived, without waiting. Sets `at_end` when there will be no more."""
        flags = socket.MSG_DONTWAIT
        try:
            while True:
                data = self._socket.recv(_ROOM, flags)
                self._received += data
                if not data:
                    self.at_end = True
                if len(data) < _ROOM:
                    break
        except BlockingIOError:
            pass
        except OSError:
            self.at_end = True
        return self._parse()

    def wait(self) -> list[Any]:
        """As `receive`, but waits for at least one message (or the end)."""
        while not self.at_end:
            try:
                data = self._socket.recv(_ROOM)
            except OSError:
                data = b""
            self._received += data
            self.at_end = not data
            if messages := self._parse():
                return messages
        return []

    def _parse(self) -> list[Any]:
        buffer, at, messages = self._received, 0, []
        while len(buffer) - at >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(buffer, at)
            end = at + _LENGTH.size + size
            if end > len(buffer):
                break
            messages.append(decode(memoryview(buffer)[at + _LENGTH.size : end]))
            at = end
        if at:
            # A new buffer rather than `del`: marshal's views may still pin the old one.
            self._received = buffer[at:]
        return messages

    def close(self) -> None:
        self._socket.close()
