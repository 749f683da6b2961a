"""Second attempts on on-demand machines of long tasks that run on spot. Pure.

A task that runs on spot and is lost begins again. The longer it has run, the longer it will take again, and after some
time that is too late. A second attempt beside the first one begins before that: the first result counts, and the loss
of the spot machine costs no time. On another machine of the same speed it gains nothing else, because the run time
belongs to the task.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from windfall.planning.bags.packing import (
    TOLERANCE_S,
    Bin,
    Item,
    cycles_usd,
    fresh,
    lease_usd,
    ondemand_offers,
    width,
)
from windfall.planning.contract import ONDEMAND, SPOT, Machine, Plan, Running, Snapshot, Start, Task

if TYPE_CHECKING:
    from windfall.planning.bags.planning_pass import PlanningPass

Array = NDArray[np.float64]

SHARE_OF_LATENESS = 0.5
"""Share of the chance of being late that the job's confidence allows: losses of tasks on spot may use it up."""
MIN_GAIN = 0.001
"""A second attempt that costs nothing must raise the chance of being in time by this much."""
STEPS = 48
"""Steps of a task's run time over which chances are summed."""
REVIEWS = 24
"""Moments up to the deadline at which a second attempt may become worth its price."""
MAX_CANDIDATES = 50
"""Running tasks that are looked at, the longest running first."""
MIN_AGE_S, MIN_MEDIAN_FACTOR = 1.0, 1.05
"""Of a task that has run for at least this long, the median of the run time is at least this multiple of it."""


class RunTimeGiven(Struct, frozen=True):
    """The law of a run time that exceeds `age_s`: log-linear survival between its median and its quantile."""

    age_s: float
    median_s: float
    quantile_s: float
    beyond: float
    """The chance that the quantile is exceeded."""

    def survival(self, seconds: Array) -> Array:
        """The chance that the task takes longer."""
        logs = np.log([max(self.age_s, 1e-3), self.median_s, self.quantile_s])
        chances = np.array([0.0, math.log(0.5), math.log(self.beyond)])
        at = np.log(np.maximum(seconds, 1e-3))
        slope = (chances[2] - chances[1]) / (logs[2] - logs[1])
        tail = chances[1] + slope * (at - logs[1])
        found: Array = np.exp(np.minimum(np.where(at > logs[1], tail, np.interp(at, logs[:2], chances[:2])), 0.0))
        return found


class Candidate(Struct):
    """A task that runs on a spot machine, the law of its run time there, and when it began."""

    task: Task
    machine: Machine
    law: RunTimeGiven
    began_t: float


class Second(Struct):
    """A second attempt: on which machine, what that costs, and by how much it raises the chance to be in time."""

    candidate: Candidate
    host: Bin
    cost_usd: float
    gain: float


def add_second_attempts(plan: Plan, decided: PlanningPass, asked: Snapshot) -> None:
    """Add second attempts to a plan: those that cost nothing, and those that the job's confidence needs.

    `asked`: the snapshot with the run times that the job's confidence asks for.
    """
    running, look_t = _on_spot(decided, asked)
    plan.replan_t = min(plan.replan_t, look_t)
    names = {candidate.task.id for candidate in running}
    for machine in decided.awake.values():
        if any(number not in names for number in machine.again):
            plan.again[machine.id] = [number for number in machine.again if number in names]
    guarded = decided.guarded()
    alone = [candidate for candidate in running if candidate.task.id not in guarded]
    found = [second for candidate in alone if (second := _second(candidate, plan, decided)) is not None]
    allowed = SHARE_OF_LATENESS * (1.0 - asked.confidence)
    left = math.fsum(second.gain for second in found)
    rest = []
    for first in sorted(found, key=lambda s: (-s.gain / max(s.cost_usd, 1e-9), s.candidate.task.id)):
        # Again: the ones before may have taken its machine.
        second = _second(first.candidate, plan, decided)
        is_free = second is not None and second.cost_usd <= 0.0 and second.gain >= MIN_GAIN
        if second is not None and second.gain > 0.0 and (is_free or left > allowed):
            _add(second, plan, decided)
            left -= second.gain
        else:
            rest.append(first)
    plan.replan_t = min(plan.replan_t, _review_t(rest, decided, allowed))


