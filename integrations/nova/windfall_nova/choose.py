"""Which host and which victims: one call of `windfall.placement` on the kept site. Touches installed packages only."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from importlib.metadata import entry_points
from typing import Any

import numpy as np
from msgspec import Struct

from windfall.placement import Cost, Count, Decision, Period, Request, Revenue, Scheduler, SetCost, Site, Work
from windfall.placement.hosts.weighers import CHEAPEST, WEIGHER_NAMES
from windfall_nova.site import Amounts, KeptSite

GROUP = "windfall_nova.costs"
ALLOWED = "windfall-nova:allowed"  # the label of hosts that the caller lets in
NOVA = "nova"  # the weigher that stands for the sum of Nova's own
BUILT_IN: Mapping[str, Callable[[], Cost]] = {"period": Period, "count": Count, "revenue": Revenue, "work": Work}


class BadSetting(Exception):
    """A value in nova.conf that cannot be used; the text says which, and what to write instead."""


def cost_named(name: str) -> Cost | SetCost:
    """A built-in cost, or one of another package; an entry point is a cost, or a class that makes one."""
    made: Any = BUILT_IN.get(name)
    if made is None:
        found = {entry.name: entry for entry in entry_points(group=GROUP)}
        if name not in found:
            known = ", ".join(sorted({*BUILT_IN, *found}))
            raise BadSetting(f"[windfall] cost = {name}: there is no such cost; there are: {known}")
        try:
            made = found[name].load()
        except Exception as error:
            raise BadSetting(f"[windfall] cost = {name}: {found[name].value} cannot be loaded: {error}") from error
    cost = made() if isinstance(made, type) else made
    if not isinstance(cost, SetCost) and not all(hasattr(cost, part) for part in ("falls_at", "slope", "scale")):
        raise BadSetting(f"[windfall] cost = {name}: {made!r} is not a cost of windfall.placement")
    return cost  # type: ignore[no-any-return]


def weighers_named(pairs: Mapping[str, str]) -> dict[str, float]:
    """Multipliers by weigher, as in nova.conf: cheapest:1.0, spread:0.1."""
    result = {}
    for name, text in pairs.items():
        if name not in (*WEIGHER_NAMES, NOVA):
            known = ", ".join((*WEIGHER_NAMES, NOVA))
            raise BadSetting(f"[windfall] weighers: there is no weigher '{name}'; there are: {known}")
        try:
            result[name] = float(text)
        except ValueError:
            raise BadSetting(f"[windfall] weighers: the multiplier of {name} is no number: '{text}'") from None
    return result or {CHEAPEST: 1.0}


class Choice(Struct, frozen=True):
    """A provider, its victims, and what their eviction costs in `unit`."""

    provider: str
    victims: tuple[str, ...]
    cost: float
    unit: str


class Chooser:
    """Chooses under one cost and one set of weighers; keeps what `Scheduler` has computed while the site stands."""

    def __init__(self, cost: Cost | SetCost, weighers: Mapping[str, float], seed: int | None = None) -> None:
        self.cost, self.weighers = cost, dict(weighers)
        self._rng = np.random.default_rng(seed)
        self._scheduler: Scheduler | None = None
        self._nova_weights: Mapping[str, float] = {}

    @property
    def filters_all_first(self) -> bool:
        """Weights are normalised over all hosts that passed; by cost alone the order does not depend on them."""
        return list(self.weighers) != [CHEAPEST]

    def choose(
        self,
        kept: KeptSite,
        need: Amounts,
        allowed: Collection[str],
        now_t: float,
        nova_weights: Mapping[str, float] | None = None,
    ) -> Choice | None:
        """The best of the `allowed` providers for a normal request; None if it fits on none of them."""
        site = kept.site(now_t)
        if not site.names or not set(need) <= set(site.resources):
            return None
        self._nova_weights = nova_weights or {}
        mask = np.zeros(len(site.names), dtype=np.bool_)
        for uuid in allowed:
            provider = kept.providers.get(uuid)
            if provider is not None and provider.may_hold(need):
                mask[site.index[uuid]] = True
        site.aggregates[ALLOWED] = mask
        decision = self._for(site).decide(Request(False, dict(need), aggregates=(ALLOWED,)), now_t)
        return self._choice(decision)

    def _choice(self, decision: Decision) -> Choice | None:
        if decision.host is None:
            return None
        return Choice(decision.host, decision.victims, decision.cost / self.cost.scale, self.cost.unit)

    def _for(self, site: Site) -> Scheduler:
        if self._scheduler is None or self._scheduler.site is not site:
            self._scheduler = Scheduler(site, self.cost, self.weighers, self._rng, {NOVA: self._nova})
        return self._scheduler

    def _nova(self, site: Site, need: Any, now_us: int) -> Any:
        return np.array([self._nova_weights.get(name, 0.0) for name in site.names])
