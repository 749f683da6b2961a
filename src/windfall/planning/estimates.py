"""Run time quantiles per class of tasks, learned from finished attempts. Pure.

Times are seconds on a machine of speed 1. With few samples a log-normal law is fitted, and the quantile is Student's t,
which widens it for the small sample; with `MIN_SAMPLES_FOR_QUANTILE` or more the quantile is read off the samples. A
user's guess counts as `GUESS_SAMPLES` samples. Short tasks end first, so running ones count as censored samples: by
expectation-maximisation for the law, by the Kaplan-Meier estimate for many samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from msgspec import Struct, field
from msgspec.structs import replace

MAX_SAMPLES = 500
"""The newest samples are kept: run times drift with code and data, and more would not sharpen a quantile."""
MIN_SAMPLES_FOR_QUANTILE = 40
"""From here on a quantile is read off the samples, as long as they reach that far into the tail."""
EM_ROUNDS = 4
GUESS_SAMPLES = 2
"""Weight of a user's guess, in samples."""
MAX_SPREADS = 6.0
"""Beyond this many spreads from the centre the normal tail underflows; its asymptote is used instead."""

ROOT_2, ROOT_2_PI = math.sqrt(2.0), math.sqrt(2.0 * math.pi)
MIN_RUN_S, MAX_RUN_S = 1e-6, 1e12
"""Shorter samples and guesses count as the first; means of running attempts and fitted quantiles end at the second."""
MIN_TAIL = 1e-9
"""Fitted quantiles are told from this probability up to one minus this."""


MIN_FREEDOM_FOR_MANY = 8.0
"""With fewer degrees of freedom than this the quantile of a single task is used for each of many tasks: few samples
say nothing of a quantile beyond that."""


SPREAD_NODES, MEAN_NODES = 48, 9
"""Points at which the joint chance of many tasks is averaged over what is not known of their law."""
CHANCE_STEPS = 20
"""Halvings in the search for the chance to ask for a sample."""


class Prior(Struct, frozen=True):
    """Prior spread of the logarithm of a class's run times, and its weight in samples."""

    spread: float
    weight: float


# For run times without a guess, with a person's guess, and for factors on recorded run times.
UNKNOWN = Prior(0.5, 2.0)
GUESSED = Prior(0.35, 10.0)
RECORDED = Prior(0.15, 10.0)


TOLD_WEIGHT = 10.0
"""Weight of a spread that the user says, in samples: run times that differ from it are believed in the end."""


def prior_of(told_spread: float | None, is_recorded: bool, is_guessed: bool) -> Prior:
    """What is assumed of the spread before run times are known.

    `is_recorded`: every task has an estimate of its own; `is_guessed`: all have one.
    """
    if told_spread is not None:
        return Prior(told_spread, TOLD_WEIGHT)
    return RECORDED if is_recorded else GUESSED if is_guessed else UNKNOWN


class Record(Struct):
    """One class of tasks: the newest run times at speed 1, how many there were in all, and the user's guess."""

    seconds: list[float] = field(default_factory=list)
    count: int = 0
    guess_s: float | None = None
    prior: Prior = GUESSED


class RunTimeLaw(Struct, frozen=True):
    """A log-normal law: mean and spread of the logarithm, with their degrees of freedom and number of samples."""

    centre: float
    spread: float
    freedom: float
    count: float

    def beyond(self, logs: Sequence[float]) -> list[tuple[float, float]]:
        """Mean and variance of the logarithm of a run time that exceeds each of these, which are logarithms, too."""
        centre, spread, square = self.centre, self.spread, self.spread**2
        exp, erfc = math.exp, math.erfc
        found: list[tuple[float, float]] = []
        add = found.append
        for log in logs:
            at = (log - centre) / spread
            hazard = exp(-at * at / 2.0) / ROOT_2_PI / (0.5 * erfc(at / ROOT_2)) if at < MAX_SPREADS else at + 1.0 / at
            share = 1.0 + at * hazard - hazard**2
            add((centre + spread * hazard, square * share if share > 0.0 else 0.0))
        return found


