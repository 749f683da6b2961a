"""The clouds of a replayed log: its offers and prices, and what became of each machine that was rented. Pure.

The n-th order of an offer fares in the replay as the n-th of the log did: it is refused, or it boots as long, is
interrupted after as long and sleeps as long. The provider takes as long to take the order and to end the machine once
it is given back, so that as much is billed. A machine that we gave back could have run on, and does. So the same
planner meets the same luck, and a changed one meets luck of the same kind.
"""

from __future__ import annotations

from math import inf
from statistics import median
from typing import Any

from msgspec import Struct, field

from windfall.core.events import (
    AnyEvent,
    MachineEnded,
    MachineHibernated,
    MachineNoticed,
    MachineResumed,
    MachineStarted,
    OffersConfigured,
    PricesReported,
)
from windfall.core.state.renting.fleet import GIVEN_UP, REFUSED, RELEASED, TAKEN, MachineState
from windfall.core.state.state import State
from windfall.planning.offers import Offer

UNREADY_S = 1e6
"""Boot of a machine that never became ready; it ended before."""


class MarketNews(Struct):
    """What a log says of offers: each as it was first told, their prices, and notices of interruptions."""

    offers: dict[str, Offer] = field(default_factory=dict)
    """By key."""
    prices: list[PricesReported] = field(default_factory=list)
    notices: list[MachineNoticed] = field(default_factory=list)
    started_t: dict[int, float] = field(default_factory=dict)
    """When the provider took the order of each machine."""
    resumed_t: dict[int, float] = field(default_factory=dict)
    """When each machine last woke from hibernation."""
    late_s: dict[tuple[int, float], float] = field(default_factory=dict)
    """(machine, when it was interrupted or ended): for how long the server did not know of it."""

    def hear(self, event: AnyEvent) -> None:
        if isinstance(event, OffersConfigured):
            for offer in event.offers:
                self.offers.setdefault(offer.key, offer)
        elif isinstance(event, PricesReported):
            self.prices.append(event)
        elif isinstance(event, MachineStarted):
            self.started_t.setdefault(event.machine, event.at)
        elif isinstance(event, MachineResumed):
            self.resumed_t[event.machine] = event.at
        elif isinstance(event, MachineHibernated | MachineEnded):
            self.late_s.setdefault((event.machine, event.at), max(0.0, event.t - event.at))
        elif isinstance(event, MachineNoticed):
            self.notices.append(event)


def clouds_of(
    state: State, began_s: float, news: MarketNews, heartbeat_s: float, warm_up_s: float
) -> list[dict[str, Any]]:
    """Clouds for a scenario: every pool from which a machine was rented, with all of its offers.

    Hosts show that they are there every `heartbeat_s`, and begin their first task `warm_up_s` after they asked for it.
    """
    over_t = _over_t(state)
    machines: dict[str, list[MachineState]] = {}
    for machine in state.fleet.machines.values():
        machines.setdefault(machine.offer.key, []).append(machine)
        news.offers.setdefault(machine.offer.key, machine.offer)
    found = []
    for pool in sorted({rented[0].offer.pool for rented in machines.values()}):
        told = [event for event in news.prices if event.pool == pool]
        rows = [
            _offer(offer, machines.get(key, []), _steps(offer, told, began_s), news, over_t)
            for key, offer in news.offers.items()
            if offer.pool == pool
        ]
        limits = [offer.pool_limit for offer in news.offers.values() if offer.pool == pool and offer.pool_limit]
        cloud = {"name": pool, "poll": "1s", "heartbeat": seconds(heartbeat_s), "warm_up": seconds(warm_up_s)}
        found.append(cloud | {"limit": min(limits, default=0), "offer": rows})
    return found


def _over_t(state: State) -> float:
    """When the last job ended: a simulated run is over then, and gives all machines back; inf if one has not ended."""
    ended = [bag.finished_t for bag in state.bags.values()]
    return max((inf if t is None else t for t in ended), default=inf)


