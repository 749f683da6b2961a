"""A site in virtual time: owners come and go, workers run in the room that is left, nothing is lost for good."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from windfall.core.decisions import SiteSettled
from windfall.core.events import InstanceRequested, ResultsReported, SiteHostReported
from windfall.core.sites.instances import OPEN
from windfall.core.state.invariants import problems
from windfall.errors import BadInput
from windfall.sim.run import run
from windfall.sim.scenario import check
from windfall.sim.world import World
from windfall.wire.messages import CAUSES, DONE, PREEMPTED

LAB = {
    "name": "lab", "hosts": 5, "vcpu": 4, "grace": "30s", "ends": {"law": "uniform", "low": "1s", "high": "20s"},
    "every": {"law": "exponential", "mean": "4m"}, "run": {"law": "exponential", "mean": "30m"}, "request_vcpu": 2,
}  # fmt: skip


def scenario(site=None, bag=None, **more):
    document = {
        "server": {"lease": "2m"},
        "site": [LAB | (site or {})],
        "bag": [
            {"name": "bag", "tasks": 100, "max_losses": 90, "run": {"law": "uniform", "low": "5m", "high": "15m"}}
            | (bag or {})
        ],
    }
    return check(document | more, Path("test.toml"))


class Run:
    def __init__(self, made, seed=1):
        self.records, self.broken, self.ended = [], [], {}
        self.accepted: dict[int, int] = {}
        self.waited_for_nothing: list[str] = []
        self.world: World | None = None
        self.world = World(made, seed, self.keep)
        self.world.run()
        self.state = self.world.driver.state
        self.site, self.bag = self.state.sites["lab"], self.state.bags[1]

    def keep(self, record):
        self.records.append(record)
        if self.world is None:
            return
        state = self.world.driver.state
        if len(self.records) % 20 == 0:
            self.broken += problems(state)
        site = state.sites.get("lab")
        if site is None:
            return
        if isinstance(record.decided, SiteSettled):
            self.broken += site.problems()
            self.ended |= {one.number: one for one in site.instances.values() if one.ended_t is not None}
            self.waited_for_nothing += [site.name_of(one.number) for one in site.waiting() if fits(site, one)]

    def events(self, kind):
        return [record.event for record in self.records if isinstance(record.event, kind)]

    def requests(self):
        return [one for one in (*self.ended.values(), *self.site.instances.values()) if not one.preemptible]


@cache
def usual(seed):
    return Run(scenario(), seed)


def fits(site, one):
    """Whether a live host has room for a request beside what other owners have there."""
    for host in site.hosts.values():
        owned = sum(other.resources["vcpu"] for other in site.on(host.name) if not other.preemptible)
        if host.state == "live" and owned + one.resources["vcpu"] <= host.capacity["vcpu"]:
            return True
    return False


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_owners_come_and_go_and_every_task_is_done_once(seed):
    run = usual(seed)
    assert run.broken == [] and run.bag.counts == [0, 0, 100, 0, 0]
    done = [(r.task, v) for record in run.records if isinstance(record.event, ResultsReported)
            for r, v in zip(record.event.results, record.decided.verdicts, strict=True)]  # fmt: skip
    assert sorted(task for task, verdict in done if verdict == 0) == list(range(100))
    evicted = [one for one in run.ended.values() if one.evicted_by is not None]
    assert evicted and run.world.grounds[0].books.interrupted >= len(evicted)
    assert len(run.events(InstanceRequested)) > 10


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_an_owner_waits_for_a_preemptible_instance_no_longer_than_its_grace(seed):
    run = usual(seed)
    assert run.waited_for_nothing == [], "a request waits only where owners have taken all room"
    displaced = [one for one in run.requests() if one.after and one.started_t is not None]
    assert displaced, "some had to wait for others to leave"
    assert max(one.started_t - one.placed_t for one in displaced) <= 30.0


@pytest.mark.parametrize("ends", ["1s", "10m"], ids=["in time", "killed after the grace time"])
def test_what_an_evicted_worker_had_in_hand_is_lost_and_runs_again(ends):
    run = Run(scenario({"ends": ends}))
    assert run.bag.counts == [0, 0, 100, 0, 0] and run.broken == []
    books = run.world.grounds[0].books
    assert books.lost > 0 and run.bag.tally.attempts >= 100 + books.lost
    told = [r for event in run.events(ResultsReported) for r in event.results if r.cause == CAUSES.index(PREEMPTED)]
    reported = [loss for r in run.records if isinstance(r.event, SiteHostReported) for loss in r.decided.lost]
    assert (len(told), len(reported)) == ((books.lost, 0) if ends == "1s" else (0, books.lost))


def test_instances_without_work_end_and_are_not_asked_for_again():
    run = Run(scenario({"every": "never"}, {"run": {"law": "lognormal", "median": "10m", "sigma": 1.2}}))
    early = [one for one in run.ended.values() if one.preemptible and one.cause == DONE and one.text == "no more work"]
    assert early and all(one.ended_t < run.bag.finished_t for one in early)
    there = [one for one in run.site.instances.values() if one.preemptible and one.state in OPEN]
    assert len(there) < 10, "of the 20 for which there is room"


def test_a_site_that_cannot_be_reached_begins_anew_when_it_was_given_up():
    gaps = {"outage": [{"at": "20m", "lasts": "30m"}], "restart": [{"at": "90m", "lasts": "1m"}]}
    run = Run(scenario(**gaps))
    assert run.bag.counts == [0, 0, 100, 0, 0] and run.broken == []
    assert {host.boot for host in run.site.hosts.values()} == {"boot-2"}


def test_the_same_seed_gives_the_same_records():
    assert usual(1).records == Run(scenario(), 1).records


def test_a_site_and_a_pool_share_the_work_and_the_outcome_names_both():
    made = scenario(pool=[{"name": "grid", "hosts": 3}])
    outcome, _ = run(made, 1)
    assert outcome.finished and set(outcome.pools) == {"grid", "lab"}
    assert all(books.done for books in outcome.pools.values())


@pytest.mark.parametrize(("change", "says"), [({"hosts": 0}, "hosts"), ({"request_vcpu": 5}, "a host has 4")])
def test_a_site_that_cannot_be_is_refused(change, says):
    with pytest.raises(BadInput, match=says):
        scenario(change)


def test_in_a_market_owners_who_bid_more_than_workers_run_first_and_every_task_is_done():
    run = Run(scenario({"market": True, "bid": 0.01, "request_bid": 0.1}))
    assert run.broken == [] and run.bag.counts == [0, 0, 100, 0, 0]
    outbid = [one for one in run.ended.values() if one.is_worker and "it bids" in one.text]
    assert outbid and all(one.evicted_by is None for one in outbid)
    assert {one.cause for one in run.ended.values() if not one.is_worker} == {DONE}, "no command is outbid by a worker"


def test_at_the_tail_of_a_bag_workers_are_moved_together_and_hosts_become_empty():
    long_tail = {"run": {"law": "lognormal", "median": "10m", "sigma": 1.2}}
    run = Run(scenario({"every": "never", "consolidate": "1h", "power": 0.0}, long_tail))
    assert run.broken == [] and run.bag.counts == [0, 0, 100, 0, 0]
    moved = [one for one in run.ended.values() if "is emptied" in one.text]
    assert moved and run.site.notes


def test_workers_that_do_not_pay_for_their_share_of_a_host_are_not_started():
    outcome, _ = run(scenario({"price_usd": 0.01, "power": 1.0}, pool=[{"name": "grid", "hosts": 3}]), 1)
    assert outcome.finished and outcome.pools["lab"].done == 0 and outcome.pools["grid"].done == 100