class Estimates(Struct):
    """Run times by class of task. `running`: seconds so far of attempts that have not ended."""

    classes: dict[str, Record] = field(default_factory=dict)
    running: dict[str, list[float]] = field(default_factory=dict)
    laws: dict[str, RunTimeLaw] = field(default_factory=dict)
    """Fitted laws; an entry is dropped when its class learns something new."""
    guess_is_mean: bool = True
    """Whether a user's guess is taken for the mean of the run times or for their median."""

    def guess(self, task_class: str, seconds: float) -> None:
        """Set the user's guess for a class, in seconds on a machine of speed 1."""
        self._record(task_class).guess_s = seconds

    def learn(self, task_class: str, seconds: float, speed: float = 1.0) -> None:
        """Add one finished attempt of `seconds` on a machine of this speed."""
        record = self._record(task_class)
        record.count += 1
        record.seconds.append(max(seconds, MIN_RUN_S) * speed)
        del record.seconds[:-MAX_SAMPLES]

    def quantile(self, task_class: str, q: float, speed: float = 1.0, elapsed_s: float = 0.0) -> float | None:
        """The q-quantile of the total run time on such a machine, in seconds, given that it has run `elapsed_s`.

        None if nothing is known of the class.
        """
        record = self.classes.get(task_class)
        if record is None or not (record.seconds or record.guess_s):
            return None
        seconds = _sample_quantile(record.seconds, self.running.get(task_class, ()), q, elapsed_s * speed)
        if seconds is None:
            seconds = _predicted(self._law(task_class, record), q, elapsed_s * speed)
        return seconds / speed

    def quantile_of_each(self, task_class: str, chance: float, tasks: int) -> float:
        """The quantile that each of `tasks` tasks must keep so that all keep it with this chance."""
        record = self.classes.get(task_class)
        if record is None or not (record.seconds or record.guess_s):
            return chance
        law = self._law(task_class, record)
        if law.freedom < MIN_FREEDOM_FOR_MANY:
            return chance
        if len(record.seconds) >= MIN_SAMPLES_FOR_QUANTILE:
            return quantile_of_each(chance, tasks)
        return _joint_quantile(chance, tasks, round(law.freedom, 1), round(law.count, 1))

    def mean(self, task_class: str, speed: float = 1.0) -> float | None:
        """The mean run time in seconds, running attempts at their expected length; None if nothing is known."""
        record = self.classes.get(task_class)
        if record is None or not (record.seconds or record.guess_s):
            return None
        samples = record.seconds or [max(record.guess_s or 0.0, MIN_RUN_S)]
        if running := self.running.get(task_class):
            law = self._law(task_class, record)
            samples = [*samples, *(_run_s(mean) for mean, _ in law.beyond(_logs(running)))]
        return math.fsum(samples) / len(samples) / speed

    def _record(self, task_class: str) -> Record:
        self.laws.pop(task_class, None)
        return self.classes.setdefault(task_class, Record())

    def _law(self, task_class: str, record: Record) -> RunTimeLaw:
        if task_class not in self.laws:
            self.laws[task_class] = _fitted(record, self.running.get(task_class, ()), self.guess_is_mean)
        return self.laws[task_class]


