"""A site under random events: hosts never hold more than they have, victims are the cheapest, the log tells all."""

from __future__ import annotations

from itertools import combinations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from windfall.core.engine import Engine
from windfall.core.events import (
    InstanceCancelled,
    InstanceRequested,
    InstancesWanted,
    ServerStarted,
    Settings,
    SiteCreated,
    SiteHostReported,
    SiteLooked,
)
from windfall.core.records import decode_record, encode_record
from windfall.core.sites.instances import HOLDING, LEAVING, PLACED, InstanceEnd, ReviewRules, SiteRules, Wish
from windfall.core.sites.site import GIVEN_UP, room, silences
from windfall.core.state.hosts.hosts import GONE
from windfall.core.state.invariants import problems
from windfall.core.state.snapshot import load, save
from windfall.core.state.state import State
from windfall.core.wishes import due

SIZE = {"vcpu": 1.0, "ram_mb": 10.0}


class FakeAgent:
    """A host as the wire sees it: follows orders as the real agent does, dies, returns, goes."""

    def __init__(self, name: str, vcpu: float, ram_mb: float) -> None:
        self.name, self.capacity = name, {"vcpu": vcpu, "ram_mb": ram_mb}
        self.boot = 0
        self.begin()

    def begin(self) -> None:
        self.boot, self.n = self.boot + 1, 0
        self.waiting: dict[int, list[int]] = {}
        self.running: dict[int, bool] = {}
        """Instance -> has been told to leave."""
        self.started: list[int] = []
        self.ends: dict[int, InstanceEnd] = {}

    def follow(self, site) -> None:
        for one in site.on(self.name):
            known = one.number in self.waiting or one.number in self.running or one.number in self.ends
            if one.state == LEAVING and one.number in self.running:
                self.running[one.number] = True
            elif one.state == LEAVING and one.number not in self.ends:
                self.waiting.pop(one.number, None)
                self.ends[one.number] = InstanceEnd(one.number, one.cause, None, None, 0.0)
            elif one.state == PLACED and not known:
                self.waiting[one.number] = list(one.after)
        self.start_what_may()

    def start_what_may(self) -> None:
        for number, after in list(self.waiting.items()):
            if not any(before in self.running for before in after):
                del self.waiting[number]
                self.running[number] = False
                self.started.append(number)

    def end(self, number: int, t: float) -> None:
        cause = "preempted" if self.running.pop(number) else "done"
        self.ends[number] = InstanceEnd(number, cause, 0, t - 1.0, t)
        self.start_what_may()