def _on_spot(decided: PlanningPass, asked: Snapshot) -> tuple[list[Candidate], float]:
    """Tasks that run on spot and may be late if they are lost, and when others will be such tasks.

    Only on machines that end when they are reclaimed: a hibernated one keeps what it has done.
    """
    found, look_t = list[Candidate](), math.inf
    for machine in decided.snapshot.machines:
        if machine.offer.market != SPOT or machine.offer.when_taken != "terminate":
            continue
        for entry in machine.running:
            task = asked.tasks[entry.task]
            # At the quantile: lost just before its end, it begins again and is in time.
            harmless_t = decided.by_t - decided.safety_net.rescue_alone_s(Item(task, 1, [])) - entry.left_s
            if harmless_t > decided.t:
                look_t = min(look_t, harmless_t)
            elif (candidate := _candidate(decided, asked, machine, entry)) is not None:
                found.append(candidate)
    return sorted(found, key=lambda c: (c.began_t, c.task.id))[:MAX_CANDIDATES], look_t


def _candidate(decided: PlanningPass, asked: Snapshot, machine: Machine, entry: Running) -> Candidate | None:
    task, speed = asked.tasks[entry.task], machine.offer.speed_for(asked.tasks[entry.task].task_class)
    if task.mean_s is None or task.nodes or task.saved_s > 0.0:
        return None
    quantile_s = task.runtime_s / speed
    age_s = quantile_s - entry.left_s
    median_s = max(task.mean_s / speed, MIN_MEDIAN_FACTOR * age_s)
    if not MIN_AGE_S < age_s < quantile_s or not median_s < quantile_s:
        return None
    beyond = 1.0 - (asked.run_time_quantile or asked.confidence)
    law = RunTimeGiven(age_s, median_s, quantile_s, max(min(beyond, 0.4), 1e-9))
    return Candidate(task, machine, law, decided.t - age_s)


def _second(candidate: Candidate, plan: Plan, decided: PlanningPass) -> Second | None:
    """The cheapest second attempt; None if no on-demand machine can be had."""
    left_s = candidate.law.median_s - candidate.law.age_s
    is_lost = candidate.machine.noticed_t is not None
    hosts = [
        (_cost_usd(decided, bin, left_s, is_lost), min(bin.free_t), bin) for bin in _hosts(candidate, plan, decided)
    ]
    if not hosts:
        return None
    cost_usd, _, host = min(hosts, key=lambda found: (*found[:2], found[2].name))
    is_idle = any(not bin.is_new for *_, bin in hosts)
    return Second(candidate, host, cost_usd, gain(candidate, decided, decided.t, host, is_idle))


def _hosts(candidate: Candidate, plan: Plan, decided: PlanningPass) -> list[Bin]:
    """On-demand machines with a core that is free from now on or from their start, and a new one of each offer."""
    task, found = candidate.task, list[Bin]()
    for bin in decided.bins:
        if bin.offer.market != ONDEMAND or width(task, bin.offer) != 1:
            continue
        ready_t = decided.t + bin.offer.lag_s if bin.is_new else max(decided.t, bin.since_t)
        machine = decided.awake.get(bin.name)
        taken = plan.again.get(bin.name, () if machine is None else machine.again)
        if sum(free_t <= ready_t + TOLERANCE_S for free_t in bin.free_t) > len(taken):
            found.append(bin)
    for offer in ondemand_offers(decided.snapshot, task.task_class):
        if decided.left.of(offer) > 0 and width(task, offer) == 1:
            found.append(fresh(f"second-{len(plan.start)}", offer, decided.t, math.inf))
    return found


def _is_extra(bin: Bin, decided: PlanningPass) -> bool:
    """Whether the machine is rented for the second attempt alone."""
    return bin.name not in decided.places


