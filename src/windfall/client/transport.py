"""HTTP requests to one server: kept connections, errors as ours, patience when it is away. Touches the network.

Thread-safe: each request takes a connection of its own from a small stock. Every request of the interface may be
repeated without harm (submissions have keys, chunks have positions), so one that got no answer is sent again.
"""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import urlencode, urlsplit

import msgspec

from windfall.errors import BadCredentials, BadInput, Kind, Missed, Unreachable, WindfallError
from windfall.wire import frames

if TYPE_CHECKING:  # loaded with the first request: a command that reads the log itself needs none of it
    import http.client
    import ssl

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 5.0
CONNECT_S = 8.0
"""Seconds after which a host that does not answer at all is taken for gone."""
_SILENCE_S = 2.0
"""Seconds without an answer after which `on_silence` is called."""
_SHORT_S = 10.0
"""A wait no longer than this is told of once, at its end."""
_TIMEOUT_OF_SEVERAL_S = 6.0
"""Seconds without an answer, beyond the time that it may be held, after which another address is asked."""
_PIECE_BYTES = 1 << 20
_AGAIN = (429, 502, 503, 504)

encode = msgspec.json.encode
decode = msgspec.json.decode


class Frame:
    """A framed answer: its header, and its attachments cut off one by one."""

    def __init__(self, data: bytes) -> None:
        header, self._rest = frames.split(data)
        self.header: dict[str, Any] = decode(header)
        self._position = 0

    def take(self, size: int) -> memoryview:
        start, self._position = self._position, self._position + size
        return self._rest[start : self._position]


