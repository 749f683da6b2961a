"""One plan, as both drivers make it: look, ask the planner, and step in with the fallback if it fails. Touches nothing.

How a planner is asked is the driver's business: in a process of its own, or by a call.
"""

from __future__ import annotations

from collections.abc import Callable

from windfall.core.events import PlanProposed
from windfall.core.renting import plans, views
from windfall.core.state.state import State
from windfall.core.wishes import PlanWish
from windfall.errors import BadInput
from windfall.planning.contract import Plan, Snapshot, inputs_of

Ask = Callable[[str, Snapshot], Plan]
"""A planner's name and what it is shown; its plan. Raises if it has none."""


def question(state: State, wish: PlanWish, t: float, names_up_to: float, in_columns: bool = False) -> Plan | Snapshot:
    """What to show the planner; or the plan itself, where none is needed because the job has ended.

    `in_columns`: the planner is elsewhere, and makes objects of the tasks there (`Snapshot.whole`).
    """
    return plans.closing(state, wish.fleet) or views.view(state, wish.fleet, t, names_up_to, in_columns)


def answer(wish: PlanWish, asked: Plan | Snapshot, ask: Ask, fall_back: Ask) -> tuple[Plan, str]:
    """The planner's plan, and why it is another's, if so. Never raises."""
    if isinstance(asked, Plan):
        return asked, ""
    try:
        return ask(wish.planner, asked), ""
    except Exception as failure:
        error = f"planner {wish.planner}: {_why(failure)}; {wish.fallback} stepped in"
    try:
        return fall_back(wish.fallback, asked), error
    except Exception as failure:
        return Plan(replan_t=asked.t + wish.retry_s), f"{error} and failed as well: {_why(failure)}"


def proposal(wish: PlanWish, seq: int, t: float, asked: Plan | Snapshot, answered: tuple[Plan, str]) -> PlanProposed:
    plan, error = answered
    inputs = inputs_of(asked) if isinstance(asked, Snapshot) else None
    return PlanProposed(t, wish.fleet, seq, plan, error, inputs)


def _why(failure: Exception) -> str:
    return failure.message if isinstance(failure, BadInput) else repr(failure)[:500]
