"""What tests ask of the list of wishes."""

from __future__ import annotations

from windfall.core.state.state import State
from windfall.core.wishes import plan_wish


def plans_wanted(state: State) -> list[int]:
    """Jobs that need a plan now: those that go on, and those that have ended and still have machines."""
    return [job for job in state.fleet.plans_due if plan_wish(state, job) is not None]
