"""One connection to a client that may be slow, silent or hostile: bounded in bytes and in time. Touches its socket.

uvicorn bounds neither the head of a request nor the time that it takes: an endless header fills the memory, and a
request that is never finished stays open for good. Here a peer has `head_time_s` for the head of a request, `pause_s`
between two pieces of its body, and as long to take what it was sent (windfall.server.limits).

Exchanges come thousands of times a second, and ASGI costs as much as an exchange does. So a small one that comes alone
is handed to the application as it is (`Answers`), and what that returns is written at once.
"""

from __future__ import annotations

import asyncio
from asyncio import TimerHandle, Transport
from typing import Any, Protocol

from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from windfall.server.limits import Limits
from windfall.wire import frames

EXCHANGE = b"/v1/exchange"
SMALL_BYTES = 1 << 16
"""Bodies up to this go around ASGI: they lie in memory before their sender is known. uvicorn reads as much ahead."""
_OTHERWISE = frozenset({b"transfer-encoding", b"upgrade", b"expect"})
"""Requests with these go through ASGI."""


class Answers(Protocol):
    """An application that answers exchanges without ASGI."""

    async def exchange(self, body: bytes, headers: dict[bytes, bytes]) -> bytes | Response:
        """The frame of the answer, or what is wrong."""


class _Alone:
    """An exchange that is read or answered around ASGI: what uvicorn's protocol asks of the request under way."""

    __slots__ = ("body", "disconnected", "headers", "keep_alive", "response_complete")

    def __init__(self, headers: dict[bytes, bytes], keep_alive: bool) -> None:
        self.headers, self.keep_alive = headers, keep_alive
        self.body = b""
        self.disconnected = self.response_complete = False

    @property
    def message_event(self) -> _Alone:
        return self

    def set(self) -> None:
        """Nobody waits for more of the body."""


class Connection(HttpToolsProtocol):
    """uvicorn's protocol, with limits, and with a way around ASGI for exchanges. A subclass may have other limits."""

    limits = Limits()
    _head: tuple[object, bytes] = (None, b"")
    """The head of an answer, and the headers that it was made of: they change every second."""
    _idle: TimerHandle | None = None
    _idle_since = 0.0
    _head_bytes = 0
    _in_head = True
    _begun = False
    _in_body = False
    _reading: TimerHandle | None = None
    _writing: TimerHandle | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._answers: Answers | None = self.app if hasattr(self.app, "exchange") else None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._reading = self.loop.call_later(self.limits.head_time_s, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel()
        if self._writing is not None:
            self._writing.cancel()
        if self._idle is not None:
            self._idle.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > self.limits.head_bytes and not self.transport.is_closing():
            self.send_400_response(f"the head of a request has at most {self.limits.head_bytes} bytes")
        elif self._in_body:
            self._cancel()
            self._reading = self.loop.call_later(self.limits.pause_s, self._too_slow)
        elif self._begun and self._reading is None:
            self._reading = self.loop.call_later(self.limits.head_time_s, self._too_slow)

    def on_message_begin(self) -> None:
        self._begun = True
        self.url, self.headers, self.expect_100_continue = b"", [], False

    def on_headers_complete(self) -> None:
        self._begun = self._in_head = False
        self._in_body, self._head_bytes = True, 0
        self._cancel()
        if self.url == EXCHANGE and (alone := self._alone()) is not None:
            self.cycle = alone  # type: ignore[assignment]
            return
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers += headers
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        alone: object = self.cycle
        if type(alone) is _Alone:
            alone.body += body
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_head, self._in_body = True, False
        self._cancel()
        alone: object = self.cycle
        if type(alone) is _Alone:
            task = self.loop.create_task(self._exchange(alone))
            task.add_done_callback(self.tasks.discard)
            self.tasks.add(task)
        else:
            super().on_message_complete()

    def _alone(self) -> _Alone | None:
        """The request whose head was read, if it goes around ASGI: a small exchange with no other before it."""
        before, parser, headers = self.cycle, self.parser, dict(self.headers)
        length = headers.get(b"content-length", b"")
        if self._answers is None or not length.isdigit() or len(length) > 6 or int(length) > SMALL_BYTES:
            return None
        if parser.get_method() != b"POST" or parser.get_http_version() != "1.1" or not _OTHERWISE.isdisjoint(headers):
            return None
        return _Alone(headers, parser.should_keep_alive()) if before is None or before.response_complete else None

    async def _exchange(self, alone: _Alone) -> None:
        assert self._answers is not None
        try:
            said = await self._answers.exchange(alone.body, alone.headers)
        except asyncio.CancelledError:
            self.transport.close()
            raise
        if self.flow.write_paused:
            await self.flow.drain()
        if alone.disconnected:
            return
        alone.response_complete = True
        if not isinstance(said, bytes):
            self.transport.write(self._worded(said, alone.keep_alive))
        else:
            if self._head[0] is not self.server_state.default_headers:
                Connection._head = self._head_now()
            last = b"\r\n\r\n" if alone.keep_alive else b"\r\nconnection: close\r\n\r\n"
            self.transport.write(b"%b%d%b%b" % (self._head[1], len(said), last, said))
        if not alone.keep_alive:
            self.transport.close()
        self.on_response_complete()

    def _head_now(self) -> tuple[object, bytes]:
        every = self.server_state.default_headers
        lines = [b"%b: %b\r\n" % header for header in every]
        kind = frames.CONTENT_TYPE.encode()
        return every, b"".join([STATUS_LINE[200], *lines, b"content-type: ", kind, b"\r\ncontent-length: "])

    def _worded(self, said: Response, keep_alive: bool) -> bytes:
        """A response as it goes over the wire."""
        headers = [*self.server_state.default_headers, *said.raw_headers]
        headers += [] if keep_alive else [(b"connection", b"close")]
        lines = [b"%b: %b\r\n" % header for header in headers]
        return b"".join([STATUS_LINE[said.status_code], *lines, b"\r\n", bytes(said.body)])

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        # One timer for all pauses of a connection: it looks again when it was early.
        self._idle_since = self.loop.time()
        if self._idle is None:
            self._idle = self.loop.call_later(self.timeout_keep_alive, self._is_idle)

    def _is_idle(self) -> None:
        """End a connection on which nothing was asked for `timeout_keep_alive` seconds."""
        self._idle = None
        if self.transport.is_closing() or self._begun or self._in_body or not self.cycle.response_complete:
            return  # the next answer sets the timer again
        left_s = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left_s > 0:
            self._idle = self.loop.call_later(left_s, self._is_idle)
        else:
            self.timeout_keep_alive_handler()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._writing = self.loop.call_later(self.limits.pause_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None

    def _cancel(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _too_slow(self) -> None:
        """End the connection, unless it is the server that does not read: a disk may be slow."""
        if self.flow.read_paused:
            self._reading = self.loop.call_later(self.limits.pause_s, self._too_slow)
        else:
            self.transport.abort()
