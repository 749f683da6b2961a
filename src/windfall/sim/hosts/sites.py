"""Sites of a simulated world: owned hosts, their agents, owners who come and go, and preemptible instances as workers.

Which host runs an instance and which one makes way is the engine's decision. The agents here do what a live one does
(`worker/site/agent.py`): report what has started and ended, run what the answer lists, and start what waits for
another when that one has gone. Touches nothing.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from msgspec import Struct

from windfall.core.decisions import SiteSettled
from windfall.core.events import InstanceRequested, InstancesWanted, SiteCreated, SiteHostReported
from windfall.core.records import Record
from windfall.core.sites.instances import LEAVING, PLACED, Instance, InstanceEnd, SiteRules, SiteState, Wish
from windfall.drivers import asking
from windfall.drivers.asking import PoolWorker, Started
from windfall.sim.chance import stream
from windfall.sim.hosts.host import Ground, Host
from windfall.sim.inputs import schema
from windfall.sim.scenario import Pool, Site
from windfall.wire.messages import DONE, PREEMPTED

if TYPE_CHECKING:
    from windfall.sim.world import World

Workers = list[PoolWorker]
REPORTS_PER_LEASE = 3 / 0.8
"""An agent waits for news for 0.8 of a third of a lease, then reports again."""


class Running(Struct):
    """An instance that has begun: a worker, or an owner's command if `host` is None."""

    start_s: float
    host: Host | None
    leaving: bool = False


class Agent:
    """The agent of one owned host."""

    def __init__(self, site: OwnedSite, index: int) -> None:
        self.site, self.index = site, index
        self.name = f"{site.rules.name}-host-{index}"
        self.boots, self.n = 1, 0
        self._waiting: dict[int, Instance] = {}
        """Instances that start when those before them have gone."""
        self._running: dict[int, Running] = {}
        self._started: list[tuple[int, float]] = []
        self._ends: list[InstanceEnd] = []
        self._beats = 0
        self._nudged = False

    # --- exchanges ---

    def report(self) -> None:
        """Say what is new, then do what the answer lists; again while that brings news."""
        driver, world = self.site.driver, self.site.world
        if driver.now < world.cut_off_until:
            self._beat_at(world.cut_off_until)
            return
        capacity = {"vcpu": float(self.site.told.vcpu)} if not self.n else None
        self.n += 1
        tags: list[str] | None = None if capacity is None else []
        started, ended, self._started, self._ends = self._started, self._ends, [], []
        event = SiteHostReported(
            driver.now, self.site.rules.name, self.name, f"boot-{self.boots}", self.n, capacity, tags, started, ended
        )
        decided = driver.submit(event).decided
        assert isinstance(decided, SiteSettled)
        if decided.refused:
            self._begin_anew()
            return
        self._follow()
        self._beat_at(driver.now + driver.state.settings.lease_s / REPORTS_PER_LEASE)

    def nudge(self) -> None:
        """The server answers the report that waits there: something has been placed here."""
        if not self._nudged:
            self._nudged = True
            self.site.driver.at(self.site.driver.now, self._hear)

    def _hear(self) -> None:
        self._nudged = False
        driver = self.site.driver
        if driver.now >= self.site.world.cut_off_until and self.n:
            driver.submit(SiteHostReported(driver.now, self.site.rules.name, self.name, f"boot-{self.boots}", self.n))
            self._follow()

    def _beat_at(self, t: float) -> None:
        self._beats += 1
        self.site.driver.at(t, self._beat, self._beats)

    def _beat(self, number: int) -> None:
        if number == self._beats:
            self.report()

    def _tell(self) -> None:
        """There is news: report it after what else happens now."""
        self._beat_at(self.site.driver.now)

    def _begin_anew(self) -> None:
        """The server had given this host up: end every instance, because the server does not know of any."""
        for running in self._running.values():
            if running.host is not None:
                self.site.world.vanish(running.host)
        self._waiting, self._running, self._started, self._ends = {}, {}, [], []
        self.boots, self.n = self.boots + 1, 0
        self.report()

    # --- instances ---

    def _follow(self) -> None:
        """Do what the answer says: all that shall run here, and what shall leave."""
        listed = {one.number: one for one in self.site.state.on(self.name)}
        for number in [number for number in self._running if number not in listed]:
            self._end(number, PREEMPTED, "the server knows it no more")
        for number, one in listed.items():
            if one.state == LEAVING:
                self._end(number, one.cause, one.text)
            elif one.state == PLACED and number not in self._running and number not in self._waiting:
                self._waiting[number] = one
        self._start_what_may()

    def _end(self, number: int, cause: str, why: str) -> None:
        running = self._running.get(number)
        if running is None:
            if self._waiting.pop(number, None) is not None:
                self._over(InstanceEnd(number, cause, None, None, self.site.driver.now, why))
        elif not running.leaving:
            running.leaving = True
            # A worker that needs longer than its grace time is killed, and cannot say what becomes of its tasks.
            ends_s, grace_s = self.site.ends_s(number), self.site.rules.grace_s
            self.site.driver.after(min(ends_s, grace_s), self._evict, number, self.boots, ends_s <= grace_s, cause, why)

    def _evict(self, number: int, boot: int, tells: bool, cause: str, why: str) -> None:
        running = self._running.get(number) if boot == self.boots else None
        if running is None:
            return
        if running.host is None:
            self.ended(number, cause, why)
            return
        if tells:
            self.site.world.preempt(running.host)
        else:
            self.site.world.vanish(running.host)
        self.site.books.interrupted += 1
        self.ended(number, cause, why)

    def _start_what_may(self) -> None:
        for number, one in list(self._waiting.items()):
            if not any(before in self._running for before in one.after):
                del self._waiting[number]
                self._start(one)

    def _start(self, one: Instance) -> None:
        driver, number = self.site.driver, one.number
        host = self.site.worker(self, number) if one.is_worker else None
        self._running[number] = Running(driver.now, host)
        self._started.append((number, driver.now))
        self._tell()
        if host is not None:
            self.site.world.come(host)
        else:
            driver.after(self.site.run_s(number), self._command_ends, number, self.boots)

    def _command_ends(self, number: int, boot: int) -> None:
        if boot == self.boots and number in self._running:
            self.ended(number, DONE, "")

    def ended(self, number: int, cause: str, why: str) -> None:
        """An instance has gone: what waits for its room begins."""
        running, now = self._running.pop(number), self.site.driver.now
        self._over(InstanceEnd(number, cause, 0 if cause == DONE else None, running.start_s, now, why))

    def _over(self, end: InstanceEnd) -> None:
        self._ends.append(end)
        self._start_what_may()
        self._tell()


