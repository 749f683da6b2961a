"""`windfall bench console`: what the console's pages cost the server, of a job with a million tasks.

The server runs in this process, without sockets; its job is a million tasks of which nine in ten have ended, on 1,000
hosts. The floor is the same page of a job with ten tasks. Touches: the clock, a temporary directory, the terminal.
"""

from __future__ import annotations

import json
import tempfile
import time
from typing import Any

import click

from windfall.bench.harness import report, run_loop

GOAL_S = 1.0
MACHINES = 200
"""Rented for the job, and for the one of ten tasks."""
PAGES = {
    "overview": ["/v1/jobs?limit=50", "/v1/pools", "/healthz", "/v1/hosts?limit=0"],
    "job": ["/v1/jobs/{job}", "/v1/jobs/{job}/pictures", "/v1/jobs/{job}/groups", "/v1/jobs/{job}/pools",
            "/v1/jobs/{job}/explain"],
    "tasks": ["/v1/jobs/{job}", "/v1/jobs/{job}/tasks?limit=100&after={middle}"],
    "failed tasks": ["/v1/jobs/{job}", "/v1/jobs/{job}/tasks?limit=100&state=failed"],
    "task": ["/v1/jobs/{job}/explain?task={middle}", "/v1/jobs/{job}/tasks?after={middle}&limit=2"],
    "hosts": ["/v1/hosts?limit=100"],
    "policies": ["/v1/jobs?limit=50", "/v1/jobs/{job}/explain"],
    "pools": ["/v1/pools"],
    "machines": ["/v1/machines?limit=200", "/v1/machines/pictures"],
    "fleets": ["/v1/fleets", "/v1/sites", "/v1/volunteers"],
    "money": ["/v1/bills"],
    "decisions": ["/v1/decisions?limit=25&acted=1"],
    "plan": ["/v1/jobs?limit=50", "/v1/machines?there=1&limit=0"],
    "system": ["/v1/system"],
}  # fmt: skip
"""What each page asks for."""


class Server:
    """A server without sockets."""

    def __init__(self, folder: str) -> None:
        from windfall.core.engine import Engine
        from windfall.core.events import Settings
        from windfall.drivers.realtime import Realtime
        from windfall.server.http.app import Application
        from windfall.server.http.submission import known_policies
        from windfall.server.service import Service
        from windfall.store import open_store

        self.store = open_store(folder)
        self.driver = Realtime(self.store, Engine(known_policies), Settings())
        self.driver.restore()
        self.service = Service(self.driver, self.store)
        self.application = Application(self.service)
        token = self.service.tokens.create("admin", "bench", 0.0)
        self.headers = [(b"authorization", f"Bearer {token}".encode())]

    async def ask(self, method: str, path: str, body: bytes = b"") -> bytes:
        bare, _, query = path.partition("?")
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": bare, "raw_path": bare.encode(), "query_string": query.encode(), "root_path": "",
            "headers": self.headers, "client": None, "server": ("bench", 80),
        }  # fmt: skip
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.application(scope, receive, send)
        assert sent[0]["status"] < 300, (path, sent)
        return b"".join(message.get("body", b"") for message in sent[1:])

    async def submit(self, tasks: int, hosts: int) -> int:
        """A job of which nine in ten tasks have ended. Its columns are written as results would have left them."""
        import numpy as np

        from windfall.core.events import HostAsked
        from windfall.core.state.jobs.columns import DONE, FAILED, WAITING

        source = {"kind": "range", "first": 1, "last": tasks}
        spec = {"name": "bag", "command": ["true", "{}"], "source": source}
        body = json.dumps({"spec": spec, "count": tasks, "seal": True}).encode()
        job = int(json.loads(await self.ask("POST", "/v1/jobs", body))["job"])
        now = self.driver.clock()
        for number in range(hosts):
            await self.driver.submit([HostAsked(now, f"host-{job}-{number}", "b", 1, 0, 1, {"slots": 1})])
        bag = self.service.state.bags[job]
        columns, ended = bag.columns, tasks * 9 // 10
        random = np.random.default_rng(1)
        start = now + random.uniform(0, 3600, ended)
        states = np.where(np.arange(ended) % 1000 == 7, FAILED, DONE)
        numbers: dict[str, Any] = {
            "state": states, "attempts": 1, "attempt": 1,
            "host": random.integers(1, hosts + 1, ended), "start": start,
            "end": start + random.gamma(2, 10, ended),
        }  # fmt: skip
        for name, values in numbers.items():
            column = getattr(columns, name)
            np.frombuffer(column, column.typecode)[:ended] = values
        failed = int(np.count_nonzero(states == FAILED))
        bag.counts[WAITING] -= ended
        bag.counts[DONE] += ended - failed
        bag.counts[FAILED] += failed
        self._rent(job, min(hosts, MACHINES), now)
        return job

    def _rent(self, job: int, count: int, now: float) -> None:
        """The first hosts of a job are machines that were rented for it."""
        from windfall.core.state.renting.fleet import MachineState
        from windfall.planning.offers import Offer

        offer = Offer(name="small", pool="cloud", price_usd=0.1, cores=2, cycle_s=3600.0, lag_s=60.0)
        fleet = self.service.state.fleet
        for number in range(1, count + 1):
            machine = MachineState(fleet.next, job, offer, now)
            machine.id, machine.ready_t, machine.host = f"i-{machine.number}", now, number
            fleet.add(machine)


async def measure(tasks: int, hosts: int, rounds: int) -> dict[str, dict[str, float]]:
    """Of each page the least processor seconds of several rounds, for the large job and for one of ten tasks."""
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        server = Server(folder)
        await server.driver.start()
        try:
            await _measure(server, tasks, hosts, rounds, found)
        finally:
            await server.driver.stop()
            server.store.close()
    return found


async def _measure(server: Server, tasks: int, hosts: int, rounds: int, found: dict[str, dict[str, float]]) -> None:
    jobs = {"large": (await server.submit(tasks, hosts), tasks), "small": (await server.submit(10, hosts), 10)}
    for page, paths in PAGES.items():
        for _ in range(rounds):
            for size, (job, count) in jobs.items():
                server.service.drawn.clear()
                began = time.process_time()
                for path in paths:
                    await server.ask("GET", path.format(job=job, middle=count // 2))
                taken = time.process_time() - began
                best = found.setdefault(page, {})
                best[size] = min(best.get(size, taken), taken)


@click.command()
@click.option("--tasks", type=click.IntRange(10), default=1_000_000, show_default=True)
@click.option("--hosts", type=click.IntRange(1), default=1000, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.pass_context
def command(ctx: click.Context, tasks: int, hosts: int, rounds: int, as_json: bool) -> None:
    """Processor time of the server for each page of the console, of a million tasks (goal: one second).

    \b
    Examples:
      windfall bench console
      windfall bench console --tasks 100000 --rounds 1
    """
    found = run_loop(measure(tasks, hosts, rounds))
    document: dict[str, Any] = {"tasks": tasks, "hosts": hosts}
    for page, times in found.items():
        document[f"{page}, ms"] = 1e3 * times["large"]
        document[f"{page}, ten tasks, ms"] = 1e3 * times["small"]
    worst = max(times["large"] for times in found.values())
    report({**document, "slowest_s": worst, "goal_s": GOAL_S, "met": worst <= GOAL_S}, as_json)
    ctx.exit(0 if worst <= GOAL_S else 1)
