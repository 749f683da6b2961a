"""A server that speaks the exchange protocol and nothing else, with faults on demand. Touches one loopback port.

It stores what it is told, so that a test can ask how often each result arrived; it decides nothing.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from windfall.wire import frames

TOKEN = "sesame"
SPEC: dict[str, Any] = {
    "kind": "command", "name": "job", "env": {}, "cwd": None, "inputs": [], "outputs": [], "wall_s": None,
    "memory_bytes": None, "cpus": 1, "grace_s": 10, "output_cap_bytes": 1048576, "python": None,
}  # fmt: skip


class FakeServer:
    """`add` tasks, start a worker, `wait_for` results; set faults in between."""

    def __init__(self, next_s: float = 5.0, port: int = 0) -> None:
        self.jobs: dict[int, dict[str, Any]] = {}
        self.queue: deque[tuple[list[Any], bytes]] = deque()
        self.results: dict[tuple[int, int, int], list[dict[str, Any]]] = defaultdict(list)
        self.requests: list[dict[str, Any]] = []
        self.live: dict[tuple[int, int, int], bytearray] = defaultdict(bytearray)
        self.cancel: list[list[int]] = []
        self.watch: list[list[int]] = []
        self.stop: str | None = None
        self.blobs: dict[str, bytes] = {}
        self.blob_requests: list[tuple[str, str]] = []
        self.next_s = next_s
        self.limit_bytes: int | None = None
        self.status_of: Callable[[dict[str, Any]], int] = lambda header: 200
        self.drop_answer: Callable[[dict[str, Any]], bool] = lambda header: False
        self.changed = threading.Condition()
        self._answers: dict[tuple[str, str], tuple[int, bytes | None]] = {}
        self._tasks = 0
        self._http = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return self._http.server_address[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def __enter__(self) -> FakeServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- for tests --------------------------------------------------------------------------------------------------

    def job(self, **fields: Any) -> int:
        number = len(self.jobs) + 1
        self.jobs[number] = {**SPEC, **fields}
        return number

    def add(
        self, job: int, argv: list[str] | None, payload: bytes = b"", overrides: dict[str, Any] | None = None
    ) -> tuple[int, int, int]:
        with self.changed:
            self._tasks += 1
            key = (job, self._tasks, 1)
            self.queue.append(([*key, argv, overrides, len(payload)], payload))
            self.changed.notify_all()
        return key

    def call(
        self, job: int, function: Callable[..., Any] | bytes | str, *args: Any, **kwargs: Any
    ) -> tuple[int, int, int]:
        import pickle

        import cloudpickle

        reference = cloudpickle.dumps(function) if callable(function) else function
        return self.add(job, None, pickle.dumps((reference, args, kwargs)))

    def blob(self, data: bytes) -> str:
        sha256 = hashlib.sha256(data).hexdigest()
        self.blobs[sha256] = data
        return sha256

    def wait_for(self, done: Callable[[], bool], patience_s: float = 30.0) -> None:
        end_s = time.monotonic() + patience_s
        with self.changed:
            while not done():
                left_s = end_s - time.monotonic()
                if left_s <= 0:
                    raise AssertionError(f"not within {patience_s} s; results: {dict(self.results)}")
                self.changed.wait(min(left_s, 0.2))

    def result(self, key: tuple[int, int, int], patience_s: float = 30.0) -> dict[str, Any]:
        self.wait_for(lambda: key in self.results, patience_s)
        return self.results[key][0]

    # -- the protocol -----------------------------------------------------------------------------------------------

    def exchange(self, body: bytes) -> tuple[int, bytes | None]:
        """Status and answer; `None` for an answer that is lost on its way."""
        raw, attachments = frames.split(body)
        header = json.loads(bytes(raw))
        host = (header["host"], header["boot"])
        with self.changed:
            self.requests.append(header)
            status = self.status_of(header)
            if status != 200:
                return status, _error(status)
            if self.limit_bytes and len(body) > self.limit_bytes:
                return 413, _error(413, limit=self.limit_bytes)
            last_n, last_answer = self._answers.get(host, (0, None))
            if header["n"] < last_n:
                return 409, _error(409)
            if header["n"] > last_n:
                self._answers[host] = (header["n"], None)
                self._take(header, attachments)
                self._hold(header, host)
            elif last_answer is None:
                # A repeat of an exchange whose answer is being held: both are answered now.
                self._answer(header, host)
            self.changed.notify_all()
            answer = self._answers[host][1]
            return 200, None if self.drop_answer(header) else answer

    def _take(self, header: dict[str, Any], attachments: memoryview) -> None:
        at = 0
        for row in header["results"]:
            parts = []
            for length in row[9:12]:
                parts.append(bytes(attachments[at : at + length]))
                at += length
            names = ("cause", "exit", "ago_s", "run_s", "cpu_s", "rss_bytes")
            result = dict(zip(names, row[3:9], strict=True))
            result |= {"stdout": parts[0], "stderr": parts[1], "value": parts[2], **(row[12] or {})}
            self.results[tuple(row[:3])].append(result)
        for job, task, attempt, _, n_out, _, n_err in header["live"]:
            self.live[(job, task, attempt)] += attachments[at : at + n_out + n_err]
            at += n_out + n_err

    def _hold(self, header: dict[str, Any], host: tuple[str, str]) -> None:
        end_s = time.monotonic() + header["wait_s"]
        self.changed.notify_all()
        while self._answers[host] == (header["n"], None):
            nothing = not (self.queue and header["want"]) and not self.cancel and not self.stop
            left_s = end_s - time.monotonic()
            if not nothing or left_s <= 0:
                self._answer(header, host)
                return
            self.changed.wait(left_s)

    def _answer(self, header: dict[str, Any], host: tuple[str, str]) -> None:
        rows, payloads, jobs = [], [], {}
        while self.queue and len(rows) < header["want"]:
            row, payload = self.queue.popleft()
            rows.append(row)
            payloads.append(payload)
            jobs[str(row[0])] = self.jobs[row[0]]
        answer = {
            "v": 1, "n": header["n"], "jobs": jobs, "tasks": rows, "cancel": self.cancel, "watch": self.watch,
            "next_s": self.next_s, "stop": self.stop,
        }  # fmt: skip
        self.cancel = []
        self._answers[host] = (header["n"], frames.join(json.dumps(answer).encode(), payloads))

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *_: Any) -> None:
                pass

            def _reply(self, status: int, body: bytes, declared: int | None = None) -> None:
                try:
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(body) if declared is None else declared))
                    self.end_headers()
                    self.wfile.write(body)
                except OSError:
                    self.close_connection = True

            def _allowed(self) -> bool:
                if self.headers.get("Authorization") == f"Bearer {TOKEN}":
                    return True
                self._reply(401, _error(401))
                return False

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self._allowed():
                    status, answer = fake.exchange(body)
                    if answer is None:
                        self.close_connection = True
                    else:
                        self._reply(status, answer)

            def _blob(self) -> str:
                sha256 = self.path.rpartition("/")[2]
                fake.blob_requests.append((self.command, sha256))
                return sha256

            def do_HEAD(self) -> None:
                data = fake.blobs.get(self._blob())
                self._reply(404 if data is None else 200, b"", len(data or b""))

            def do_GET(self) -> None:
                data = fake.blobs.get(self._blob())
                self._reply(404 if data is None else 200, data or b"")

            def do_PUT(self) -> None:
                data = self.rfile.read(int(self.headers["Content-Length"]))
                if fake.blob(data) == self._blob():
                    self._reply(201, b"")
                else:
                    self._reply(400, _error(400))

        return Handler


def _error(status: int, **more: Any) -> bytes:
    return json.dumps({"error": {"code": str(status), "message": f"fake {status}", "hint": "ask", **more}}).encode()
