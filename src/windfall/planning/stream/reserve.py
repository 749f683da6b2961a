"""Greedy and GAIN for a stream, as SCS's paper extends them (algorithm 4): each job reserves machines for itself. Pure.

They assign deadlines job by job with their original methods. A machine is reserved when a new one would boot just in
time for the task; a machine that no job holds is released near a full cycle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from windfall.planning.workflow.methods.assign import Assignment, upgrade
from windfall.planning.workflow.methods.fleet import fastest_offers, finish_with, stretched
from windfall.planning.workflow.model import Problem


class Held(Protocol):
    """A machine: its type, and when it will have done everything that it is reserved for."""

    offer: int
    free_s: float


M = TypeVar("M", bound=Held)


class Choice(Struct, Generic[M], frozen=True):
    """Where a task goes: to `machine`, or to a new one (None) of type `offer`; and when it is expected to start."""

    machine: M | None
    offer: int
    start_s: float


def assign_gain(problem: Problem) -> Assignment:
    """The cheapest types, upgraded by gain per dollar until the job fits its deadline."""
    offer_of = upgrade(problem)
    return Assignment(offer_of, stretched(problem, finish_with(problem, offer_of)), [-1] * problem.n)


def assign_greedy(problem: Problem) -> Assignment:
    """Deadlines in proportion to the fastest run times; the type is chosen when the task is due to start."""
    offer_of = fastest_offers(problem)
    return Assignment(offer_of, stretched(problem, finish_with(problem, offer_of)), [-1] * problem.n)


def reserve_gain(
    now_s: float, offer: int, begin_s: float, due_s: float, duration_s: Sequence[float], machines: Sequence[M],
    lag_s: Sequence[float], price_usd: Sequence[float],
) -> Choice[M]:  # fmt: skip
    """A machine of the task's type that is free when the task begins, or a new one of that type."""
    for machine in machines:
        if machine.offer == offer and machine.free_s <= begin_s:
            return Choice(machine, offer, begin_s)
    return Choice(None, offer, max(begin_s, now_s + lag_s[offer]))


def reserve_greedy(
    now_s: float, offer: int, begin_s: float, due_s: float, duration_s: Sequence[float], machines: Sequence[M],
    lag_s: Sequence[float], price_usd: Sequence[float],
) -> Choice[M]:  # fmt: skip
    """The cheapest machine free at the task's begin that keeps its deadline, else the cheapest new one that does."""
    best: tuple[float, M] | None = None
    for machine in machines:
        if machine.free_s <= begin_s and begin_s + duration_s[machine.offer] <= due_s:
            price = price_usd[machine.offer]
            if best is None or price < best[0]:
                best = (price, machine)
    if best is not None:
        return Choice(best[1], best[1].offer, begin_s)
    starts = [max(begin_s, now_s + lag) for lag in lag_s]
    types = range(len(lag_s))
    in_time = [o for o in types if starts[o] + duration_s[o] <= due_s]
    new = min(in_time or types, key=lambda o: (price_usd[o] if in_time else starts[o] + duration_s[o], o))
    return Choice(None, new, starts[new])
