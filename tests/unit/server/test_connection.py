"""A peer that sends too much, too slowly or nothing at all loses its connection, and nobody else theirs."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from starlette.responses import Response

from windfall.server import asking, connection
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


class Exchanging:
    """`echo`, and exchanges around ASGI: they say so, with what was in the body; some are refused."""

    def __call__(self, scope, receive, send):
        return echo(scope, receive, send)

    async def exchange(self, body: bytes, headers: dict[bytes, bytes]) -> bytes | Response:
        await asyncio.sleep(0)
        return Response(b"no", 409, media_type="text/plain") if b"refuse" in body else b"around " + body


@asynccontextmanager
async def served(app=echo) -> AsyncIterator[int]:
    """A server of an application; its port."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = WebServer(app)
    serving = asyncio.ensure_future(server.serve([listening]))
    try:
        yield listening.getsockname()[1]
    finally:
        server.leave()
        await serving


async def until_closed(*pieces: bytes, app=echo) -> bytes:
    """What the server says to these pieces before it closes the connection."""
    async with served(app) as port:
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
    monkeypatch.setattr(connection, "Limits", lambda: Limits(head_time_s=0.05, pause_s=0.05))


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
    assert said == b"" or said.startswith(b"HTTP/1.1 431 ")


def test_a_head_that_is_too_long_is_answered_431_with_what_to_do():
    said = asyncio.run(until_closed(HEAD + b"x-y: " + b"y" * 70_000))
    assert said.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n") and b"--limit head=SIZE" in said


@pytest.mark.parametrize("rest", [b"x-y: " + b"y" * 70_000 + b"\r\n", b"a:b\r\n" * 300], ids=["long", "many"])
def test_a_whole_head_is_bounded_in_bytes_and_headers_also_if_it_comes_in_one_piece(rest):
    said = asyncio.run(until_closed(HEAD + rest + b"\r\n"))
    assert said.startswith(b"HTTP/1.1 431 ") and b"in 256 headers" in said


def test_requests_that_wait_behind_one_that_is_not_answered_are_bounded_and_counted(monkeypatch):
    """13,000 of them are in one piece of data: without a token, 14 MB in memory for each connection."""
    shared: list[connection.Connections] = []
    real = connection.Connections.__init__

    def seen(self, *given) -> None:
        real(self, *given)
        shared.append(self)

    monkeypatch.setattr(connection.Connections, "__init__", seen)
    line = b"GET / HTTP/1.1\r\n\r\n"

    async def waits(scope, receive, send) -> None:
        await asyncio.Event().wait()

    async def talk() -> tuple[int, bytes, int]:
        async with served(waits) as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(line * (1 + connection.MOST_WAITING))
            while not shared[0].unknown_bytes:
                await asyncio.sleep(0.01)
            counted = shared[0].unknown_bytes
            other, others = await asyncio.open_connection("127.0.0.1", port)
            others.write(line * (2 + connection.MOST_WAITING))
            said = await other.read()
            others.close()
            writer.close()
        return counted, said, shared[0].unknown_bytes

    counted, said, at_last = asyncio.run(talk())
    assert counted == connection.MOST_WAITING * (connection.WAITING_BYTES + len(b"/"))
    assert said.startswith(b"HTTP/1.1 429 ")
    assert at_last == 0


@pytest.mark.parametrize("piece", [b"a: b\r\n" * 2000, b"y" * 10_000], ids=["many", "one"])
@pytest.mark.parametrize("chunk", [b"0\r\n", b"2;"], ids=["trailers", "extension"])
def test_endless_trailers_and_extensions_are_refused_before_they_fill_the_memory(chunk, piece):
    first = b"POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    said = asyncio.run(until_closed(first, chunk + b"x: ", *[piece] * 30))
    assert said == b"" or b"HTTP/1.1 4" in said


def test_a_body_in_chunks_of_one_byte_with_a_trailer_is_read():
    async def talk() -> bytes:
        async with served() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n")
            for _ in range(200):
                writer.write(b"1\r\nx\r\n" * 100)
                await writer.drain()
            writer.write(b"0\r\nx-sum: 7\r\n\r\n")
            said = await asyncio.wait_for(reader.read(), 60)
            writer.close()
            return said

    assert asyncio.run(talk()).startswith(b"HTTP/1.1 200")


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


