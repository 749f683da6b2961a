"""Speculative replicas (GridBot, algorithm 2): at a bag's end, idle hosts run again what is slow elsewhere. Pure.

A replica is made only when few unsent tasks of the bag remain, of the tasks with the fewest replicas first, never twice
on one host, and at most `max_replicas` at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import sqrt
from typing import Any

from windfall.core.ads import Ad, bag_ad, job_ad
from windfall.core.columns import DONE
from windfall.core.events import TAIL_REPLICA, Assigned
from windfall.core.policy import BagPolicy
from windfall.core.state import Attempt, Bag, Host, State

LOOKED_AT = 32
"""Tasks that one asking host makes us look at: an ask must not cost the length of the bag."""
SLOW_FACTOR = 1.5
"""Without a policy, an attempt is slow when it has taken this many times what most tasks took."""
MIN_SAMPLES = 5


def slow_after_s(bag: Bag) -> float | None:
    """How long an attempt may take before a bag without a policy wants a replica; None while too little is known."""
    if bag.counts[DONE] < MIN_SAMPLES:
        return None
    mean = bag.turnaround_sum / bag.counts[DONE]
    variance = max(0.0, bag.turnaround_squares / bag.counts[DONE] - mean * mean)
    return SLOW_FACTOR * (mean + sqrt(variance))


def replicas_for(
    state: State, host: Host, bag: Bag, policy: BagPolicy, most: int, ads: tuple[Ad, Ad, Ad], t: float,
    deadline_s: Callable[[Bag, BagPolicy, Mapping[str, Any]], float | None],
) -> list[Assigned]:  # fmt: skip
    """Up to `most` replicas of this bag's running tasks for this host."""
    host_, queue, pool = ads
    picked: list[Assigned] = []
    explicit = "ReplicationRequirements" in policy.expressions
    patience_s = None if explicit else slow_after_s(bag)
    if not explicit and (patience_s is None or bag.rules.streaming):
        return picked
    bag_ = bag_ad(bag, t)
    for task, attempts in _candidates(bag, state.settings.max_replicas):
        if len(picked) >= most:
            break
        if any(attempt.host == host.number for attempt in attempts):
            continue
        if patience_s is not None and t - attempts[0].sent < patience_s:
            continue
        rules = bag.classes[bag.class_of(task)]
        number = bag.columns.attempts[task] + 1
        if rules.cpus > host.slots or (host.memory_bytes and rules.memory_for(number) > host.memory_bytes):
            continue
        job = job_ad(state, bag, task, attempts, t)
        if policy.match_replica(host_, job, bag_, queue, pool, t):
            seconds = deadline_s(bag, policy, job)
            picked.append(Assigned(bag.number, task, 1, number, None if seconds is None else t + seconds, TAIL_REPLICA))
    return picked


def _candidates(bag: Bag, cap: int) -> Iterator[tuple[int, list[Attempt]]]:
    """Running tasks with the fewest replicas first, the longest running first among equals."""
    looked = 0
    for level in sorted(bag.levels):
        if level >= cap:
            return
        for task in bag.levels[level]:
            looked += 1
            if looked > LOOKED_AT:
                return
            yield task, bag.live[task]
