"""How long a task will take: quantiles per class of tasks, learned from finished attempts. Pure.

Times are kept as on a machine of speed 1. Few samples are spread by a log-normal law with the doubt that few samples
leave (Student's t); many speak for themselves. A guess of the user counts as one sample and fades as real ones come.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

from msgspec import Struct, field

# The newest samples are kept: run times drift with code and data, and a quantile of 500 is as good as one of 500,000.
MOST_SAMPLES = 500
# From here on a quantile is read off the samples, as long as they reach that far into the tail.
MANY = 40


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


class Estimates(Struct):
    """Run times by class of task."""

    classes: dict[str, Record] = field(default_factory=dict)

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
        return _quantile(record, q, elapsed_s * speed) / speed

    def mean(self, task_class: str, speed: float = 1.0) -> float | None:
        record = self.classes.get(task_class)
        if record is None or not (record.seconds or record.guess_s):
            return None
        samples = record.seconds or [record.guess_s or 0.0]
        return math.fsum(samples) / len(samples) / speed

    def _record(self, task_class: str) -> Record:
        return self.classes.setdefault(task_class, Record())


def _quantile(record: Record, q: float, elapsed_s: float) -> float:
    ordered = sorted(record.seconds)
    longer = ordered[bisect_right(ordered, elapsed_s) :] if elapsed_s > 0 else ordered
    # The sample quantile must lie inside the samples: with n of them, not beyond 1 - 1/n.
    if len(longer) >= MANY and q <= 1.0 - 1.0 / len(longer):
        return _read_off(longer, q)
    return _predicted(record, q, elapsed_s)


def _read_off(ordered: Sequence[float], q: float) -> float:
    place = q * (len(ordered) + 1) - 1
    low = min(max(0, math.floor(place)), len(ordered) - 1)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * min(max(place - low, 0.0), 1.0)


def _predicted(record: Record, q: float, elapsed_s: float) -> float:
    """The next sample's quantile under a log-normal law whose mean and spread are both uncertain."""
    from scipy import stats  # half a second that whoever only keeps records need not wait

    logs = [math.log(value) for value in record.seconds]
    if record.guess_s:
        logs.append(math.log(record.guess_s))
    count = len(logs)
    centre = math.fsum(logs) / count
    squares = math.fsum((value - centre) ** 2 for value in logs) + record.prior.weight * record.prior.spread**2
    freedom = count - 1 + record.prior.weight
    scale = math.sqrt(squares / freedom * (1.0 + 1.0 / count))
    if elapsed_s > 0:
        # Given that it has lasted this long: the same quantile of what is left of the law.
        gone = float(stats.t.cdf((math.log(elapsed_s) - centre) / scale, freedom))
        q = gone + (1.0 - gone) * q
    return max(elapsed_s, math.exp(centre + scale * float(stats.t.ppf(min(q, 1.0 - 1e-9), freedom))))