class SiteMachine(RuleBasedStateMachine):
    @initialize(cost=st.sampled_from(["count", "period"]))
    def start(self, cost):
        self.begin(SiteRules("lab", SIZE, cost=cost))

    def begin(self, rules):
        self.engine, self.state = Engine(), State()
        self.t = 0.0
        self.log: list[bytes] = []
        self.agents = [FakeAgent("a", 4.0, 100.0), FakeAgent("b", 3.0, 30.0), FakeAgent("c", 2.0, 15.0)]
        self.step(ServerStarted(0.0, Settings(lease_s=10.0)))
        self.step(SiteCreated(0.0, rules))
        for agent in self.agents:
            self.report(agent)

    @property
    def site(self):
        return self.state.sites["lab"]

    def step(self, event):
        before = save(self.state)
        record = self.engine.decide(self.state, event)
        assert save(self.state) == before, "deciding changes nothing"
        self.engine.apply(self.state, record)
        self.log.append(encode_record(record))
        return record

    def report(self, agent, leaving=None):
        agent.n += 1
        first = agent.n == 1
        sent = list(agent.started), list(agent.ends.values())
        event = SiteHostReported(
            self.t, "lab", agent.name, str(agent.boot), agent.n, agent.capacity if first else None,
            [] if first else None, [(number, self.t) for number in sent[0]], sent[1], leaving,
        )  # fmt: skip
        decided = self.step(event).decided
        if decided.refused == GIVEN_UP:
            agent.begin()
            return
        assert not decided.refused and not decided.repeat
        agent.started, agent.ends = [], {}
        if not leaving:
            agent.follow(self.site)

    @rule(index=st.integers(0, 2))
    def exchange(self, index):
        self.report(self.agents[index])

    @rule(index=st.integers(0, 2))
    def exchange_twice(self, index):
        """A repeated report changes nothing but the time, and promises nothing new but what was placed meanwhile."""
        agent = self.agents[index]
        known = self.site.hosts.get(agent.name)
        if agent.n and known is not None and known.state != GONE and known.boot == str(agent.boot):
            decided = self.step(SiteHostReported(self.t, "lab", agent.name, str(agent.boot), agent.n)).decided
            assert decided.repeat
            agent.follow(self.site)

    @rule(index=st.integers(0, 2), which=st.integers(0, 9))
    def end_one(self, index, which):
        running = list(self.agents[index].running)
        if running:
            self.agents[index].end(running[which % len(running)], self.t)

    @rule(index=st.integers(0, 2))
    def restart_agent(self, index):
        self.agents[index].begin()

    @rule(index=st.integers(0, 2))
    def leave(self, index):
        agent = self.agents[index]
        if agent.n == 0:
            self.report(agent)
        for number in list(agent.running):
            agent.running[number] = True
            agent.end(number, self.t)
        for number in [*agent.waiting, *agent.running]:
            agent.waiting.pop(number, None)
            agent.running.pop(number, None)
            agent.started = [other for other in agent.started if other != number]
            agent.ends[number] = InstanceEnd(number, "preempted", None, None, self.t)
        self.report(agent, leaving="signal")
        agent.begin()

    @rule(count=st.integers(1, 6))
    def want_workers(self, count):
        fits = room(self.site)
        decided = self.step(InstancesWanted(self.t, "lab", count)).decided
        assert len(decided.placed) == min(count, fits)
        assert all(not placed.victims for placed in decided.placed)

    @rule(vcpu=st.integers(1, 4), ram=st.sampled_from([1.0, 10.0, 30.0]), queue=st.booleans())
    def request(self, vcpu, ram, queue):
        needs = {"vcpu": float(vcpu), "ram_mb": ram}
        best = self.cheapest(needs)
        number = self.step(InstanceRequested(self.t, "lab", Wish(needs, ["true"], queue=queue))).decided.number
        one = self.site.instances[number]
        if best is None:
            assert one.state == ("waiting" if queue else "refused") and one.why
        else:
            assert (one.cost, len(one.victims)) == best
            assert all(self.site.instances[victim].preemptible for victim in one.victims)
            assert all(self.site.instances[victim].host == one.host for victim in one.victims)

    def cheapest(self, needs):
        """(cost, victims) of the best host, by trying every set of preemptible instances on every host."""
        found = []
        for host in self.site.hosts.values():
            if host.state != "live":
                continue
            held = [one for one in self.site.on(host.name) if one.state in HOLDING]
            free = {name: host.capacity[name] - sum(one.resources[name] for one in held) for name in needs}
            workers = [one for one in held if one.preemptible]
            for count in range(len(workers) + 1):
                for chosen in combinations(workers, count):
                    gain = {name: sum(one.resources[name] for one in chosen) for name in needs}
                    if all(free[name] + gain[name] >= needs[name] for name in needs):
                        found.append((sum(map(self.cost, chosen)), count))
        return min(found, default=None)

    def cost(self, one):
        if self.site.rules.cost == "count":
            return 1
        started = one.placed_t if one.started_t is None else one.started_t
        return round((self.t - started) * 1e6) % (3600 * 10**6)

    @rule(which=st.integers(0, 20))
    def cancel(self, which):
        asked = [one.number for one in self.site.instances.values() if one.wish is not None]
        if asked:
            self.step(InstanceCancelled(self.t, "lab", asked[which % len(asked)]))

    @rule(seconds=st.sampled_from([0.5, 4.0, 11.0, 25.0, 1800.0]))
    def wait(self, seconds):
        self.t += seconds
        if any(silences(self.state, self.site, self.t)):
            self.step(SiteLooked(self.t, "lab"))

    @rule()
    def restart_server(self):
        data = save(self.state)
        self.state = load(data)
        assert save(self.state) == data
        self.step(ServerStarted(self.t, Settings(lease_s=10.0)))

    @invariant()
    def promises_hold(self):
        if hasattr(self, "state"):
            assert problems(self.state) == []

    @invariant()
    def no_host_runs_more_than_it_has(self):
        """Counted by what really runs there, victims that have not gone yet included."""
        for agent in getattr(self, "agents", []):
            for name, amount in agent.capacity.items():
                numbers = [number for number in agent.running if number in self.site.instances]
                used = sum(self.site.instances[number].resources.get(name, 0) for number in numbers)
                assert used <= amount, (agent.name, name, used)

    def teardown(self):
        if not hasattr(self, "state"):
            return
        replayed, decided_again = State(), State()
        engine = Engine()
        for data in self.log:
            engine.apply(replayed, decode_record(data))
            assert encode_record(engine.step(decided_again, decode_record(data).event)) == data
        assert save(replayed) == save(self.state) == save(decided_again)


SiteMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestSite = SiteMachine.TestCase


class ReviewedMachine(SiteMachine):
    """The same with a market, hosts that are emptied, and instances that have to pay, in every combination."""

    @initialize(
        market=st.booleans(), consolidate=st.sampled_from([None, 0.0, 1e6]), power=st.sampled_from([0.0, 0.05, 0.5])
    )
    def start(self, market, consolidate, power):
        review = ReviewRules(market, 0.0, 0.02 if market else 0.0, consolidate, power, 5.0)
        self.begin(SiteRules("lab", SIZE, price_usd=0.02, review=review))

    @rule(count=st.integers(1, 6))
    def want_workers(self, count):
        decided = self.step(InstancesWanted(self.t, "lab", count)).decided
        workers = [placed for placed in decided.placed if self.site.instances[placed.number].is_worker]
        assert len(workers) == count or decided.denied, "fewer than asked for have a reason"

    @rule(vcpu=st.integers(1, 4), ram=st.sampled_from([1.0, 10.0, 30.0]), queue=st.booleans())
    def request(self, vcpu, ram, queue):
        wish = Wish({"vcpu": float(vcpu), "ram_mb": ram}, ["true"], queue=queue)
        fits = self.cheapest(wish.resources) is not None
        one = self.site.instances[self.step(InstanceRequested(self.t, "lab", wish)).decided.number]
        assert (one.state == "placed") == fits, "no market keeps a normal request from a host that could take it"

    @rule(vcpu=st.integers(1, 4), usd=st.sampled_from([0.0, 0.01, 0.05, 0.3]), queue=st.booleans())
    def bid(self, vcpu, usd, queue):
        if self.site.rules.review.market:
            wish = Wish({"vcpu": float(vcpu), "ram_mb": 5.0}, ["true"], queue=queue, bid_usd=usd)
            decided = self.step(InstanceRequested(self.t, "lab", wish)).decided
            one = self.site.instances[decided.number]
            assert one.why
            if one.state == "placed":
                assert usd / vcpu >= decided.price_usd - 1e-6, "nobody starts who bids less than the price"

    @rule(seconds=st.sampled_from([0.5, 4.0, 11.0, 3600.0]))
    def wait(self, seconds):
        self.t += seconds
        for event in due(self.state, self.t):
            if isinstance(event, SiteLooked):
                decided = self.step(event).decided
                left = [self.site.instances[number] for number, _ in decided.leaving]
                assert all(one.preemptible and one.text for one in left), "reviews end no normal instance"


ReviewedMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
TestReviewedSite = ReviewedMachine.TestCase