def _offer(
    offer: Offer, machines: list[MachineState], steps: list[list[Any]], news: MarketNews, over_t: float
) -> dict[str, Any]:
    # What we gave up before it was ordered, no provider has answered.
    ordered = [machine for machine in machines if machine.error != GIVEN_UP]
    row: dict[str, Any] = {
        "name": offer.name,
        "market": offer.market,
        "price_usd": offer.price_usd,
        "cycle": seconds(offer.cycle_s),
        "minimum": seconds(offer.minimum_s),
        "bills_boot": offer.bills_boot,
        "free_if_taken": offer.free_if_taken,
        "free_if_taken_within": seconds(offer.free_if_taken_within_s),
        "cores": offer.cores,
        "resources": offer.units,
        "memory_gb": 0.0 if offer.memory_gb == inf else offer.memory_gb,
        "limit": offer.limit or 0,
        "boot": seconds(offer.lag_s),
        "when_taken": offer.when_taken,
    }
    if isinstance(offer.speed, dict):
        row |= {"speed": offer.speed.get("default", 1.0), "speeds": dict(offer.speed)}
    else:
        row["speed"] = offer.speed
    if ordered:
        row["lives"] = [
            [seconds(part) for part in life_of(machine, news.resumed_t.get(machine.number))] for machine in ordered
        ]
        orders_s = [max(0.0, news.started_t.get(m.number, m.requested_t) - m.requested_t) for m in ordered]
        if any(orders_s):
            row["orders"] = [seconds(order_s) for order_s in orders_s]
        if any(ends_s := _ends_s(ordered, over_t)):
            row["ends"] = [seconds(end_s) for end_s in ends_s]
        late = [_late_s(machine, news) for machine in ordered]
        if any(map(any, late)):
            row["news"] = [[seconds(late_s) for late_s in each] for each in late]
    if len(steps) > 1:
        row["price_steps"] = steps
    if offer.market == "spot":
        row |= _told(offer, {machine.number for machine in machines}, news.notices)
    return row


def _told(offer: Offer, numbers: set[int], notices: list[MachineNoticed]) -> dict[str, Any]:
    """What planners were told of interruptions, and how early machines were."""
    row: dict[str, Any] = {}
    if offer.interruptions_per_h is not None:
        row |= {"told": True, "interruptions_per_h": offer.interruptions_per_h}
        if offer.resumes_per_h:
            row["hibernated"] = {"law": "exponential", "mean": seconds(3600.0 / offer.resumes_per_h)}
    early = [event.until - event.t for event in notices if event.machine in numbers]
    if early:
        row["notice"] = seconds(max(0.0, median(early)))
    return row


def _ends_s(machines: list[MachineState], over_t: float) -> list[float]:
    """How long each machine took to end once we gave it back; one that we did not give back, as long as the others.

    For one that was given back when all jobs had ended, the time counts from that end: a live server makes a plan
    first.
    """
    took = [
        machine.ended_t - min(machine.stopping_t, over_t)
        if machine.cause == RELEASED and machine.ended_t is not None and machine.stopping_t is not None
        else None
        for machine in machines
    ]
    known = [max(0.0, end_s) for end_s in took if end_s is not None]
    usual = median(known) if known else 0.0
    return [usual if end_s is None else max(0.0, end_s) for end_s in took]


def _late_s(machine: MachineState, news: MarketNews) -> list[float]:
    """How long after each interruption of a machine the server knew of it: until then its tasks wait there."""
    moments = [slept_t for slept_t, _ in machine.sleeps]
    if machine.cause == TAKEN and machine.ended_t is not None:
        moments.append(machine.ended_t)
    return [news.late_s.get((machine.number, t), 0.0) for t in moments] or [0.0]


def life_of(machine: MachineState, resumed_t: float | None) -> list[float]:
    """Boot, run, sleep, run ... seconds of a machine; a last run is there only if the provider ended it.

    One that was refused boots for ever. `resumed_t`: when it last woke, if it ever did.
    """
    if machine.cause == REFUSED:
        return [inf]
    since_t = machine.requested_t
    boot_s = (
        UNREADY_S if machine.ready_t is None else machine.ready_t - since_t - machine.slept_s(since_t, machine.ready_t)
    )
    life = [max(0.0, boot_s)]
    for slept_t, woke_t in machine.sleeps:
        slept_t = max(slept_t, since_t)  # logs of earlier versions may have two hibernations that overlap
        life.append(slept_t - since_t)
        # One that ended while it slept has not woken: the end of the machine closed its sleep. One may have woken with
        # the job's last result, and have been released at that moment.
        closed_by_end = machine.ended_t is not None and woke_t is not None and woke_t >= machine.ended_t
        if woke_t is None or (closed_by_end and woke_t != resumed_t):
            return life
        life.append(max(0.0, woke_t - slept_t))
        since_t = woke_t
    if machine.cause == TAKEN and machine.ended_t is not None:
        life.append(max(0.0, machine.ended_t - since_t))
    return life


def _steps(offer: Offer, told: list[PricesReported], began_s: float) -> list[list[Any]]:
    """(moment, price of a cycle) of an offer: what held at the beginning, and every change since."""
    steps = [[0.0, offer.price_usd]]
    for event in told:
        at = max(0.0, (event.t if event.since_t is None else event.since_t) - began_s)
        for name, price_usd in event.prices:
            if name != offer.name or price_usd == steps[-1][1]:
                continue
            if at <= steps[-1][0]:
                steps[-1][1] = price_usd
            else:
                steps.append([at, price_usd])
    return [[seconds(at), price_usd] for at, price_usd in steps]


def seconds(value: float) -> str:
    return "never" if value == inf else f"{value:.6f}s"
