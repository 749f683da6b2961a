"""A peer that sends too much, too slowly or nothing at all loses its connection, and nobody else theirs."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from windfall.server import connection
from windfall.server.limits import Limits
from windfall.server.web import WebServer

HEAD = b"POST / HTTP/1.1\r\nhost: x\r\n"


async def echo(scope, receive, send) -> None:
    """Answers with the length of the body; /large with 64 MB."""
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    body = b"x" * (64 << 20) if scope["path"] == "/large" else str(size).encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def served() -> AsyncIterator[int]:
    """A server of `echo`; its port."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = WebServer(echo)
    serving = asyncio.ensure_future(server.serve([listening]))
    try:
        yield listening.getsockname()[1]
    finally:
        server.leave()
        await serving


async def until_closed(*pieces: bytes) -> bytes:
    """What the server says to these pieces before it closes the connection."""
    async with served() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()


@pytest.fixture
def hasty(monkeypatch):
    monkeypatch.setattr(connection.Connection, "limits", Limits(head_time_s=0.05, pause_s=0.05))


@pytest.mark.parametrize(
    "pieces",
    [(), (b"POST",), (HEAD,), (HEAD + b"content-length: 10\r\n\r\n", b"half"), (b"GET / HTTP/1.1\r\n\r\n", b"GET /")],
    ids=["silent", "half a line", "half a head", "half a body", "half a second request"],
)
def test_a_request_that_is_never_finished_ends(hasty, pieces):
    said = asyncio.run(until_closed(*pieces))
    assert b"500" not in said


@pytest.mark.parametrize("piece", [b"x-y: " + b"y" * 10_000 + b"\r\n", b"y" * 10_000], ids=["many", "one"])
def test_endless_headers_are_refused_before_they_fill_the_memory(piece):
    first = HEAD if piece.endswith(b"\n") else HEAD + b"x-y: "
    said = asyncio.run(until_closed(first, *[piece] * 20))
    # The rest of what was sent may reset the connection before its answer is read.
    assert said == b"" or said.startswith(b"HTTP/1.1 400")


def test_an_answer_that_nobody_reads_ends(hasty, monkeypatch):
    ended = asyncio.Event()
    monkeypatch.setattr(connection.Connection, "connection_lost", lambda *_: ended.set())

    async def unread() -> None:
        async with served() as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
            writer.write(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n")
            await asyncio.wait_for(ended.wait(), 60)
            writer.close()

    asyncio.run(unread())


def test_bodies_in_pieces_and_requests_one_after_another_are_answered():
    async def talk() -> list[bytes]:
        async with served() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            said = []
            for size in (0, 10, 200_000):
                writer.write(HEAD + f"content-length: {size}\r\n\r\n".encode())
                for _ in range(2):
                    writer.write(b"z" * (size // 2))
                    await writer.drain()
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].split()[0])
                said.append(await reader.readexactly(length))
            writer.close()
            return said

    assert asyncio.run(talk()) == [b"0", b"10", b"200000"]
