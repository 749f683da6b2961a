"""`windfall bench snapshot`: how long the server's loop stands still for a snapshot of a large state.

In one process and without a network. Beside the forked copy, in the same run, what it replaces: encoding on the loop.
With `--beside`: how long exchanges take until they are durable, with snapshots and without, by turns.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import click

from windfall.bench.harness import report, run_loop, show
from windfall.core.engine import Engine
from windfall.core.events import (
    HostAsked,
    JobRules,
    JobSealed,
    JobSubmitted,
    ServerStarted,
    Settings,
    TaskClass,
    TasksAdded,
)
from windfall.core.state.snapshot import pieces
from windfall.core.state.state import State
from windfall.drivers.copying import Forked
from windfall.drivers.realtime import Realtime
from windfall.store import open_store

QUANTILES = (0.5, 0.9, 0.99)
SETTLE_S = 2.0


@click.command()
@click.option("--tasks", default=10_000_000, show_default=True, type=click.IntRange(100), help="Tasks of the state.")
@click.option("--hosts", default=25_000, show_default=True, type=click.IntRange(100), help="Hosts of the state.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="The best of them is told.")
@click.option("--beside", is_flag=True, help="Exchanges beside snapshots, by turns with exchanges alone; in SQLite.")
@click.option("--rate", default=250, show_default=True, type=click.IntRange(1), help="Exchanges a second, --beside.")
@click.option("--seconds", default=8, show_default=True, type=click.IntRange(1), help="Of each turn, --beside.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(tasks: int, hosts: int, rounds: int, beside: bool, rate: int, seconds: int, as_json: bool) -> None:
    """Copy a state of up to TASKS tasks and HOSTS hosts by a forked process, and on the loop.

    \b
    Example:
      windfall bench snapshot --tasks 10000000
      windfall bench snapshot --tasks 5000000 --hosts 1000 --beside
    """
    document: dict[str, Any] = {"bench": "snapshot", "tasks": tasks, "hosts": hosts}
    if beside:
        report(document | by_turns(tasks, hosts, rounds, rate, seconds), as_json)
        return
    for size in (tasks // 100, tasks // 10, tasks):
        show(f"{size:,} tasks")
        for name, value in measured(size, hosts, rounds).items():
            document.setdefault(name, {})[size] = round(value, 1)
    show("")
    report(document, as_json)


def measured(tasks: int, hosts: int, rounds: int) -> dict[str, float]:
    """Milliseconds of processor time: of the loop, and of 100 exchanges while a child shares the memory and after.

    `join_ms` is spent in a thread, but keeps the loop from running.
    """
    engine, state = full_state(tasks, hosts)
    spent: dict[str, list[float]] = {}

    def took(name: str, work: Callable[[], Any]) -> Any:
        began = time.process_time()
        result = work()
        spent.setdefault(name, []).append(1000 * (time.process_time() - began))
        return result

    for number in range(rounds):
        saved = took("join_ms", partial(b"".join, took("loop_ms", lambda: pieces(state))))
        forked = took("fork_ms", lambda: Forked(state))
        took("exchanges_ms_while_shared", partial(exchanges, engine, state, 2 * number + 2))
        assert forked.data() == saved, "the child saw another state"
        took("exchanges_ms_alone", partial(exchanges, engine, state, 2 * number + 3))
    return {name: min(found) for name, found in spent.items()} | {"snapshot_mb": len(saved) / 1e6}


def full_state(tasks: int, hosts: int) -> tuple[Engine, State]:
    engine, state = Engine(), State()
    engine.step(state, ServerStarted(0.0, Settings()))
    job = state.bags.next
    engine.step(state, JobSubmitted(0.0, JobRules("job"), [TaskClass()]))
    engine.step(state, TasksAdded(0.0, job, tasks))
    engine.step(state, JobSealed(0.0, job))
    for number in range(hosts):
        engine.step(state, HostAsked(1.0, f"h{number}", "b", 1, 1, 1, {"memory_mb": 4096, "cpus": 1}))
    return engine, state


def exchanges(engine: Engine, state: State, n: int) -> None:
    for number in range(100):
        engine.step(state, HostAsked(float(n), f"h{number}", "b", n, 1, 1))


def by_turns(tasks: int, hosts: int, rounds: int, rate: int, seconds: int) -> dict[str, Any]:
    """Quantiles of all exchanges of both kinds in milliseconds, and the 99th percentile of each turn.

    A turn begins when the disk has taken what the one before left: its last snapshot, and the files that were removed.
    """
    found: dict[bool, list[float]] = {False: [], True: []}
    waits: dict[bool, list[float]] = {False: [], True: []}
    taken = 0
    for number in range(2 * rounds):
        has_snapshots = bool(number % 2)
        show(f"turn {number + 1} of {2 * rounds}, {'with' if has_snapshots else 'without'} snapshots")
        with TemporaryDirectory(prefix="windfall-bench-") as folder:
            waits_ms, count = run_loop(_turn(Path(folder), tasks, hosts, rate, seconds, has_snapshots))
        taken += count
        waits[has_snapshots] += waits_ms
        found[has_snapshots].append(quantile(waits_ms, 0.99))
    show("")
    alone, beside = ({f"p{100 * q:g}": quantile(waits[kind], q) for q in QUANTILES} for kind in (False, True))
    return {
        "exchanges_s": rate, "seconds": seconds, "turns": 2 * rounds, "snapshots": taken,
        "p99_ms_of_turns_alone": found[False], "p99_ms_of_turns_beside": found[True],
        "all_ms_alone": alone, "all_ms_beside": beside,
        "ratio": {name: round(beside[name] / alone[name], 2) for name in alone},
        "ratio_of_medians_of_p99": round(median(found[True]) / median(found[False]), 2), "goal": "p99: at most 2",
    }  # fmt: skip


def quantile(values: list[float], share: float) -> float:
    return round(sorted(values)[int(share * len(values))], 1)


def settle() -> None:
    """Wait until the disk has nothing left to write."""
    os.sync()
    time.sleep(SETTLE_S)


async def _turn(
    folder: Path, tasks: int, hosts: int, rate: int, seconds: int, has_snapshots: bool
) -> tuple[list[float], int]:
    """How long each exchange waited, from when it was due to its commit, in milliseconds; and the snapshots taken."""
    # One, when a third of the exchanges has come.
    due = hosts + rate * seconds // 3 if has_snapshots else 10**12
    store = open_store(folder / "state")
    driver = Realtime(store, Engine(), Settings(), None, due, 1 << 60)
    driver.restore()
    await driver.start()
    job, now, loop = driver.state.bags.next, driver.clock(), asyncio.get_running_loop()
    await driver.submit([JobSubmitted(now, JobRules("job"), [TaskClass()]), TasksAdded(now, job, tasks)])
    await driver.submit([JobSealed(now, job)])
    await driver.submit([HostAsked(now, f"h{each}", "b", 1, 1, 1, {"cpus": 1}) for each in range(hosts)])
    settle()
    waits_ms: list[float] = []
    snapshots = 0

    async def one(number: int, due_s: float) -> None:
        await driver.submit([HostAsked(driver.clock(), f"h{number % hosts}", "b", 2 + number // hosts, 1, 1)])
        waits_ms.append(1000 * (loop.time() - due_s))

    began_s, asked, before = loop.time(), [], driver.snapshots.taking
    for number in range(rate * seconds):
        due_s = began_s + number / rate
        await asyncio.sleep(max(0.0, due_s - loop.time()))
        asked.append(asyncio.create_task(one(number, due_s)))
        if driver.snapshots.taking is not before:
            before, snapshots = driver.snapshots.taking, snapshots + 1
    await asyncio.gather(*asked)
    await driver.stop()
    store.close()
    return waits_ms, snapshots
