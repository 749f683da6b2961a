"""HTTP to the server: one thread for exchanges, and requests for blobs. Touches the network, decides nothing.

An exchange is repeated until it is answered. A repeat asks for an answer at once (`wait_s` 0), which is also how the
worker breaks off a long poll when it has results to send.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import queue
import random
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from windfall.wire import HOST_SECRET, WORKER_AGENT, frames
from windfall.worker.pace import Backoff

CONNECT_S = 10.0
ANSWER_S = 30.0
"""Seconds that an answer may take beyond the time that the server may hold it."""
ANSWER_OF_SEVERAL_S = 8.0
"""The same if there is another address to ask."""
LONGEST_PAUSE_S, LONGEST_PAUSE_OF_SEVERAL_S = 30.0, 2.0
"""The longest pause between two tries, and between two rounds of several addresses."""


class Refused(Exception):
    """The server refuses this worker: its message, and the exit code to end with."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Expired(Refused):
    """The token has ended; the exchange may bring a new one."""


class OtherVersion(Refused):
    """The server does not speak this version of the protocol."""


class TooLarge(Exception):
    """It is over a limit of the server: its message, and `code`, the limit's name."""

    def __init__(self, limit_bytes: int | None, message: str = "too large", code: str = "") -> None:
        super().__init__(message)
        self.limit_bytes, self.code = limit_bytes, code


class Unavailable(Exception):
    """No usable answer; a retry may help."""

    def __init__(self, message: str, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


@dataclass
class Address:
    """The server's URL, the token and the certificate. The token may be replaced at any time by a newer one.

    Several URLs with commas between them are a server and its standbys: the one that answered last is asked first.
    """

    url: str
    token: str
    cafile: str | None = None
    secret: str = ""
    """What this host shows so that no other can speak in its name; empty: not known yet."""
    at: int = 0

    @property
    def urls(self) -> list[str]:
        return self.url.split(",")

    @property
    def current(self) -> str:
        return self.urls[self.at]

    @property
    def answer_s(self) -> float:
        return ANSWER_S if "," not in self.url else ANSWER_OF_SEVERAL_S

    def backoff(self, generator: random.Random) -> Backoff:
        return Backoff(generator, cap_s=LONGEST_PAUSE_S if "," not in self.url else LONGEST_PAUSE_OF_SEVERAL_S)

    def move_on(self, tried: str) -> bool:
        """Ask the next address, unless another thread has moved on already. False: all were tried, so pause first."""
        if tried == self.current:
            self.at = (self.at + 1) % len(self.urls)
        return self.at != 0

    def connect(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.current)
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=self.cafile)
            return http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=CONNECT_S, context=context)
        return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=CONNECT_S)

    def path(self, path: str) -> str:
        return urlsplit(self.current).path.rstrip("/") + path

    @property
    def headers(self) -> dict[str, str]:
        shown = {"Authorization": f"Bearer {self.token}", "User-Agent": WORKER_AGENT}
        return {**shown, HOST_SECRET: self.secret} if self.secret else shown


def check(status: int, body: bytes, headers: Any) -> None:
    """Raise the error that belongs to an HTTP status other than success (docs/reference/protocol.md)."""
    if status < 300:
        return
    error: dict[str, Any] = {}
    with contextlib.suppress(ValueError, AttributeError):
        error = json.loads(body).get("error") or {}
    said = error.get("message") or f"HTTP {status}"
    if error.get("hint"):
        said += f"\n  {error['hint']}"
    if status in (401, 403):
        kind = Expired if error.get("code") == "expired-token" else Refused
        raise kind(f"the server refuses this token: {said}", 3)
    if status == 426:
        raise OtherVersion(said, 2)
    if status == 409 or (status == 400 and error.get("code")):
        # Of the server itself: the same message would be refused again and again.
        raise Refused(said, 2)
    if status == 413:
        limit = error.get("limit")
        raise TooLarge(int(limit) if isinstance(limit, (int, float)) else None, said, str(error.get("code") or ""))
    retry_after_s = 0.0
    with contextlib.suppress(TypeError, ValueError):
        retry_after_s = min(30.0, float(headers.get("Retry-After")))
    raise Unavailable(said, retry_after_s)


