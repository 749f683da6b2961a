"""Hooks at a real server: a signed message that is tried again, a command, a receiver that hangs without harm."""

from __future__ import annotations

import hashlib
import hmac
import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.support.server.cluster import cluster

SECRET = b"0123456789abcdef0123456789abcdef"
HOOKS = """
[[hook]]
name = "chat"
url = "http://127.0.0.1:{port}/in"
secret_file = "secret"
pause_s = 0.05

[[hook]]
name = "hangs"
url = "http://127.0.0.1:{port}/hang"
timeout_s = 600
jobs = "first"

[[hook]]
name = "note"
command = {command}
states = ["failed"]
"""
NOTE = "import os, sys; open(sys.argv[1], 'a').write(os.environ['WINDFALL_JOB_NAME'] + '\\n')"


@pytest.fixture
def receiver():
    """Answers 503 to the first message at /in, 204 to later ones, and nothing at /hang before it is let go."""
    heard: list[tuple[str, dict[str, str], bytes]] = []
    let_go = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            heard.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            if self.path == "/hang":
                let_go.wait(120)
            self.send_response(503 if sum(path == "/in" for path, *_ in heard) == 1 else 204)
            self.end_headers()

        def log_message(self, *words):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_address[1], heard
    let_go.set()
    server.shutdown()
    server.server_close()


def until(holds, seconds=60.0):
    end_s = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end_s, "it did not come"
        time.sleep(0.05)


def test_hooks_are_signed_tried_again_and_hold_up_nobody(tmp_path, receiver):
    port, heard = receiver
    command = json.dumps([sys.executable, "-c", NOTE, str(tmp_path / "note")])
    (tmp_path / "secret").write_bytes(SECRET)
    (tmp_path / "hooks.toml").write_text(HOOKS.format(port=port, command=command))
    with cluster(tmp_path) as made:
        made.start_server("--hooks", str(tmp_path / "hooks.toml"))
        made.start_worker("desk", slots=2)
        client = made.client()
        for name, argv in (("first", ["true"]), ("second", ["false"])):
            client.submit(argv, range(2), name=name, max_failures=1).wait()  # goes on although /hang does not answer

        def told():
            return [(json.loads(body), headers, body) for path, headers, body in heard if path == "/in"]

        until(lambda: {news["name"] for news, *_ in told()} == {"first", "second"})
        until(lambda: (tmp_path / "note").exists() and (tmp_path / "note").read_text() == "second\n")
        first, again = told()[:2]
        assert first[1]["x-windfall-delivery"] == again[1]["x-windfall-delivery"]  # refused once, sent once more
        for news, headers, body in told():
            signed = hmac.new(SECRET, f"{headers['x-windfall-time']}.".encode() + body, hashlib.sha256).hexdigest()
            assert headers["x-windfall-signature"] == f"sha256={signed}"
            assert news["state"] == {"first": "done", "second": "failed"}[news["name"]]
        until(lambda: any(path == "/hang" for path, *_ in heard))
        assert client.submit(["true"], range(1), name="third").wait()["state"] == "done"
        made.stop_server()  # nor is the end of the server held up
