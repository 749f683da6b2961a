"""`windfall bench snapshot`: how long the server's loop stands still for a snapshot of a large state.

In one process and without a network. Beside the forked copy, in the same run, what it replaces: encoding on the loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import click

from windfall.bench.harness import report, show
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


@click.command()
@click.option("--tasks", default=10_000_000, show_default=True, type=click.IntRange(100), help="Tasks of the state.")
@click.option("--hosts", default=25_000, show_default=True, type=click.IntRange(100), help="Hosts of the state.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="The best of them is told.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(tasks: int, hosts: int, rounds: int, as_json: bool) -> None:
    """Copy a state of up to TASKS tasks and HOSTS hosts by a forked process, and on the loop.

    \b
    Example:
      windfall bench snapshot --tasks 10000000
    """
    document: dict[str, Any] = {"bench": "snapshot", "tasks": tasks, "hosts": hosts}
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
