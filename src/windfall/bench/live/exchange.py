"""`windfall bench exchange`: thousands of simulated workers over real HTTP, on another core than the server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import click

from windfall.bench.harness import Live, live, report, show, thread_cpu_s
from windfall.errors import WindfallError

TURN_S, PAUSE_S = 0.25, 0.025
"""Seconds of exchanges, and then of bare requests; and before each: at real-time priority a processor that is busy for
0.95 of a second is taken away."""
SNAPSHOTS, SNAPSHOTS_WITHIN_S, SLICE_S = 2, 60.0, 0.5
"""Snapshots to wait for at a given rate, and for how long; between slices the server is asked whether one is under
way."""


class Load:
    """Simulated workers in a process of their own, on another core than the server's if there is one."""

    def __init__(self, running: Live, hosts: int) -> None:
        address = urlsplit(running.url)
        options = {"host": address.hostname, "port": address.port, "token": running.token, "hosts": hosts}
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) > 1:
            options["core"] = cores[-1]
        command = [sys.executable, "-m", "windfall.bench.live.pullers", json.dumps(options)]
        pipe = subprocess.PIPE
        # Ctrl-C is for the benchmark, which ends them.
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, process_group=0)

    def part(self, **wanted: Any) -> dict[str, Any]:
        """Have them exchange, and return what they saw."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(wanted) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise WindfallError("the simulated workers have ended")
        seen: dict[str, Any] = json.loads(line)
        return seen

    def __enter__(self) -> Load:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._process.kill()
        self._process.communicate()


def pull(running: Live, hosts: int, **wanted: Any) -> dict[str, Any]:
    """What simulated workers see that exchange in this one way."""
    with Load(running, hosts) as load:
        return load.part(**wanted)


@click.command()
@click.option("--hosts", default=25_000, show_default=True, help="Simulated workers.")
@click.option("--seconds", default=10.0, show_default=True, help="How long each of the two parts lasts.")
@click.option("--rate", default=2000.0, show_default=True, help="Exchanges a second of the second part.")
@click.option("--snapshots", is_flag=True, help="Go on at this rate until two snapshots were taken; a minute at most.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(hosts: int, seconds: float, rate: float, snapshots: bool, as_json: bool) -> None:
    """Exchange as fast as the server answers, then at a given rate for its latency.

    Turns of exchanges alternate with turns of bare requests; the median of their ratios is told. With --snapshots also
    how long exchanges take while the server writes a snapshot of a job of two million tasks.

    \b
    Example:
      windfall bench exchange --hosts 25000 --seconds 10 --json
      windfall bench exchange --hosts 300 --snapshots
    """
    with live() as running:
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) > 1:
            keep_on(running.server.pid, cores[0])
        client = running.client()
        client.submit(["true"], params=range(2_000_000))
        client.close()
        with Load(running, hosts) as load:
            show("every host joins")
            load.part(seconds=0, once=True)
            show("as fast as it goes")
            turns = [by_turns(running, load) for _ in range(1 + max(1, round(seconds / (2 * TURN_S))))][1:]
            show(f"{rate:,.0f} a second")
            steady = load.part(seconds=seconds, want=1, rate=rate)
            document = told(hosts, rate, turns, steady)
            if snapshots:
                document |= quantiles(*beside_snapshots(running, load, rate))
        show("")
        report(document | {"server_mb": running.resident_bytes() / 1e6}, as_json)


def beside_snapshots(running: Live, load: Load, rate: float) -> tuple[list[float], list[float], int]:
    """Milliseconds from when exchanges were due to their answers: with no snapshot under way, and beside one; and how
    many snapshots there were."""
    alone: list[float] = []
    beside: list[float] = []
    taken, was_under_way, before = 0, False, _behind(running)[0]
    until_s = time.monotonic() + SNAPSHOTS_WITHIN_S
    while (taken < SNAPSHOTS or was_under_way) and time.monotonic() < until_s:
        show(f"{rate:,.0f} a second, {taken} of {SNAPSHOTS} snapshots")
        seen = load.part(seconds=SLICE_S, want=1, rate=rate, each=True)
        behind, is_under_way = _behind(running)
        # Fewer records than before lie behind the newest snapshot: one began, and has perhaps ended already.
        began = behind < before
        (beside if began or was_under_way or is_under_way else alone).extend(seen["latencies_ms"])
        taken, was_under_way, before = taken + began, is_under_way, behind
    return alone, beside, taken


def _behind(running: Live) -> tuple[int, bool]:
    """Records behind the newest snapshot, and whether one is being written."""
    with running.client() as client:
        system = client.transport.get("/v1/system")
    return system["records_behind_snapshot"], system["takes_snapshot"]


def quantiles(alone: list[float], beside: list[float], taken: int) -> dict[str, Any]:
    """What half, 99 % and 99.9 % of the exchanges took at most, with no snapshot under way and beside one."""
    found: dict[str, Any] = {"snapshots": taken}
    for name, waits_ms in (("alone", sorted(alone)), ("beside_snapshot", sorted(beside))):
        found[f"exchanges_{name}"] = count = len(waits_ms)
        for share in (0.5, 0.99, 0.999) if count else ():
            found[f"p{100 * share:g}_ms_{name}"] = waits_ms[min(count - 1, int(count * share))]
    return found


class Turn(NamedTuple):
    """A turn of exchanges and one of bare requests: what the workers saw, and the server's processor time of each."""

    fast: dict[str, Any]
    bare: dict[str, Any]
    exchange_us: float
    bare_us: float


