"""Simulated workers that run nothing: they exchange, report success and time the answers. Touches sockets.

A process of its own (`python -m windfall.bench.live.pullers`), so that another core than the server's makes the load.
It reads the parts of a benchmark from its input, one line of JSON each, and writes a line with what it saw of each.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
import time
from collections import deque
from typing import Any

from windfall.wire import HOST_SECRET, VERSION, frames

CONNECTIONS = 50
EXCHANGE = b"POST /v1/exchange HTTP/1.1\r\n"
BARE = b"GET /healthz HTTP/1.1\r\n"
"""Of the requests that cost a server least. They are sent with the head and body of an exchange."""
LENGTH = b"content-length: "
BOOT = secrets.token_hex(4)
"""Of every worker of this process: a part of a benchmark that follows another is a restart of the same hosts."""


class Puller:
    """One simulated worker. Its name belongs to its secret, so a later process may go on under the same name."""

    def __init__(self, number: int) -> None:
        self.name = f"puller-{number}"
        self.secret = f"secret of {self.name}"
        self.n = 0
        self.boot = BOOT
        self.results: list[list[object]] = []

    def request(self, want: int) -> bytes:
        self.n += 1
        ad = {"memory_mb": 4096, "cpus": 1, "os": "linux", "pool": "bench"} if self.n == 1 else None
        header = {
            "v": VERSION, "host": self.name, "boot": self.boot, "n": self.n, "ad": ad, "want": want, "slots": 1,
            "wait_s": 0, "results": self.results, "held": 0,
        }  # fmt: skip
        return frames.join(json.dumps(header).encode(), [])

    def take(self, body: bytes) -> int:
        header, _ = frames.split(body)
        tasks = json.loads(bytes(header))["tasks"]
        self.results = [[j, t, a, "done", 0, 0.0, 0.001, 0.0, 0, 0, 0, 0, None] for j, t, a, *_ in tasks]
        return len(tasks)


def _example() -> bytes:
    """An exchange as most are: one result, one task wanted."""
    puller = Puller(12_345)
    puller.n, puller.results = 1, [[1, 123_456, 1, "done", 0, 0.0, 0.001, 0.0, 0, 0, 0, 0, None]]
    return puller.request(1)


BODY = _example()


class Connection(asyncio.Protocol):
    """One persistent HTTP connection that several pullers use in turn. Cheaper than streams: the server is to be the
    one that has no time left."""

    def __init__(self) -> None:
        self._read = b""
        self._answer: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._write = transport.write  # type: ignore[attr-defined]

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        self._read += data
        head_bytes = self._read.find(b"\r\n\r\n") + 4
        if head_bytes < 4 or self._answer is None:
            return
        at = self._read.index(LENGTH) + len(LENGTH)
        if len(self._read) < head_bytes + int(self._read[at : self._read.index(b"\r", at)]):
            return
        head, body, self._read = self._read[:head_bytes], self._read[head_bytes:], b""
        if b" 200 " in head[:20]:
            self._answer.set_result(body)
        else:
            self._answer.set_exception(RuntimeError(body.decode(errors="replace")))

    def ask(self, line: bytes, heads: bytes, secret: str, body: bytes) -> asyncio.Future[bytes]:
        """Send a request; its answer comes with the future."""
        self._answer = asyncio.get_running_loop().create_future()
        self._write(b"%b%b%b\r\nContent-Length: %d\r\n\r\n%b" % (line, heads, secret.encode(), len(body), body))
        return self._answer


class Pullers:
    """The simulated workers of one process and their connections."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._address = (str(options["host"]), int(options["port"]))
        self._resting = deque(Puller(number) for number in range(int(options["hosts"])))
        self._connections: list[Connection] = []
        self._heads = (
            f"Host: {options['host']}\r\nAuthorization: Bearer {options['token']}\r\n"
            f"Content-Type: {frames.CONTENT_TYPE}\r\n{HOST_SECRET}: "
        ).encode()

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(min(CONNECTIONS, len(self._resting))):
            _, connection = await loop.create_connection(Connection, *self._address)
            self._connections.append(connection)

    async def part(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """Ask for some seconds, or once with every worker, and return counts and latencies.

        `bare`: requests that the server only has to read and answer, with the head and body of an exchange. At a `rate`
        a latency counts from when the exchange was due: one that waits for a slow one before it has waited, too.
        """
        bare, once, want = bool(wanted.get("bare")), bool(wanted.get("once")), int(wanted.get("want", 0))
        rate = float(wanted.get("rate", 0))
        interval_s = len(self._connections) / rate if rate else 0.0
        latencies: list[float] = []
        tasks = 0
        began = time.perf_counter()
        end = began + float(wanted["seconds"])

        async def loop(connection: Connection, offset_s: float) -> None:
            nonlocal tasks
            await asyncio.sleep(offset_s)
            due = time.perf_counter()
            while self._resting:  # one at least at the beginning: there are as many hosts as connections, or more
                puller = self._resting.popleft()
                since = due if interval_s else time.perf_counter()
                if bare:
                    await connection.ask(BARE, self._heads, puller.secret, BODY)
                else:
                    answer = await connection.ask(EXCHANGE, self._heads, puller.secret, puller.request(want))
                    tasks += puller.take(answer)
                (asked_once if once else self._resting).append(puller)
                latencies.append(time.perf_counter() - since)
                due = max(due + interval_s, time.perf_counter() - 1.0) if interval_s else time.perf_counter()
                if due >= end and not once:
                    return
                if (pause := due - time.perf_counter()) > 0:
                    await asyncio.sleep(pause)

        async def stay_awake() -> None:
            """Never wait for the socket: to wake a client is work of the server that has nothing to do with it, and
            whether a client sleeps between two answers depends on how fast they come."""
            while True:
                await asyncio.sleep(0)

        asked_once: deque[Puller] = deque()
        awake = None if rate else asyncio.create_task(stay_awake())
        # At a rate, one after the other: hosts do not ask all at the same moment.
        offset_s = interval_s / len(self._connections)
        await asyncio.gather(*(loop(each, place * offset_s) for place, each in enumerate(self._connections)))
        if awake is not None:
            awake.cancel()
        self._resting.extend(asked_once)
        latencies.sort()
        count = len(latencies)
        return {
            "exchanges": count,
            "seconds": time.perf_counter() - began,
            "tasks": tasks,
            "p50_ms": 1000 * latencies[count // 2],
            "p99_ms": 1000 * latencies[min(count - 1, int(count * 0.99))],
            "max_ms": 1000 * latencies[-1],
            "latencies_ms": [1000 * each for each in latencies] if wanted.get("each") else [],
        }


async def pull(options: dict[str, Any]) -> None:
    """Do the parts that are asked for on the standard input, one after the other."""
    pullers = Pullers(options)
    await pullers.open()
    for line in sys.stdin:
        print(json.dumps(await pullers.part(json.loads(line))), flush=True)


def main() -> None:
    if "core" in (options := json.loads(sys.argv[1])):
        os.sched_setaffinity(0, {int(options["core"])})
    import uvloop

    uvloop.run(pull(options))


if __name__ == "__main__":
    main()