class Transport:
    """Requests to `url`. Several with commas between them are a server and its standbys; each is asked in turn.

    `renew` gives another address when none answers: a server may have been restarted.

    `patience_s`: how long to keep trying while the server is away; 0 gives up at once. `on_silence` is told once per
    request when the server has been away for a few seconds, and for how many seconds more it will be asked.
    """

    def __init__(
        self,
        url: str,
        token: str = "",
        *,
        patience_s: float = 0.0,
        timeout_s: float = 60.0,
        renew: Callable[[], tuple[str, str]] | None = None,
        cafile: str | None = None,
    ) -> None:
        self.cafile = cafile
        self.patience_s = patience_s
        self.on_silence: Callable[[WindfallError, float], None] = lambda error, left_s: None
        self.timeout_s = timeout_s
        self.ended = False
        """Whether the server was one of this process, and has been stopped."""
        self._renew = renew
        self._idle: list[http.client.HTTPConnection] = []
        self._urls = [one.strip() for one in url.split(",") if one.strip()] or [url]
        for one in reversed(self._urls):
            self._set_address(one, token)

    def _set_address(self, url: str, token: str) -> None:
        text = url if "://" in url else f"http://{url}"
        try:
            parts = urlsplit(text)
            host, port = parts.hostname or "", parts.port
            host.encode("idna")  # as the resolver will: an empty or a too long part of the name is refused here
        except ValueError:
            host = ""
        if not host or parts.scheme not in ("http", "https") or parts.netloc.endswith(":") or "@" in parts.netloc:
            raise BadInput(f"'{url}' is no server's address", hint="write it as in http://head-node:7272")
        if not token.isascii() or any(c.isspace() for c in token):
            raise BadInput("the token contains spaces or characters that no token has", hint="copy it again, alone")
        self.url_given, self.url = url, text.rstrip("/")
        self.token = token
        self._scheme, self._host, self._port = parts.scheme, host, port
        self._prefix = parts.path.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.close()

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    # -- requests ----------------------------------------------------------------------------------------------------

    def get(self, path: str, **query: Any) -> Any:
        """A JSON answer."""
        return decode(self.request("GET", path, query=query))

    def frame(self, path: str, **query: Any) -> Frame:
        """A framed answer."""
        return Frame(self.request("GET", path, query=query))

    def post(self, path: str, body: Any = None) -> Any:
        """JSON to the server and back."""
        answer = self.request("POST", path, body=encode(body if body is not None else {}))
        return decode(answer) if answer else None

    def post_frame(self, path: str, header: Any, attachments: list[bytes]) -> Any:
        """A frame to the server, JSON back."""
        body = frames.join(encode(header), attachments)
        return decode(self.request("POST", path, body=body, content_type=frames.CONTENT_TYPE))

    def exists(self, path: str) -> bool:
        return self.request("HEAD", path, missing_ok=True) is not None

    def request(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, Any] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        missing_ok: bool = False,
        into: BinaryIO | None = None,
    ) -> Any:
        """The bytes of an answer, asked for again while `patience_s` lasts. `missing_ok`: a 404 is None, no error.

        `into`: a file that gets the bytes of a good answer from its beginning, so that they need not fit into memory.
        """
        from http.client import HTTPException

        asked = {key: value for key, value in (query or {}).items() if value is not None}
        headers = self._headers if body is None else {**self._headers, "Content-Type": content_type}
        silent_since: float | None = None  # a request may have waited for news for long before the server went away
        told = False
        pause_s = _FIRST_PAUSE_S
        tried = 0
        while True:
            target = f"{self._prefix}{path}" + (f"?{urlencode(asked)}" if asked else "")
            try:
                status, data = self._once(method, target, body, headers, self._patient_s(asked), into)
            except (OSError, HTTPException) as error:
                failure: WindfallError = self._unreachable(error)
            else:
                if status < 300:
                    return data
                if status == 404 and missing_ok:
                    return None
                failure = error_of(status, data, self.url)
                if status not in _AGAIN:
                    raise failure
            if failure.retryable and len(self._urls) > 1:
                self._set_address(self._urls[(self._urls.index(self.url_given) + 1) % len(self._urls)], self.token)
                tried += 1
                if tried % len(self._urls):
                    continue
            now = time.monotonic()
            silent_since = now if silent_since is None else silent_since
            until = silent_since + self.patience_s
            if not failure.retryable or now >= until:
                raise failure
            if not told and self.patience_s > _SHORT_S and now - silent_since > _SILENCE_S:
                told = True
                self.on_silence(failure, until - time.monotonic())
            # Full jitter: clients that lost the same server do not come back all at once.
            time.sleep(min(random.uniform(0, pause_s), max(0.0, until - time.monotonic())))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            if self._renew is not None and isinstance(failure, Unreachable):
                self._move(*self._renew())
                headers = {**headers, **self._headers}
                # Another server: the caller decides at once whether to stay with it, not after a long poll.
                asked.pop("wait_s", None)

    def _patient_s(self, asked: dict[str, Any]) -> float:
        """Seconds that an answer may take."""
        if len(self._urls) == 1:
            return self.timeout_s
        return min(self.timeout_s, float(asked.get("wait_s") or 0) + _TIMEOUT_OF_SEVERAL_S)

    def _move(self, url: str, token: str) -> None:
        if (url, token) != (self.url, self.token):
            self._set_address(url, token)

    def _once(
        self, method: str, target: str, body: bytes | None, headers: dict[str, str], timeout_s: float,
        into: BinaryIO | None = None,
    ) -> tuple[int, bytes]:  # fmt: skip
        """One request on a kept connection, or on a new one if the kept one was closed meanwhile."""
        from http.client import BadStatusLine

        while True:
            connection, kept = self._connection()
            if connection.sock is not None:
                connection.sock.settimeout(timeout_s)
            try:
                connection.request(method, target, body=body, headers=headers)
                response = connection.getresponse()
                data = response.read() if into is None or response.status >= 300 else _received(response, into)
            except (ConnectionError, BadStatusLine):
                connection.close()
                if kept:
                    continue
                raise
            except BaseException:
                connection.close()
                raise
            if response.will_close:
                connection.close()
            else:
                self._idle.append(connection)
            return response.status, data

    def _connection(self) -> tuple[http.client.HTTPConnection, bool]:
        try:
            return self._idle.pop(), True
        except IndexError:
            pass
        from http.client import HTTPConnection, HTTPSConnection

        timeout_s = min(CONNECT_S, self.timeout_s)
        if self._scheme == "https":
            context = _tls(self.cafile)
            made: HTTPConnection = HTTPSConnection(self._host, self._port, timeout=timeout_s, context=context)
        else:
            made = HTTPConnection(self._host, self._port, timeout=timeout_s)
        made.connect()
        _notice_silence(made.sock)
        return made, False

    def _unreachable(self, error: Exception) -> WindfallError:
        import ssl

        if isinstance(error, ssl.SSLCertVerificationError):
            return _final(
                Unreachable(
                    f"{self.url}: its certificate is not trusted ({error.verify_message})",
                    hint="give the certificate of the authority that signed it: --cafile FILE, or SSL_CERT_FILE",
                )
            )
        if isinstance(error, ssl.SSLError):
            return _final(Unreachable(f"{self.url} does not speak TLS", hint="write http:// if the server has no TLS"))
        if self.ended:
            return _final(
                Unreachable("this client is closed, and its server has ended with it", hint="make a new one: Client()")
            )
        why = "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
        return Unreachable(
            f"no server answers at {self.url} ({_reason(why)})",
            hint="is it running? try: windfall server, or set --server or WINDFALL_SERVER to another address",
        )


