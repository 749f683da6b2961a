"""What is kept incrementally equals what would be built from scratch, whatever happened before."""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from windfall.placement import Count, Host, Instance, Period, Request, Revenue, Scheduler, Site, Work
from windfall.placement.evictions.costs import micros

COSTS = (Period(), Count(), Revenue(), Work())
sizes = st.sampled_from([{"vcpu": 1, "ram_mb": 2}, {"vcpu": 2, "ram_mb": 4}, {"vcpu": 0.1}, {"vcpu": 3, "ram_mb": 1}])


class SiteOverTime(RuleBasedStateMachine):
    """Instances come, go, save their work and are evicted while the clock moves; four schedulers watch one site."""

    @initialize(hosts=st.integers(1, 5))
    def build(self, hosts):
        self.hosts = [Host(f"h{h}", {"vcpu": 4, "ram_mb": 8}) for h in range(hosts)]
        self.site = Site(self.hosts)
        self.schedulers = [Scheduler(self.site, cost, rng=np.random.default_rng(0)) for cost in COSTS]
        self.now_s = 0.0
        self.born: dict[str, tuple[str, Instance, float]] = {}  # host, instance as it came, when

    @rule(seconds=st.sampled_from([0.0, 0.5, 60.0, 1799.0, 3600.0, 10_000.0]))
    def wait(self, seconds):
        self.now_s += seconds

    @rule(size=sizes, group=st.sampled_from(["", "g"]), price=st.sampled_from([None, 0.5, 2.0]))
    def boot_preemptible(self, size, group, price):
        decision = self.schedulers[0].decide(Request(True, size), self.now_s)
        assert decision.victims == ()
        if decision.host is not None:
            self._boot(decision.host, Instance(self._name("p"), True, 0.0, size, price, group=group))

    @rule(size=sizes, which=st.integers(0, len(COSTS) - 1))
    def boot_normal(self, size, which):
        decision = self.schedulers[which].decide(Request(False, size), self.now_s)
        for victim in decision.victims:
            assert self.born.pop(victim)[1].preemptible
            self.site.remove(victim)
        if decision.host is not None:
            self._boot(decision.host, Instance(self._name("n"), False, 0.0, size))

    @precondition(lambda self: self.born)
    @rule(pick=st.integers(0, 99))
    def end(self, pick):
        identity = sorted(self.born)[pick % len(self.born)]
        del self.born[identity]
        self.site.remove(identity)

    @precondition(lambda self: self.born)
    @rule(pick=st.integers(0, 99))
    def save(self, pick):
        identity = sorted(self.born)[pick % len(self.born)]
        host, instance, since_s = self.born[identity]
        if instance.preemptible:
            self.site.checkpoint(identity, self.now_s)
            saved = Instance(
                instance.id,
                True,
                0.0,
                instance.resources,
                instance.price_usd_per_h,
                None,
                self.now_s - since_s,
                instance.group,
            )
            self.born[identity] = (host, saved, since_s)

    @rule(size=sizes, which=st.integers(0, len(COSTS) - 1))
    def decide_like_a_scheduler_that_was_just_built(self, size, which):
        request = Request(False, size)
        kept = self.schedulers[which].decide(request, self.now_s)
        fresh = Scheduler(self._rebuilt(), COSTS[which]).decide(request, 0.0)
        assert (kept.cost, len(kept.victims)) == (fresh.cost, len(fresh.victims))
        assert (kept.host is None) == (fresh.host is None)

    @rule(size=sizes, which=st.integers(0, len(COSTS) - 1))
    def lay_open_like_a_scheduler_that_was_just_built(self, size, which):
        request = Request(False, size)
        kept = self.schedulers[which].weigh(request, self.now_s)
        fresh = Scheduler(self._rebuilt(), COSTS[which]).weigh(request, 0.0)
        assert kept.rows.tolist() == fresh.rows.tolist()
        assert [(c.cost, len(c.chosen)) for c in kept.covers] == [(c.cost, len(c.chosen)) for c in fresh.covers]
        assert kept.total.tolist() == fresh.total.tolist()

    @invariant()
    def both_states_equal_those_built_from_scratch(self):
        if not hasattr(self, "site"):
            return
        fresh = self._rebuilt()
        assert (self.site.free_f == fresh.free_f).all()
        assert (self.site.free_n == fresh.free_n).all()
        assert (self.site.free_f >= 0).all()
        assert self.site.groups.get("g", {}) == fresh.groups.get("g", {})
        assert int(self.site.used.sum()) == sum(instance.preemptible for _, instance, _ in self.born.values())

    def _rebuilt(self):
        """The same instances on a new site whose clock starts now."""
        now_us = micros(self.now_s)
        hosts = []
        for host in self.hosts:
            here = tuple(
                Instance(
                    i.id,
                    i.preemptible,
                    (now_us - micros(since_s)) / 1e6,
                    i.resources,
                    i.price_usd_per_h,
                    None,
                    i.checkpoint_s,
                    i.group,
                )
                for name, i, since_s in self.born.values()
                if name == host.name
            )
            hosts.append(Host(host.name, host.capacity, here))
        return Site(hosts)

    def _boot(self, host, instance):
        self.site.boot(host, instance, self.now_s)
        self.born[instance.id] = (host, instance, self.now_s)

    def _name(self, kind):
        self.count = getattr(self, "count", 0) + 1
        return f"{kind}{self.count}"


SiteOverTime.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestSiteOverTime = SiteOverTime.TestCase


def test_many_hosts_over_time_cost_what_a_scheduler_that_was_just_built_finds():
    """Enough hosts that bounds are computed together, enough time that billed hours end."""
    rng = np.random.default_rng(11)
    flavours = [{"vcpu": v, "ram_mb": r} for v, r in ((1, 2), (2, 3), (2, 6), (3, 1))]
    hosts = []
    for h in range(150):
        left, here = [8, 16], []
        for i in range(12):
            size = flavours[int(rng.integers(4))]
            if size["vcpu"] <= left[0] and size["ram_mb"] <= left[1]:
                left = [left[0] - size["vcpu"], left[1] - size["ram_mb"]]
                here.append(Instance(f"{h}-{i}", True, float(rng.integers(0, 9000)), size, float(rng.integers(1, 9))))
        hosts.append(Host(f"h{h}", {"vcpu": 8, "ram_mb": 16}, tuple(here)))
    for cost in COSTS:
        site = Site(hosts)
        kept = Scheduler(site, cost)
        now_s = 0.0
        for step in range(60):
            now_s += float(rng.integers(0, 120))
            size = flavours[int(rng.integers(4))] if step % 3 else {"vcpu": 6, "ram_mb": 9}
            decision = kept.decide(Request(False, size), now_s)
            fresh = Scheduler(site, cost).decide(Request(False, size), now_s)
            assert (decision.cost, len(decision.victims)) == (fresh.cost, len(fresh.victims))
            for victim in decision.victims:
                site.remove(victim)
            if decision.host is not None:
                site.boot(decision.host, Instance(f"n{step}", False, 0.0, size), now_s)
