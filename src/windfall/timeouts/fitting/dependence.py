"""Whether a resubmitted job really draws a new latency, and what to do where it does not. Pure.

Equation 6 assumes that consecutive submissions are independent. A probe of a grid is nearly that; the wait in a batch
queue is not: the resubmitted job joins the same queue, at its end. Two signs give it away: a mass at 0 (an idle machine
starts jobs at once, a busy one does not) and neighbours that wait alike. Where they show, jobs are compared only with
those that met the same pool under the same load.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from windfall.timeouts.arrays import Array, as_array
from windfall.timeouts.best import Best
from windfall.timeouts.fitting.sample import make_sample
from windfall.timeouts.laws.empirical import best_of_sample

ZERO_SHARE = 0.01
RANK_CORRELATION = 0.2
LEAST_IN_GROUP = 30
# Jobs and timeouts tried when a log is replayed, and resubmissions before a job is left in its place.
MOST_REPLAYED = 2_000
REPLAYED_TIMEOUTS = 16
MOST_ROUNDS = 300


class Observations(Struct, frozen=True):
    """Latencies in order of submission, which of them were cut short, and, where known, pool and time of submission."""

    values: Array
    censored: NDArray[np.bool_]
    pools: Sequence[str] | None = None
    submitted: Array | None = None


class Caution(Struct, frozen=True):
    """A reason why the answer may not hold, with a stable code."""

    code: str
    text: str


class Group(Struct, frozen=True):
    """The result for the jobs of one pool under one load."""

    pool: str | None
    load: str | None
    count: int
    zero_share: float
    neighbours: float
    best: Best


def neighbour_correlation(values: Array) -> float:
    """Rank correlation of each job's wait with the next one's; 0 for a constant or a sorted list."""
    if len(values) < 3:
        return 0.0
    steps = np.diff(values)
    if (steps >= 0).all() or (steps <= 0).all():
        return 0.0
    ranks = np.empty(len(values))
    ranks[np.argsort(values, kind="stable")] = np.arange(len(values))
    # Ties share their mean rank, or a mass at 0 would correlate with its own order in the file.
    _, index, count = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.bincount(index, weights=ranks) / count)[index]
    a, b = ranks[:-1] - ranks[:-1].mean(), ranks[1:] - ranks[1:].mean()
    norm = math.sqrt(float((a * a).sum() * (b * b).sum()))
    return float((a * b).sum()) / norm if norm > 0 else 0.0


def warnings_of(observations: Observations) -> list[Caution]:
    """Signs that waits are not independent of resubmission."""
    found = []
    values = observations.values
    zeros = float((values == 0).mean())
    if zeros > ZERO_SHARE:
        text = (
            f"{zeros:.1%} of the jobs waited 0 s: the formula would resubmit until one starts at once, but a "
            "resubmitted job meets the same full machine again"
        )
        found.append(Caution("mass-at-zero", text))
    neighbours = neighbour_correlation(values)
    if neighbours > max(RANK_CORRELATION, 3 / math.sqrt(len(values))):
        text = (
            f"jobs submitted one after the other wait alike (rank correlation {neighbours:.2f}): a resubmitted job "
            "would meet the same load and lose its place in the queue"
        )
        found.append(Caution("dependent", text))
    return found


def waiting_at_submission(submitted: Array, values: Array) -> Array:
    """How many other jobs were waiting when each job was submitted."""
    started, at_once = np.sort(submitted + values), np.sort(submitted[values == 0])
    before = np.searchsorted(np.sort(submitted), submitted, side="left")
    gone = np.searchsorted(started, submitted, side="right")
    # Those that start at the very moment of this submission were not submitted before it.
    now = np.searchsorted(at_once, submitted, side="right") - np.searchsorted(at_once, submitted, side="left")
    return as_array(before - (gone - now))


def _load_classes(observations: Observations) -> list[str] | None:
    if observations.submitted is None:
        return None
    waiting = waiting_at_submission(observations.submitted, observations.values)
    busy = waiting[waiting > 0]
    middle = float(np.median(busy)) if len(busy) else 0.0
    names = np.array(["none waiting", f"up to {middle:.0f} waiting", f"over {middle:.0f} waiting"])
    return [str(name) for name in names[(waiting > 0) * 1 + (waiting > middle) * 1]]


class Replay(Struct, frozen=True):
    """The effect of timeouts on this log; `timeout_s` is None if none certainly helps."""

    timeout_s: float | None
    expected_s: float
    no_timeout_s: float
    error_s: float
    curve: list[tuple[float, float]]


class Conditioned(Struct, frozen=True):
    """Results for each pool under each load, and for the replayed log."""

    groups: list[Group]
    replay: Replay | None


def condition(observations: Observations, run_s: float = 0.0, submit_cost_s: float = 0.0) -> Conditioned:
    """Compare each job only with those that met the same pool under the same load, as far as these are known."""
    loads, pools, count = _load_classes(observations), observations.pools, len(observations.values)
    members: dict[tuple[str | None, str | None], list[int]] = {}
    unknown: Sequence[str | None] = [None] * count
    for index, key in enumerate(zip(pools or unknown, loads or unknown, strict=True)):
        members.setdefault(key, []).append(index)
    groups = []
    for key in sorted(members, key=lambda pair: tuple(part or "" for part in pair)):
        values, cut = observations.values[members[key]], observations.censored[members[key]]
        if (loads is None and pools is None) or (~cut).sum() < LEAST_IN_GROUP:
            continue
        best = best_of_sample(make_sample(values, cut), run_s, submit_cost_s)
        groups.append(Group(*key, len(values), float((values == 0).mean()), neighbour_correlation(values), best))
    return Conditioned(groups, replay(observations, run_s, submit_cost_s))


def replay(observations: Observations, run_s: float, submit_cost_s: float) -> Replay | None:
    """Play resubmission on the log itself, with a few thousand of its jobs.

    A job given up at time t and submitted again starts when the job last submitted to its pool before t did (at once,
    if that one has started by t). Nothing is assumed independent: the load of that moment and the lost place in the
    queue are in the log. What the extra submissions would do to the others is not.
    """
    if observations.submitted is None:
        return None
    log = _Log(observations)
    jobs = np.unique(np.linspace(0, log.count - 1, min(log.count, MOST_REPLAYED)).astype(np.int64))
    overhead, values = run_s + submit_cost_s, log.started[jobs] - log.submitted[jobs]
    # Gains are measured on the jobs replayed and reported against the mean of all of them.
    none_s, positive = float(observations.values.mean()) + overhead, values[values > 0]
    chosen = Replay(None, none_s, none_s, 0.0, [])
    if not len(positive):
        return chosen
    curve = []
    for wait in np.unique(np.quantile(positive, np.linspace(0.1, 0.999, REPLAYED_TIMEOUTS))).tolist():
        total = _play(log, jobs, wait, submit_cost_s, run_s)
        # Neighbouring jobs are correlated, so the error is that of the means of twenty parts of the log.
        order = np.argsort(log.submitted[jobs], kind="stable")
        parts = np.array_split((values + overhead - total)[order], min(20, len(total)))
        gains = np.array([part.mean() for part in parts])
        error = float(gains.std(ddof=1)) / math.sqrt(len(gains)) if len(gains) > 1 else math.inf
        value = none_s - float((values + overhead - total).mean())
        curve.append((wait + run_s, value))
        if value < chosen.expected_s and none_s - value > 2 * error:
            chosen = Replay(wait + run_s, value, none_s, error, [])
    return Replay(chosen.timeout_s, chosen.expected_s, none_s, chosen.error_s, curve)


class _Log:
    """The jobs ordered by pool and then by submission; `key` puts both into one number that can be searched."""

    def __init__(self, observations: Observations) -> None:
        assert observations.submitted is not None
        self.count = len(observations.values)
        names = observations.pools if observations.pools is not None else [""] * self.count
        _, pool = np.unique(np.array(names), return_inverse=True)
        submitted = observations.submitted - observations.submitted.min()
        order = np.lexsort((submitted, pool))
        self.submitted = submitted[order]
        self.started = self.submitted + observations.values[order]
        self.pool_offset = pool[order] * (4 * (float(self.started.max()) + 1))
        self.key = self.submitted + self.pool_offset


def _play(log: _Log, jobs: NDArray[np.int64], wait: float, submit_cost_s: float, run_s: float) -> Array:
    """Seconds from first submission to result of each job; after many resubmissions a job waits for its last one."""
    now = log.submitted[jobs].copy()
    start = log.started[jobs].copy()
    total = log.started[jobs] - now + run_s + submit_cost_s
    going, rounds = np.flatnonzero(start - now > wait), 1
    while len(going) and rounds < MOST_ROUNDS:
        now[going] += wait + run_s
        rounds += 1
        latest = np.searchsorted(log.key, now[going] + log.pool_offset[jobs[going]], side="right") - 1
        start[going] = np.maximum(log.started[latest], now[going])
        done = start[going] - now[going] <= wait
        back = going[done]
        total[back] = start[back] - log.submitted[jobs[back]] + run_s + rounds * submit_cost_s
        going = going[~done]
    total[going] += (rounds - 1) * submit_cost_s
    return as_array(total)