class OwnedSite:
    """One site of the scenario: its agents, its owners, and its preemptible instances as a pool of the overlay."""

    def __init__(self, world: World, told: Site, seed: int) -> None:
        self.world, self.driver, self.told = world, world.driver, told
        self.rules = told.rules
        self.ground = _ground(told, self.rules, seed)
        self.books = self.ground.books
        self.agents = {agent.name: agent for agent in (Agent(self, index) for index in range(told.hosts))}
        self._reported: set[int] = set()
        self._homes: dict[str, tuple[Agent, int]] = {}
        """The agent and the number of every worker's instance, by the worker's name."""
        self._every, self._run, self._ends = told.every.quantile(), told.run.quantile(), told.ends.quantile()
        self._chance = {what: stream(seed, f"site/{told.name}/{what}") for what in ("every", "run", "ends")}
        self._runs_s: dict[int, float] = {}
        self._requests = 0

    @property
    def state(self) -> SiteState:
        return self.driver.state.sites[self.rules.name]

    def open(self) -> None:
        self.driver.submit(SiteCreated(self.driver.now, self.rules))
        for agent in self.agents.values():
            self.driver.at(self.driver.now, agent.report)
        self._plan_request()

    def listen(self, record: Record) -> None:
        """Agents whose hosts have something new to run or to end hear of it at once."""
        decided = record.decided
        if isinstance(decided, SiteSettled) and getattr(record.event, "site", "") == self.rules.name:
            for placement in decided.placed:
                self.agents[placement.host].nudge()
            for number, _ in decided.leaving:
                self.agents[self.state.instances[number].host].nudge()

    # --- owners ---

    def _plan_request(self) -> None:
        self._requests += 1
        pause_s = self._every(self._chance["every"](self._requests))
        if pause_s < inf:
            self.driver.after(pause_s, self._request, self._requests)

    def _request(self, number: int) -> None:
        if self.driver.now < self.world.cut_off_until:
            self.driver.at(self.world.cut_off_until, self._request, number)
            return
        wish = Wish({"vcpu": float(self.told.request_vcpu)}, ["command"], bid_usd=self.told.request_bid or None)
        decided = self.driver.submit(InstanceRequested(self.driver.now, self.rules.name, wish)).decided
        assert isinstance(decided, SiteSettled)
        self._runs_s[decided.number] = self._run(self._chance["run"](number))
        self._plan_request()

    def run_s(self, number: int) -> float:
        return self._runs_s[number]

    def ends_s(self, number: int) -> float:
        """How long an instance takes to end when it is told to; commands of owners are never told to."""
        return self._ends(self._chance["ends"](number))

    # --- the pool ---

    def start(self, count: int) -> Started:
        decided = self.driver.submit(InstancesWanted(self.driver.now, self.rules.name, count)).decided
        assert isinstance(decided, SiteSettled)
        return asking.placed(self.state, decided)

    def list(self) -> Workers:
        return asking.instances(self.state, self._reported)

    def worker(self, agent: Agent, number: int) -> Host:
        """The worker of an instance: as fast as the host that it runs on."""
        host = Host(self.ground, agent.index)
        host.name = self.state.name_of(number)
        host.ad = host.ad | {"name": host.name, "tags": {"site_host": agent.name}}
        host.rented_s = self.driver.now
        self.books.hosts += 1
        self.world.hosts.append(host)
        self._homes[host.name] = (agent, number)
        return host

    def left(self, host: Host) -> None:
        """A worker has ended by itself."""
        agent, number = self._homes.pop(host.name)
        agent.ended(number, DONE, "no more work")


def _ground(told: Site, rules: SiteRules, seed: int) -> Ground:
    """The common properties of the workers of a site, in the form of a pool."""
    raw = {"name": told.name, "hosts": told.limit, "slots": rules.slots, "on_demand": True}
    values = schema.read_table(raw, schema.POOL, told.name)
    values |= {"speed": told.speed, "heartbeat_s": told.heartbeat_s, "idle_s": told.idle_s}
    return Ground(Pool(**values), seed)
