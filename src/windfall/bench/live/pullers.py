"""Simulated workers that run nothing: they exchange, report success and time the answers. Touches sockets.

A process of its own (`python -m windfall.bench.live.pullers`), so that another core than the server's makes the load.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
import time
from collections import deque

from windfall.wire import HOST_SECRET, VERSION, frames

CONNECTIONS = 50
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


class Connection:
    """One persistent HTTP connection that several pullers use in turn."""

    def __init__(self, host: str, port: int, token: str) -> None:
        self._address = (host, port)
        self._head = (
            f"POST /v1/exchange HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Type: {frames.CONTENT_TYPE}\r\n{HOST_SECRET}: "
        )

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(*self._address)

    async def post(self, body: bytes, secret: str) -> bytes:
        self._writer.write(f"{self._head}{secret}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        answer = await self._reader.readexactly(length)
        if b" 200 " not in head[:20]:
            raise RuntimeError(answer.decode(errors="replace"))
        return answer


async def pull(options: dict[str, object]) -> dict[str, object]:
    """Exchange for some seconds (or until there is nothing left) and return counts and latencies."""
    once = bool(options.get("once"))  # every worker exchanges once, however long that takes
    hosts, seconds, want = int(options["hosts"]), float(options["seconds"]), int(options["want"])  # type: ignore[call-overload, arg-type]
    first = int(options.get("from", 0))  # type: ignore[call-overload]
    resting = deque(Puller(first + number) for number in range(hosts))
    latencies: list[float] = []
    tasks = 0
    end = 0.0

    async def loop(connection: Connection, interval_s: float, offset_s: float) -> None:
        nonlocal tasks
        await asyncio.sleep(offset_s)
        due = time.perf_counter()
        while resting:  # one at least at the beginning: there are as many hosts as connections, or more
            puller = resting.popleft()
            began = time.perf_counter()
            answer = await connection.post(puller.request(want), puller.secret)
            tasks += puller.take(answer)
            if not once:
                resting.append(puller)
            latencies.append(time.perf_counter() - began)
            due = max(due + interval_s, time.perf_counter() - 1.0) if interval_s else time.perf_counter()
            if due >= end and not once:
                return
            if (pause := due - time.perf_counter()) > 0:
                await asyncio.sleep(pause)

    connections = [
        Connection(str(options["host"]), int(options["port"]), str(options["token"]))  # type: ignore[call-overload]
        for _ in range(min(CONNECTIONS, hosts))
    ]
    for connection in connections:
        await connection.open()
    rate = float(options.get("rate", 0))  # type: ignore[arg-type]
    interval_s = len(connections) / rate if rate else 0.0
    began = time.perf_counter()
    end = began + seconds
    # At a rate, one after the other: hosts do not ask all at the same moment.
    offset_s = interval_s / len(connections)
    await asyncio.gather(*(loop(each, interval_s, place * offset_s) for place, each in enumerate(connections)))
    latencies.sort()
    count = len(latencies)
    return {
        "exchanges": count,
        "seconds": time.perf_counter() - began,
        "tasks": tasks,
        "p50_ms": 1000 * latencies[count // 2],
        "p99_ms": 1000 * latencies[min(count - 1, int(count * 0.99))],
        "max_ms": 1000 * latencies[-1],
    }


def main() -> None:
    if "core" in (options := json.loads(sys.argv[1])):
        os.sched_setaffinity(0, {int(options["core"])})
    import uvloop

    try:
        print(json.dumps(uvloop.run(pull(options))))
    except KeyboardInterrupt:
        # Ctrl-C reaches every process of a bench; the one that was typed says so.
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
