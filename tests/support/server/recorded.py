"""Exchanges of real workers, recorded once and kept below tests/data/protocol, to be sent to every later server.

`python -m tests.support.server.recorded COMMIT FILE` records a worker of that commit: a job with an input, outputs and
a task that fails, until the worker leaves. A file that is kept is never written again.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.support.server import released
from windfall.client import Client
from windfall.server import embedded
from windfall.wire import ATTEMPT, HOST_SECRET

COMMAND = ["sh", "-c", "cat data.txt data.txt > out.txt; echo $1; test $1 != 3", "sh", "{}"]
TASKS = 5
Json = dict[str, Any]


class Recorder:
    """A proxy in front of a server that keeps what a worker sends, and the statuses of the answers."""

    def __init__(self, port: int) -> None:
        self.messages: list[Json] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self, port))
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(recorder: Recorder, port: int) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            kept: Json = {"method": self.command, "path": self.path, "secret": HOST_SECRET in self.headers}
            if ATTEMPT in self.headers:
                kept["attempt"] = self.headers[ATTEMPT]
            kept["body"] = base64.b64encode(body).decode()
            recorder.messages.append(kept)  # in the order in which they came: an answer may be held
            onward = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            onward.request(self.command, self.path, body, dict(self.headers))
            answer = onward.getresponse()
            told = answer.read()
            kept["status"] = answer.status
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(told)))
            self.end_headers()
            with contextlib.suppress(OSError):  # the worker breaks off a request that is held
                self.wfile.write(told if self.command != "HEAD" else b"")
            onward.close()

        do_GET = do_HEAD = do_POST = do_PUT = _pass_on

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def record(commit: str, target: Path) -> None:
    """Run a worker of that commit against a server of this one, and keep what it said."""
    with tempfile.TemporaryDirectory(prefix="windfall-recorded-") as name:
        folder = Path(name)
        source = released.source(commit, folder)
        (folder / "data.txt").write_text("an input\n")
        with embedded.start(folder / "state") as server, Client(server.url, server.token) as client:
            recorder = Recorder(int(server.url.rpartition(":")[2]))
            job = client.submit(
                COMMAND, range(TASKS), inputs=[str(folder / "data.txt")], outputs=["out.txt"], max_failures=1
            )  # fmt: skip
            command = [sys.executable, "-m", "windfall.worker", "--server", recorder.url, "--slots", "1"]
            command += ["--name", "recorded", "--dir", str(folder / "worker"), "--idle-exit", "3s"]
            token = client.transport.post("/v1/tokens", {"role": "worker"})["token"]
            env = os.environ | {"WINDFALL_TOKEN": token, "PYTHONPATH": source, "TMPDIR": name}
            subprocess.run(command, env=env, check=True, timeout=120)
            recorder.close()
            kept = {
                "commit": commit,
                "spec": client.transport.get("/v1/jobs/1/spec"),
                "blobs": [base64.b64encode((folder / "data.txt").read_bytes()).decode()],
                "messages": recorder.messages,
                "tasks": job.status()["tasks"],
            }
    target.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    record(sys.argv[1], Path(sys.argv[2]))
