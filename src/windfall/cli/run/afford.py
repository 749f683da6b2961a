"""Whether budget and deadline suffice, before `windfall run` rents anything. Touches the terminal and the server.

The budget is held against a few simulated runs, the deadline against the first plan. What may be rented is in the file
of pools, or the server that runs already tells it; idle slots of its free hosts count as they do in `windfall plan`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from math import isfinite
from typing import TYPE_CHECKING, Any

import click

from windfall.bags.submission import Submission
from windfall.cli.show.output import busy, note
from windfall.errors import BadInput, Missed
from windfall.units import show_duration, show_usd

if TYPE_CHECKING:
    from windfall.cli.options import Place
    from windfall.cli.plan.bag import Asked
    from windfall.sim.clouds.market import Supply
    from windfall.sim.studies.forecast import Forecast, Question, Run

RUNS, LEAST_RUNS, LONG_S, LONGEST_S = 12, 3, 4.0, 10.0
"""Simulated runs; after `LONG_S` seconds `LEAST_RUNS` of them have to do, after `LONGEST_S` whatever there is."""


class _Enough(Exception):
    """There are runs enough: those that have not ended are not waited for."""


def check_budget(bag: Submission, pools: Sequence[Any], place: Place) -> None:
    """Ask on a terminal, refuse elsewhere (Missed, exit code 4), where the forecast lies above the budget.

    Only a bag with a budget, a deadline and estimates that rents from `pools`, or from those of a server that runs, can
    be forecast.
    """
    budget_microusd = bag.spec.budget_microusd
    if budget_microusd is None or bag.spec.deadline_s is None or bag.shape is not None:
        return
    expected = _expected(bag, pools, place)
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


def say_what_cannot_be_promised(bag: Submission, pools: Sequence[Any], place: Place) -> None:
    """Note on standard error that the deadline is not kept as surely as asked, or impossible, and which one would be.

    Only of a bag with a deadline and estimates that rents machines; by its first plan.
    """
    found = None if bag.spec.deadline_s is None or bag.shape is not None else _asked_of(bag, pools, place)
    if found is None:
        return
    from windfall.sim.studies.forecast import first_plan  # not above: a run without a deadline need not load it
    from windfall.sim.studies.smaller import bundled

    question, soonest_s = found
    if soonest_s > float(bag.spec.deadline_s or 0.0):
        _say_impossible(float(bag.spec.deadline_s or 0.0), soonest_s)
        return
    question = bundled(question, float(bag.spec.deadline_s or 0.0))[0]
    plan = first_plan(question, float(bag.spec.deadline_s or 0.0), 1)
    if plan is not None and plan.promised_t is not None and plan.promised_t > float(bag.spec.deadline_s or 0.0):
        note(
            f"windfall: a deadline {show_duration(float(bag.spec.deadline_s or 0.0))} from now cannot be promised with "
            f"a chance of {question.confidence:.0%}; the nearest one that can is {show_duration(plan.promised_t)} "
            "from now"
        )
        note("  try: windfall plan, which simulates how often it is kept; a later --deadline; or a lower --confidence")


def _say_impossible(deadline_s: float, soonest_s: float) -> None:
    note(
        f"windfall: a deadline {show_duration(deadline_s)} from now is impossible: the earliest possible one is "
        f"{show_duration(soonest_s)} from now"
        if isfinite(soonest_s)
        else "windfall: no offer has what a task needs, so nothing can be rented for it"
    )
    note("  try: a later --deadline, or more machines; the job is started all the same")


def _question(bag: Submission, pools: Sequence[Any], place: Place) -> Question | None:
    """What to simulate; None if it is not known what may be rented or how long tasks take, or nothing is in time."""
    found = _asked_of(bag, pools, place)
    if found is None or found[1] > float(bag.spec.deadline_s or 0.0):
        return None
    return found[0]


def _asked_of(bag: Submission, pools: Sequence[Any], place: Place) -> tuple[Question, float] | None:
    """What to simulate, and the earliest possible deadline; None if too little is known of machines or run times."""
    if not (pools or bag.spec.pools) or any(klass.estimate_s is None for klass in bag.spec.task_classes()):
        return None
    from windfall.cli.plan.bag import question_of
    from windfall.sim.studies.forecast import earliest_s

    asked, supplies = _rented(bag, pools, place)
    if not supplies:
        return None
    question = question_of(asked, bag, supplies, None, [])
    return question, earliest_s(question)


def _rented(bag: Submission, pools: Sequence[Any], place: Place) -> tuple[Asked, tuple[Supply, ...]]:
    """What the job may rent, of the file of pools or of the server that runs; nothing if that is not known."""
    from windfall.cli.plan.bag import Asked, from_server, supplies_of

    names = tuple(bag.spec.pools)
    if pools:
        known = set(names) <= {pool.name for pool in pools}
        return Asked(job=bag.spec.name), supplies_of(pools, names, "--pools", []) if known else ()
    asked = Asked(job=bag.spec.name, pools=names, place=place)
    if not place.runs():
        return asked, ()
    try:
        return asked, from_server(asked, [])
    except BadInput:
        # The server itself says what is wrong with the names of the pools.
        return asked, ()


def _expected(bag: Submission, pools: Sequence[Any], place: Place) -> tuple[float, str] | None:
    """What the job costs if it is carried out without regard to the budget: dollars, and in words.

    By some simulated runs; where they take too long, by what the first plan expects.
    """
    from windfall.sim.studies.forecast import first_plan

    question, deadline_s = _question(bag, pools, place), float(bag.spec.deadline_s or 0.0)
    if question is None:
        return None
    from windfall.sim.studies.smaller import bundled, smaller

    made = _forecast(smaller(question, deadline_s)[0], deadline_s)
    if made.runs:
        cost = made.cost_usd
        words = f"{show_usd(cost.low)} to {show_usd(cost.high)} in {len(made.runs)} simulated runs"
        return cost.mean, f"the forecast is {show_usd(cost.mean)} ({words})"
    plan = first_plan(bundled(question, deadline_s)[0], deadline_s, 1)
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
