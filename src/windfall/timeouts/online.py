"""Learn the latencies of one pool online: a bounded sketch that forgets, and the timeout it advises. Pure.

The engine keeps a `Memory` in its state and changes it only through `apply`; everything is plain data (msgspec), every
method is deterministic, and an update costs a few microseconds. It needs numpy, not scipy.

    memory.observe(pool, task_class, latency_s)            an attempt came back
    memory.observe_censored(pool, task_class, waited_s)    an attempt was killed or lost while it was silent
    memory.observe_running(pool, task_class, looked_s, waited_s)
                                                           a look at one still silent; looked_s is its age at the look
                                                           before (0 at the first), and its end then passes it too
    memory.best_timeout(pool, task_class, prior_s=, floor_s=, cap_s=, run_s=, submit_cost_s=)   -> Decision
    memory.quantile(pool, task_class, 0.95)                of the latency; None while unknown or never reached
    decision.for_attempt(n)                                the timeout of the n-th attempt: some wait longer, to learn

`Deadline` defaults to `decision.for_attempt(n)`, `Pool.BestTimeout` is `decision.timeout_s`, `Pool.LatencyQuantile95`
the quantile; `decision.because` is what `explain` says. A decision costs about half a millisecond: keep it, and ask
again when `memory.stale(decision, pool, task_class)` says so. Latencies exclude the run time of the task; pass that as
`run_s`, and the timeout covers both.

Latencies fall into cells of equal ratio (1/16 octave). Each cell counts attempts that came back there, that were cut
short there, and that were first looked at again from there on: enough for Kaplan-Meier, whose curve `steps` searches.
Old attempts count less (half after `HALF_LIFE` newer ones). Drift is noticed by a two-sided cumulative sum of whether
attempts fall above or below the median so far: it needs no law, and a timeout does not disturb it.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import Literal

import numpy as np
from msgspec import Struct, field

from windfall.errors import BadInput
from windfall.timeouts.arrays import Array
from windfall.timeouts.steps import Choice, Steps, at, choose, kaplan_meier, smoothed

CELLS_PER_OCTAVE = 16
SHORTEST_S, LONGEST_S = 1e-3, 1e8
FIRST_CELL = math.floor(math.log2(SHORTEST_S) * CELLS_PER_OCTAVE)
LAST_CELL = math.floor(math.log2(LONGEST_S) * CELLS_PER_OCTAVE)
HALF_A_CELL_BACK = 2 ** (-0.5 / CELLS_PER_OCTAVE)
HALF_LIFE = 2000
GROWTH = 2 ** (1 / HALF_LIFE)
# Results before which the stated prior is used.
LEAST = 20
# Half a lost attempt is always assumed: a pool that has not lost any yet still gets a timeout.
PSEUDO_LOST = 0.5
# One attempt in this many waits longer than the timeout, to keep learning the tail.
EXPLORE_EVERY, EXPLORE_FASTER, EXPLORE_FACTOR = 50, 16, 3.0
# Above this share of lost attempts the pool is bad or the timeout too short: attempts wait longer more often.
SUSPICIOUS_LOSS, EXPLORE_SUSPICIOUS = 0.25, 10
# Drift: allowance and threshold of the cumulative sum (a false alarm in some 200,000 attempts), and how often the
# median is taken again.
ALLOWANCE, ALARM, REFRESH = 0.3, 20.0, 64
MOST_CLASSES = 256


class Decision(Struct, frozen=True):
    """A timeout, the data behind it, its expected effect, and the cost of an error in it."""

    timeout_s: float
    basis: Literal["prior", "learned", "floor", "cap"]
    law: str
    samples: int
    came_back: float
    lost: float
    expected_s: float | None
    error_s: float | None
    half_s: float | None
    double_s: float | None
    explore_s: float
    explore_every: int
    drifts: int
    because: str

    def for_attempt(self, number: int) -> float:
        """The timeout of the n-th attempt of the pool; a few wait longer so that the tail stays known."""
        explores = number % self.explore_every == self.explore_every - 1
        return self.explore_s if explores else self.timeout_s


def cell_of(seconds: float) -> int:
    if seconds < SHORTEST_S:
        return FIRST_CELL
    if seconds >= LONGEST_S:
        return LAST_CELL
    return math.floor(math.log2(seconds) * CELLS_PER_OCTAVE)


def cell_survived(seconds: float) -> int:
    """The last cell that an attempt cut short at this age has lived through, to the nearest edge."""
    return cell_of(seconds * HALF_A_CELL_BACK)


def edge_above(seconds: float) -> float:
    """The next edge of a cell: a timeout there leaves no cell half seen, which would pull the next one down."""
    return float(2 ** (math.ceil(math.log2(max(seconds, SHORTEST_S)) * CELLS_PER_OCTAVE - 1e-6) / CELLS_PER_OCTAVE))


def check(seconds: float) -> None:
    if not 0 <= seconds < math.inf:
        raise BadInput(f"a latency must be 0 s or more and finite, not {seconds}")


class Sketch(Struct):
    """Weighted counts by cell, at most some 600 of them. `weight` is what the next attempt counts."""

    came_back: dict[int, float] = field(default_factory=dict)
    cut_short: dict[int, float] = field(default_factory=dict)
    resumed: dict[int, float] = field(default_factory=dict)
    weight: float = 1.0
    total: float = 0.0
    samples: int = 0
    drifts: int = 0
    drifted_at: int = 0
    above: float = 0.0
    below: float = 0.0
    median_cell: int | None = None
    usual: float = 0.0
    known_cells: list[int] = field(default_factory=list)
    known_survive: list[float] = field(default_factory=list)
    until_refresh: int = REFRESH

    # --- learning

    def observe(self, latency_s: float, looked_s: float = 0.0) -> None:
        """An attempt came back; `looked_s` is its age at the last look, if it was looked at."""
        check(latency_s)
        cell = cell_of(latency_s)
        self._enter(looked_s)
        self.came_back[cell] = self.came_back.get(cell, 0.0) + self.weight
        self._count(cell, censored=False)

    def observe_censored(self, waited_s: float, looked_s: float = 0.0) -> None:
        """An attempt was given up, killed or lost at this age."""
        check(waited_s)
        cell = cell_survived(waited_s)
        self._enter(looked_s)
        self.cut_short[cell] = self.cut_short.get(cell, 0.0) + self.weight
        self._count(cell, censored=True)

    def observe_running(self, looked_s: float, waited_s: float) -> None:
        """An attempt is still silent at the age `waited_s`; before, it was looked at when `looked_s` old."""
        check(waited_s)
        cell = cell_survived(waited_s)
        self._enter(looked_s)
        self.cut_short[cell] = self.cut_short.get(cell, 0.0) + self.weight

    def _enter(self, looked_s: float) -> None:
        if looked_s <= 0:
            self.total += self.weight
            return
        check(looked_s)
        cell = cell_survived(looked_s)
        self.resumed[cell] = self.resumed.get(cell, 0.0) + self.weight

    def _count(self, cell: int, censored: bool) -> None:
        self.samples += 1
        self._watch(cell, censored)
        self.weight *= GROWTH
        if self.weight > 1e9:
            self._rescale(1 / self.weight)
        self.until_refresh -= 1
        if self.until_refresh <= 0:
            self._refresh()

    def _rescale(self, factor: float) -> None:
        for cells in (self.came_back, self.cut_short, self.resumed):
            for cell in cells:
                cells[cell] *= factor
        self.total *= factor
        self.weight *= factor

    # --- drift

    def _watch(self, cell: int, censored: bool) -> None:
        median = self.median_cell
        if median is None:
            return
        if censored and cell <= median:
            step = self._expected_step(cell) - self.usual
        else:
            step = (cell > median) - (cell < median) - self.usual
        self.above = max(0.0, self.above + step - ALLOWANCE)
        self.below = max(0.0, self.below - step - ALLOWANCE)
        if self.above > ALARM or self.below > ALARM:
            self.drifts, self.drifted_at = self.drifts + 1, self.samples
            # The pool has changed: what was learned before would hide the new tail.
            self.came_back, self.cut_short, self.resumed = {}, {}, {}
            self.weight, self.total = 1.0, 0.0
            self.median_cell, self.until_refresh = None, REFRESH
            self.above = self.below = 0.0

    def _expected_step(self, cell: int) -> float:
        """Where an attempt cut short this early would have fallen, by the law so far: censoring must not look like
        drift."""
        index = bisect_right(self.known_cells, cell) - 1
        survive = self.known_survive[index] if index >= 0 else 1.0
        after = self.known_survive[-1]
        before = self.known_survive[-2] if len(self.known_survive) > 1 else 1.0
        return (after - max(survive - before, 0.0)) / survive

    def _refresh(self) -> None:
        """Set the median again, and the usual share of attempts above it (a cell may hold many)."""
        self.until_refresh = REFRESH if self.samples - self.drifted_at < 8 * REFRESH else 4 * REFRESH
        steps = self.curve()
        if steps is None or steps.left > 0.5:
            self.median_cell = None
            return
        index = int(np.argmax(steps.survive <= 0.5))
        self.known_cells = sorted(self.came_back)[: index + 1]
        self.known_survive = steps.survive[: index + 1].tolist()
        self.median_cell = self.known_cells[-1]
        before = float(steps.survive[index - 1]) if index else 1.0
        self.usual = float(steps.survive[index]) - (1 - before)

    # --- answering

    def curve(self) -> Steps | None:
        """Kaplan-Meier in units of recent attempts; None before anything came back."""
        cells = sorted(self.came_back)
        if not cells:
            return None
        events = np.array([self.came_back[cell] for cell in cells])
        at_risk = self.total + PSEUDO_LOST * self.weight - _before(self.came_back, cells)
        at_risk = at_risk - _before(self.cut_short, cells) + _before(self.resumed, cells)
        middles = np.exp2((np.array(cells) + 0.5) / CELLS_PER_OCTAVE)
        # Weights decay between two looks at one attempt, so the sums may differ in the last digits.
        return kaplan_meier(middles, events / self.weight, np.maximum(at_risk, events) / self.weight)

    def quantile(self, q: float) -> float | None:
        """A quantile of the latency, lost attempts included; None if nothing is known or it is never reached."""
        steps = self.curve()
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
    ) -> Decision:
        """The timeout to set now, between floor and cap, or the stated prior while too little has been seen."""
        if not 0 <= floor_s <= cap_s:
            raise BadInput(f"the floor of a timeout ({floor_s:g} s) must not lie above its cap ({cap_s:g} s)")
        steps = self.curve()
        seen = float(steps.events[-1]) if steps is not None else 0.0
        if steps is None or seen < least:
            return self._prior(min(max(prior_s, floor_s), cap_s), seen, least, cap_s)
        overhead = run_s + submit_cost_s
        choice = choose(steps, overhead)
        wanted = edge_above(choice.wait_s) + run_s
        timeout_s = min(max(wanted, floor_s), cap_s)
        basis: Literal["learned", "floor", "cap"] = "learned"
        if timeout_s != wanted:
            basis = "floor" if timeout_s > wanted else "cap"
        return self._learned(steps, choice, timeout_s, basis, run_s, overhead, cap_s)

    def _prior(self, timeout_s: float, seen: float, least: int, cap_s: float) -> Decision:
        because = f"{seen:.0f} of {least} attempts have come back; until then the stated prior holds"
        return Decision(
            timeout_s=timeout_s,
            basis="prior",
            law="none yet",
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
            because=because,
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
    ) -> Decision:
        wait_s = timeout_s - run_s
        curve = smoothed(steps)
        expected, half, double = (at(curve, factor * wait_s, overhead) for factor in (1.0, 0.5, 2.0))
        because = (
            f"{self.samples} attempts, {steps.left:.1%} not back; expected {_s(expected)}, "
            f"with half the timeout {_s(half)}, with twice {_s(double)}"
        )
        if basis != "learned":
            because += f"; the {basis} holds, {_s(choice.wait_s + run_s)} would be best"
        if self.drifts:
            because += f"; the pool changed {self.drifts} times"
        return Decision(
            timeout_s=timeout_s,
            basis=basis,
            law="empirical (Kaplan-Meier)",
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
            because=because,
        )

    def _explore_every(self, lost: float) -> int:
        """Often while the pool is new, has just changed or seems to lose much; seldom once it is known."""
        seldom = EXPLORE_SUSPICIOUS if lost > SUSPICIOUS_LOSS else EXPLORE_EVERY
        return min(max((self.samples - self.drifted_at) // EXPLORE_FASTER, 2), seldom)

    def stale(self, decision: Decision) -> bool:
        """Whether enough was learned since to decide again: 5 % more attempts, or a drift."""
        return self.drifts != decision.drifts or self.samples >= 1.05 * decision.samples + 1


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _s(value: float) -> str:
    return f"{value:.4g} s" if math.isfinite(value) else "for ever"


def _before(cells: dict[int, float], wanted: list[int]) -> Array:
    """For each wanted cell, the sum over the cells strictly below it."""
    if not cells:
        return np.zeros(len(wanted))
    keys = sorted(cells)
    sums = np.concatenate([[0.0], np.cumsum([cells[key] for key in keys])])
    return np.asarray(sums[np.searchsorted(keys, wanted, side="left")], dtype=np.float64)


class Memory(Struct):
    """A sketch for each pool, and for each task class in it; a class that has seen too little borrows its pool's."""

    pools: dict[str, Sketch] = field(default_factory=dict)
    classes: dict[str, Sketch] = field(default_factory=dict)

    def of(self, pool: str, task_class: str = "", least: int = LEAST) -> Sketch:
        """The sketch to ask: of the class if it has enough of its own, else of the pool."""
        own = self.classes.get(f"{pool}\n{task_class}") if task_class else None
        if own is not None and own.samples >= least:
            return own
        return self.pools.get(pool) or Sketch()

    def observe(self, pool: str, task_class: str, latency_s: float, looked_s: float = 0.0) -> None:
        for sketch in self._both(pool, task_class):
            sketch.observe(latency_s, looked_s)

    def observe_censored(self, pool: str, task_class: str, waited_s: float, looked_s: float = 0.0) -> None:
        for sketch in self._both(pool, task_class):
            sketch.observe_censored(waited_s, looked_s)

    def observe_running(self, pool: str, task_class: str, looked_s: float, waited_s: float) -> None:
        for sketch in self._both(pool, task_class):
            sketch.observe_running(looked_s, waited_s)

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
    ) -> Decision:
        return self.of(pool, task_class).best_timeout(
            prior_s=prior_s, floor_s=floor_s, cap_s=cap_s, run_s=run_s, submit_cost_s=submit_cost_s
        )

    def quantile(self, pool: str, task_class: str, q: float) -> float | None:
        return self.of(pool, task_class).quantile(q)

    def stale(self, decision: Decision, pool: str, task_class: str = "") -> bool:
        return self.of(pool, task_class).stale(decision)

    def _both(self, pool: str, task_class: str) -> list[Sketch]:
        sketches = [self.pools.setdefault(pool, Sketch())]
        if task_class:
            key = f"{pool}\n{task_class}"
            if key not in self.classes:
                if len(self.classes) >= MOST_CLASSES:
                    # Bounded: the oldest class is dropped; its pool keeps what it has learned.
                    del self.classes[next(iter(self.classes))]
                self.classes[key] = Sketch()
            sketches.append(self.classes[key])
        return sketches
