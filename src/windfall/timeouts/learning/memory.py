"""What is remembered of latencies: counts by cell that fade, and the timeout that was advised. Pure data.

Nothing here estimates or chooses (`online` does). `CountRules` says how latencies are counted; the caller passes it in.
The same latencies under the same rules give equal counts.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from functools import lru_cache
from typing import Literal

from msgspec import Struct, field

from windfall.errors import BadInput
from windfall.quick import quickly_set


class CountRules(Struct, frozen=True, array_like=True):
    """How latencies are counted. A log replayed under other rules would give other counts, so the log holds them."""

    cells_per_octave: int = 16
    shortest_s: float = 1e-3
    longest_s: float = 1e8
    half_life: int = 2000
    """An attempt counts half after this many newer ones."""
    pseudo_lost: float = 0.5
    """Lost attempts that are always assumed: a pool that has not lost any yet still gets a timeout."""
    allowance: float = 0.3
    """Drift: allowance and threshold of the cumulative sum (a false alarm in some 200,000 attempts)."""
    alarm: float = 20.0
    refresh: int = 64
    """The median is taken again after this many attempts, and after four times as many once the pool is known."""
    most_classes: int = 256


USUAL = CountRules()


class Decision(Struct, frozen=True, array_like=True):
    """A timeout, the data behind it, its expected effect, and the cost of an error in it."""

    timeout_s: float
    basis: Literal["prior", "learned", "floor", "cap"]
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
    needed: int
    """Attempts that have to come back before the stated prior gives way."""
    best_s: float | None = None
    """What would be best without floor and cap."""
    given_up: int = 0
    """Attempts among `samples` that were given up, killed or lost."""
    running: int = 0
    """Attempts that are still silent, and count with their age so far; not among `samples`."""
    laws: tuple[str, ...] = ()
    """Fitted laws that chose beside the curve, the likeliest first."""
    of_pool: bool = False
    """It rests on all attempts of the pool, because too few of the bag have come back."""

    def for_attempt(self, number: int) -> float:
        """The timeout of the n-th attempt of the pool; a few wait longer so that the tail stays known."""
        explores = number % self.explore_every == self.explore_every - 1
        return self.explore_s if explores else self.timeout_s

    @property
    def law(self) -> str:
        if self.basis == "prior":
            return "none yet"
        return ", ".join((*self.laws, "empirical (Kaplan-Meier)"))

    @property
    def because(self) -> str:
        if self.basis == "prior":
            return f"{self.came_back:.0f} of {self.needed} attempts have come back; until then the stated prior holds"
        because = (
            f"{self.samples - self.given_up} finished, {self.running} silent and {self.given_up} lost attempts"
            f"{' of the whole pool' if self.of_pool else ''}, "
            f"{self.lost:.1%} not back; expected {_s(self.expected_s)}, "
            f"with half the timeout {_s(self.half_s)}, with twice {_s(self.double_s)}"
        )
        if self.basis != "learned":
            because += f"; the {self.basis} holds, {_s(self.best_s)} would be best"
        if self.drifts:
            because += f"; the pool changed {self.drifts} times"
        return because


def _s(value: float | None) -> str:
    return "for ever" if value is None else f"{value:.4g} s"


def cell_of(seconds: float, rules: CountRules = USUAL) -> int:
    if seconds < rules.shortest_s:
        seconds = rules.shortest_s
    elif seconds > rules.longest_s:
        seconds = rules.longest_s
    return math.floor(math.log2(seconds) * rules.cells_per_octave)


def cell_survived(seconds: float, rules: CountRules = USUAL) -> int:
    """The last cell that an attempt cut short at this age has lived through, to the nearest edge."""
    half_a_cell_back = 2 ** (-0.5 / rules.cells_per_octave)
    return cell_of(seconds * half_a_cell_back, rules)


def check(seconds: float) -> None:
    if not 0 <= seconds < math.inf:
        raise BadInput(f"a latency must be 0 s or more and finite, not {seconds}")


@quickly_set
class Counts(Struct):
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
    since_refresh: int = 0
    given_up: int = 0
    """Attempts of `samples` that did not come back."""

    # --- learning

    def observe(self, latency_s: float, looked_s: float = 0.0, rules: CountRules = USUAL) -> None:
        """An attempt came back; `looked_s` is its age at the last look, if it was looked at."""
        check(latency_s)
        self.count_back(cell_of(latency_s, rules), looked_s, rules)

    def count_back(self, cell: int, looked_s: float, rules: CountRules) -> None:
        """An attempt came back with a latency in this cell."""
        if looked_s > 0:
            self._resume(looked_s, rules)
        else:
            self.total += self.weight
        self.came_back[cell] = self.came_back.get(cell, 0.0) + self.weight
        self._count(cell, False, rules)

    def observe_censored(self, waited_s: float, looked_s: float = 0.0, rules: CountRules = USUAL) -> None:
        """An attempt was given up, killed or lost at this age."""
        self.given_up += 1
        self._count(self._cut(looked_s, waited_s, rules), True, rules)

    def observe_running(self, looked_s: float, waited_s: float, rules: CountRules = USUAL) -> None:
        """An attempt is still silent at the age `waited_s`; before, it was looked at when `looked_s` old."""
        self._cut(looked_s, waited_s, rules)

    def _cut(self, looked_s: float, waited_s: float, rules: CountRules) -> int:
        """Count an attempt as cut short at the age `waited_s`, once however often it was looked at; the cell."""
        check(waited_s)
        cell = cell_survived(waited_s, rules)
        if looked_s > 0:
            self._resume(looked_s, rules)
        else:
            self.total += self.weight
        self.cut_short[cell] = self.cut_short.get(cell, 0.0) + self.weight
        return cell

    def _resume(self, looked_s: float, rules: CountRules) -> None:
        """Count an attempt again that was cut short when it was looked at before."""
        check(looked_s)
        cell = cell_survived(looked_s, rules)
        self.resumed[cell] = self.resumed.get(cell, 0.0) + self.weight

    def _count(self, cell: int, censored: bool, rules: CountRules) -> None:
        self.samples += 1
        if self.median_cell is not None:
            self._watch(cell, self.median_cell, censored, rules)
        self.weight *= 2 ** (1 / rules.half_life)
        if self.weight > 1e9:
            self._rescale(1 / self.weight)
        self.since_refresh += 1
        if self.since_refresh >= rules.refresh and self.since_refresh >= self._refresh_after(rules):
            self._refresh(rules)

    def _refresh_after(self, rules: CountRules) -> int:
        is_new = self.samples - self.since_refresh - self.drifted_at < 8 * rules.refresh
        return rules.refresh if is_new else 4 * rules.refresh

    def _rescale(self, factor: float) -> None:
        for cells in (self.came_back, self.cut_short, self.resumed):
            for cell in cells:
                cells[cell] *= factor
        self.total *= factor
        self.weight *= factor

    # --- drift

    def _watch(self, cell: int, median: int, censored: bool, rules: CountRules) -> None:
        if censored and cell <= median:
            step = self._expected_step(cell) - self.usual
        else:
            step = (cell > median) - (cell < median) - self.usual
        above, below = self.above + step - rules.allowance, self.below - step - rules.allowance
        self.above = above = above if above > 0.0 else 0.0
        self.below = below = below if below > 0.0 else 0.0
        if above > rules.alarm or below > rules.alarm:
            self.drifts, self.drifted_at = self.drifts + 1, self.samples
            # The pool has changed: what was learned before would hide the new tail.
            self.came_back, self.cut_short, self.resumed = {}, {}, {}
            self.weight, self.total = 1.0, 0.0
            self.median_cell, self.since_refresh = None, 0
            self.above = self.below = 0.0

    def _expected_step(self, cell: int) -> float:
        """Where an attempt cut short this early would have fallen, by the law so far: censoring must not look like
        drift."""
        index = bisect_right(self.known_cells, cell) - 1
        survive = self.known_survive[index] if index >= 0 else 1.0
        after = self.known_survive[-1]
        before = self.known_survive[-2] if len(self.known_survive) > 1 else 1.0
        return (after - max(survive - before, 0.0)) / survive

    def _refresh(self, rules: CountRules) -> None:
        """Set the median again, and the usual share of attempts above it (a cell may hold many)."""
        self.since_refresh = 0
        cells, survive = self._up_to_median(rules)
        if not survive or survive[-1] > 0.5:
            self.median_cell = None
            return
        self.known_cells, self.known_survive, self.median_cell = cells, survive, cells[-1]
        before = survive[-2] if len(survive) > 1 else 1.0
        self.usual = survive[-1] - (1 - before)

    def _up_to_median(self, rules: CountRules) -> tuple[list[int], list[float]]:
        """The cells up to the median, and the share that has not come back after each (Kaplan and Meier).

        In plain Python, one product after the other: the same counts give the same bytes on every machine.
        """
        cells: list[int] = []
        shares: list[float] = []
        at_risk, share = self.total + rules.pseudo_lost * self.weight, 1.0
        others = sorted(
            [(cell, -weight) for cell, weight in self.cut_short.items()] + [*self.resumed.items()]
        )  # fmt: skip
        place = 0
        for cell in sorted(self.came_back):
            while place < len(others) and others[place][0] < cell:
                at_risk += others[place][1]
                place += 1
            back = self.came_back[cell]
            share *= 1.0 - back / max(at_risk, back)
            at_risk -= back
            cells.append(cell)
            shares.append(share)
            if share <= 0.5:
                break
        return cells, shares


@lru_cache(4096)
def class_key(pool: str, task_class: str) -> str:
    """Under what the counts of a class in a pool are kept. Asked several times for each result, nearly always alike."""
    return f"{pool}\n{task_class}"


class Latencies(Struct):
    """Counts for each pool, and for each task class in it."""

    pools: dict[str, Counts] = field(default_factory=dict)
    classes: dict[str, Counts] = field(default_factory=dict)

    def counts_of(self, pool: str, task_class: str, least: int) -> Counts | None:
        """The counts to ask: of the class if it has seen at least this many, else of the pool."""
        own = self.classes.get(class_key(pool, task_class)) if task_class else None
        if own is not None and own.samples >= least:
            return own
        return self.pools.get(pool)

    def observe(
        self, pool: str, task_class: str, latency_s: float, looked_s: float = 0.0, rules: CountRules = USUAL
    ) -> None:
        check(latency_s)
        cell = cell_of(latency_s, rules)
        for counts in self._both(pool, task_class, rules):
            counts.count_back(cell, looked_s, rules)

    def observe_censored(
        self, pool: str, task_class: str, waited_s: float, looked_s: float = 0.0, rules: CountRules = USUAL
    ) -> None:
        for counts in self._both(pool, task_class, rules):
            counts.observe_censored(waited_s, looked_s, rules)

    def observe_running(
        self, pool: str, task_class: str, looked_s: float, waited_s: float, rules: CountRules = USUAL
    ) -> None:
        for counts in self._both(pool, task_class, rules):
            counts.observe_running(looked_s, waited_s, rules)

    def _both(self, pool: str, task_class: str, rules: CountRules) -> list[Counts]:
        own = self.pools.get(pool)
        if own is None:
            own = self.pools[pool] = Counts()
        found = [own]
        if task_class:
            key = class_key(pool, task_class)
            if key not in self.classes:
                while len(self.classes) >= rules.most_classes:
                    # Bounded: the oldest class is dropped; its pool keeps what it has learned.
                    del self.classes[next(iter(self.classes))]
                self.classes[key] = Counts()
            found.append(self.classes[key])
        return found
