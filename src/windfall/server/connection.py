"""One connection to a client that may be slow, silent or hostile: HTTP/1.1 on its side, ASGI on ours.

Touches its socket. Bounded in bytes and in time: a peer has `head_time_s` for the head of a request, `pause_s`
between two pieces of its body, and as long to take what it was sent (windfall.server.limits). Requests that come behind
one that is not answered yet wait unread.
"""

from __future__ import annotations

import asyncio
from asyncio import TimerHandle, Transport
from collections.abc import Awaitable, Callable, Coroutine
from http import HTTPStatus
from math import inf
from typing import Any, cast
from urllib.parse import unquote

import httptools

from windfall.server.asking import EXCHANGE, Alone, Answers, Asking, goes_alone
from windfall.server.limits import Limits

Application = Callable[[dict[str, Any], Any, Any], Awaitable[None]]

FRAMED = 16
"""Bytes of framing that a byte of a body may take: a chunk of one byte takes five."""
IDLE_PATIENCE_S = 75.0
"""Seconds for which a connection is kept between two requests."""
MOST_HEADERS = 256
"""Of one request. A header of four bytes takes 150 in memory."""
MOST_WAITING = 64
"""Requests that may wait behind one that is not answered yet."""
WAITING_BYTES = 1000
"""What a request takes in memory beside its head while it waits."""


class Connections:
    """What the connections of a server share: the application, those that are open, and the requests in work."""

    def __init__(self, app: Application, scheme: str = "http", limits: Limits | None = None) -> None:
        self.app = app
        self.limits = limits or Limits()
        self.answers: Answers | None = app if hasattr(app, "exchange") else None
        self.scheme = scheme
        self.open: set[Connection] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.unknown_bytes = 0
        """Of heads and small exchanges whose senders are not known yet."""
        self._unread: dict[Connection, int] = {}
        """Bytes that wait for peers that do not take them, by connection; who has waited longest is first."""
        self._unread_bytes = 0

    def stalls(self, connection: Connection, size: int) -> None:
        """A peer leaves this much unread. Where all of it is too much, those end that have done so for longest."""
        self.reads_again(connection)
        self._unread[connection] = size
        self._unread_bytes += size
        while self._unread_bytes > self.limits.unread_bytes:
            slowest = next(iter(self._unread))
            self.reads_again(slowest)
            slowest.transport.abort()

    def reads_again(self, connection: Connection) -> None:
        self._unread_bytes -= self._unread.pop(connection, 0)


