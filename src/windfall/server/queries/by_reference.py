"""A job by what people call it: its number, its name, or `last`. Touches nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windfall.errors import BadInput

if TYPE_CHECKING:
    from windfall.core.state.jobs.bags import Bag
    from windfall.core.state.state import State


class NotFound(BadInput):
    """There is no such job, task or host."""

    code = "not-found"


def bag_of(state: State, reference: str, user: str = "") -> Bag:
    """A job by number, by name (the newest of that name), or `last`, of one user or of all. NotFound: there is none."""
    bags = state.bags
    if user:
        return _of_user(state, reference, user)
    if reference == "last" and bags:
        return bags[max(bags)]
    if (number := decimal(reference)) is not None and number in bags:
        return bags[number]
    if number is not None and state.was_forgotten(number):
        raise NotFound(f"job {number} was forgotten", hint="see the jobs: windfall status", code="job-forgotten")
    named = [bag for bag in bags.values() if bag.rules.name == reference]
    if named:
        return named[-1]
    what = "there are no jobs" + " yet" * (bags.next == 1) if not bags else f"there is no job '{reference}'"
    raise NotFound(what, hint="see the jobs: windfall status", code="no-such-job")


def _of_user(state: State, reference: str, user: str) -> Bag:
    """As if there were no other user: neither number nor name tells of others' jobs."""
    own = [bag for bag in state.bags.values() if bag.rules.owner == user]
    number = decimal(reference)
    found = [bag for bag in own if bag.number == number] or [bag for bag in own if bag.rules.name == reference]
    if reference == "last":
        found = own
    if not found:
        what = f"there is no job '{reference}' of user '{user}'"
        raise NotFound(what, hint="see the jobs: windfall status", code="no-such-job")
    return found[-1]


def decimal(text: str) -> int | None:
    """A number out of a path; None for a text that is none, or longer than any that we give."""
    return int(text) if text.isdecimal() and len(text) <= 18 else None
