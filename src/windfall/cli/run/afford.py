"""Whether a budget suffices, before `windfall run` rents anything: a few simulated runs. Touches the terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from math import isinf
from typing import TYPE_CHECKING, Any

import click

from windfall.bags.submission import Submission
from windfall.cli.show.output import console
from windfall.errors import Missed
from windfall.units import show_usd

if TYPE_CHECKING:
    from windfall.sim.studies.forecast import Forecast, Run

RUNS, LEAST_RUNS, LONGEST_S = 12, 3, 4.0
"""Simulated runs, and the seconds after which `LEAST_RUNS` of them have to do."""


def check_budget(bag: Submission, pools: Sequence[Any]) -> None:
    """Ask on a terminal, refuse elsewhere (Missed, exit code 4), where the forecast lies above the budget.

    Only a bag with a budget, a deadline and estimates that rents from `pools` can be forecast.
    """
    budget_microusd = bag.spec.budget_microusd
    if budget_microusd is None or bag.spec.deadline_s is None or bag.shape is not None or not pools:
        return
    made = _forecast(bag, pools)
    if made is None or made.cost_usd.mean <= budget_microusd / 1e6:
        return
    cost, budget = made.cost_usd, show_usd(budget_microusd / 1e6)
    said = (
        f"the forecast is {show_usd(cost.mean)} ({show_usd(cost.low)} to {show_usd(cost.high)} in "
        f"{len(made.runs)} simulated runs), above the budget of {budget}"
    )
    if sys.stdin.isatty() and sys.stderr.isatty():
        click.echo(f"windfall: {said}", err=True)
        if click.confirm("Start all the same? It stops when the budget is used up.", err=True):
            return
        raise Missed("nothing was started", hint="try: a larger --budget, or a later --deadline")
    raise Missed(
        f"{said}; nothing was started",
        hint="try: a larger --budget, a later --deadline, or --yes to start all the same",
    )


def _forecast(bag: Submission, pools: Sequence[Any]) -> Forecast | None:
    """Some runs without the budget: what the job costs if it is carried out."""
    from windfall.cli.plan.bag import Asked, question_of, supplies_of
    from windfall.sim.studies.forecast import Forecast, bundled, earliest_s, simulated

    names = {pool.name for pool in pools}
    if not set(bag.spec.pools) <= names:
        return None
    supplies = supplies_of(pools, tuple(bag.spec.pools), "--pools", [])
    if not supplies or any(klass.estimate_s is None for klass in bag.spec.task_classes()):
        return None
    deadline_s = float(bag.spec.deadline_s or 0.0)
    question = question_of(Asked(job=bag.spec.name), bag, supplies, None, [])
    soonest_s = earliest_s(question)
    if isinf(soonest_s) or soonest_s > deadline_s:
        return None
    question, _ = bundled(question, deadline_s)
    runs: list[Run] = []
    until_s = time.monotonic() + LONGEST_S
    with console().status("simulating what it will cost"):
        for _, run in simulated(question, [(deadline_s, seed) for seed in range(1, RUNS + 1)], None):
            runs.append(run)
            if len(runs) >= LEAST_RUNS and time.monotonic() > until_s:
                break
    return Forecast(deadline_s, tuple(runs))