def _received(response: http.client.HTTPResponse, into: BinaryIO) -> bytes:
    """Write an answer to a file; nothing of it is left to read. IncompleteRead if it breaks off."""
    from http.client import IncompleteRead

    due, size = response.length, 0
    _write(into, None)
    while piece := response.read(_PIECE_BYTES):
        size += len(piece)
        _write(into, piece)
    if due is not None and size < due:
        raise IncompleteRead(b"", due - size)
    return b""


def _write(into: BinaryIO, piece: bytes | None) -> None:
    """None: begin anew. BadInput if it cannot be written, which is no fault of the server: it is not asked again."""
    try:
        if piece is None:
            into.seek(0)
            into.truncate()
        else:
            into.write(piece)
    except OSError as error:
        raise BadInput(f"{into.name}: {error.strerror}", hint="make space there, or name another place") from error


def _notice_silence(sock: socket.socket) -> None:
    """Let the kernel notice, within about `CONNECT_S`, that the other host is gone while an answer is waited for."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        for option, value in (
            (socket.TCP_KEEPIDLE, 3), (socket.TCP_KEEPINTVL, 2), (socket.TCP_KEEPCNT, 2),
            (socket.TCP_USER_TIMEOUT, int(1000 * CONNECT_S)),
        ):  # fmt: skip
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _tls(cafile: str | None) -> ssl.SSLContext:
    import ssl

    try:
        return ssl.create_default_context(cafile=cafile)
    except (OSError, ssl.SSLError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "no certificate"
        raise BadInput(f"--cafile {cafile}: {why}", hint="give a file with the certificate of the authority") from None


def _final(error: WindfallError) -> WindfallError:
    error.retryable = False
    return error


def _reason(text: str) -> str:
    """`[Errno 111] Connection refused` without its number."""
    return text.partition("] ")[2] if text.startswith("[Errno") else text


_CLASSES: dict[int, type[WindfallError]] = {
    400: BadInput,
    401: BadCredentials,
    403: BadCredentials,
    404: BadInput,
    409: BadInput,
    413: BadInput,
    426: BadInput,
    429: Unreachable,
    502: Unreachable,
    503: Unreachable,
    504: Unreachable,
}


def error_of(status: int, data: bytes, url: str) -> WindfallError:
    """The server's error as ours: same code, same message, same hint."""
    try:
        said = decode(data)["error"]
        message, hint, code = str(said["message"]), str(said.get("hint") or ""), str(said.get("code") or "")
    except (msgspec.DecodeError, KeyError, TypeError):
        text = data[:200].decode(errors="replace").strip()
        message, hint, code = f"{url} answered {status}: {text or 'nothing'}", "is it a windfall server?", ""
        said = {}
    kind = Missed if code == "too-late" else _CLASSES.get(status, WindfallError)
    error = kind(message, hint=hint, code=code)
    if isinstance(said, dict) and isinstance(said.get("retryable"), bool):
        error.retryable = said["retryable"] or status in _AGAIN
    if isinstance(said, dict) and said.get("kind") in set(Kind):
        error.kind = Kind(said["kind"])
    if status in (401, 403) and not error.hint:
        error.hint = "set --token or WINDFALL_TOKEN to a token of this server (windfall token create makes one)"
    return error