class Link:
    """Sends one exchange at a time in a thread of its own; writes a byte into a pipe when there is an answer."""

    def __init__(self, address: Address, generator: random.Random, path: str = "/v1/exchange") -> None:
        self._address = address
        self._path = path
        self._asked = address.current
        self._backoff = address.backoff(generator)
        self._requests: queue.SimpleQueue[tuple[bytes, bytes, float] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[bytes | Exception] = queue.SimpleQueue()
        self._connection: http.client.HTTPConnection | None = None
        self._holding = False
        self._nudged = threading.Event()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        self.down_since_s: float | None = None
        self.last_failure = ""
        self.answered_in_s = 0.0
        """From sending the last exchange that was answered to its answer, the time for which it was held included."""
        self._thread = threading.Thread(target=self._carry, daemon=True, name="link")
        self._thread.start()

    def fileno(self) -> int:
        return self._wake_read

    def silent_s(self, now_s: float) -> float:
        """Seconds for which the server has not answered although it was asked; 0 if it answers."""
        return 0.0 if self.down_since_s is None else now_s - self.down_since_s

    def was_frozen(self, slept_s: float) -> None:
        """Time in which this host stood still is no silence of the server."""
        if self.down_since_s is not None:
            self.down_since_s += slept_s

    def send(self, first: bytes, repeat: bytes, hold_s: float) -> None:
        """Start an exchange. `repeat`: body of retries; `hold_s`: how long the server may hold the first answer."""
        self._nudged.clear()
        self._requests.put((first, repeat, hold_s))

    def nudge(self) -> None:
        """Get an answer soon: break off a long poll, or end a back-off."""
        self._nudged.set()
        connection = self._connection
        sock = connection.sock if connection else None
        if self._holding and sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def answer(self) -> bytes | Exception | None:
        """The answer, or None if there is none yet."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_read, 64)
        with contextlib.suppress(queue.Empty):
            return self._answers.get_nowait()
        return None

    def close(self) -> None:
        self._requests.put(None)
        self.nudge()

    def _carry(self) -> None:
        while (request := self._requests.get()) is not None:
            first, repeat, hold_s = request
            outcome = self._until_answered(first, repeat, hold_s)
            self._answers.put(outcome)
            os.write(self._wake_write, b".")

    def _until_answered(self, first: bytes, repeat: bytes, hold_s: float) -> bytes | Exception:
        body = first
        while True:
            try:
                data = self._post(body, hold_s)
            except (Refused, TooLarge) as error:
                return error
            except ssl.SSLCertVerificationError as error:
                return Refused(
                    f"the server's certificate is not trusted ({error.verify_message})\n"
                    "  give the authority's certificate with --cafile",
                    3,
                )
            except (OSError, http.client.HTTPException, Unavailable) as error:
                self._drop()
                nudged = self._nudged.is_set()
                self._nudged.clear()
                if not nudged:
                    self._fail(error)
                body, hold_s = repeat, 0.0
                continue
            self.down_since_s = None
            self._backoff.reset()
            return data

    def _fail(self, error: Exception) -> None:
        if self.down_since_s is None:
            self.down_since_s = time.monotonic()
        self.last_failure = str(error) or type(error).__name__
        if self._address.move_on(self._asked):
            return
        pause_s = max(self._backoff.next_s(), getattr(error, "retry_after_s", 0.0))
        self._nudged.wait(pause_s)

    def _post(self, body: bytes, hold_s: float) -> bytes:
        connection = self._connection
        if connection is None:
            self._asked = self._address.current
            connection = self._connection = self._address.connect()
            connection.connect()
        assert connection.sock is not None
        connection.sock.settimeout(hold_s + self._address.answer_s)
        headers = {**self._address.headers, "Content-Type": frames.CONTENT_TYPE}
        sent_s = time.monotonic()
        connection.request("POST", self._address.path(self._path), body, headers)
        self._holding = hold_s > 0
        try:
            if self._holding and self._nudged.is_set():
                raise Unavailable("nudged")
            response = connection.getresponse()
            data = response.read()
        finally:
            self._holding = False
        if response.will_close:
            self._drop()
        check(response.status, data, response.headers)
        self.answered_in_s = time.monotonic() - sent_s
        return data

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection:
            connection.close()
