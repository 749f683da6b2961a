"""`windfall bench plan`: what one simulated run of `windfall plan` costs, by the number of tasks.

In one process and without a network. Beside each run, a floor: the first plan alone, which every run makes. Touches the
clock of the processor, because the machine may be shared.
"""

from __future__ import annotations

import time
from typing import Any

import click
import msgspec

from windfall.bench.harness import report, show
from windfall.planning.offers import Offer
from windfall.sim.studies.forecast import Question, Run, first_plan, run_once, supply_of
from windfall.sim.studies.smaller import bundled, smaller

TASK_S, DEADLINE_S, SPREAD = 300.0, 7200.0, 0.35
"""Tasks of five minutes whose spread is only guessed, to be done in two hours."""
SIZES = (200, 1_000, 2_000, 10_000, 50_000)
SPOT = Offer(
    name="spot", pool="cloud", market="spot", cores=2, price_usd=0.03, cycle_s=3600.0, lag_s=120.0, limit=2_000,
    interruptions_per_h=0.3, resumes_per_h=2.0,
)  # fmt: skip
STEADY = Offer(name="steady", pool="cloud", cores=2, price_usd=0.085, cycle_s=3600.0, lag_s=120.0, limit=2_000)


@click.command()
@click.option(
    "--tasks", default=SIZES[-1], show_default=True, type=click.IntRange(200), help="Tasks of the largest bag."
)
@click.option("--seeds", default=3, show_default=True, type=click.IntRange(1), help="Runs of each bag.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(tasks: int, seeds: int, as_json: bool) -> None:
    """Simulate bags of up to TASKS tasks on up to 4,000 rented machines, as `windfall plan` does.

    \b
    Examples:
      windfall bench plan --tasks 2000
      windfall bench plan --tasks 200 --seeds 1 --json
    """
    document: dict[str, Any] = {"bench": "plan", "tasks": tasks, "seeds": seeds}
    measured(SIZES[0], 1)  # imports what the others need
    for size in [size for size in SIZES if size <= tasks]:
        show(f"{size:,} tasks")
        for name, value in measured(size, seeds).items():
            document.setdefault(name, {})[size] = round(value, 3)
    show("")
    document["goals"] = "two runs of 2,000 tasks in 10 s, of 10,000 in 20 s, of 50,000 in 60 s"
    report(document, as_json)


def question(tasks: int) -> Question:
    return Question(
        estimates_s=(TASK_S,) * tasks, memory_bytes=(0,) * tasks, spread=SPREAD, spread_is_guessed=True,
        supplies=(supply_of(SPOT), supply_of(STEADY)), planner="windfall",
    )  # fmt: skip


def measured(tasks: int, seeds: int) -> dict[str, float]:
    """Seconds of processor time of a run and of the first plan; plans and machines of a run; all are means.

    `stands_for`: how many tasks each simulated one stands for.
    """
    asked = question(tasks)
    simulated, _ = smaller(asked, DEADLINE_S)
    encoded, runs, began_s = msgspec.msgpack.encode(simulated), list[Run](), time.process_time()
    for seed in range(1, seeds + 1):
        runs.append(msgspec.msgpack.decode(run_once(encoded, DEADLINE_S, seed), type=Run))
    runs_s, began_s = time.process_time() - began_s, time.process_time()
    first_plan(bundled(asked, DEADLINE_S)[0], DEADLINE_S, 1)
    return {
        "run_s": runs_s / seeds,
        "first_plan_s": time.process_time() - began_s,
        "plans": sum(run.plans for run in runs) / seeds,
        "machines": sum(run.rented for run in runs) / seeds,
        "stands_for": simulated.stands_for,
    }
