"""One request and its answer. Touches the connection that it came by.

`Asking` is as ASGI wants it: `receive` and `send`. Exchanges come thousands of times a second, and ASGI costs as much
as an exchange does: a small one (`Alone`) is handed to the application whole, and its answer is written at once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol

from windfall.wire import frames

if TYPE_CHECKING:
    from starlette.responses import Response

    from windfall.server.connection import Application, Connection

log = logging.getLogger(__name__)

HIGH_WATER_BYTES = 65_536
"""Body that may wait for the application before no more is read."""
_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
_BODILESS = (204, 304)


EXCHANGE = b"/v1/exchange"
SMALL_BYTES = 1 << 16
"""Exchanges up to this go around ASGI: they may lie in memory before their sender is known."""
_OTHERWISE = frozenset({b"transfer-encoding", b"upgrade", b"expect"})
"""Requests with these go through ASGI."""
_FRAME = b"content-type: " + frames.CONTENT_TYPE.encode() + b"\r\ncontent-length: "


class Answers(Protocol):
    """An application that answers exchanges without ASGI."""

    def exchange(self, body: bytes, headers: dict[bytes, bytes]) -> Coroutine[Any, Any, bytes | Response]:
        """The frame of the answer, or what is wrong."""


class Alone:
    """A small exchange. It is answered once all of it is there."""

    __slots__ = ("_answers", "_body", "_gone", "_headers", "begun", "connection", "keep_alive")

    def __init__(self, connection: Connection, answers: Answers, headers: dict[bytes, bytes], keep_alive: bool) -> None:
        self.connection, self.keep_alive, self.begun = connection, keep_alive, False
        self._answers, self._headers = answers, headers
        self._body, self._gone = b"", False

    def feed(self, body: bytes) -> None:
        self._body += body

    def feed_end(self) -> None:
        self.connection.work(self._run())

    def disconnect(self) -> None:
        self._gone = True

    async def _run(self) -> None:
        try:
            said = await self._answers.exchange(self._body, self._headers)
            if not self.connection.is_drained:
                await self.connection.drained()
        except BaseException:
            self.connection.transport.close()
            raise
        if self._gone:
            return
        self.begun = True
        last = b"\r\n" if self.keep_alive else b"\r\nconnection: close\r\n"
        if isinstance(said, bytes):
            head = b"%b%b%b%d%b\r\n" % (_STATUS_LINES[200], _date(), _FRAME, len(said), last)
        else:
            lines = b"\r\n".join(b"%b: %b" % header for header in said.raw_headers)
            head, said = b"%b%b%b%b\r\n" % (_status_line(said.status_code), _date(), lines, last), bytes(said.body)
        self.connection.transport.write(head + said)
        self.connection.answered(self)


def goes_alone(method: bytes, version: str, headers: dict[bytes, bytes]) -> bool:
    """Whether a request to the path of exchanges goes around ASGI."""
    length = headers.get(b"content-length", b"")
    if method != b"POST" or version != "1.1" or not length.isdigit() or len(length) > 6:
        return False
    return int(length) <= SMALL_BYTES and _OTHERWISE.isdisjoint(headers)


class Asking:
    """One request. The body is read as the application asks for it; the answer is written as it comes."""

    def __init__(self, connection: Connection, scope: dict[str, Any], keep_alive: bool) -> None:
        self.connection = connection
        self.scope = scope
        self.keep_alive = keep_alive
        self.begun = False
        """Has the answer begun?"""
        self._done = self._gone = False
        self._body = bytearray()
        self._more = True
        self._is_read = False
        """Was the application told that the body has ended?"""
        self._news = asyncio.Event()
        self._expects = any(name == b"expect" and value.lower() == b"100-continue" for name, value in scope["headers"])
        self._head = b""
        """Written with the first piece of the body."""
        self._chunked = self._bodiless = False
        self._left: int | None = None
        """Bytes that the answer still owes, if it has announced a length."""

    # -- from the connection -----------------------------------------------------------------------------------------

    def feed(self, body: bytes) -> None:
        if self._done:
            return  # answered without its body: the rest is dropped
        self._body += body
        if len(self._body) > HIGH_WATER_BYTES:
            self.connection.pause_reading()
        self._news.set()

    def feed_end(self) -> None:
        self._more = False
        self._news.set()

    def disconnect(self) -> None:
        self._gone = True
        self._news.set()

    async def run(self, app: Application) -> None:
        """Have it answered, whatever the application does."""
        try:
            await app(self.scope, self.receive, self.send)
        except BaseException as error:
            if not isinstance(error, asyncio.CancelledError):
                log.error("%s %s failed", self.scope["method"], self.scope["path"], exc_info=error)
            await self._fail()
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
        else:
            if not self._done and not self._gone:
                log.error("%s %s was not answered to the end", self.scope["method"], self.scope["path"])
                await self._fail()

    async def _fail(self) -> None:
        self.keep_alive = False
        if self._gone:
            return
        if self.begun:
            self.connection.transport.close()  # short of what it announced: the peer sees that it is broken
            return
        text = b"Internal Server Error"
        headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(text))]
        await self.send({"type": "http.response.start", "status": 500, "headers": headers})
        await self.send({"type": "http.response.body", "body": text})

    # -- ASGI --------------------------------------------------------------------------------------------------------

    async def receive(self) -> dict[str, Any]:
        if self._expects and not self._gone and not self.begun:
            self._expects = False
            self.connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        while not self._body and self._more and not self._gone and not self._done:
            self.connection.resume_reading()
            self._news.clear()
            await self._news.wait()
        while self._is_read and not self._gone and not self._done:  # the next news is the end
            self._news.clear()
            await self._news.wait()
        if self._gone or self._done:
            return {"type": "http.disconnect"}
        body = bytes(self._body)
        self._body.clear()
        self._is_read = not self._more
        return {"type": "http.request", "body": body, "more_body": self._more}

    async def send(self, message: dict[str, Any]) -> None:
        if self._gone:
            return
        if message["type"] == "http.response.start" and not self.begun:
            self._begin(message["status"], message.get("headers", ()))
        elif message["type"] == "http.response.body" and self.begun and not self._done:
            self._write(message.get("body", b""), message.get("more_body", False))
        else:
            raise RuntimeError(f"{message['type']} does not belong here")
        await self.connection.drained()

    def _begin(self, status: int, headers: Any) -> None:
        self.begun = True
        self._bodiless = self.scope["method"] == "HEAD" or status in _BODILESS
        parts = [_status_line(status), _date()]
        measured = False
        for name, value in headers:
            if b"\n" in value or b"\r" in value or b"\n" in name or b":" in name:
                raise RuntimeError("a header must not end its line")
            lower = name.lower()
            if lower == b"content-length":
                measured, self._left = True, None if self._bodiless else int(value)
            elif lower == b"connection" and value.lower() == b"close":
                self.keep_alive = False
                continue
            elif lower == b"transfer-encoding":
                continue
            parts += (name, b": ", value, b"\r\n")
        if not measured and not self._bodiless:
            if self.scope["http_version"] == "1.1":
                self._chunked = True
                parts.append(b"transfer-encoding: chunked\r\n")
            else:
                self.keep_alive = False
        if not self.keep_alive:
            parts.append(b"connection: close\r\n")
        elif self.scope["http_version"] == "1.0":
            parts.append(b"connection: keep-alive\r\n")
        self._head = b"".join((*parts, b"\r\n"))

    def _write(self, body: bytes, more: bool) -> None:
        head, self._head = self._head, b""
        if self._bodiless:
            piece = b""
        elif self._chunked:
            piece = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            if not more:
                piece += b"0\r\n\r\n"
        else:
            if self._left is not None:
                self._left -= len(body)
                if self._left < 0 or (self._left and not more):
                    raise RuntimeError("the answer is not as long as it says")
            piece = body
        if len(piece) >= HIGH_WATER_BYTES:
            self.connection.transport.write(head)
            self.connection.transport.write(piece)
        elif head or piece:
            self.connection.transport.write(head + piece)
        if not more:
            self._done = True
            self._news.set()
            self._body.clear()
            self.connection.answered(self)


def _status_line(status: int) -> bytes:
    return _STATUS_LINES.get(status) or f"HTTP/1.1 {status} \r\n".encode()


_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_dated: tuple[int, bytes] = (0, b"")


def _date() -> bytes:
    """The header `date`, made once a second."""
    global _dated
    now = int(time.time())
    if _dated[0] != now:
        at = time.gmtime(now)
        day, month = _DAYS[at.tm_wday], _MONTHS[at.tm_mon - 1]
        text = f"{day}, {at.tm_mday:02} {month} {at.tm_year} {at.tm_hour:02}:{at.tm_min:02}:{at.tm_sec:02} GMT"
        _dated = (now, f"date: {text}\r\n".encode())
    return _dated[1]
