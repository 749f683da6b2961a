"""A lower bound on the cost of a bag in one simulated world: a relaxation that knows the future. Pure.

Known are the true run times and every moment at which a machine would be interrupted. Work is divisible, boots take no
time, nothing is lost. What remains are prices, limits, and when there is capacity. A provider that does not charge for
the cycle in which it reclaims a machine gives that cycle away to whoever knows when it will come, so the bound may be
far below what any planner without that knowledge can reach; where nothing is reclaimed it is close.
"""

from __future__ import annotations

from math import ceil, inf

from msgspec import Struct

from windfall.planning.offers import Offer
from windfall.sim.clouds.market import Market, Supply
from windfall.sim.scenario import Scenario
from windfall.sim.work import Work, submissions


class Capacity(Struct, frozen=True):
    """Work that can be had at a price: seconds at speed 1 on one core."""

    usd_per_s: float
    seconds: float
    offer: Offer


def bound_usd(scenario: Scenario, seed: int, charged: bool = False) -> float | None:
    """No plan that is in time costs less; infinite if none is in time. None: not a single bag on rented machines.

    `charged`: as if the cycle in which a machine is reclaimed were charged. That is no bound, but what is left of it
    for whoever cannot aim at such cycles.
    """
    work = _single_bag(scenario, seed)
    if work is None:
        return None
    bag = work.bag
    run_s = [work.run_s(task) * bag.cpus for task in range(bag.tasks)]
    until_s = min(bag.deadline_s, scenario.until_s)
    found = [
        part
        for cloud in scenario.clouds
        if cloud.name in (bag.clouds or (cloud.name,))
        for supply in cloud.supplies
        for part in _capacity(supply, cloud.name, seed, until_s, min(run_s), bag.task_class, charged)
    ]
    return _filled_usd(sum(run_s), sorted(found, key=lambda part: part.usd_per_s))


def can_be_in_time(scenario: Scenario, seed: int) -> bool | None:
    """Whether the longest task alone, begun at once on the fastest machine, ends by the deadline.

    Where it does not, no planner is in time. None: not a single bag on rented machines.
    """
    work = _single_bag(scenario, seed)
    if work is None:
        return None
    bag = work.bag
    offers = [
        supply.offer
        for cloud in scenario.clouds
        for supply in cloud.supplies
        if cloud.name in (bag.clouds or (cloud.name,))
    ]
    fastest = max((offer.speed_for(bag.task_class) for offer in offers), default=0.0)
    return max(work.run_s(task) for task in range(bag.tasks)) <= bag.deadline_s * fastest


def _single_bag(scenario: Scenario, seed: int) -> Work | None:
    """The only work of a scenario, if that is a bag on rented machines."""
    works = submissions(scenario.bags, seed)
    if len(works) != 1 or works[0].bag.edges or not works[0].bag.planner or scenario.pools or scenario.sites:
        return None
    return works[0]


def _filled_usd(left_s: float, parts: list[Capacity]) -> float:
    """Dollars for this much work in the cheapest capacity; infinite if there is too little."""
    cost_usd = 0.0
    for part in parts:
        taken_s = min(left_s, part.seconds)
        left_s -= taken_s
        if left_s <= 0.0 and cost_usd == 0.0 and part.usd_per_s > 0.0:
            # All that is paid is of one offer: whole cycles.
            cycles = taken_s * part.usd_per_s / part.offer.price_usd
            return ceil(cycles - 1e-9) * part.offer.price_usd
        cost_usd += taken_s * part.usd_per_s
        if left_s <= 0.0:
            return cost_usd
    return inf


def _capacity(
    supply: Supply, cloud: str, seed: int, until_s: float, shortest_s: float, task_class: str, charged: bool
) -> list[Capacity]:  # fmt: skip
    """What an offer can do by a deadline, free and paid. A spell shorter than the shortest task does nothing."""
    offer, market = supply.offer, Market(supply, cloud, seed)
    speed = offer.speed_for(task_class)
    rate_usd = _least_price_usd(market, until_s) / (offer.cycle_s * offer.cores * speed)
    is_free = not charged and offer.when_taken == "terminate" and offer.free_if_taken
    if offer.limit is None:
        # As many as are asked for: what one place gives away, others give away without end.
        spells, by_age = market.spells(0, until_s)
        return [Capacity(0.0 if is_free and (by_age or any(cut for *_, cut in spells)) else rate_usd, inf, offer)]
    free_s = all_s = 0.0
    for place in range(offer.limit):
        spells, by_age = market.spells(place, until_s)
        for from_s, to_s, is_interrupted in spells:
            if (to_s - from_s) * speed >= shortest_s:
                all_s += to_s - from_s
                if is_free and (is_interrupted or by_age):
                    free_s += to_s - from_s if by_age else min(offer.cycle_s, to_s - from_s)
    work = offer.cores * speed
    return [Capacity(0.0, free_s * work, offer), Capacity(rate_usd, (all_s - free_s) * work, offer)]


def _least_price_usd(market: Market, until_s: float) -> float:
    """The lowest price of a cycle that begins before then."""
    t, least = 0.0, inf
    while t < until_s:
        least = min(least, market.price_usd(t))
        t = market.next_price_t(t)
    return least
