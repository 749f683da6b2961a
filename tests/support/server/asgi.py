"""A server without sockets: its driver, its store and its application in this process, called as a connection would."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterable, Coroutine, Iterable
from pathlib import Path
from typing import Any, TypeVar

from tests.support.server.shapes import check_shape
from windfall.core.engine import Engine
from windfall.core.events import Settings
from windfall.core.state.invariants import problems
from windfall.core.state.snapshot import save
from windfall.drivers.realtime import Realtime
from windfall.server.http.app import Application
from windfall.server.http.submission import known_policies
from windfall.server.service import Service
from windfall.store import open_store
from windfall.store.contract import Store
from windfall.wire import HOST_SECRET, OLDEST, VERSION, WORKER_AGENT, frames

Json = dict[str, Any]
T = TypeVar("T")


class InProcess:
    """One server on one store, in a loop of its own. `with InProcess(tmp_path) as server: ...`"""

    def __init__(self, where: Path | str, store: Store | None = None) -> None:
        self._where = where
        self._given = store
        self._runner = asyncio.Runner()
        self.n: dict[str, int] = {}

    def __enter__(self) -> InProcess:
        self._runner.__enter__()
        self._runner.run(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self.driver.stop())
        self.store.close()
        self._runner.__exit__(None, None, None)

    async def _start(self) -> None:
        self.store = self._given or open_store(self._where)
        self.driver = Realtime(self.store, Engine(known_policies), Settings())
        self.driver.restore()
        self.service = Service(self.driver, self.store)
        await self.driver.start()
        self.application = Application(self.service)
        self.token = self.service.tokens.create("admin", "test", 0.0)

    # --- calling ---

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(coroutine)

    def call(self, method: str, path: str, body: bytes | Iterable[bytes] = b"") -> tuple[int, bytes]:
        """One request; its status and its body."""
        return self._runner.run(self.acall(method, path, body))

    async def acall(
        self, method: str, path: str, body: bytes | Iterable[bytes] | AsyncIterable[bytes] = b""
    ) -> tuple[int, bytes]:
        status, _, answer = await self.full(method, path, body)
        return status, answer

    async def full(
        self, method: str, path: str, body: bytes | Iterable[bytes] | AsyncIterable[bytes] = b"",
        headers: dict[str, str] | None = None,
    ) -> tuple[int, dict[str, str], bytes]:  # fmt: skip
        """Status, headers and body of one request; as a worker with the owner's token, unless headers are given."""
        own = {"authorization": f"Bearer {self.token}", "user-agent": WORKER_AGENT}
        given = own if headers is None else headers
        pieces = _pieces([body] if isinstance(body, bytes) else body)
        sent: list[Json] = []
        ended = False

        async def receive() -> Json:
            nonlocal ended
            async for piece in pieces:
                return {"type": "http.request", "body": piece, "more_body": True}
            if ended:
                # Nobody hangs up.
                await asyncio.get_running_loop().create_future()
            ended = True
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        bare, _, query = path.partition("?")
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": bare, "raw_path": bare.encode(), "query_string": query.encode(), "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in given.items()], "client": None,
            "server": ("test", 80),
        }  # fmt: skip
        await self.application(scope, receive, send)
        answered = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        told = b"".join(message.get("body", b"") for message in sent[1:])
        if 200 <= sent[0]["status"] < 300 and answered.get("content-type") == "application/json":
            check_shape(method, path, json.loads(told))
        return sent[0]["status"], answered, told

    def post(self, path: str, body: Any) -> tuple[int, Json]:
        status, answer = self.call("POST", path, json.dumps(body).encode())
        return status, json.loads(answer)

    def get(self, path: str) -> tuple[int, Json]:
        status, answer = self.call("GET", path)
        return status, json.loads(answer)

    def submit(self, count: int = 3, **spec: Any) -> int:
        """A job of `count` tasks; its number."""
        source = {"kind": "range", "first": 1, "last": count}
        whole = {"name": "bag", "command": ["echo", "{}"], "source": source, **spec}
        status, answer = self.post("/v1/jobs", {"spec": whole, "count": count, "seal": True})
        assert status == 201, answer
        return int(answer["job"])

    def exchange(
        self, host: str = "h", attachments: bytes = b"", headers: dict[str, str] | None = None, **changes: Any
    ) -> tuple[int, Json]:
        """The next exchange of a host; the answer's header, or the error."""
        self.n[host] = self.n.get(host, 0) + 1
        header = {
            "v": spoken(headers), "host": host, "boot": "b", "n": self.n[host], "want": 1, "slots": 1,
            "ad": {} if self.n[host] == 1 else None, **changes,
        }  # fmt: skip
        body = frames.join(json.dumps(header).encode(), [attachments])
        sent = {
            "authorization": f"Bearer {self.token}",
            **{name.lower(): each for name, each in (headers or {}).items()},
        }
        status, _, answer = self.run(self.full("POST", "/v1/exchange", body, sent))
        return status, json.loads(bytes(frames.split(answer)[0]) if status == 200 else answer)

    # --- what must hold ---

    def check(self) -> None:
        """It lives, its state is whole, and its log gives the same state again."""
        assert self.get("/healthz")[0] == 200 and not self.driver.trouble
        self._runner.run(self._settled())
        assert problems(self.driver.state) == []
        again = Realtime(self.store, Engine(known_policies), Settings())
        again.restore()
        assert save(again.state) == save(self.driver.state)

    async def _settled(self) -> None:
        await self.driver.settled()


def spoken(headers: dict[str, str] | None) -> int:
    """The version of the protocol of a host that shows these headers: from 2 on it shows a secret."""
    return VERSION if HOST_SECRET.lower() in {name.lower() for name in headers or ()} else OLDEST


async def _pieces(given: Iterable[bytes] | AsyncIterable[bytes]) -> AsyncIterable[bytes]:
    if isinstance(given, AsyncIterable):
        async for piece in given:
            yield piece
    else:
        for piece in given:
            yield piece
