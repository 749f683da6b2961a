"""How many tasks a host holds beyond those that run there, and which of them go back (GridBot, section 4.2). Pure.

`Concurrency` says how many a host holds. A bag without it lets a host hold what hides its round trip: a slot then
begins its next task while the result of the last one is on its way. Near the end of a bag bundles shrink to an equal
share of what is left, and tasks that have not begun go back to where a slot is free.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from math import ceil

from windfall.core.events import Key, TaskClass
from windfall.core.matching import lifetimes
from windfall.core.state.hosts.hosts import Host
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.jobs.columns import DONE
from windfall.core.state.state import State

MIN_SAMPLES = 5
"""Results of a bag before its mean run time counts; until then the estimate of the class does, if there is one."""
IDLE_SHARE = 0.01
"""Share of a slot's time that round trips may cost before tasks are handed out ahead."""
ROUND_TRIPS_AHEAD = 2.0
"""Round trips whose time the tasks ahead of a slot cover: one to report, one that is late."""
SOONER_S = 1.0
"""Seconds that a task must still wait where it is, beyond the round trip of its host, to be taken back."""
NOTHING_AHEAD_S = 5.0
"""A host that was asked for tasks back gets none ahead for this time: they are for the idle one."""
ONE_EXCHANGE_S = 0.1
"""About what it takes a worker to report, wait for the commit and get more: so short a bundle is not split up."""
HOSTS_LOOKED_AT = 32
"""Hosts with bundles that one idle host makes us look at."""


def run_s(bag: Bag, rules: TaskClass) -> float | None:
    """Mean run time of the bag's tasks so far, or the estimate of the class; None if nothing is known."""
    done = bag.counts[DONE]
    if done >= MIN_SAMPLES and bag.shape is None:
        return bag.tally.run_s / done
    return rules.estimate_s


def ahead(state: State, bag: Bag, rules: TaskClass, host: Host, t: float, deadline_s: float | None) -> int:
    """Tasks of this class that a host may hold beyond its slots, for a bag without `Concurrency`.

    `deadline_s`: how long an attempt may take from its handing out. None ahead of tasks whose run time is not known,
    or is so long that round trips do not matter.
    """
    round_trip_s = host.ad.get("round_trip_s") or 0.0
    if round_trip_s <= 0.0:
        return 0
    task_s = run_s(bag, rules)
    if task_s is None or round_trip_s < IDLE_SHARE * task_s:
        return 0
    rounds = ceil(ROUND_TRIPS_AHEAD * round_trip_s / max(task_s, 1e-6))
    left_s = [lifetimes.left_s(host, t), deadline_s]
    if bag.rules.deadline_s is not None:
        left_s.append(bag.submitted_t + bag.rules.deadline_s - t)
    known_s = [seconds for seconds in left_s if seconds is not None]
    if known_s:
        rounds = min(rounds, int(min(known_s) / task_s) - 1)
    return max(0, rounds) * host.slots


def not_worth_spreading(bag: Bag, slots: int) -> int:
    """Tasks that a host does in so short a time that asking again would take as long."""
    done = bag.counts[DONE]
    if done < MIN_SAMPLES:
        return 0
    return slots * int(ONE_EXCHANGE_S / max(bag.tally.run_s / done, 1e-6))


def finishing(bag: Bag, rules: TaskClass, host: Host, t: float) -> int | None:
    """Tasks that a host can finish before it ends at a known time; None: no limit is known."""
    left_s, task_s = lifetimes.left_s(host, t), run_s(bag, rules)
    if left_s is None or task_s is None or task_s <= 0.0 or rules.checkpoint_mb is not None:
        return None
    return int(left_s / task_s) * host.slots


def gets_ahead(host: Host, t: float) -> bool:
    """Whether a host may be handed tasks that it cannot begin at once."""
    asked_t = host.session.asked_back_t
    return asked_t is None or t >= asked_t + NOTHING_AHEAD_S


def is_ahead(host: Host, key: Key) -> bool:
    """Whether a host holds an attempt that it has not begun, as far as the server can tell: it begins them in turn."""
    if len(host.held) <= host.slots or key not in host.held:
        return False
    return key not in islice(host.held, host.slots)


def to_take_back(
    state: State, idle: Host, want: int, t: float, suits: Callable[[Bag, int], bool]
) -> list[tuple[int, int, int, int]]:
    """(host, job, task, attempt) of what idle slots begin sooner than the hosts that hold it.

    `suits` says whether the idle host may run a task. What was asked for once is not asked for again: it has begun.
    """
    found: list[tuple[int, int, int, int]] = []
    for _, number in sorted(_waits(state, idle, t), reverse=True):
        host = state.hosts[number]
        not_begun = len(host.held) - host.slots
        for key in islice(reversed(host.held), not_begun):
            if want <= 0:
                return found
            if key in host.session.asked_back:
                continue
            bag = state.bags[key[0]]
            attempts = bag.attempts.live.get(key[1], ())
            if len(attempts) == 1 and attempts[0].number == key[2] and suits(bag, key[1]):
                found.append((number, *key))
                want -= max(1, ceil(bag.classes[bag.class_of(key[1])].cpus))
    return found


def _waits(state: State, idle: Host, t: float) -> list[tuple[float, int]]:
    """(seconds until the last task of a host begins, host) where that is worth a move."""
    found = []
    hosts, bags = state.hosts, state.bags
    for number in islice(hosts.bundled, HOSTS_LOOKED_AT):
        if number == idle.number:
            continue
        host = hosts[number]
        key = next(reversed(host.held))
        bag = bags[key[0]]
        task_s = run_s(bag, bag._terms.classes[bag.class_of(key[1])])
        if task_s is None:
            # Before anything has come back: as long as the oldest has been there.
            oldest = next(iter(host.held))
            out = bags[oldest[0]].attempts.live.get(oldest[1], ())
            task_s = t - next((attempt.sent for attempt in out if attempt.host == number), t)
        wait_s = (len(host.held) - host.slots) / max(1, host.slots) * task_s
        if wait_s > SOONER_S + (host.ad.get("round_trip_s") or 0.0):
            found.append((wait_s, number))
    return found
