"""What a peer that goes in the middle of a file leaves behind: nothing."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
from hashlib import sha256
from pathlib import Path

import pytest

from tests.support.server.asgi import InProcess
from windfall.server.http.uploads import PIECE_BYTES
from windfall.store.contract import StoreError

CONTENT = os.urandom(3 * PIECE_BYTES)
NAME = sha256(CONTENT).hexdigest()


@pytest.fixture
def server(tmp_path):
    with InProcess(tmp_path / "state") as server:
        assert server.call("PUT", f"/v1/blobs/{NAME}", CONTENT)[0] == 201
        yield server
        server.check()


def open_blobs() -> int:
    """Files of blobs that this process has open."""
    found = 0
    for number in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found += number.readlink().name == NAME
    return found


def test_a_peer_that_goes_in_the_middle_of_a_file_leaves_it_closed(server):
    async def broken_off() -> None:
        begun = asyncio.Event()

        async def receive():
            await begun.wait()
            await asyncio.sleep(0.05)
            return {"type": "http.disconnect"}

        async def send(message):
            if message["type"] == "http.response.body":
                begun.set()
                await asyncio.get_running_loop().create_future()  # the peer reads no more

        scope = {
            "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "method": "GET",
            "scheme": "http", "path": f"/v1/blobs/{NAME}", "raw_path": b"", "query_string": b"", "root_path": "",
            "headers": [(b"authorization", f"Bearer {server.token}".encode())], "client": None, "server": ("t", 80),
        }  # fmt: skip
        asked = asyncio.create_task(server.application(scope, receive, send))
        await begun.wait()
        assert open_blobs() == 1
        await asyncio.wait_for(asked, 30)

    gc.disable()  # it must not need to be looked for
    try:
        for _ in range(3):
            server.run(broken_off())
            assert open_blobs() == 0
    finally:
        gc.enable()
    assert server.call("GET", f"/v1/blobs/{NAME}") == (200, CONTENT)


def test_a_file_that_cannot_be_opened_is_told_before_the_answer_begins(server, monkeypatch):
    def fails(sha: str):
        raise StoreError("too many open files")

    monkeypatch.setattr(server.store, "open_blob", fails)
    status, answer = server.get(f"/v1/blobs/{NAME}")
    assert status == 503 and "too many open files" in answer["error"]["message"]

    def gone(sha: str):
        raise KeyError(sha)

    monkeypatch.setattr(server.store, "open_blob", gone)
    assert server.get(f"/v1/blobs/{NAME}")[0] == 404
