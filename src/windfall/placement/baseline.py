"""The schedulers that the paper compares, as it describes them: every request rebuilds the states it looks at. Pure.

`default` is the plain filter scheduler, blind to preemptible instances; `one-pass` is the paper's own algorithm 6 with
its ranks (algorithms 3 and 4) and its walk through all combinations (algorithm 5); `retry` is the default scheduler
with a second, preemptible-aware cycle after a failure. They share a `Site` with ours and read only what runs there.
"""

from __future__ import annotations

from itertools import combinations
from typing import Literal

from msgspec import Struct

from windfall.numeric import np
from windfall.placement.evictions.costs import HOUR_US, micros
from windfall.placement.model import Decision, Request
from windfall.placement.site import Site

Mode = Literal["default", "one-pass", "retry"]


class _Running(Struct, frozen=True):
    """A preemptible instance as the selection sees it."""

    id: str
    units: list[int]
    consumed_us: int


class _State(Struct):
    """One host's state, built for one request: what is free in h_f, in h_n, and who could go."""

    host: int
    free_f: list[int]
    free_n: list[int]
    running: list[_Running]


class PlainScheduler:
    """Decides as the paper's schedulers do. Kept for comparison; `Scheduler` is the one to use."""

    def __init__(self, site: Site, mode: Mode, rng: np.random.Generator | None = None) -> None:
        self.site, self.mode = site, mode
        self.rng = rng if rng is not None else np.random.default_rng(0)

    def decide(self, request: Request, now_s: float = 0.0) -> Decision:
        need, now_us = self.site.units(request.resources).tolist(), micros(now_s)
        if self.mode != "one-pass":
            decision = self._cycle(request, need, now_us, aware=False)
            if decision.host is not None or self.mode == "default" or request.preemptible:
                return decision
        return self._cycle(request, need, now_us, aware=True)

    def _cycle(self, request: Request, need: list[int], now_us: int, *, aware: bool) -> Decision:
        """One scheduling cycle: states, filter, weigh, best host, victims."""
        states = [self._state(h, now_us, aware=aware) for h in range(len(self.site.names))]
        on_full = request.preemptible or not aware
        passed = [state for state in states if _fits(need, state.free_f if on_full else state.free_n)]
        if not passed:
            return Decision(None)
        total = _normalised([0.0 if _fits(need, state.free_f) else -1.0 for state in passed])
        if aware:
            consumed = [-float(sum(one.consumed_us for one in state.running)) for state in passed]
            total = [a + b for a, b in zip(total, _normalised(consumed), strict=True)]
        best = max(total)
        ties = [state for state, weight in zip(passed, total, strict=True) if weight == best]
        state = ties[int(self.rng.integers(len(ties)))]
        chosen, cost = ((), 0) if on_full else _all_combinations(need, state)
        return Decision(self.site.names[state.host], chosen, cost)

    def _state(self, h: int, now_us: int, *, aware: bool) -> _State:
        site = self.site
        full = site.capacity[:, h].tolist()
        normal = list(full)
        running = []
        for identity in site.on_host[h]:
            placed = site.instances[identity]
            units = placed.units.tolist()
            full = [free - used for free, used in zip(full, units, strict=True)]
            if not aware:
                continue
            if placed.slot < 0:
                normal = [free - used for free, used in zip(normal, units, strict=True)]
            else:
                consumed_us = (now_us - int(site.start_us[h, placed.slot])) % HOUR_US
                running.append(_Running(identity, units, consumed_us))
        return _State(h, full, normal, running)


def _fits(need: list[int], free: list[int]) -> bool:
    return all(have >= asked for asked, have in zip(need, free, strict=True) if asked)


def _normalised(raw: list[float]) -> list[float]:
    low, high = min(raw), max(raw)
    return [(weight - low) / (high - low) if high > low else 0.0 for weight in raw]


def _all_combinations(need: list[int], state: _State) -> tuple[tuple[str, ...], int]:
    """Algorithm 5, with the free resources of the host counted in (as table 6 demands)."""
    best: tuple[int, int, tuple[str, ...]] | None = None
    for count in range(len(state.running) + 1):
        for chosen in combinations(state.running, count):
            free = list(state.free_f)
            for one in chosen:
                free = [have + freed for have, freed in zip(free, one.units, strict=True)]
            if _fits(need, free):
                found = (sum(one.consumed_us for one in chosen), count, tuple(one.id for one in chosen))
                best = found if best is None or found[:2] < best[:2] else best
    assert best is not None, "the filter on h_n lets no host pass that could not be covered"
    return best[2], best[0]
