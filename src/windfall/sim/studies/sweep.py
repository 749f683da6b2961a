"""Many runs of one scenario: seeds over any executor, means with their intervals, two scenarios pair by pair. Pure
but for the executor it is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, as_completed
from math import nan, sqrt
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from scipy import stats

from windfall.sim.run import RunOutcome, run_seed
from windfall.sim.scenario import Scenario

# The measures of a sweep, and where each is found in a run.
MEASURES = {
    "turnaround_s": "turnaround",
    "cost_usd": "cost",
    "met": "deadline met",
    "failed": "tasks failed",
    "replicas": "replicas",
    "discarded": "results discarded",
    "waste": "time wasted on replicas",
    "lost": "time lost to failures",
    "utilisation": "utilisation",
    "machines": "machines rented",
    "interrupted": "interruptions",
}
CONFIDENCE = 0.95


class Interval(Struct, frozen=True):
    """A mean over seeds and the interval that holds the true one with 95 %; no interval from a single seed."""

    mean: float
    low: float | None
    high: float | None
    n: int


class Comparison(Struct, frozen=True):
    """Two scenarios over the same seeds: B minus A, seed by seed."""

    measure: str
    a: Interval
    b: Interval
    difference: Interval
    relative: float | None
    p_value: float | None
    b_lower: int
    seeds: int

    @property
    def significant(self) -> bool:
        return self.p_value is not None and self.p_value < 1 - CONFIDENCE


def sweep(
    scenario: Scenario,
    seeds: Iterable[int],
    executor: Executor | None,
    done: Callable[[RunOutcome], None] | None = None,
) -> list[RunOutcome]:
    """The outcomes in the order of the seeds. Without an executor they run one after another, here."""
    data = msgspec.msgpack.encode(scenario)
    order = list(seeds)
    found: dict[int, RunOutcome] = {}

    def take(encoded: bytes) -> None:
        outcome = msgspec.msgpack.decode(encoded, type=RunOutcome)
        found[outcome.seed] = outcome
        if done is not None:
            done(outcome)

    if executor is None:
        for seed in order:
            take(run_seed(data, seed))
    else:
        for future in as_completed([executor.submit(run_seed, data, seed) for seed in order]):
            take(future.result())
    return [found[seed] for seed in order]


def interval(values: Sequence[float]) -> Interval:
    """Student's interval of the mean."""
    array = np.asarray(values, dtype=float)
    n = len(array)
    mean = float(array.mean()) if n else nan
    if n < 2:
        return Interval(mean, None, None, n)
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, n - 1) * array.std(ddof=1) / sqrt(n))
    return Interval(mean, mean - half, mean + half, n)


def measured(values: Sequence[float]) -> Interval:
    """The interval of a quantity that is never negative."""
    found = interval(values)
    return found if found.low is None else msgspec.structs.replace(found, low=max(0.0, found.low))


def share(hits: Sequence[float]) -> Interval:
    """Share of hits with Wilson's interval: 20 of 20 does not prove 100 %."""
    n = len(hits)
    found = stats.binomtest(round(sum(hits)), n).proportion_ci(CONFIDENCE, method="wilson")
    return Interval(sum(hits) / n, float(found.low), float(found.high), n)


def _interval_of(measure: str, values: Sequence[float]) -> Interval:
    return share(values) if measure == "met" else measured(values)


def values_of(outcomes: Sequence[RunOutcome], measure: str) -> list[float]:
    """One measure of every run that has it."""
    values = (getattr(outcome, measure) for outcome in outcomes)
    return [float(value) for value in values if value is not None]


def summary(outcomes: Sequence[RunOutcome]) -> dict[str, Any]:
    """Means and intervals over the seeds, of the whole, of every bag and of every pool."""
    first = outcomes[0]
    bags = {
        bag.name: {
            "turnaround_s": measured(
                [taken_s for run in outcomes if (taken_s := run.bags[place].turnaround_s) is not None],
            ),
            "replicas": measured([run.bags[place].replicas / run.bags[place].tasks for run in outcomes]),
            "discarded": measured([run.bags[place].discarded / run.bags[place].tasks for run in outcomes]),
            "failed": measured([run.bags[place].failed for run in outcomes]),
        }
        for place, bag in enumerate(first.bags)
    }
    pools = {name: _pool_summary([run.pools[name] for run in outcomes]) for name in first.pools}
    return {
        "scenario": first.scenario,
        "seeds": [outcome.seed for outcome in outcomes],
        "finished": sum(outcome.finished for outcome in outcomes),
        **{name: _interval_of(name, values) for name in MEASURES if (values := values_of(outcomes, name))},
        "bags": bags,
        "pools": pools,
    }


def _pool_summary(books: list[Any]) -> dict[str, Interval]:
    return {
        "hosts": measured([book.hosts for book in books]),
        "done": measured([book.done for book in books]),
        "lost": measured([book.lost for book in books]),
        "failed": measured([book.failed for book in books]),
        "useful_h": measured([book.useful_s / 3600 for book in books]),
        "utilisation": measured([book.useful_s / book.present_s if book.present_s else 0.0 for book in books]),
        "cost_usd": measured([book.cost_microusd / 1e6 for book in books]),
    }


def compare(a: Sequence[RunOutcome], b: Sequence[RunOutcome], measure: str) -> Comparison:
    """Compare seed by seed: both sides meet the same world, so its randomness cancels out."""
    first, second = np.array(values_of(a, measure)), np.array(values_of(b, measure))
    gap = second - first
    differ = len(gap) > 1 and float(np.ptp(gap)) > 0
    p_value = float(stats.ttest_rel(second, first).pvalue) if differ else (1.0 if not gap.any() else None)
    mean = float(first.mean())
    return Comparison(
        measure=measure,
        a=_interval_of(measure, first.tolist()),
        b=_interval_of(measure, second.tolist()),
        difference=interval(gap.tolist()),
        relative=float(gap.mean()) / mean if mean else None,
        p_value=p_value,
        b_lower=int((gap < 0).sum()),
        seeds=len(gap),
    )
