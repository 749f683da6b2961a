"""Learn the latencies of one pool online: a bounded sketch that forgets, and the timeout it advises. Pure.

The engine keeps the counts (`memory`) in its state and changes them only through `apply`; everything is plain data
(msgspec), every method is deterministic, and an update costs a few microseconds. It needs numpy, not scipy.

    memory.observe(pool, task_class, latency_s)            an attempt came back
    memory.observe_censored(pool, task_class, waited_s)    an attempt was killed or lost while it was silent
    memory.observe_running(pool, task_class, looked_s, waited_s)
                                                           a look at one still silent; looked_s is its age at the look
                                                           before (0 at the first), and its end then passes it too
    memory.best_timeout(pool, task_class, prior_s=, floor_s=, cap_s=, run_s=, submit_cost_s=)   -> Decision
    memory.quantile(pool, task_class, 0.95)                of the latency; None while unknown or never reached
    decision.for_attempt(n)                                the timeout of the n-th attempt: some wait longer, to learn

`Deadline` defaults to `decision.for_attempt(n)`, `Pool.BestTimeout` is `decision.timeout_s`, `Pool.LatencyQuantile95`
the quantile; `decision.because` is what `explain` says. A decision costs half a millisecond, and three while laws are
fitted: keep it, and ask again when `memory.stale(decision, pool, task_class)` says so. Latencies exclude the run time
of the task; pass that as `run_s`, and the timeout covers both.

Latencies fall into cells of equal ratio (1/16 octave). Each cell counts attempts that came back there, that were cut
short there, and that were first looked at again from there on: enough for Kaplan-Meier, whose curve `steps` searches.
Old attempts count less (half after 2000 newer ones). Drift is noticed by a two-sided cumulative sum of whether
attempts fall above or below the median so far: it needs no law, and a timeout does not disturb it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from msgspec.structs import astuple, replace

from windfall.errors import BadInput
from windfall.numeric import Ints, np
from windfall.timeouts.arrays import Array, as_array
from windfall.timeouts.laws.fitted import Seen, fitted
from windfall.timeouts.laws.steps import Choice, Steps, at_each, choose, kaplan_meier
from windfall.timeouts.learning.memory import USUAL, CountRules, Counts, Decision, Latencies

# Results before which the stated prior is used.
LEAST = 12
# While fewer attempts than this have ended, all wait longer than the timeout: it may be far too short.
ALL_EXPLORE_BELOW = 50
# Later one attempt in this many waits longer than the timeout, to keep learning the tail.
EXPLORE_EVERY, EXPLORE_FASTER, EXPLORE_FACTOR = 50, 16, 3.0
# Above this share of lost attempts the pool is bad or the timeout too short: attempts wait longer more often.
SUSPICIOUS_LOSS, EXPLORE_SUSPICIOUS = 0.25, 10
# Attempts below which laws are fitted beside the curve; above, the curve alone knows enough and needs no law.
FITTED_BELOW = 150
# A decision is made again after this share of attempts more.
MORE_ATTEMPTS = 0.05


def edge_above(seconds: float, rules: CountRules = USUAL) -> float:
    """The next edge of a cell: a timeout there leaves no cell half seen, which would pull the next one down."""
    cells = rules.cells_per_octave
    return float(2 ** (math.ceil(math.log2(max(seconds, rules.shortest_s)) * cells - 1e-6) / cells))


def cells_survived(ages_s: Sequence[float], rules: CountRules = USUAL) -> dict[int, int]:
    """How many of these ages have `cell_survived` in each cell. All at once, for there may be thousands."""
    half_a_cell_back = 2 ** (-0.5 / rules.cells_per_octave)
    ages = np.clip(np.array(ages_s) * half_a_cell_back, rules.shortest_s, rules.longest_s)
    cells = np.floor(np.log2(ages) * rules.cells_per_octave).astype(np.int64)
    lowest = int(cells.min())
    counts = np.bincount(cells - lowest)
    places = np.flatnonzero(counts)
    return dict(zip((places + lowest).tolist(), counts[places].tolist(), strict=True))


class Sketch(Counts):
    """The counts of one pool and what they advise."""

    @classmethod
    def of(cls, counts: Counts | None) -> Sketch:
        """The same counts, shared and not copied; of nothing, empty ones."""
        return cls() if counts is None else counts if isinstance(counts, cls) else cls(*astuple(counts))

    def with_silent(self, ages_s: Sequence[float], rules: CountRules = USUAL) -> Sketch:
        """These counts and attempts that are silent now, each cut short at its age: they are slow, or never come."""
        if not ages_s:
            return self
        sketch = Sketch(*astuple(self))
        cells = sketch.cut_short = dict(self.cut_short)
        for cell, count in cells_survived(ages_s, rules).items():
            cells[cell] = cells.get(cell, 0.0) + count * self.weight
        sketch.total += len(ages_s) * self.weight
        return sketch

    def curve(self, rules: CountRules = USUAL) -> Steps | None:
        """Kaplan-Meier in units of recent attempts; None before anything came back."""
        cells = sorted(self.came_back)
        if not cells:
            return None
        places, events = np.array(cells), np.array([self.came_back[cell] for cell in cells])
        at_risk = self.total + rules.pseudo_lost * self.weight - _sums_before(events)[:-1]
        if self.cut_short:
            at_risk = at_risk - _before(self.cut_short, places)
        if self.resumed:
            at_risk = at_risk + _before(self.resumed, places)
        middles = np.exp2((places + 0.5) / rules.cells_per_octave)
        # Weights decay between two looks at one attempt, so the sums may differ in the last digits.
        return kaplan_meier(middles, events / self.weight, np.maximum(at_risk, events) / self.weight)

    def quantile(self, q: float, rules: CountRules = USUAL, steps: Steps | None = None) -> float | None:
        """A quantile of the latency, lost attempts included; None if nothing is known or it is never reached.

        `steps`: the curve, where the caller has it already.
        """
        steps = steps or self.curve(rules)
        if steps is None or not 0 < q < 1 or 1 - q < steps.left:
            return None
        return float(steps.times[int(np.argmax(steps.survive <= 1 - q))])

    def best_timeout(
        self,
        *,
        prior_s: float,
        floor_s: float = 0.0,
        cap_s: float = math.inf,
        run_s: float = 0.0,
        submit_cost_s: float = 0.0,
        least: int = LEAST,
        rules: CountRules = USUAL,
        steps: Steps | None = None,
    ) -> Decision:
        """The timeout to set now, between floor and cap, or the stated prior while too little has been seen.

        `steps`: the curve, where the caller has it already.
        """
        if not 0 <= floor_s <= cap_s:
            raise BadInput(f"the floor of a timeout ({floor_s:g} s) must not lie above its cap ({cap_s:g} s)")
        steps = steps or self.curve(rules)
        seen = float(steps.events[-1]) if steps is not None else 0.0
        if steps is None or seen < least:
            return self._prior(min(max(prior_s, floor_s), cap_s), seen, least, cap_s)
        overhead = run_s + submit_cost_s
        law = None
        # Where even the longest latency lies below the floor, the floor holds whatever a law says.
        if self.samples - self.drifted_at < FITTED_BELOW and float(steps.times[-1]) + run_s > floor_s:
            law = fitted(self._latencies(rules), steps, overhead)
        choice = choose(steps, overhead, law=law)
        wanted = edge_above(choice.wait_s, rules) + run_s
        timeout_s = min(max(wanted, floor_s), cap_s)
        basis: Literal["learned", "floor", "cap"] = "learned"
        if timeout_s != wanted:
            basis = "floor" if timeout_s > wanted else "cap"
        decision = self._learned(steps, choice, timeout_s, basis, run_s, overhead, cap_s, least)
        return decision if law is None else replace(decision, laws=law.names)

    def _latencies(self, rules: CountRules) -> Seen:
        """The counts for fitting laws; resumed attempts were cut short less often than it seems."""
        seen = sorted(self.came_back)
        cut = {cell: self.cut_short[cell] - self.resumed.get(cell, 0.0) for cell in self.cut_short}
        cells = sorted(cell for cell, weight in cut.items() if weight > 1e-9 * self.weight)
        octave = math.log(2) / rules.cells_per_octave
        return Seen(
            seen=(np.array(seen) + 0.5) * octave,
            seen_weight=np.array([self.came_back[cell] for cell in seen]) / self.weight,
            cut=np.array([*((cell + 1) * octave for cell in cells), math.log(rules.longest_s)]),
            cut_weight=np.array([*(cut[cell] / self.weight for cell in cells), rules.pseudo_lost]),
        )

    def _prior(self, timeout_s: float, seen: float, least: int, cap_s: float) -> Decision:
        return Decision(
            timeout_s=timeout_s,
            basis="prior",
            samples=self.samples,
            came_back=seen,
            lost=0.0,
            expected_s=None,
            error_s=None,
            half_s=None,
            double_s=None,
            explore_s=min(EXPLORE_FACTOR * timeout_s, cap_s),
            explore_every=EXPLORE_EVERY,
            drifts=self.drifts,
            needed=least,
            given_up=self.given_up,
        )

    def _learned(
        self,
        steps: Steps,
        choice: Choice,
        timeout_s: float,
        basis: Literal["learned", "floor", "cap"],
        run_s: float,
        overhead: float,
        cap_s: float,
        least: int,
    ) -> Decision:
        wait_s = timeout_s - run_s
        expected, half, double = at_each(choice.curve, [factor * wait_s for factor in (1.0, 0.5, 2.0)], overhead)
        return Decision(
            timeout_s=timeout_s,
            basis=basis,
            samples=self.samples,
            came_back=float(steps.events[-1]),
            lost=steps.left,
            expected_s=_finite(expected),
            error_s=_finite(choice.error_s),
            half_s=_finite(half),
            double_s=_finite(double),
            explore_s=min(EXPLORE_FACTOR * timeout_s, cap_s),
            explore_every=self._explore_every(steps.left),
            drifts=self.drifts,
            needed=least,
            best_s=choice.wait_s + run_s,
            given_up=self.given_up,
        )

    def _explore_every(self, lost: float) -> int:
        """Always while the pool is new or has just changed, often if it seems to lose much, seldom once it is known."""
        attempts = self.samples - self.drifted_at
        if attempts < ALL_EXPLORE_BELOW:
            return 1
        seldom = EXPLORE_SUSPICIOUS if lost > SUSPICIOUS_LOSS else EXPLORE_EVERY
        return min(max(attempts // EXPLORE_FASTER, 2), seldom)

    def stale(self, decision: Decision) -> bool:
        return is_stale(decision, self)


def is_stale(decision: Decision, counts: Counts) -> bool:
    """Whether enough was learned since to decide again: more attempts, or a drift.

    Fewer attempts than the decision rests on: it was made by the counts of the pool, and the class has its own now.
    """
    if counts.drifts != decision.drifts or counts.samples < decision.samples:
        return True
    return counts.samples >= (1 + MORE_ATTEMPTS) * decision.samples + 1


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _before(cells: dict[int, float], wanted: Ints) -> Array:
    """For each wanted cell, the sum over the cells strictly below it."""
    keys = sorted(cells)
    sums = _sums_before(np.array([cells[key] for key in keys]))
    return as_array(sums[np.array(keys).searchsorted(wanted)])


def _sums_before(values: Array) -> Array:
    """For each place, and for the one behind the last, the sum of all values before it."""
    sums = np.zeros(len(values) + 1)
    np.add.accumulate(values, out=sums[1:])
    return sums


class Memory(Latencies):
    """What is remembered of all pools; a class that has seen too little borrows its pool's counts."""

    def of(self, pool: str, task_class: str = "", least: int = LEAST) -> Sketch:
        """The sketch to ask: of the class if it has enough of its own, else of the pool."""
        return Sketch.of(self.counts_of(pool, task_class, least))

    def best_timeout(
        self,
        pool: str,
        task_class: str = "",
        *,
        prior_s: float,
        floor_s: float = 0.0,
        cap_s: float = math.inf,
        run_s: float = 0.0,
        submit_cost_s: float = 0.0,
        rules: CountRules = USUAL,
    ) -> Decision:
        return self.of(pool, task_class).best_timeout(
            prior_s=prior_s, floor_s=floor_s, cap_s=cap_s, run_s=run_s, submit_cost_s=submit_cost_s, rules=rules
        )

    def quantile(self, pool: str, task_class: str, q: float, rules: CountRules = USUAL) -> float | None:
        return self.of(pool, task_class).quantile(q, rules)

    def stale(self, decision: Decision, pool: str, task_class: str = "") -> bool:
        return self.of(pool, task_class).stale(decision)
