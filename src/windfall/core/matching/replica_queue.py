"""Replicas that wait in the queue (GridBot, algorithm 2 as printed): made in cycles, they compete by rank. Pure.

Once in a cycle every running task of a bag with few unsent tasks is looked at, those with the fewest replicas first.
Where ReplicationRequirements holds, one replica enters the bag's queue, behind its unsent tasks. No host is asking at
that moment: the policy sees the hosts of the replicas that run, and no `Host` of its own. Unsent replicas count as
unsent tasks, so that a full queue ends the cycle.
"""

from __future__ import annotations

from math import ceil, inf
from typing import TYPE_CHECKING

from windfall.core.matching.ads import bag_ad, job_ad, queue_ad
from windfall.core.matching.replicas import slow_after_s
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.state import State

if TYPE_CHECKING:
    from windfall.core.engine import Policies


def cap(state: State, bag: Bag) -> int:
    """Most replicas of a task at a time: the job's own number, or the server's."""
    return bag.rules.max_replicas or state.settings.max_replicas


def next_cycle_t(state: State) -> float:
    """When the running tasks of some bag are looked at next; infinity if no bag queues replicas."""
    cycle_s = state.settings.replication_cycle_s
    return min((bag.queues.replicated_t + cycle_s for bag in state.bags.cycled.values()), default=inf)


def cycles(state: State, t: float, policies: Policies) -> list[tuple[int, list[int]]]:
    """(job, tasks that get one more replica) of the bags whose cycle is over."""
    cycle_s = state.settings.replication_cycle_s
    over = [number for number, bag in state.bags.cycled.items() if bag.queues.replicated_t + cycle_s <= t]
    # By number: after a restart `cycled` may have another order.
    return [(number, _to_replicate(state, state.bags[number], t, policies)) for number in sorted(over)]


def few_unsent(state: State) -> int:
    """So many unsent tasks are few: the threshold of the tail."""
    return ceil(state.settings.tail_enter * max(1, state.hosts.live_slots))


def _to_replicate(state: State, bag: Bag, t: float, policies: Policies) -> list[int]:
    policy, few, most = policies.of(bag.rules.policies), few_unsent(state), cap(state, bag)
    unsent = bag.waiting + bag.queues.queued_replicas
    patience_s = None if "ReplicationRequirements" in policy.expressions else slow_after_s(state, bag)
    if unsent > few or not policy.may_replicate:
        return []
    if patience_s is None and "ReplicationRequirements" not in policy.expressions:
        return []
    bag_, queue = bag_ad(bag, t), queue_ad(state)
    queued = bag.queues.replicas
    found: list[int] = []
    by_replicas = sorted(bag.attempts.live, key=lambda task: len(bag.attempts.live[task]) + queued.get(task, 0))
    for task in by_replicas:
        attempts = bag.attempts.live[task]
        if unsent + len(found) > few or len(attempts) + queued.get(task, 0) >= most:
            break
        if patience_s is not None and (task in queued or t - attempts[-1].sent < patience_s):
            continue
        if policy.replicates(job_ad(state, bag, task, attempts, t), bag_, queue, t):
            found.append(task)
    return found
