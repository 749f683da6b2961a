"""One connection to a client that may be slow, silent or hostile: bounded in bytes and in time. Touches its socket.

uvicorn bounds neither the head of a request nor the time that it takes: an endless header fills the memory, and a
request that is never finished stays open for good. Here a peer has `head_time_s` for the head of a request, `pause_s`
between two pieces of its body, and as long to take what it was sent (windfall.server.limits).
"""

from __future__ import annotations

from asyncio import TimerHandle, Transport

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from windfall.server.limits import Limits


class Connection(HttpToolsProtocol):
    """uvicorn's protocol, with limits; a subclass may have others."""

    limits = Limits()
    _head_bytes = 0
    _in_head = True
    _begun = False
    _in_body = False
    _reading: TimerHandle | None = None
    _writing: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._reading = self.loop.call_later(self.limits.head_time_s, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel()
        if self._writing is not None:
            self._writing.cancel()
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
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._begun = self._in_head = False
        self._in_body, self._head_bytes = True, 0
        self._cancel()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head, self._in_body = True, False
        self._cancel()
        super().on_message_complete()

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
