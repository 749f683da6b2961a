"""A server of a few lines that answers as told and remembers what it was asked: for tests of the client alone."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, bytes]


def as_json(status: int, body: Any) -> Answer:
    return status, json.dumps(body).encode()


def error(status: int, code: str, message: str, hint: str = "", retryable: bool = False) -> Answer:
    said = {"code": code, "kind": "user", "message": message, "hint": hint, "retryable": retryable}
    return as_json(status, {"error": said})


class StubServer:
    """`answer(method, path, body)` decides; `asked` holds (method, path) of every request, `connections` who asked."""

    def __init__(self, answer: Callable[[str, str, bytes], Answer]) -> None:
        self.asked: list[tuple[str, str]] = []
        self.connections: set[Any] = set()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def _handle(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                stub.asked.append((self.command, self.path))
                stub.connections.add(self.client_address)
                status, data = answer(self.command, self.path, body)
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = _handle

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    def __enter__(self) -> StubServer:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
