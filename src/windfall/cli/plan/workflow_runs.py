"""Cost, finish and chance of a workflow on machines that may vanish, by simulating its live planner.

Touches processes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from windfall.cli.plan.screen import until_words
from windfall.cli.processes import processes
from windfall.planning.estimates import RECORDED
from windfall.planning.offers import Offer
from windfall.resources import largest
from windfall.sim.studies.forecast import Forecast, Question, forecast, supply_of
from windfall.units import show_duration, show_usd
from windfall.workflows import WorkflowSpec

RUNS, RUNS_ON_DEMAND = 20, 5
"""Simulated runs of a plan with machines that may vanish, and of one without: there only run times vary."""
MOST_TASKS, MOST_ON_DEMAND = 2_000, 300
"""Larger workflows are not simulated unless a number of runs is asked for: each run takes minutes."""


def question_of(
    spec: WorkflowSpec, offers: tuple[Offer, ...], planner: str, spread: float | None, budget_usd: float | None
) -> Question:
    columns = spec.for_planning()
    edges = tuple((parent, task) for task, parents in enumerate(columns.graph.parent_rows()) for parent in parents)
    return Question(
        estimates_s=tuple(columns.runtime_s), memory_bytes=tuple(columns.memory_bytes),
        spread=RECORDED.spread if spread is None else spread, spread_is_guessed=spread is None, told_spread=spread,
        supplies=tuple(supply_of(offer) for offer in offers), planner=planner, budget_usd=budget_usd,
        resources=largest(dict(task.resources) for task in spec.tasks),
        edges=edges, classes_of=tuple(columns.classes), cpus_of=tuple(columns.cores),
        nodes_of=tuple(columns.nodes),
    )  # fmt: skip


def simulate(question: Question, deadline_s: float, runs: int, first_seed: int, done: Callable[[], None]) -> Forecast:
    seeds = [first_seed + number for number in range(runs)]
    with processes(runs) as pool:
        (found,) = forecast(question, [deadline_s], seeds, pool, lambda deadline_s, run: done())
    return found


def document_of(found: Forecast) -> dict[str, Any]:
    """The runs in JSON; `holds` is how often the intervals of cost and finish hold the next run."""
    cost, finish, met = found.cost_usd, found.finish_s, found.met_share
    return {
        "runs": len(found.runs),
        "met": found.met,
        "met_low": met.low,
        "met_high": met.high,
        "cost_usd": cost.told(),
        "finish_s": None if finish is None else finish.told(),
        "holds": found.holds,
        "interruptions": sum(run.interrupted for run in found.runs) / len(found.runs),
        "lost": sum(run.lost for run in found.runs) / len(found.runs),
    }


def lines_of(told: dict[str, Any]) -> list[str]:
    cost, finish, runs = told["cost_usd"], told["finish_s"], told["runs"]
    lines = [
        f"  {runs} simulated runs: {told['met']} in time (a chance of {told['met_low']:.0%} to "
        f"{told['met_high']:.0%}), {told['lost']:.2g} tasks lost on average",
        f"  cost {show_usd(cost['mean'])} on average; the next run costs {show_usd(cost['low'])} to "
        f"{show_usd(cost['high'])} in {told['holds']:.0%} of cases",
    ]
    if finish is not None:
        lines.append(
            f"  done after {show_duration(finish['mean'])} on average, {show_duration(finish['low'])} to "
            f"{until_words(finish['high'])}"
        )
    return lines