def test_answers_that_nobody_reads_are_bounded_together_and_the_slowest_reader_ends_first(monkeypatch):
    monkeypatch.setattr(connection, "Limits", lambda: Limits(unread_bytes=150 << 20))
    made, ended = [], []
    real = connection.Connection.connection_lost
    monkeypatch.setattr(connection.Connection, "connection_lost", lambda own, why: (ended.append(own), real(own, why)))
    was_made = connection.Connection.connection_made
    monkeypatch.setattr(connection.Connection, "connection_made", lambda own, to: (made.append(own), was_made(own, to)))

    async def unread() -> int:
        writers = []
        async with served() as port:
            for number in range(4):
                _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
                writers.append(writer)
                writer.write(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n")
                while len(made) <= number or made[number].transport.get_write_buffer_size() < 1 << 20:
                    await asyncio.sleep(0.01)
            while len(ended) < 2:
                await asyncio.sleep(0.01)
            left = sum(one.transport.get_write_buffer_size() for one in made[2:])
            for writer in writers:
                writer.transport.abort()
            while len(ended) < 4:
                await asyncio.sleep(0.01)
            return left

    left = asyncio.run(asyncio.wait_for(unread(), 120))
    assert ended[:2] == made[:2] and left <= 150 << 20


def test_heads_of_all_connections_together_are_bounded_before_anybody_is_known(monkeypatch):
    monkeypatch.setattr(connection, "Limits", lambda: Limits(heads_bytes=100_000))

    async def many() -> tuple[list[bytes], bytes]:
        async with served(Exchanging()) as port:
            halves = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
            for number, (_, writer) in enumerate(halves):
                alone = b"POST /v1/exchange HTTP/1.1\r\nhost: x\r\ncontent-length: 50000\r\n\r\n"
                writer.write((alone if number % 2 else HEAD) + b"x-y: " + b"y" * 40_000)
                await writer.drain()
                await asyncio.sleep(0.05)
            refused = [await reader.read() for reader, _ in halves[2:]]
            for _, writer in halves:
                writer.close()
            while True:  # what they held is free again
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(HEAD + b"content-length: 0\r\nconnection: close\r\n\r\n")
                said = await reader.read()
                writer.close()
                if b" 200 " in said:
                    return refused, said

    refused, said = asyncio.run(asyncio.wait_for(many(), 60))
    assert all(one.startswith(b"HTTP/1.1 429 ") for one in refused) and said.endswith(b"0")


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


def test_requests_that_are_sent_ahead_are_answered_in_their_order():
    async def talk() -> bytes:
        async with served() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            sizes = range(1, 50)
            writer.write(b"".join(HEAD + f"content-length: {n}\r\n\r\n".encode() + b"z" * n for n in sizes))
            writer.write(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            said = await reader.read()
            writer.close()
            return said

    answers = asyncio.run(talk()).split(b"\r\n\r\n")[1:]
    assert [answer.partition(b"HTTP/1.1")[0] for answer in answers] == [b"%d" % n for n in (*range(1, 50), 0)]


@pytest.mark.parametrize(
    ("request_", "first"),
    [
        (b"HEAD / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", b"HTTP/1.1 200 OK"),
        (b"GET / HTTP/1.0\r\n\r\n", b"HTTP/1.1 200 OK"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"HTTP/1.1 400 Bad Request"),
        (b"GET /\xff HTTP/1.1\r\nhost: x\r\n\r\n", b"HTTP/1.1 400 Bad Request"),
        (b"GET / HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n", b"HTTP/1.1 200 OK"),
        (HEAD + b"expect: 100-continue\r\ncontent-length: 1\r\nconnection: close\r\n\r\nx", b"HTTP/1.1 100 Continue"),
        (HEAD + b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n2\r\nab\r\n0\r\n\r\n", b"HTTP/1.1 200 OK"),
        (HEAD + b"transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n", b"HTTP/1.1 400 Bad Request"),
    ],
    ids=["head", "old", "http2", "bytes", "upgrade", "expect", "chunked", "smuggled"],
)
def test_each_way_to_ask_is_answered_and_closed(request_, first):
    said = asyncio.run(until_closed(request_))
    assert said.startswith(first + b"\r\n"), said
    if request_.startswith(b"HEAD"):
        assert said.endswith(b"\r\n\r\n")
    if b"chunked" in request_ and b"200" in said:
        assert said.endswith(b"\r\n\r\n2")


async def answer_wrongly(scope, receive, send) -> None:
    """What no application should do."""
    if scope["path"] == "/dies":
        raise ValueError("oh")
    if scope["path"] == "/pieces":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for piece in (b"one", b"", b"two"):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body"})
    if scope["path"] == "/short":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})
        await send({"type": "http.response.body", "body": b"123"})
    if scope["path"] == "/lines":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x", b"a\r\nset-cookie: b")]})
        await send({"type": "http.response.body"})


@pytest.mark.parametrize(
    ("path", "begins", "ends"),
    [
        ("/dies", b"HTTP/1.1 500 ", b"Internal Server Error"),
        ("/silent", b"HTTP/1.1 500 ", b"Internal Server Error"),
        ("/pieces", b"HTTP/1.1 200 ", b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"),
        ("/short", b"", b""),
        ("/lines", b"", b""),
    ],
)
def test_an_application_that_errs_never_leaves_a_peer_with_half_an_answer_that_looks_whole(path, begins, ends):
    async def ask() -> bytes:
        async with served(answer_wrongly) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
            said = await reader.read()
            writer.close()
            return said

    said = asyncio.run(ask())
    assert said.startswith(begins) and said.endswith(ends)
    assert begins or said == b""


def request(body: bytes, *lines: bytes, path: bytes = b"/v1/exchange") -> bytes:
    first = b"POST " + path + b" HTTP/1.1"
    return b"\r\n".join([first, b"host: x", b"content-length: %d" % len(body), *lines, b"", body])


LAST = request(b"", b"connection: close", path=b"/")


def bodies(said: bytes) -> list[tuple[int, bytes]]:
    """Status and body of each answer on a connection."""
    found = []
    while said:
        head, _, rest = said.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split()[0])
        assert b"date: " in head
        found.append((int(head.split()[1]), rest[:length]))
        said = rest[length:]
    return found


def test_exchanges_go_around_asgi_and_others_through_it_in_the_order_in_which_they_came():
    pieces = [request(b"one"), request(b"refuse"), request(b"", path=b"/"), request(b"two"), LAST]
    found = bodies(asyncio.run(until_closed(b"".join(pieces), app=Exchanging())))
    # What comes while another is answered waits, and goes through ASGI.
    assert [status for status, _ in found] == [200] * 5
    assert found[0][1] == b"around one"
    assert [body for _, body in found[1:]] == [b"6", b"0", b"3", b"0"]


def test_exchanges_one_after_another_go_around_asgi_and_errors_are_told():
    async def talk() -> bytes:
        async with served(Exchanging()) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            said = b""
            for body in (b"one", b"refuse", b"two"):
                piece = request(body)
                for part in (piece[:30], piece[30:-1], piece[-1:]):
                    writer.write(part)
                    await writer.drain()
                    await asyncio.sleep(0)
                head = await reader.readuntil(b"\r\n\r\n")
                said += head + await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split()[0]))
            writer.write(request(b"last", b"connection: close"))
            said += await reader.read()
            writer.close()
            return said

    assert bodies(asyncio.run(talk())) == [
        (200, b"around one"), (409, b"no"), (200, b"around two"), (200, b"around last"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "piece",
    [
        request(b"x" * (asking.SMALL_BYTES + 1)),
        b"POST /v1/exchange HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
        request(b"x").replace(b"POST", b"PUT"),
        request(b"x", path=b"/v1/exchange?x"),
    ],
    ids=["large", "chunked", "another method", "with a query"],
)
def test_other_exchanges_go_through_asgi(piece):
    (_, body), _ = bodies(asyncio.run(until_closed(piece + LAST, app=Exchanging())))
    assert body.isdigit()


def test_a_connection_is_closed_when_nothing_has_been_asked_for_long(monkeypatch):
    monkeypatch.setattr(connection, "IDLE_PATIENCE_S", 0.05)
    said = asyncio.run(until_closed(request(b"one"), app=Exchanging()))
    assert bodies(said) == [(200, b"around one")]