def _cost_usd(decided: PlanningPass, bin: Bin, left_s: float, is_lost: bool) -> float:
    """Dollars for a machine that is kept until the first attempt is expected to end.

    An idle one costs nothing more if the first attempt is about to be lost: it would then take the task anyway.
    """
    if _is_extra(bin, decided):
        return lease_usd(bin.offer, left_s)
    if is_lost:
        return 0.0
    paid_until_t = decided.t + bin.offer.cycle_s if bin.is_new else decided.awake[bin.name].paid_until_t
    beyond_s = decided.t + left_s - paid_until_t
    return cycles_usd(bin.offer, beyond_s) if beyond_s > 0.0 else 0.0


def gain(candidate: Candidate, decided: PlanningPass, at_t: float, host: Bin, is_idle: bool) -> float:
    """By how much a second attempt that is asked for at `at_t` raises the chance that the task is in time.

    It is in time if it takes no longer than there is from then on. Without it, a task that is lost begins again when it
    is lost, at once if there is an idle machine (`is_idle`).
    """
    task_class = candidate.task.task_class
    speed = host.offer.speed_for(task_class) / candidate.machine.offer.speed_for(task_class)
    begin_s = min(host.free_t) - decided.t
    age_s, longest_s = at_t - candidate.began_t, (decided.by_t - at_t - begin_s) * speed
    if longest_s <= age_s:
        return 0.0
    edges = np.geomspace(age_s, longest_s, STEPS + 1)
    alive = candidate.law.survival(edges)
    shares, seconds = (alive[:-1] - alive[1:]) / max(float(alive[0]), 1e-12), np.sqrt(edges[:-1] * edges[1:])
    lag_s = 0.0 if is_idle else host.offer.lag_s
    # Losses up to this moment do no harm: the task is in time if it begins again then.
    harmless_s = np.maximum(decided.by_t - lag_s - seconds / speed - at_t, 0.0)
    return float((shares * _lost_between(candidate, decided, at_t, harmless_s, seconds - age_s)).sum())


def _lost_between(candidate: Candidate, decided: PlanningPass, at_t: float, from_s: Array, to_s: Array) -> Array:
    """The chance that the spot machine is lost between two numbers of seconds after `at_t`."""
    noticed_t, rates = candidate.machine.noticed_t, decided.prices.rates.get(candidate.machine.offer.key)
    if noticed_t is not None:
        lost_s = max(0.0, noticed_t - at_t)
        return np.where((from_s <= lost_s) & (lost_s < to_s), 1.0, 0.0)
    if rates is None:
        return np.zeros(len(from_s))
    steps = np.linspace(0.0, max(float(to_s.max()), 1.0), STEPS + 1)
    middles = (steps[:-1] + steps[1:]) / 2 + at_t - decided.t
    hazard = np.concatenate([[0.0], (rates.ahead(middles) * np.diff(steps)).cumsum()])
    survives_from, survives_to = (np.exp(-np.interp(moment, steps, hazard)) for moment in (from_s, to_s))
    found: Array = np.where(from_s < to_s, survives_from - survives_to, 0.0)
    return found


def _add(second: Second, plan: Plan, decided: PlanningPass) -> None:
    host, candidate = second.host, second.candidate
    if _is_extra(host, decided):
        plan.start.append(Start(host.name, host.offer))
        plan.assign[host.name] = []
        decided.left.take(host.offer)
    machine = decided.awake.get(host.name)
    before = plan.again.get(host.name, [] if machine is None else list(machine.again))
    plan.again[host.name] = [*before, candidate.task.id]
    if host.name in plan.stop:
        plan.stop.remove(host.name)
    plan.because.append(
        f"task {candidate.task.id} gets a second attempt on demand: it has run for {candidate.law.age_s:.0f} s on "
        f"spot machine {candidate.machine.id}, and if that is lost it may be too late to begin again "
        f"(the chance to be in time rises by {second.gain:.1%})"
    )


def _review_t(rest: list[Second], decided: PlanningPass, allowed: float) -> float:
    """When more second attempts will be needed if these tasks still run then; infinite for never."""
    step_s = (decided.by_t - decided.t) / REVIEWS
    for step in range(1, REVIEWS if rest else 0):
        at_t = decided.t + step * step_s
        if math.fsum(gain(second.candidate, decided, at_t, second.host, False) for second in rest) > allowed:
            return at_t
    return math.inf
