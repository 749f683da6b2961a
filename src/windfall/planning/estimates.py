"""How long a task will take: quantiles per class of tasks, learned from finished attempts. Pure.

Times are kept as on a machine of speed 1. Few samples are spread by a log-normal law with the doubt that few samples
leave (Student's t); many speak for themselves. A guess of the user counts as one sample and fades as real ones come.
The short ones end first: what has run for a while without an end counts as well, with the time that it is expected to
take (expectation and maximisation for the law, Kaplan and Meier's product limit for many).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct, field
from msgspec.structs import replace

# The newest samples are kept: run times drift with code and data, and a quantile of 500 is as good as one of 500,000.
MOST_SAMPLES = 500
# From here on a quantile is read off the samples, as long as they reach that far into the tail.
MANY = 40
ROUNDS = 4
# So many samples a guess is worth.
GUESSES = 2
# So many spreads from the centre the tail is that of its end: beyond, the numbers that describe it vanish.
FAR = 6.0


class Prior(Struct, frozen=True):
    """Spread (of the logarithm) of a class before its samples say otherwise, and how many samples that weighs."""

    spread: float
    weight: float


# Of run times of which nobody has said anything, of a person's guess, and of multiples of what each task once took.
UNKNOWN = Prior(0.5, 2.0)
GUESSED = Prior(0.35, 10.0)
RECORDED = Prior(0.15, 10.0)


class Record(Struct):
    """One class of tasks: the newest run times at speed 1, how many there ever were, and the user's guess."""

    seconds: list[float] = field(default_factory=list)
    count: int = 0
    guess_s: float | None = None
    prior: Prior = GUESSED


class Law(Struct, frozen=True):
    """The logarithm of a run time: its mean and spread, and so many degrees of freedom as that is known by."""

    centre: float
    spread: float
    freedom: float
    count: float

    def beyond(self, seconds: float) -> tuple[float, float]:
        """Of what takes longer than this: the mean and the variance of the logarithm."""
        at = (math.log(max(seconds, 1e-6)) - self.centre) / self.spread
        hazard = _density(at) / _above(at) if at < FAR else at + 1.0 / at
        return self.centre + self.spread * hazard, self.spread**2 * max(0.0, 1.0 + at * hazard - hazard**2)


class Estimates(Struct):
    """Run times by class of task; `running`: how long others have run so far that have not ended."""

    classes: dict[str, Record] = field(default_factory=dict)
    running: dict[str, list[float]] = field(default_factory=dict)
    laws: dict[str, Law] = field(default_factory=dict)
    """What was fitted, until something new is known."""

    def guess(self, task_class: str, seconds: float) -> None:
        """What the user thinks a task takes on a machine of speed 1."""
        self._record(task_class).guess_s = seconds

    def learn(self, task_class: str, seconds: float, speed: float = 1.0) -> None:
        """One finished attempt on a machine of this speed."""
        record = self._record(task_class)
        record.count += 1
        record.seconds.append(max(seconds, 1e-6) * speed)
        del record.seconds[:-MOST_SAMPLES]

    def quantile(self, task_class: str, q: float, speed: float = 1.0, elapsed_s: float = 0.0) -> float | None:
        """Seconds that a task takes in all on such a machine with probability q, given that it has run `elapsed_s`.

        None where nothing is known of the class.
        """
        record = self.classes.get(task_class)
        if record is None or not (record.seconds or record.guess_s):
            return None
        seconds = _read_off(record.seconds, self.running.get(task_class, ()), q, elapsed_s * speed)
        if seconds is None:
            seconds = _predicted(self._law(task_class, record), q, elapsed_s * speed)
        return seconds / speed

    def mean(self, task_class: str, speed: float = 1.0) -> float | None:
        """What is to be expected; of what runs, what its law expects."""
        record = self.classes.get(task_class)
        if record is None or not (record.seconds or record.guess_s):
            return None
        samples = record.seconds or [record.guess_s or 0.0]
        if running := self.running.get(task_class):
            law = self._law(task_class, record)
            samples = [*samples, *(math.exp(law.beyond(seconds)[0]) for seconds in running)]
        return math.fsum(samples) / len(samples) / speed

    def _record(self, task_class: str) -> Record:
        self.laws.pop(task_class, None)
        return self.classes.setdefault(task_class, Record())

    def _law(self, task_class: str, record: Record) -> Law:
        if task_class not in self.laws:
            self.laws[task_class] = _fitted(record, self.running.get(task_class, ()))
        return self.laws[task_class]


def _above(at: float) -> float:
    return 0.5 * math.erfc(at / math.sqrt(2.0))


def _density(at: float) -> float:
    return math.exp(-at * at / 2.0) / math.sqrt(2.0 * math.pi)


def _read_off(ended: Sequence[float], running: Sequence[float], q: float, elapsed_s: float) -> float | None:
    """Of many samples longer than `elapsed_s` the one below which a share q of them lies; None where there are few.

    Those that have not ended yet count among those that could end for as long as they have run (the product limit).
    The quantile must lie inside the samples: with n of them, not beyond 1 - 1/n.
    """
    ordered = sorted(value for value in ended if value > elapsed_s)
    if len(ordered) < MANY or q > 1.0 - 1.0 / len(ordered):
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


def _fitted(record: Record, running: Sequence[float]) -> Law:
    """The log-normal law of the samples, of what runs, and of what is thought beforehand."""
    logs = [math.log(value) for value in record.seconds]
    if record.guess_s:
        logs += [math.log(record.guess_s)] * GUESSES
    law = _law(logs, 0.0, record.prior)
    # A few rounds suffice: what runs is a part of what there is, and each round leaves less than that part.
    for _ in range(ROUNDS if running else 0):
        parts = [law.beyond(seconds) for seconds in running]
        law = _law([*logs, *(mean for mean, _ in parts)], math.fsum(variance for _, variance in parts), record.prior)
    return replace(law, count=len(logs), freedom=len(logs) - 1 + record.prior.weight)


def _law(logs: Sequence[float], variance: float, prior: Prior) -> Law:
    count = len(logs)
    centre = math.fsum(logs) / count
    squares = math.fsum((value - centre) ** 2 for value in logs) + variance + prior.weight * prior.spread**2
    freedom = count - 1 + prior.weight
    return Law(centre, max(math.sqrt(squares / freedom), 1e-9), freedom, count)


def _predicted(law: Law, q: float, elapsed_s: float) -> float:
    """The next sample's quantile under a log-normal law whose mean and spread are both uncertain."""
    from scipy import stats  # half a second that whoever only keeps records need not wait

    scale = law.spread * math.sqrt(1.0 + 1.0 / law.count)
    if elapsed_s > 0:
        # Given that it has lasted this long: the same quantile of what is left of the law.
        gone = float(stats.t.cdf((math.log(elapsed_s) - law.centre) / scale, law.freedom))
        q = gone + (1.0 - gone) * q
    return max(elapsed_s, math.exp(law.centre + scale * float(stats.t.ppf(min(q, 1.0 - 1e-9), law.freedom))))
