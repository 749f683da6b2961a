"""Spoilt requests over real sockets, with the tokens of a worker and of a user: the server lives, and its log replays.

`test_messages` spoils messages inside of well-formed requests. Here HTTP itself is spoilt as well: bytes, lengths,
ends, several requests in one write, and bodies in chunks.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from hashlib import sha256
from random import Random
from typing import Any

import pytest

from tests.support.server.asgi import InProcess
from windfall.server import connection
from windfall.server.limits import Limits
from windfall.server.web import WebServer
from windfall.wire import HOST_SECRET, OLDEST, VERSION, frames
from windfall.wire.messages import BAD_TASK, CAUSES

REQUESTS, CONNECTIONS = 60, 12
ANSWER_S = 60.0
LAST = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
ODD: list[Any] = [
    None, True, -1, 0, 255, 65_536, 2**31, 2**53 + 1, 2**63, 2**64, 10**30, 0.5, -0.0, 1e300, 5e-324, "", "a", "\x00",
    "é", "x" * 300, "last", "2h", "$x", "{}", "../..", "0" * 64, [], {}, [[]], {"a": {"a": []}},
]  # fmt: skip


class Spoiler:
    """Requests that are right but for something odd, always the same ones of one seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.n = 0

    def message(self, body: Any) -> bytes:
        """A JSON body with up to two odd values, and sometimes with odd bytes."""
        for _ in range(self.random.choice((0, 0, 1, 1, 2))):
            at = body
            while at:
                key = self.random.choice(sorted(at)) if isinstance(at, dict) else self.random.randrange(len(at))
                if isinstance(at[key], (dict, list)) and at[key] and self.random.random() < 0.7:
                    at = at[key]
                    continue
                at[key] = deepcopy(self.random.choice(ODD))
                break
        return self.bytes(json.dumps(body).encode())

    def bytes(self, data: bytes) -> bytes:
        if not data or self.random.random() < 0.85:
            return data
        at = self.random.randrange(len(data))
        spoilt = (
            data[:at],
            data[:at] + b"\xff" + data[at + 1 :],
            data[:at] + data[at // 2 :],
            b"[" * 2000,
            data + data,
        )
        return self.random.choice(spoilt)

    def exchange(self) -> bytes:
        pick = self.random.choice
        self.n += 1
        results = [
            [1, pick(range(5)), pick((1, 2)), pick([cause for cause in CAUSES if cause != BAD_TASK]), 0, 0.0, 1.0, 0.5,
             0, 2, 0, 0, pick((None, {"text": "x"}))]
            for _ in range(pick((0, 0, 1, 3)))
        ]  # fmt: skip
        ad = {"cpus": 2, "memory_mb": 4096, "pool": "p", "speed": 1.0, "tags": {"a": "b"}, "round_trip_s": 1.0}
        header = {
            "v": pick((OLDEST, VERSION)), "host": pick("hij"), "boot": pick("bbbc"),
            "n": pick((self.n, self.n, self.n - 1)), "want": pick((0, 1, 3)), "slots": pick((1, 2)),
            "ad": pick((None, ad)), "results": results, "wait_s": 0, "room": pick((0, 2)),
            "holds": pick((None, None, [[1, 0, 1]])), "leaving": pick((None, None, None, "idle")),
        }  # fmt: skip
        attachments = b"ok" * len(results) + pick((b"", b"", b"z"))
        return self.bytes(frames.join(self.message(header), [attachments]))

    def request(self, tokens: dict[str, str]) -> bytes:
        """One request of any kind, as bytes of HTTP."""
        pick = self.random.choice
        kind = pick(("exchange", "exchange", "exchange", "jobs", "retry", "change", "cancel", "upload"))
        role, method, path = "submit", "POST", f"/v1/jobs/1/{kind}"
        if kind == "exchange":
            role, path, body = "worker", "/v1/exchange", self.exchange()
        elif kind == "upload":
            content = b"a file %d" % pick(range(9))
            role, method = pick(("worker", "submit")), "PUT"
            path, body = f"/v1/blobs/{sha256(content).hexdigest()}", self.bytes(content)
        elif kind == "jobs":
            source = {"kind": "range", "first": 1, "last": 3}
            spec = {"name": "bag", "command": ["echo", "{}"], "source": source, "cpus": 1, "tags": {"a": "b"}}
            path, body = "/v1/jobs", self.message({"spec": spec, "count": 3, "seal": pick((True, False))})
        elif kind == "change":
            body = self.message({"priority": 1, "policies": {"Rank": "Host.Memory"}, "budget_usd": 1})
        else:
            body = self.message({"tasks": [pick(range(4))]})
        return self.http(method, path, pick((tokens[role],) * 9 + (tokens["read"],)), body)

    def http(self, method: str, path: str, token: str, body: bytes) -> bytes:
        """The bytes of a request; one in six is spoilt in its head."""
        lines = [f"{method} {path} HTTP/1.1", "host: x", f"authorization: Bearer {token}"]
        chunked = self.random.random() < 0.1
        if chunked:
            lines.append("transfer-encoding: chunked")
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
        else:
            lines.append(f"content-length: {len(body)}")
        if self.random.random() < 0.17:
            place = self.random.randrange(len(lines))
            odd = ("content-length: 7", "content-length: -1", "x: " + "y" * 9000, "expect: 100-continue", "\x00",
                   "upgrade: websocket", "connection: close", "authorization: Bearer x", lines[place][:-3])  # fmt: skip
            lines[place] = self.random.choice(odd)
        lines.append(f"{HOST_SECRET}: of all of them")  # else a host with another boot has to wait
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@asynccontextmanager
async def listening(server: InProcess) -> AsyncIterator[int]:
    sock = socket.create_server(("127.0.0.1", 0))
    web = WebServer(server.application)
    serving = asyncio.ensure_future(web.serve([sock]))
    try:
        yield sock.getsockname()[1]
    finally:
        web.leave()
        await serving


async def talk(port: int, pieces: list[bytes], hangs_up: bool) -> Counter[int]:
    """Send pieces over one connection, hang up or wait for the end, and count the statuses of what is answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    said = b""
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        if hangs_up:
            writer.write_eof()
        said = await asyncio.wait_for(reader.read(), ANSWER_S)
    except ConnectionError:
        pass  # refused before all was read
    finally:
        writer.close()
    return Counter(int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) [A-Z]", said))


@pytest.mark.parametrize("seed", range(20))
def test_no_request_breaks_the_server_or_its_log(seed, caplog, monkeypatch):
    caplog.set_level(logging.ERROR)
    # A length that is too long makes the server wait for the rest of a body.
    monkeypatch.setattr(connection, "Limits", lambda: Limits(pause_s=3.0))
    spoiler = Spoiler(seed)

    async def batch(server: InProcess, tokens: dict[str, str]) -> Counter[int]:
        found: Counter[int] = Counter()
        async with listening(server) as port:
            connections = []
            for _ in range(CONNECTIONS):
                whole = [spoiler.request(tokens) for _ in range(spoiler.random.randrange(1, REQUESTS // CONNECTIONS))]
                pieces = whole if spoiler.random.random() < 0.5 else [b"".join(whole)]
                cut = spoiler.random.random() < 0.15
                if cut:
                    pieces[-1] = pieces[-1][: spoiler.random.randrange(len(pieces[-1]))]
                connections.append(talk(port, pieces if cut else [*pieces, LAST], cut))
            for one in await asyncio.gather(*connections):
                found += one
        return found

    statuses: Counter[int] = Counter()
    with InProcess("memory:") as server:
        server.submit(5, max_failures=1000)
        tokens = {role: server.service.tokens.create(role, "fuzz", 0.0) for role in ("worker", "submit", "read")}
        for _ in range(6):
            statuses += server.run(batch(server, tokens))
            assert not [status for status in statuses if status >= 500], statuses
            assert server.driver.failure is None
            server.check()
    assert not caplog.records, caplog.text
    # Spoilt, but not beyond recognition: much of it was carried out.
    assert statuses[200] + statuses[201] > 20 and statuses[400] > 20, statuses
