"""Blobs as they arrive: many at once, too large, stalled, onto a full disk."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.server.asgi import InProcess
from windfall.server.http import uploads
from windfall.server.http.uploads import Uploads

PIECE = 64 << 10


@pytest.fixture
def server(tmp_path) -> Iterator[InProcess]:
    with InProcess(tmp_path / "state") as server:
        yield server
        server.check()


def blob(number: int, size: int) -> tuple[str, bytes]:
    content = number.to_bytes(4, "big") * (size // 4)
    return f"/v1/blobs/{hashlib.sha256(content).hexdigest()}", content


def cut(content: bytes) -> list[bytes]:
    return [content[at : at + PIECE] for at in range(0, len(content), PIECE)]


def leftovers(server: InProcess) -> list[Path]:
    """Once whatever was thrown away is gone."""
    server.service.uploads._writers.shutdown()
    server.service.uploads = Uploads(server.store)
    return list(Path(server.store.spool()).glob("tmp-*"))


async def slowly(pieces: list[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        await asyncio.sleep(0)
        yield piece


def test_sixty_uploads_at_once_all_arrive(server, monkeypatch):
    monkeypatch.setattr(uploads, "TURN_S", 600.0)  # on a busy machine the first ones take longer than senders wait

    async def all_at_once() -> list[int]:
        sent = [server.full("PUT", path, slowly(cut(content))) for path, content in blobs]
        return [status for status, _, _ in await asyncio.gather(*sent)]

    blobs = [blob(number, 3 << 20) for number in range(60)]
    assert server.run(all_at_once()) == [201] * 60
    for path, content in blobs:
        assert server.call("GET", path) == (200, content)
    assert leftovers(server) == []


def test_a_small_blob_an_empty_one_and_one_that_is_there_already(server):
    for number, size in ((1, 12), (2, 0), (3, 5 << 20)):
        path, content = blob(number, size)
        assert server.call("PUT", path, cut(content) or b"")[0] == 201
        assert server.call("PUT", path, cut(content) or b"")[0] == 200
        assert server.call("GET", path) == (200, content)


@pytest.mark.parametrize("size", [12, 5 << 20])
def test_a_blob_with_another_content_leaves_nothing_behind(server, size):
    path, content = blob(1, size)
    assert server.call("PUT", path, [*cut(content), b"more"])[0] == 400
    assert server.call("HEAD", path)[0] == 404
    assert leftovers(server) == []


def test_a_blob_over_the_limit_is_refused_while_it_arrives(server):
    path, content = blob(1, 5 << 20)
    server.service.uploads.max_bytes = 3 << 20
    status, answer = server.call("PUT", path, cut(content))
    assert status == 413 and json.loads(answer)["error"]["limit"] == 3 << 20
    assert leftovers(server) == []


def test_when_too_many_arrive_the_next_sender_is_told_when_to_come_back(server, monkeypatch):
    monkeypatch.setattr(uploads, "TURN_S", 0.01)
    server.service.uploads = Uploads(server.store, at_once=1)
    path, content = blob(1, 12)

    async def one_too_many() -> tuple[int, dict[str, str], bytes]:
        async with server.service.uploads.turn():
            return await server.full("PUT", path, content)

    status, headers, answer = server.run(one_too_many())
    assert status == 429 and int(headers["retry-after"]) >= 1
    assert json.loads(answer)["error"]["retryable"]
    assert server.call("PUT", path, content)[0] == 201


def test_an_upload_that_stalls_is_given_up_and_its_turn_is_free_again(server, monkeypatch):
    monkeypatch.setattr(uploads, "STALLED_S", 0.01)
    server.service.uploads = Uploads(server.store, at_once=1)
    path, content = blob(1, 3 << 20)

    async def stalls() -> AsyncIterator[bytes]:
        yield content[: 2 << 20]
        await asyncio.sleep(3600)

    assert server.run(server.full("PUT", path, stalls()))[0] == 408
    assert server.call("PUT", path, cut(content))[0] == 201
    assert leftovers(server) == []


def test_an_upload_onto_a_full_disk_is_an_error_and_the_server_goes_on(server, monkeypatch):
    path, content = blob(1, 5 << 20)
    real = os.write
    written = 0

    def full(handle: int, data: bytes) -> int:
        nonlocal written
        written += len(data)
        if written > 2 << 20:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(handle, data)

    monkeypatch.setattr(uploads.os, "write", full)
    status, headers, answer = server.run(server.full("PUT", path, cut(content)))
    assert status == 507 and "retry-after" in headers
    assert json.loads(answer)["error"]["code"] == "store-full"
    monkeypatch.undo()
    assert leftovers(server) == []
    assert server.call("PUT", path, cut(content))[0] == 201


def test_a_sender_that_goes_away_leaves_nothing_behind(server):
    path, content = blob(1, 5 << 20)

    async def goes_away() -> None:
        async def pieces() -> AsyncIterator[bytes]:
            yield content[: 3 << 20]
            await asyncio.sleep(3600)

        sending = asyncio.create_task(server.full("PUT", path, pieces()))
        await asyncio.sleep(0.05)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)

    server.run(goes_away())
    assert leftovers(server) == []
