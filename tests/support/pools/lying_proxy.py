"""An HTTP proxy that changes what a real BOINC client uploads on its way to the server, and what it reports of it."""

from __future__ import annotations

import hashlib
import http.client
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

_MD5 = re.compile(rb"<md5_cksum>([0-9a-f]{32})</md5_cksum>")


class LyingProxy:
    """`change` spoils the bytes of an output: sent first with the MD5 of the honest bytes, then with their own."""

    def __init__(self, change: Callable[[bytes], bytes]) -> None:
        self._change = change
        self._lies: dict[bytes, bytes] = {}
        """MD5 of what the client means, and of what is sent instead."""
        self.clumsy: list[bytes] = []
        self.skilled: list[bytes] = []
        """What the server answers to changed bytes: with the MD5 of the honest ones, and with their own."""
        self.reported = 0
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._pass_on(b"")

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", "0")))
                if self.path.endswith("file_upload_handler") and b"<data>\n" in body:
                    self._pass_on(*proxy.changed(body))
                else:
                    self._pass_on(proxy.report(body) if self.path.endswith("/cgi") else body)

            def _pass_on(self, body: bytes, answers: list[bytes] | None = None) -> None:
                address = urlsplit(self.path)
                server = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
                kept = {name: value for name, value in self.headers.items() if name.lower() == "content-type"}
                server.request(self.command, address.path, body or None, kept)
                answer = server.getresponse()
                data = answer.read()
                server.close()
                if answers is not None:
                    answers.append(data)
                self.send_response(answer.status)
                self.send_header("content-type", answer.getheader("content-type", "text/xml"))
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True).start()

    def changed(self, body: bytes) -> tuple[bytes, list[bytes]]:
        """The upload that goes on, and where its answer is noted."""
        head, data = body.split(b"<data>\n", 1)
        match = _MD5.search(head)
        assert match is not None
        lie = self._change(data)
        assert len(lie) == len(data)
        if match[1] not in self._lies:
            self._lies[match[1]] = hashlib.md5(lie).hexdigest().encode()
            return head + b"<data>\n" + lie, self.clumsy
        return head.replace(match[1], self._lies[match[1]]) + b"<data>\n" + lie, self.skilled

    def report(self, body: bytes) -> bytes:
        for meant, sent in self._lies.items():
            self.reported += body.count(meant)
            body = body.replace(meant, sent)
        return body

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
