"""What is learned of run times, by class of tasks, from the finished attempts of jobs that are planned. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice
from typing import Any

from windfall.core.decisions import ACCEPTED, CheckpointKept
from windfall.core.events import CheckpointSaved, Result, TaskClass
from windfall.core.jobs import attempts
from windfall.core.state.hosts.hosts import Host
from windfall.core.state.jobs.attempts import Attempt
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.jobs.columns import HELD, WAITING
from windfall.core.state.renting.fleet import MachineState, machine_of
from windfall.core.state.state import State
from windfall.numeric import np
from windfall.planning.contract import CHECKPOINT_S, CHECKPOINT_S_PER_MB
from windfall.planning.estimates import MAX_SAMPLES, Estimates, prior_of
from windfall.planning.estimates import Record as RunTimes

UNKNOWN_S = 60.0
"""Assumed run time of a task before anything is known about its class."""
UNKNOWN_SHARE = 1 / 50
"""The assumed run time is at most this share of the time to the deadline."""
SHORT, STEP = 0.5, 1.1
"""Below `SHORT` times the mean, the time that a task has run says nothing about it; above, it is rounded up to a power
of `STEP`, so that many tasks are equal to a planner."""
_LOG_STEP = math.log(STEP)
RUNNING_FACTOR = 1.5
"""While nothing has ended, the estimate is this multiple of the longest running time so far."""


def unit_of(bag: Bag, task: int) -> float:
    """What is learned are seconds, or, where every task has an estimate of its own, multiples of it."""
    return max(bag.progress.estimates[task], 1e-3) if bag.progress.estimates else 1.0


def lessons_of_results(
    state: State, host: Host | None, results: Sequence[Result], verdicts: Sequence[int]
) -> tuple[list[tuple[int, float]], list[int]]:
    """(place, run time) of the results to learn from, and the jobs to plan again because of them."""
    found: list[tuple[int, float]] = []
    counts: dict[str, int] = {}
    replan: dict[int, None] = {}
    for place, verdict in enumerate(verdicts):
        result = results[place]
        if verdict != ACCEPTED or state.fleet.plan_of(result.job) is None:
            continue
        bag = state.bags[result.job]
        if (result.job, result.task) in state.fleet.beside:
            # A machine may have been ordered for this task alone.
            replan[result.job] = None
        seconds = _sample_s(state, bag, host, result)
        if seconds is None:
            continue
        found.append((place, seconds))
        key = bag.class_key(bag.class_of(result.task))
        known = state.learned.run_times.get(key)
        count = counts[key] = counts.get(key, known.count if known is not None else 0) + 1
        if count & (count - 1) == 0:
            # Replan at the first result and whenever their number has doubled: others change the estimate too little.
            replan[result.job] = None
    return found, list(replan)


def _sample_s(state: State, bag: Bag, host: Host | None, result: Result) -> float | None:
    """The run time of an accepted result as it would have been on a machine of speed 1; None: it says nothing."""
    rules = bag.classes[bag.class_of(result.task)]
    resumed = any(attempt < result.attempt for attempt, _ in bag.progress.saved.get(result.task, ()))
    if rules.estimate_is_exact or resumed:
        return None
    machine = None if host is None else machine_of(state, host)
    speed = 1.0 if machine is None else machine.offer.speed_for(rules.name)
    return max((result.end - result.start) / unit_of(bag, result.task), 1e-6) * speed


def on_checkpoint_saved(state: State, event: CheckpointSaved, policies: Any) -> CheckpointKept:
    """Only the host that has an attempt, or had it until it restarted or left, may save a checkpoint of it."""
    bag = state.bags.get(event.job)
    if bag is None or not 0 <= event.task < bag.total or not 0 < event.attempt <= bag.columns.attempts[event.task]:
        return CheckpointKept(0.0, kept=False)
    if event.host:
        host = state.hosts.by_name.get(event.host)
        if host is None or host.number != attempts.last_holder(bag, event.task, event.attempt):
            return CheckpointKept(0.0, kept=False)
    if event.run_s is None:
        return CheckpointKept(event.saved_s)
    return CheckpointKept(progress_s(state, event.job, event.task, event.attempt, event.run_s))


def progress_s(state: State, job: int, task: int, attempt: int, run_s: float) -> float:
    """What a task has done by now, in seconds on a machine of speed 1, if this attempt has run for `run_s`.

    It began with what earlier attempts had saved, and the time to restore that is no progress.
    """
    bag = state.bags.get(job)
    live = None if bag is None else bag.attempts.find(task, attempt)
    if bag is None or live is None:
        return 0.0
    host = state.hosts.get(live.host)
    return _progress_s(bag, task, attempt, run_s, None if host is None else machine_of(state, host))


def _progress_s(bag: Bag, task: int, attempt: int, run_s: float, machine: MachineState | None) -> float:
    rules = bag.classes[bag.class_of(task)]
    before_s = max((saved for earlier, saved in bag.progress.saved.get(task, ()) if earlier < attempt), default=0.0)
    if before_s:
        run_s = max(0.0, run_s - CHECKPOINT_S - CHECKPOINT_S_PER_MB * (rules.checkpoint_mb or 0.0))
    return before_s + run_s * (1.0 if machine is None else machine.offer.speed_for(rules.name))


def ran_so_far(state: State, bag: Bag, t: float) -> dict[int, float]:
    """By task: for how long one of its attempts has run without an end, on a machine of speed 1."""
    if all(rules.estimate_is_exact for rules in bag.classes):
        return {}
    found = dict(bag.progress.interrupted_s)
    saved = bag.progress.saved
    is_new = not saved and not found
    number, speed, sent_t, ran = -1, None, math.inf, 0.0
    speeds: dict[int, float | None] = {}
    for task, live in bag.attempts.live.items():
        attempt = live[0]
        if attempt.host != number:
            # Tasks that were handed out together stand together.
            number, sent_t = attempt.host, math.inf
            if number not in speeds:
                speeds[number] = _plain_speed(state, bag, number)
            speed = speeds[number]
        # Nearly all: one attempt, nothing saved before, a machine that was never hibernated.
        if speed is not None and len(live) == 1 and (is_new or (task not in saved and task not in found)):
            if attempt.sent != sent_t:
                sent_t, ran = attempt.sent, max(0.0, t - attempt.sent) * speed
            found[task] = ran
        else:
            found[task] = max(found.get(task, 0.0), *(ran_s(state, bag, task, attempt, t) for attempt in live))
    return found


def _plain_speed(state: State, bag: Bag, number: int) -> float | None:
    """What the seconds of every attempt on a host are multiplied with in `ran_s`; None: they differ by attempt."""
    host = state.hosts.get(number)
    machine = None if host is None else machine_of(state, host)
    if host is None or machine is None:
        return 0.0
    if (
        machine.sleeps
        or len(host.held) > host.slots
        or (len(bag.classes) > 1 and isinstance(machine.offer.speed, dict))
    ):
        return None
    return machine.offer.speed_for(bag.classes[0].name)


def ran_s(state: State, bag: Bag, task: int, attempt: Attempt, t: float) -> float:
    """Seconds that an attempt has run, at speed 1; 0.0 if it may still wait there, or on a host of unknown speed."""
    host = state.hosts.get(attempt.host)
    machine = None if host is None else machine_of(state, host)
    if host is None or machine is None:
        return 0.0
    key = (bag.number, task, attempt.number)
    if len(host.held) > host.slots and key not in islice(host.held, host.slots):
        return 0.0
    run_s = t - attempt.sent - machine.slept_s(attempt.sent, t)
    return _progress_s(bag, task, attempt.number, run_s, machine)


def _pilot_s(bag: Bag, index: int, t: float) -> float:
    """The estimate before the first result: a guess, raised as soon as tasks run longer."""
    guess_s = UNKNOWN_S if bag.rules.deadline_s is None else min(UNKNOWN_S, UNKNOWN_SHARE * bag.rules.deadline_s)
    running = [live[0].sent for task, live in bag.attempts.live.items() if bag.class_of(task) == index]
    return max([guess_s, *(RUNNING_FACTOR * (t - sent) for sent in running)])


def _running(bag: Bag, index: int, ran: dict[int, float]) -> list[float]:
    """Of the tasks of a class that have begun and not ended: how long they have run, in what is learned.

    Of very many, some: as of those that have ended.
    """
    if len(bag.classes) == 1 and not bag.progress.estimates:
        found = [seconds for seconds in ran.values() if seconds]
    else:
        units = ((task, seconds / unit_of(bag, task)) for task, seconds in ran.items() if seconds)
        found = [seconds for task, seconds in units if bag.class_of(task) == index]
    return found[:: math.ceil(len(found) / MAX_SAMPLES) or 1]


class Outlook:
    """How long the tasks of one class take: the quantile that confidence demands, and what to expect.

    On a machine of speed 1, in seconds or in multiples of each task's own estimate (`unit_of`). `confidence` is the
    chance that all of `together` tasks keep the quantile: by default, all unfinished tasks of the job.
    """

    def __init__(
        self, state: State, bag: Bag, index: int, confidence: float, t: float, ran: dict[int, float] | None = None,
        together: int | None = None, guess_is_mean: bool = True,
    ) -> None:  # fmt: skip
        self.rules: TaskClass = bag.classes[index]
        self._key, self.quantile = bag.class_key(index), confidence
        first_s = 1.0 if bag.progress.estimates else self.rules.estimate_s
        self.is_unknown = False
        self._given: dict[int, tuple[float, float]] = {}
        self.short_s = math.inf
        """The time that an attempt has run changes the estimate from here on."""
        if self.rules.estimate_is_exact:
            self.runtime_s = self.mean_s = first_s or UNKNOWN_S
            return
        seconds = state.learned.run_times[self._key].seconds if self._key in state.learned.run_times else []
        # Without a result even a bad guess is needed; with one, only a guess of the user still counts.
        self.is_unknown = not first_s and not seconds
        guess_s = _pilot_s(bag, index, t) if self.is_unknown else first_s
        prior = prior_of(self.rules.spread, bool(bag.progress.estimates), bool(self.rules.estimate_s))
        running = [] if self.is_unknown else _running(bag, index, ran or {})
        times = RunTimes(seconds, len(seconds), guess_s, prior)
        self._estimates = Estimates({self._key: times}, {self._key: running}, guess_is_mean=guess_is_mean)
        self.mean_s = self._estimates.mean(self._key) or UNKNOWN_S
        together = bag.counts[WAITING] + bag.counts[HELD] if together is None else together
        self.quantile = self._estimates.quantile_of_each(self._key, confidence, together)
        # While nothing is known, the mean: a high quantile would rent every machine for a bag of short tasks.
        self.runtime_s = (
            self.mean_s if self.is_unknown else self._estimates.quantile(self._key, self.quantile) or UNKNOWN_S
        )
        if not self.is_unknown:
            self.short_s = SHORT * self.mean_s

    def given(self, ran_s: float, unit_s: float = 1.0) -> tuple[float, float]:
        """Quantile and mean, in seconds, of a task of which an attempt has run this long without ending."""
        units = ran_s / unit_s
        if units < self.short_s:
            return self.runtime_s * unit_s, self.mean_s * unit_s
        step = math.ceil(math.log(units) / _LOG_STEP)
        if step not in self._given:
            sure, middle = (
                self._estimates.quantile(self._key, q, 1.0, STEP**step) or 0.0 for q in (self.quantile, 0.5)
            )
            self._given[step] = sure, min(sure, max(self.mean_s, middle))
        sure, mean = self._given[step]
        return sure * unit_s, mean * unit_s

    def given_each(self, ran_s: list[float]) -> tuple[list[int], list[tuple[float, float]]]:
        """The same for many tasks; the unit is a second. Of each task the place of its pair, and the pairs."""
        if not ran_s:
            return [], []
        if self.short_s == math.inf:
            return [0] * len(ran_s), [(self.runtime_s, self.mean_s)]
        seconds = np.asarray(ran_s)
        long = seconds >= self.short_s
        steps = np.full(len(ran_s), -1, np.int64)
        steps[long] = np.ceil(np.log(seconds[long]) / _LOG_STEP)
        _, firsts, kinds = np.unique(steps, return_index=True, return_inverse=True)
        return kinds.tolist(), [self.given(ran_s[first]) for first in firsts.tolist()]

    def left_s(self, elapsed_s: float, speed: float, unit_s: float = 1.0) -> float:
        """What is left, on a machine of this speed, of a task that has run this long there."""
        return max(0.0, self.given(elapsed_s * speed, unit_s)[0] / speed - elapsed_s)