def chance_of_sample(chance: float, tasks: int, whole: int, prior: Prior) -> float:
    """The chance to ask for `tasks` of `whole` tasks, so that each keeps the quantile that it keeps among all of them.

    Before anything has run: mean and spread of the law are as uncertain for few tasks as for many, so this lies below
    the power that independent tasks would need.
    """
    estimates = Estimates({"": Record(guess_s=1.0, prior=prior)})
    wanted = estimates.quantile_of_each("", chance, whole)
    low, high = chance, quantile_of_each(chance, max(1, round(whole / tasks)))
    for _ in range(CHANCE_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if estimates.quantile_of_each("", middle, tasks) < wanted else (low, middle)
    return high


def quantile_of_each(chance: float, tasks: int) -> float:
    """The quantile that each of `tasks` independent run times must keep so that all keep it with this chance."""
    return float(chance ** (1.0 / max(1, tasks)))


@lru_cache(maxsize=512)
def _joint_quantile(chance: float, tasks: int, freedom: float, count: float) -> float:
    """The same under a fitted law, as a quantile of Student's t.

    Mean and spread of the law are uncertain, but they are the same for all tasks. So the tasks are not independent:
    that all of them keep a quantile is likelier than the power of the chance of one. The chance is averaged over the
    spread (`SPREAD_NODES` quantiles of its law) and the mean (Gauss-Hermite nodes), and the quantile is bisected.
    """
    if tasks <= 1:
        return chance
    import numpy as np
    from scipy.special import chdtri, log_ndtr, stdtr

    spreads = np.sqrt(freedom / chdtri(freedom, 1.0 - (np.arange(SPREAD_NODES) + 0.5) / SPREAD_NODES))
    nodes, weights = np.polynomial.hermite_e.hermegauss(MEAN_NODES)
    offsets, weights = nodes / math.sqrt(count), weights / weights.sum()
    low, high = 0.0, 60.0
    for _ in range(40):
        middle = (low + high) / 2
        kept = np.exp(tasks * log_ndtr(middle / spreads[:, None] - offsets[None, :])) @ weights
        low, high = (middle, high) if float(kept.mean()) < chance else (low, middle)
    return max(chance, float(stdtr(freedom, low / math.sqrt(1.0 + 1.0 / count))))


def _logs(running: Sequence[float]) -> list[float]:
    return [math.log(max(seconds, MIN_RUN_S)) for seconds in running]


def _sample_quantile(ended: Sequence[float], running: Sequence[float], q: float, elapsed_s: float) -> float | None:
    """The Kaplan-Meier q-quantile of the samples above `elapsed_s`; None if there are too few of them.

    Those that have not ended yet count among those that could end for as long as they have run (the product limit).
    It must lie inside the samples: q at most 1 - 1/n.
    """
    ordered = sorted(value for value in ended if value > elapsed_s)
    if len(ordered) < MIN_SAMPLES_FOR_QUANTILE or q > 1.0 - 1.0 / len(ordered):
        return None
    still = sorted(value for value in running if value > elapsed_s)
    last, left, gone = 1.0, len(ordered) + len(still) + 1, 0
    for place, value in enumerate(ordered):
        while gone < len(still) and still[gone] < value:
            gone += 1
        before, last = last, last * (1.0 - 1.0 / (left - place - gone))
        if 1.0 - last >= q:
            low = ordered[max(0, place - 1)]
            return low + (value - low) * (before - (1.0 - q)) / (before - last)
    return None


def _fitted(record: Record, running: Sequence[float], guess_is_mean: bool) -> RunTimeLaw:
    """The log-normal law of samples, running attempts and prior."""
    logs = [math.log(value) for value in record.seconds]
    if len(logs) >= MIN_SAMPLES_FOR_QUANTILE:
        # So many say themselves how far they spread.
        record = replace(record, guess_s=None, prior=Prior(0.0, 0.0))
    if record.guess_s:
        # The mean of a log-normal law lies above its median.
        above = record.prior.spread**2 / 2 if guess_is_mean else 0.0
        logs += [math.log(max(record.guess_s, MIN_RUN_S)) - above] * GUESS_SAMPLES
    law = _law(logs, 0.0, record.prior)
    # A few rounds suffice: the error shrinks each time by at least the share of running attempts.
    so_far = _logs(running)
    for _ in range(EM_ROUNDS if running else 0):
        parts = law.beyond(so_far)
        law = _law(logs + [mean for mean, _ in parts], math.fsum([variance for _, variance in parts]), record.prior)
    return replace(law, count=len(logs), freedom=len(logs) - 1 + record.prior.weight)


def _law(logs: Sequence[float], variance: float, prior: Prior) -> RunTimeLaw:
    count = len(logs)
    centre = math.fsum(logs) / count
    squares = math.fsum([(value - centre) ** 2 for value in logs]) + variance + prior.weight * prior.spread**2
    freedom = count - 1 + prior.weight
    return RunTimeLaw(centre, max(math.sqrt(squares / freedom), 1e-9), freedom, count)


def _predicted(law: RunTimeLaw, q: float, elapsed_s: float) -> float:
    """The quantile of the next run time under a law whose mean and spread are both uncertain."""
    from scipy.special import stdtr, stdtrit  # keeping records alone does not need them, nor their import

    scale = law.spread * math.sqrt(1.0 + 1.0 / law.count)
    if elapsed_s > 0:
        # Conditional on having run this long: the same quantile of the rest of the law.
        gone = float(stdtr(law.freedom, (math.log(elapsed_s) - law.centre) / scale))
        q = gone + (1.0 - gone) * q
    # Below 1e-300 or so, stdtrit answers with plus infinity.
    q = min(max(q, MIN_TAIL), 1.0 - MIN_TAIL)
    return max(elapsed_s, _run_s(law.centre + scale * float(stdtrit(law.freedom, q))))


def _run_s(logarithm: float) -> float:
    return math.exp(min(logarithm, math.log(MAX_RUN_S)))
