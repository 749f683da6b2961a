"""Whether budget and deadline suffice, before `windfall run` rents anything. Touches the terminal.

The budget is held against a few simulated runs, the deadline against the first plan.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from math import isinf
from typing import TYPE_CHECKING, Any

import click

from windfall.bags.submission import Submission
from windfall.cli.show.output import busy, note
from windfall.errors import Missed
from windfall.units import show_duration, show_usd

if TYPE_CHECKING:
    from windfall.sim.studies.forecast import Forecast, Question, Run

RUNS, LEAST_RUNS, LONG_S, LONGEST_S = 12, 3, 4.0, 10.0
"""Simulated runs; after `LONG_S` seconds `LEAST_RUNS` of them have to do, after `LONGEST_S` whatever there is."""


class _Enough(Exception):
    """There are runs enough: those that have not ended are not waited for."""


def check_budget(bag: Submission, pools: Sequence[Any]) -> None:
    """Ask on a terminal, refuse elsewhere (Missed, exit code 4), where the forecast lies above the budget.

    Only a bag with a budget, a deadline and estimates that rents from `pools` can be forecast.
    """
    budget_microusd = bag.spec.budget_microusd
    if budget_microusd is None or bag.spec.deadline_s is None or bag.shape is not None or not pools:
        return
    expected = _expected(bag, pools)
    if expected is None or expected[0] <= budget_microusd / 1e6:
        return
    said = f"{expected[1]}, above the budget of {show_usd(budget_microusd / 1e6)}"
    if sys.stdin.isatty() and sys.stderr.isatty():
        click.echo(f"windfall: {said}", err=True)
        if click.confirm("Start all the same? It stops when the budget is used up.", err=True):
            return
        raise Missed("nothing was started", hint="try: a larger --budget, or a later --deadline")
    raise Missed(
        f"{said}; nothing was started",
        hint="try: a larger --budget, a later --deadline, or --yes to start all the same",
    )


def say_what_cannot_be_promised(bag: Submission, pools: Sequence[Any]) -> None:
    """Note on standard error that the deadline is not kept as surely as asked, and which one would be.

    Only of a bag with a deadline and estimates that rents from `pools`; by its first plan.
    """
    question = None if bag.spec.deadline_s is None or bag.shape is not None or not pools else _question(bag, pools)
    if question is None:
        return
    from windfall.sim.studies.forecast import first_plan  # not above: a run without a deadline need not load it

    plan = first_plan(question, float(bag.spec.deadline_s or 0.0), 1)
    if plan is not None and plan.promised_t is not None and plan.promised_t > float(bag.spec.deadline_s or 0.0):
        note(
            f"windfall: a deadline {show_duration(float(bag.spec.deadline_s or 0.0))} from now cannot be promised with "
            f"a chance of {question.confidence:.0%}; the nearest one that can is {show_duration(plan.promised_t)} "
            "from now"
        )
        note("  try: windfall plan, which simulates how often it is kept; a later --deadline; or a lower --confidence")


def _question(bag: Submission, pools: Sequence[Any]) -> Question | None:
    """What to simulate; None if it is not known what may be rented or how long tasks take, or nothing is in time."""
    from windfall.cli.plan.bag import Asked, question_of, supplies_of
    from windfall.sim.studies.forecast import bundled, earliest_s

    if not set(bag.spec.pools) <= {pool.name for pool in pools}:
        return None
    supplies = supplies_of(pools, tuple(bag.spec.pools), "--pools", [])
    if not supplies or any(klass.estimate_s is None for klass in bag.spec.task_classes()):
        return None
    question = question_of(Asked(job=bag.spec.name), bag, supplies, None, [])
    soonest_s = earliest_s(question)
    if isinf(soonest_s) or soonest_s > float(bag.spec.deadline_s or 0.0):
        return None
    return bundled(question, float(bag.spec.deadline_s or 0.0))[0]


def _expected(bag: Submission, pools: Sequence[Any]) -> tuple[float, str] | None:
    """What the job costs if it is carried out without regard to the budget: dollars, and in words.

    By some simulated runs; where they take too long, by what the first plan expects.
    """
    from windfall.sim.studies.forecast import first_plan

    question, deadline_s = _question(bag, pools), float(bag.spec.deadline_s or 0.0)
    if question is None:
        return None
    made = _forecast(question, deadline_s)
    if made.runs:
        cost = made.cost_usd
        words = f"{show_usd(cost.low)} to {show_usd(cost.high)} in {len(made.runs)} simulated runs"
        return cost.mean, f"the forecast is {show_usd(cost.mean)} ({words})"
    plan = first_plan(question, deadline_s, 1)
    if plan is None or plan.predicted_cost_usd is None:
        return None
    return plan.predicted_cost_usd, f"the first plan expects to cost {show_usd(plan.predicted_cost_usd)}"


def _forecast(question: Question, deadline_s: float) -> Forecast:
    """As many runs as there is time for; none, perhaps."""
    from windfall.cli.processes import processes
    from windfall.sim.studies.forecast import Forecast, simulated

    runs: list[Run] = []
    began_s = time.monotonic()
    cases = [(deadline_s, seed) for seed in range(1, RUNS + 1)]
    with busy("simulating what it will cost"), suppress(_Enough, TimeoutError), processes(RUNS) as pool:
        for _, run in simulated(question, cases, pool, LONGEST_S):
            runs.append(run)
            if len(runs) >= LEAST_RUNS and time.monotonic() - began_s > LONG_S:
                raise _Enough
    return Forecast(deadline_s, tuple(runs))