def by_turns(running: Live, load: Load) -> Turn:
    fast, exchange_us = _measured(running, load, want=1)
    bare, bare_us = _measured(running, load, bare=True)
    return Turn(fast, bare, exchange_us, bare_us)


def _measured(running: Live, load: Load, **wanted: Any) -> tuple[dict[str, Any], float]:
    """What the workers saw in one turn, and the server's processor time of a request."""
    time.sleep(PAUSE_S)
    began_s = thread_cpu_s(running.server.pid)
    seen = load.part(seconds=TURN_S, **wanted)
    return seen, 1e6 * (thread_cpu_s(running.server.pid) - began_s) / seen["exchanges"]


def told(hosts: int, rate: float, turns: list[Turn], steady: dict[str, Any]) -> dict[str, Any]:
    """The medians of the turns, and how the server kept up with the given rate."""
    rates = [turn.fast["exchanges"] / turn.fast["seconds"] for turn in turns]
    floors = [turn.bare["exchanges"] / turn.bare["seconds"] for turn in turns]
    ratios = [turn.bare_us / turn.exchange_us for turn in turns]
    return {
        "bench": "exchange",
        "hosts": hosts,
        "turns": len(turns),
        "exchanges_per_s": median(rates),
        "tasks_per_s": median(turn.fast["tasks"] / turn.fast["seconds"] for turn in turns),
        "p99_ms_at_full_speed": median(turn.fast["p99_ms"] for turn in turns),
        "rate_asked": rate,
        "rate_kept": steady["exchanges"] / steady["seconds"],
        "p50_ms": steady["p50_ms"],
        "p99_ms": steady["p99_ms"],
        "floor_requests_per_s": median(floors),
        "floor_is": "GET /healthz of the same server, over as many connections, with the head and body of an exchange",
        "ratio": median(ours / floor for ours, floor in zip(rates, floors, strict=True)),
        "server_us_per_exchange": median(turn.exchange_us for turn in turns),
        "server_us_per_request": median(turn.bare_us for turn in turns),
        "cpu_ratio": median(ratios),
        "cpu_ratio_least": min(ratios),
        "cpu_ratio_most": max(ratios),
        "goal": "a bare request is 0.40 of an exchange; 2,000 exchanges/s at p99 <= 25 ms",
    }


def keep_on(pid: int, core: int) -> None:
    """Have all threads of a process run on one core."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {core})
