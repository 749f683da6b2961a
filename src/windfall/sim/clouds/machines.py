"""The rented machines of a simulated world: ordered, refused, booted, hibernated, resumed, reclaimed. Touches nothing.

The engine says what to rent and what to give back (`core.wishes`); here the provider answers, boots a host that asks
for work as every other, and reclaims it when its market says so. While the server cannot be reached, the provider keeps
its news; in a replay the server also hears of interruptions as late as it did.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

from windfall.core.decisions import PlanTaken
from windfall.core.events import (
    AnyEvent,
    MachineEnded,
    MachineHibernated,
    MachineNoticed,
    MachineRefused,
    MachineResumed,
    MachineStarted,
    OffersConfigured,
    PricesReported,
)
from windfall.core.records import Record
from windfall.core.state.renting import fleet
from windfall.core.wishes import Wishes, machines_to_wake
from windfall.planning.offers import Offer
from windfall.sim.clouds.cloud import Cloud
from windfall.sim.clouds.market import Market, Place
from windfall.sim.hosts.host import Books, Ground, Host
from windfall.sim.inputs import schema
from windfall.sim.scenario import Pool

if TYPE_CHECKING:
    from windfall.sim.world import World

GIB_MB = 1024


class Rented:
    """One machine between order and end. `epoch` changes at each interruption and invalidates scheduled calls."""

    __slots__ = ("boot_left_s", "epoch", "hibernated_t", "host", "market", "nudged", "number", "place", "since_s")

    def __init__(self, number: int, market: Market, place: Place, host: Host, now: float) -> None:
        self.number, self.market, self.place, self.host = number, market, place, host
        self.since_s = now
        """Time since which it runs or boots."""
        self.hibernated_t: float | None = None
        self.boot_left_s: float | None = market.boot_s(place)
        self.epoch = 0
        self.nudged = False


class Provider:
    """All clouds of one world."""

    def __init__(self, world: World, clouds: tuple[Cloud, ...], seed: int) -> None:
        self.world, self.driver, self.clouds = world, world.driver, clouds
        self.books = {cloud.name: Books() for cloud in clouds}
        self.rented: dict[int, Rented] = {}
        self._leaving: dict[int, tuple[float, Rented]] = {}
        """Machines that we gave back, and when they end: the provider takes its time, and bills it."""
        self.log: list[tuple[float, int, str]] = []
        """(time, machine, what happened), as the provider records it."""
        self._markets: dict[str, Market] = {}
        self._seed = seed
        self._grounds: dict[str, Ground] = {}
        self._late: dict[int, deque[tuple[float, Callable[[float], AnyEvent]]]] = {}
        """What became of machines and the server does not know yet, with the moment when it will."""
        self._ordered: set[int] = set()
        self._ending: set[int] = set()
        self._hungry: dict[int, Rented] = {}
        """Machines with free slots that got no task when they last asked."""
        for cloud in clouds:
            for supply in cloud.supplies:
                key = supply.offer.key
                self._markets[key] = Market(supply, cloud.name, seed)

    def open(self) -> None:
        """Report the offers, and prices whenever they change."""
        for cloud in self.clouds:
            offers = [self._markets[supply.offer.key].offer for supply in cloud.supplies]
            self.driver.submit(OffersConfigured(self.driver.now, cloud.name, offers))
            if any(supply.prices is not None for supply in cloud.supplies):
                self._report_prices(cloud)

    def _report_prices(self, cloud: Cloud) -> None:
        now = self.driver.now
        markets = [self._markets[supply.offer.key] for supply in cloud.supplies if supply.prices is not None]
        prices = [(market.offer.name, market.price_usd(now)) for market in markets]
        self._tell(lambda t: PricesReported(t, cloud.name, prices))
        self.driver.at(min(market.next_price_t(now) for market in markets), self._report_prices, cloud)

    def _tell(self, event: Callable[[float], AnyEvent]) -> None:
        """Send an event to the server, after the present outage if there is one."""
        if self.driver.now < self.world.cut_off_until:
            self.driver.at(self.world.cut_off_until, self._tell, event)
        else:
            self.driver.submit(event(self.driver.now))

    def _tell_of(self, number: int, event: Callable[[float], AnyEvent], late_s: float = 0.0) -> None:
        """Send what became of a machine, `late_s` after it happened and not before what happened to it earlier."""
        waiting = self._late.get(number)
        if late_s or waiting:
            at_t = max(self.driver.now + late_s, waiting[-1][0] if waiting else 0.0)
            self._late.setdefault(number, deque()).append((at_t, event))
            self.driver.at(at_t, self._deliver, number)
        else:
            self._tell(event)

    def _deliver(self, number: int) -> None:
        if waiting := self._late.get(number):
            self._tell(waiting.popleft()[1])

    # --- what the engine wants ----------------------------------------------------------------------------------------

    def carry_out(self, wanted: Wishes) -> None:
        """Order and give back what is wished for and not under way, when the provider can be reached."""
        when = max(self.driver.now, self.world.cut_off_until)
        for number in wanted.order:
            if number not in self._ordered:
                self._ordered.add(number)
                self.driver.at(when, self._order, number)
        for number in wanted.end:
            if number not in self._ending:
                self._ending.add(number)
                self.driver.at(when, self.release, number)

    def listen(self, record: Record) -> None:
        """Machines that wait for work hear when there may be some; those that a plan recalls hear that."""
        if isinstance(record.decided, PlanTaken):
            for number in record.decided.recalled:
                if number in self.rented:
                    self._nudge(self.rented[number])
        if self._hungry:
            for machine in machines_to_wake(self.driver.state, record):
                if machine.number in self._hungry:
                    self._nudge(self._hungry[machine.number])

    def _nudge(self, rented: Rented) -> None:
        if not rented.nudged:
            rented.nudged = True
            self.driver.at(self.driver.now, self._ask, rented, rented.epoch)

    def _ask(self, rented: Rented, epoch: int) -> None:
        rented.nudged = False
        if rented.epoch == epoch and rented.host.here and not rented.host.retrying:
            self.world.exchange(rented.host)

    def asked(self, host: Host) -> None:
        """Called after a machine has been answered."""
        rented = self.rented.get(host.index)
        if rented is None:
            return
        if host.here and host.pool.hold > len(host.running) + len(host.queue):
            self._hungry[host.index] = rented
            if host.n == 1 and self.driver.state.bags.ready:
                # Tasks lost by an earlier boot were requeued by this answer, not assigned in it.
                self._nudge(rented)
        else:
            self._hungry.pop(host.index, None)

    # --- a machine's life ---------------------------------------------------------------------------------------------

    def _order(self, number: int) -> None:
        ordered = self.driver.state.fleet.machines[number]
        if ordered.stopping:
            self._tell(lambda t: MachineRefused(t, number, fleet.GIVEN_UP, False))
            return
        offer = ordered.offer
        now, market, books = self.driver.now, self._markets[offer.key], self.books[offer.pool]
        place = None if self._is_full(offer) else market.rent(now)
        if place is None:
            books.refused += 1
            self.log.append((now, number, "refused"))
            self._tell(lambda t: MachineRefused(t, number, "no capacity"))
            return
        rented = self.rented[number] = Rented(number, market, place, self._host(number, offer), now)
        books.hosts += 1
        self.log.append((now, number, "started"))
        self._tell(lambda t: MachineStarted(t, number, f"{offer.name}/{place.index}.{place.turn}", now + place.order_s))
        self._run(rented)

    def _is_full(self, offer: Offer) -> bool:
        """Whether the account may not have another machine of the cloud; hibernated ones do not count."""
        if offer.pool_limit is None:
            return False
        leaving = (one for _, one in self._leaving.values())
        there = (one for one in (*self.rented.values(), *leaving) if one.market.offer.pool == offer.pool)
        return sum(one.hibernated_t is None for one in there) >= offer.pool_limit

    def _host(self, number: int, offer: Offer) -> Host:
        ground = self._grounds.get(offer.key)
        if ground is None:
            cloud = next(cloud for cloud in self.clouds if cloud.name == offer.pool)
            ground = self._grounds[offer.key] = _ground(cloud, offer, self._seed, self.books[cloud.name])
        host = Host(ground, number)
        host.offer = offer
        host.name = f"{offer.pool}-m{number}"
        host.ad = host.ad | {"name": host.name, "machine": number}
        return host

    def _run(self, rented: Rented) -> None:
        """Let it run, or continue its boot, until its next interruption."""
        driver, epoch = self.driver, rented.epoch
        rented.since_s, rented.hibernated_t = driver.now, None
        if rented.boot_left_s is not None:
            driver.after(rented.boot_left_s, self._come, rented, epoch)
        taken_t = rented.market.taken_t(rented.place, driver.now)
        if taken_t < inf:
            driver.at(taken_t, self._interrupt, rented, epoch)
            notice_s = rented.market.supply.notice_s
            if notice_s:
                driver.at(taken_t - notice_s, self._notice, rented, epoch, taken_t)

    def _come(self, rented: Rented, epoch: int) -> None:
        if rented.epoch == epoch:
            rented.boot_left_s = None
            rented.host.warm_t = self.driver.now + rented.host.pool.warm_up_s
            self.log.append((self.driver.now, rented.number, "ready"))
            self.world.come(rented.host)

    def _notice(self, rented: Rented, epoch: int, until: float) -> None:
        if rented.epoch == epoch:
            self._tell(lambda t: MachineNoticed(t, rented.number, until))
            self.world.saver.notice(rented.host, until - self.driver.now)

    def _interrupt(self, rented: Rented, epoch: int) -> None:
        """The provider interrupts it: hibernates it or reclaims it."""
        if rented.epoch != epoch:
            return
        now, number, how = self.driver.now, rented.number, rented.market.offer.when_taken
        late_s = rented.place.news_s
        self.books[rented.market.offer.pool].interrupted += 1
        if how == "terminate":
            self._end(rented, "taken")
            return
        self._pause(rented, keeps=how == "hibernate")
        back_t = rented.market.back_t(rented.place, now)
        rented.place.interruptions += 1
        self.log.append((now, number, "hibernated"))
        self._tell_of(number, lambda t: MachineHibernated(t, number, now), late_s)
        if back_t < inf:
            self.driver.at(back_t, self._wake, rented, rented.epoch)

    def _pause(self, rented: Rented, keeps: bool) -> None:
        """Its host stands still; what runs there goes on later, or is lost."""
        host, now = rented.host, self.driver.now
        rented.epoch += 1
        rented.hibernated_t = now
        self._hungry.pop(rented.number, None)
        if rented.boot_left_s is not None:
            rented.boot_left_s -= now - rented.since_s
        if not keeps:
            self.world.lose(host)
            rented.boot_left_s = rented.market.boot_s(rented.place)
        if host.here:
            self.world.go(host)
        host.last_s = now
        if not keeps:
            host.boot = ""

    def _wake(self, rented: Rented, epoch: int) -> None:
        if rented.epoch != epoch:
            return
        now, number = self.driver.now, rented.number
        rented.epoch += 1
        self.log.append((now, number, "resumed"))
        self._tell_of(number, lambda t: MachineResumed(t, number, now))
        self._run(rented)
        if rented.boot_left_s is None:
            self.world.come(rented.host)
            # What was given up meanwhile is cancelled with the first answer; its slots are free from then on.
            if rented.host.here and rented.number in self._hungry:
                self._nudge(rented)

    def release(self, number: int) -> None:
        """We give it back."""
        rented = self.rented.get(number)
        if rented is not None:
            self._end(rented, "released")

    def _end(self, rented: Rented, cause: str) -> None:
        number, end_s = rented.number, rented.place.end_s
        rented.epoch += 1
        del self.rented[number]
        self._hungry.pop(number, None)
        if cause == "taken":
            self.world.lose(rented.host)
        if rented.host.here:
            self.world.go(rented.host)
        if cause == "released" and end_s:
            self._leaving[number] = (self.driver.now + end_s, rented)
            self.driver.after(end_s, self._left, number)
        else:
            self._gone(rented, cause)

    def _left(self, number: int) -> None:
        if number in self._leaving:
            self._gone(self._leaving.pop(number)[1], "released")

    def _gone(self, rented: Rented, cause: str) -> None:
        now, number = self.driver.now, rented.number
        rented.market.give_back(rented.place)
        self.log.append((now, number, cause))
        self._tell_of(
            number, lambda t: MachineEnded(t, number, now, cause), rented.place.news_s if cause == "taken" else 0.0
        )

    def close(self) -> None:
        """End of the run: release all machines and record the bills."""
        for number in list(self.rented):
            self.release(number)
        for end_t, number in sorted((end_t, number) for number, (end_t, _) in self._leaving.items()):
            self.driver.now = max(self.driver.now, end_t)
            self._left(number)
        for number, waiting in self._late.items():
            for _ in range(len(waiting)):
                self._deliver(number)
        now, world = self.driver.now, self.world
        for machine in self.driver.state.fleet.machines.values():
            pool = machine.offer.pool
            cost = fleet.owed_microusd(machine, now)
            self.books[pool].cost_microusd += cost
            world.bills.append((machine.requested_t, machine.ended_t or now, machine.offer.key, cost))


def _ground(cloud: Cloud, offer: Offer, seed: int, books: Books) -> Ground:
    """The common properties of the hosts of an offer, in the form of a pool."""
    memory_mb = 0 if offer.memory_gb == inf else int(offer.memory_gb * GIB_MB)
    raw = {"name": cloud.name, "hosts": 1, "slots": offer.cores, "memory_mb": memory_mb, "resources": offer.units}
    pool = schema.read_table(raw, schema.POOL, cloud.name)
    pool |= {"heartbeat_s": cloud.heartbeat_s, "poll_s": cloud.poll_s, "poll_max_s": cloud.poll_max_s}
    pool["long_poll"] = False  # the provider wakes them, by the rule for machines
    ground = Ground(Pool(**pool), seed)
    ground.books, ground.warm_up_s = books, cloud.warm_up_s
    return ground