class Connection(asyncio.Protocol):
    """Reads requests, one at a time, and has the application answer them."""

    transport: Transport

    def __init__(self, shared: Connections) -> None:
        self._shared = shared
        self._limits = shared.limits
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._asking: Asking | Alone | None = None
        """The request that is being read or answered."""
        self._next: list[Asking] = []
        """Those behind it that were in the same piece of data."""
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._peer: tuple[str, int] | None = None
        self._own: tuple[str, int] | None = None
        self._head_bytes = self._piece_bytes = 0
        self._frame_bytes = self._body_bytes = 0
        """Of the request behind its head: lengths of chunks, their extensions and trailers; and what it says."""
        self._unknown_bytes = 0
        self._in_head, self._begun = True, False
        self._read_paused = False
        self._due_s = inf
        """When the peer must have made its next step; infinite if it owes none."""
        self._head_is_due = True
        self._timer: TimerHandle | None = None
        self._writing: TimerHandle | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self.is_drained = True
        """Whether the peer has taken most of what it was sent."""

    # -- the socket --------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("Transport", transport)  # uvloop's is one in all but name
        self._shared.open.add(self)
        self._peer, self._own = _address(self.transport, "peername"), _address(self.transport, "sockname")
        self._patience(self._limits.head_time_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._shared.open.discard(self)
        self._shared.reads_again(self)
        self._known()
        for timer in (self._timer, self._writing):
            if timer is not None:
                timer.cancel()
        self._writable.set()
        self.is_drained = True
        for asking in (self._asking, *self._next):
            if asking is not None:
                asking.disconnect()

    def eof_received(self) -> None:
        """The peer says no more; what it asked is not waited for any longer."""

    def data_received(self, data: bytes) -> None:
        self._piece_bytes = len(data)
        if self._in_head:
            self._head_bytes += len(data)
        else:
            self._frame_bytes += len(data)
        if self._in_head or isinstance(self._asking, Alone):
            try:
                self._count(len(data))
            except _Refused as error:
                self._refuse(*error.args)
                return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # Answered as the request that it is; whatever follows it is in another protocol.
            asking = self._next[-1] if self._next else self._asking
            if asking is not None:
                asking.keep_alive = False
        except httptools.HttpParserError as error:
            why = error.__context__
            self._refuse(*why.args) if isinstance(why, _Refused) else self._refuse("this is not HTTP")
            return
        if self.transport.is_closing():
            return
        if self._in_head and self._head_bytes > self._limits.head_bytes:
            self._refuse(*self._too_large().args)
        elif not self._in_head and self._frame_bytes > self._limits.head_bytes + FRAMED * self._body_bytes:
            self._refuse("chunks and trailers take more than what they hold")
        elif not self._in_head:
            self._patience(self._limits.pause_s)
        elif self._begun and not self._head_is_due:
            self._head_is_due = True
            self._patience(self._limits.head_time_s)

    def pause_writing(self) -> None:
        self._writable.clear()
        self.is_drained = False
        self._shared.stalls(self, self.transport.get_write_buffer_size())
        self._writing = self._loop.call_later(self._limits.pause_s, self.transport.abort)

    def resume_writing(self) -> None:
        self._writable.set()
        self.is_drained = True
        self._shared.reads_again(self)
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None

    async def drained(self) -> None:
        """Wait until the peer has taken most of what it was sent."""
        await self._writable.wait()

    def pause_reading(self) -> None:
        if not self._read_paused:
            self._read_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if self._read_paused and not self.transport.is_closing():
            self._read_paused = False
            self.transport.resume_reading()

    def shutdown(self) -> None:
        """Answer what was asked, then close."""
        if self._asking is None:
            self.transport.close()
        else:
            self._asking.keep_alive = False

    def _count(self, size: int) -> None:
        """Bytes of somebody who is not known yet."""
        self._unknown_bytes += size
        self._shared.unknown_bytes += size
        if self._shared.unknown_bytes > self._limits.heads_bytes:
            raise _Refused("too many requests are coming in at once: try again in a few seconds", 429)

    def _head_size(self) -> int:
        """Bytes of the head that is complete."""
        return len(self._url) + sum(len(name) + len(value) + 4 for name, value in self._headers)

    def _check_head(self) -> None:
        """Refuse a head that is too large. One that came in one piece may be as long as that piece."""
        most = self._limits.head_bytes
        may_be_long = self._head_bytes > most or self._piece_bytes > most
        if len(self._headers) > MOST_HEADERS or (may_be_long and self._head_size() > most):
            raise self._too_large()

    def _too_large(self) -> _Refused:
        return _Refused(
            f"the head of a request has at most {self._limits.head_bytes} bytes in {MOST_HEADERS} headers: send "
            "shorter headers, or have the operator set `windfall server --limit head=SIZE`",
            431,
        )

    def _known(self) -> None:
        """What came in so far is accounted for elsewhere from now on, or is gone."""
        self._shared.unknown_bytes -= self._unknown_bytes
        self._unknown_bytes = 0

    def _refuse(self, why: str, status: int = 400) -> None:
        text = why.encode()
        line = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"
        head = f"{line}\r\ncontent-type: text/plain\r\ncontent-length: {len(text)}\r\n"
        if self._asking is None or not self._asking.begun:
            self.transport.write(head.encode() + b"connection: close\r\n\r\n" + text)
        self.transport.close()

    def _patience(self, seconds: float | None) -> None:
        """Give the peer this long for its next step; None: it owes none.

        One timer for all of them: it looks again when it was early.
        """
        self._due_s = inf if seconds is None else self._loop.time() + seconds
        if self._due_s < inf and (self._timer is None or self._timer.when() > self._due_s):
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(self._due_s, self._look)

    def _look(self) -> None:
        """End the connection of a peer that is too slow, unless the server does not read: a disk may be slow."""
        self._timer = None
        if self._due_s == inf or self.transport.is_closing():
            return
        if self._due_s > self._loop.time() + 0.001:
            self._timer = self._loop.call_at(self._due_s, self._look)
        elif self._read_paused:
            self._patience(self._limits.pause_s)
        else:
            self.transport.abort()

    # -- the parser --------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._url, self._headers, self._begun = b"", [], True

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # a trailer says nothing that is asked for
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._check_head()
        self._begun = self._in_head = self._head_is_due = False
        self._head_bytes = self._frame_bytes = self._body_bytes = 0
        self._patience(None)
        keep_alive = self._parser.should_keep_alive()
        if self._url == EXCHANGE and self._asking is None and self._shared.answers is not None:
            headers = dict(self._headers)
            if goes_alone(self._parser.get_method(), self._parser.get_http_version(), headers):
                self._asking = Alone(self, self._shared.answers, headers, keep_alive)
                return
        asking = Asking(self, self._scope(), keep_alive)
        if self._asking is None:
            self._known()
            self._start(asking)
        else:
            self._wait_behind(asking)

    def _wait_behind(self, asking: Asking) -> None:
        if len(self._next) == MOST_WAITING:
            raise _Refused("too many requests at once on one connection: send the next when one is answered", 429)
        self._count(self._head_size() + WAITING_BYTES)
        self._next.append(asking)
        self.pause_reading()

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        asking = self._next[-1] if self._next else self._asking
        if asking is not None:
            asking.feed(body)

    def on_message_complete(self) -> None:
        if not self._next:  # what waits behind another stays in the account
            self._known()
        self._in_head = True
        self._patience(None)
        asking = self._next[-1] if self._next else self._asking
        if asking is not None:
            asking.feed_end()

    def _scope(self) -> dict[str, Any]:
        url = httptools.parse_url(self._url)
        path = url.path.decode("ascii")
        return {
            "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "scheme": self._shared.scheme,
            "http_version": self._parser.get_http_version(), "method": self._parser.get_method().decode("ascii"),
            "server": self._own, "client": self._peer, "root_path": "", "path": unquote(path) if "%" in path else path,
            "raw_path": url.path, "query_string": url.query or b"", "headers": self._headers, "state": {},
        }  # fmt: skip

    # -- the application ---------------------------------------------------------------------------------------------

    def _start(self, asking: Asking) -> None:
        self._asking = asking
        self.work(asking.run(self._shared.app))

    def work(self, answering: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(answering)
        self._shared.tasks.add(task)
        task.add_done_callback(self._shared.tasks.discard)

    def answered(self, asking: Asking | Alone) -> None:
        """Called when all of an answer is written: close, or take the next request."""
        self._asking = None
        if self.transport.is_closing():
            return
        if not asking.keep_alive:
            self.transport.close()
            return
        if self._next:
            self._start(self._next.pop(0))
            if not self._next and self._in_head:
                self._known()
            return
        self.resume_reading()
        if self._in_head and not self._begun:
            self._patience(IDLE_PATIENCE_S)


class _Refused(Exception):
    """Why a request is not taken, and the status that says so."""


def _address(transport: Transport, which: str) -> tuple[str, int] | None:
    found = transport.get_extra_info(which)
    return (str(found[0]), int(found[1])) if isinstance(found, tuple) and len(found) >= 2 else None
