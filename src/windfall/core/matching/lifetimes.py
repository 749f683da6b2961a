"""Hosts that end at a known time, such as jobs of a batch system: which tasks still finish there. Pure.

A task that checkpoints may start on any of them, because its next attempt goes on from there. The tasks of a workflow
differ: what the quick ones took says nothing about the others, so only their estimates count.
"""

from __future__ import annotations

from windfall.core.events import TaskClass
from windfall.core.matching.turnarounds import quantile_s
from windfall.core.state.hosts.hosts import Host
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.jobs.columns import DONE
from windfall.core.state.state import State

FINISHED_SHARE = 0.95
"""Quantile of what a bag's attempts took that must fit into the lifetime of a host."""
MIN_SAMPLES = 5


def left_s(host: Host, t: float) -> float | None:
    """Seconds until the host ends by itself; None if it did not say."""
    lifetime_s = host.ad.get("lifetime_s")
    return None if lifetime_s is None else max(0.0, lifetime_s - (t - host.times.ad_t))


def needed_s(state: State, bag: Bag, rules: TaskClass) -> float | None:
    """Seconds that a task of this class takes at most, as far as is known; None: it may start anywhere."""
    if rules.checkpoint_mb is not None:
        return None
    if bag.shape is None and bag.counts[DONE] >= MIN_SAMPLES:
        cells = state.settings.bookkeeping.turnaround_cells
        learned_s = quantile_s(bag.tally.turnarounds, FINISHED_SHARE, cells)
        return learned_s if rules.wall_s is None else min(learned_s, rules.wall_s)
    return rules.estimate_s


def finishes(state: State, bag: Bag, rules: TaskClass, host: Host, t: float) -> bool:
    """Whether a task that starts now ends before its host does, as far as is known."""
    host_s = left_s(host, t)
    if host_s is None:
        return True
    task_s = needed_s(state, bag, rules)
    return task_s is None or task_s <= host_s


def is_of_use(state: State, host: Host, t: float) -> bool:
    """Whether some waiting task would still finish on this host."""
    if host.ad.get("lifetime_s") is None or not state.bags.ready:
        return True
    return any(finishes(state, bag, rules, host, t) for bag in state.bags.ready.values() for rules in bag.classes)
