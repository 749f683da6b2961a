"""`windfall bench view`: what a planner is shown of a job with many running tasks, made on the server's loop.

In one process and without a network. Beside it, in the same run, a floor: making the objects that a view consists of,
without asking the state for anything. Touches the clock of the processor, because the machine may be shared.
"""

from __future__ import annotations

import time
from typing import Any

import click
import msgspec

from windfall.bench.harness import report, show
from windfall.core.engine import Engine
from windfall.core.events import (
    HostAsked,
    JobRules,
    JobSealed,
    JobSubmitted,
    MachineStarted,
    OffersConfigured,
    PlanProposed,
    Result,
    ResultsReported,
    ServerStarted,
    Settings,
    TaskClass,
    TasksAdded,
)
from windfall.core.renting import views
from windfall.core.state.state import State
from windfall.planning.bags.windfall import Windfall
from windfall.planning.contract import Plan, Running, Snapshot, Start, Task, inputs_of
from windfall.planning.offers import Offer
from windfall.wire.messages import CAUSES, DONE

CORES = 16
OFFER = Offer(name="large", pool="cloud", price_usd=0.25, cores=CORES, cycle_s=60.0, lag_s=60.0, market="spot")
LEARNED = 200
"""Tasks that have ended: what is known of run times."""
DONE_CODE = CAUSES.index(DONE)


@click.command()
@click.option("--running", default=16_000, show_default=True, type=click.IntRange(100), help="Tasks that run.")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1), help="The median of them is told.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(running: int, rounds: int, as_json: bool) -> None:
    """Make the view of a job of which up to RUNNING tasks run on rented machines.

    \b
    Example:
      windfall bench view --running 16000
    """
    document: dict[str, Any] = {"bench": "view", "running": running, "machines": running // CORES}
    for size in (running // 16, running // 4, running):
        show(f"{size:,} running tasks")
        state = busy_state(size)
        for name, value in measured(state, rounds).items():
            document.setdefault(name, {})[size] = round(value, 2)
    show("")
    document["goals"] = "16,000 running tasks in 20 ms"
    report(document, as_json)


def busy_state(running: int) -> State:
    """A job with this many tasks on rented machines, one on a free host, 200 that have ended, and many that wait."""
    engine, state = Engine(), State()
    engine.step(state, ServerStarted(0.0, Settings()))
    engine.step(state, OffersConfigured(0.0, "cloud", [OFFER]))
    rules = JobRules("job", rent_from=["cloud"], deadline_s=86_400.0)
    job = state.bags.next
    engine.step(state, JobSubmitted(0.0, rules, [TaskClass()]))
    engine.step(state, TasksAdded(0.0, job, 2 * running + LEARNED))
    engine.step(state, JobSealed(0.0, job))
    starts = [Start(f"new-{number}", OFFER) for number in range(running // CORES)]
    taken: Any = engine.step(state, PlanProposed(1.0, job, state.seq, Plan(start=starts))).decided
    engine.step(state, HostAsked(1.0, "free", "b", 1, 1, 1, {}))
    left = LEARNED
    for number, _, _ in taken.started:
        engine.step(state, MachineStarted(2.0, number, f"i-{number}", 2.0))
        host, n, t = state.fleet.machines[number].host_name, 1, 3.0 + number / 8
        answer: Any = engine.step(
            state, HostAsked(t, host, "b", n, CORES, CORES, {"pool": "cloud", "machine": number})
        ).decided
        while left > 0:
            results = [
                Result(piece.job, task, piece.attempt, DONE_CODE, 0, t, t + 300.0 + task % 100)
                for piece in answer.assigned
                for task in range(piece.first, piece.first + piece.count)
            ]
            left, n = left - len(results), n + 1
            engine.step(state, ResultsReported(400.0, host, results))
            answer = engine.step(state, HostAsked(400.0, host, "b", n, CORES, CORES)).decided
    return state


def measured(state: State, rounds: int) -> dict[str, float]:
    """Milliseconds of processor time: on the server's loop, to encode the view, to make it whole, and the floor.

    The planner's process makes it whole. What the server keeps of it with the plan (`inputs`) is made on the loop, too.
    """
    spent: dict[str, list[float]] = {"view_ms": [], "inputs_ms": [], "encode_ms": [], "whole_ms": [], "floor_ms": []}
    for number in range(rounds):
        t = 500.0 + 20.0 * number
        times = [time.process_time()]
        shown = views.view(state, 1, t, Windfall.names_up_to, True)
        times.append(time.process_time())
        inputs_of(shown)
        times.append(time.process_time())
        msgspec.msgpack.encode(shown)
        times.append(time.process_time())
        whole = shown.whole()
        times.append(time.process_time())
        floor(whole)
        times.append(time.process_time())
        for name, began, ended in zip(spent, times, times[1:], strict=False):
            spent[name].append(1000 * (ended - began))
    return {name: sorted(found)[len(found) // 2] for name, found in spent.items()}


def floor(shown: Snapshot) -> None:
    """Make as many tasks and running entries as the view has."""
    for number in shown.tasks:
        Task(number, 1.0, 0.0, "", None, 0.0, 1.0, 1, 1, 0.0, ())
    for machine in shown.machines:
        for entry in machine.running:
            Running(entry.task, 1.0)
