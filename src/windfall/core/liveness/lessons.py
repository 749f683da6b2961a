"""What is learned from attempts that are given up: how long they were silent, how long they had run. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from windfall.core.decisions import RETURNED, Lessons
from windfall.core.liveness import timeouts
from windfall.core.renting import runtimes
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.jobs.causes import Loss
from windfall.core.state.state import State


def of_losses(state: State, losses: Sequence[Loss], t: float) -> Lessons | None:
    """None where nothing is learned."""
    if not losses:
        return None
    silences: list[tuple[int, float]] = []
    interrupted: list[tuple[int, float]] = []
    about: dict[str, tuple[str, Bag]] = {}
    for place, (job, task, number, verdict) in enumerate(losses):
        bag = state.bags[job]
        attempt = bag.attempts.find(task, number)
        if attempt is None:
            continue
        if state.fleet.plans and state.fleet.plan_of(job) is not None:
            ran_s = runtimes.ran_s(state, bag, task, attempt, t)
            if ran_s > bag.progress.interrupted_s.get(task, 0.0):
                interrupted.append((place, ran_s))
        host = state.hosts.get(attempt.host)
        if verdict == RETURNED or host is None:
            continue
        waited_s = timeouts.silence_s(state, host, bag, t - attempt.sent)
        if waited_s is not None:
            silences.append((place, waited_s))
            about[timeouts.key_of(host.pool, bag)] = (host.pool, bag)
    if not silences and not interrupted:
        return None
    return Lessons(silences, interrupted, timeouts.advise_all(state, about))
