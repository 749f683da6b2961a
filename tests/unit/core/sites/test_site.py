"""The site in the engine: who makes way, what becomes of evicted work, what waits and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.engine.hand import Hand
from windfall.core.decisions import SiteSettled
from windfall.core.events import (
    InstanceCancelled,
    InstanceRequested,
    InstancesWanted,
    OverlayDue,
    PoolsConfigured,
    SiteCreated,
    SiteHostReported,
    SiteLooked,
)
from windfall.core.sites.checks import check_site
from windfall.core.sites.instances import InstanceEnd, SiteRules, Wish
from windfall.core.sites.site import GIVEN_UP, OVERTAKEN, room, why_now
from windfall.core.supply.pools import outlook
from windfall.errors import BadInput
from windfall.pools.config import read_pools
from windfall.pools.site import site_rules
from windfall.server.sites.exchange import order, version_of

WORKER = {"vcpu": 1.0, "ram_mb": 1000.0}


class SiteHand(Hand):
    """A hand with a site of two hosts of two cores."""

    def __init__(self, **rules) -> None:
        super().__init__(lease_s=10.0)
        self.step(SiteCreated(self.t, SiteRules("lab", WORKER, **rules)))
        self.n: dict[str, int] = {}
        self.report("x", vcpu=2.0, ram_mb=4000.0)
        self.report("y", vcpu=2.0, ram_mb=4000.0)

    @property
    def site(self):
        return self.state.sites["lab"]

    def report(self, host, started=(), ended=(), leaving=None, boot="b", tags=(), **capacity) -> SiteSettled:
        self.n[host] = self.n.get(host, 0) + 1
        rows = [(number, self.t) for number in started]
        ends = [InstanceEnd(number, cause, None, self.t - 1, self.t) for number, cause in ended]
        event = SiteHostReported(
            self.t, "lab", host, boot, self.n[host], capacity or None, list(tags), rows, ends, leaving
        )
        return self.step(event).decided

    def want(self, count) -> list[str]:
        """Workers that are placed, told and started; the hosts that they are on."""
        placed = self.step(InstancesWanted(self.t, "lab", count)).decided.placed
        for host in ("x", "y"):
            self.report(host)
            self.report(host, started=[one.number for one in placed if one.host == host])
        return [one.host for one in placed]

    def request(self, vcpu=1.0, queue=True, **more):
        wish = Wish({"vcpu": vcpu, "ram_mb": 500.0}, ["serve"], queue=queue, **more)
        number = self.step(InstanceRequested(self.t, "lab", wish)).decided.number
        return self.site.instances[number]


def test_a_request_goes_where_there_is_room_and_evicts_nobody():
    hand = SiteHand()
    hosts = hand.want(3)
    asked = hand.request()
    assert asked.state == "placed" and asked.victims == []
    assert hosts.count(asked.host) == 1


def test_a_worker_without_work_makes_way_before_one_that_is_busy():
    hand = SiteHand()
    hand.want(4)
    hand.submit(3)
    for number in (1, 2, 4):
        hand.t += 1
        assert hand.tasks(f"lab-{number}", pool="lab")
    hand.ask("lab-3", want=0, pool="lab")
    hand.t += 5
    assert hand.request().victims == [3]


def test_of_busy_workers_the_one_whose_task_is_youngest_makes_way():
    hand = SiteHand()
    hand.want(4)
    hand.submit(4)
    for number in (3, 1, 4, 2):
        hand.t += 1
        assert hand.tasks(f"lab-{number}", pool="lab")
    hand.t += 5
    asked = hand.request()
    assert asked.victims == [2] and asked.cost == 5_000_000
    assert "lab-2" in asked.why[0] and "loses 5.00 s of work" in asked.why[0]


def test_an_evicted_worker_that_is_killed_gives_its_task_back_as_a_loss_at_once():
    hand = SiteHand()
    hand.want(4)
    bag = hand.submit(1)
    hand.tasks("lab-1", pool="lab")
    host = hand.site.instances[1].host
    asked = next(one for one in (hand.request(2.0), hand.request(2.0)) if one.host == host)
    decided = hand.report(host, ended=[(number, "preempted") for number in asked.victims])
    assert [loss[:3] for loss in decided.lost] == [(1, 0, 1)]
    assert bag.waiting == 1 and bag.columns.losses[0] == 1 and bag.columns.failures[0] == 0
    assert hand.state.host("lab-1").state == "gone"


def test_what_is_placed_starts_only_after_those_that_leave():
    hand = SiteHand()
    hand.want(4)
    asked = hand.request(2.0)
    assert sorted(asked.after) == sorted(asked.victims) and len(asked.victims) == 2
    later = hand.request(2.0)
    assert later.host != asked.host and set(later.after).isdisjoint(asked.victims)


def test_a_request_that_does_not_fit_waits_or_is_refused_as_asked():
    hand = SiteHand()
    held = [hand.request(2.0), hand.request(2.0)]
    waits, refused = hand.request(1.0), hand.request(1.0, queue=False)
    assert (waits.state, refused.state) == ("waiting", "refused")
    assert "none of 2 hosts can take it" in refused.why[0]
    hand.report("x")
    hand.report("y")
    hand.report(held[0].host, ended=[(held[0].number, "done")])
    assert waits.state == "placed" and waits.host == held[0].host


def test_a_resource_that_no_host_has_is_named():
    hand = SiteHand()
    wish = Wish({"vcpu": 1.0, "gpu": 1.0}, ["train"])
    hand.step(InstanceRequested(hand.t, "lab", wish))
    waits = hand.site.instances[1]
    assert why_now(hand.state, hand.site, hand.engine.policies.sites, waits, hand.t) == [
        "no host of the site has any gpu"
    ]


def test_only_hosts_with_the_tags_of_a_request_may_run_it():
    hand = SiteHand()
    hand.report("z", boot="b", tags=["disk=ssd"], vcpu=2.0, ram_mb=4000.0)
    assert {hand.request(1.0, tags=["disk=ssd"]).host for _ in range(2)} == {"z"}
    assert hand.request(1.0, tags=["disk=tape"]).state == "waiting"


def test_a_request_sent_twice_with_one_key_is_one_request():
    hand = SiteHand()
    first, second = hand.request(key="k"), hand.request(key="k")
    assert first is second and len(hand.site.instances) == 1


def test_a_request_that_the_lost_host_never_heard_of_goes_elsewhere_and_any_other_is_lost():
    hand = SiteHand()
    told = hand.request(2.0)
    hand.report(told.host)
    hand.report(told.host, started=[told.number])
    other = "y" if told.host == "x" else "x"
    never = hand.request(1.0)
    assert never.host == other
    hand.t += 25  # two leases
    hand.report(told.host)
    hand.step(SiteLooked(hand.t, "lab"))
    assert never.state == "waiting" and told.state == "running"
    hand.report(told.host, ended=[(told.number, "done")])
    assert never.state == "placed" and never.host == told.host
    hand.report(told.host)
    hand.n[told.host] = 0
    hand.report(told.host, boot="another", vcpu=2.0, ram_mb=4000.0)
    assert (never.state, never.cause) == ("ended", "lost")


def test_of_two_agents_with_one_name_the_earlier_one_is_turned_away():
    hand = SiteHand()
    hand.n["x"] = 0
    hand.report("x", boot="second", vcpu=2.0, ram_mb=4000.0)
    hand.n["x"] = 1
    assert hand.report("x", boot="b").refused == OVERTAKEN
    assert hand.site.hosts["x"].boot == "second"


def test_a_host_that_was_given_up_has_to_begin_anew():
    hand = SiteHand()
    hand.t += 25
    hand.step(SiteLooked(hand.t, "lab"))
    assert hand.report("x").refused == GIVEN_UP
    hand.n["x"] = 0
    assert not hand.report("x", boot="new", vcpu=2.0, ram_mb=4000.0).refused
    assert hand.site.hosts["x"].state == "live"


def test_a_cancelled_request_leaves_with_notice_once_its_host_knows_of_it():
    hand = SiteHand()
    asked = hand.request()
    hand.report(asked.host)
    hand.step(InstanceCancelled(hand.t, "lab", asked.number, "enough"))
    assert asked.state == "leaving"
    assert order(hand.site, asked)["do"] == "end" and order(hand.site, asked)["cause"] == "cancelled"
    assert version_of(hand.site.on(asked.host)) == f"{asked.number}-"
    quick = hand.request()
    hand.step(InstanceCancelled(hand.t, "lab", quick.number))
    assert (quick.state, quick.cause) == ("ended", "cancelled")


def test_the_overlay_asks_a_site_for_no_more_workers_than_fit():
    hand = SiteHand()
    hand.step(PoolsConfigured(hand.t, [hand.site.rules.pool]))
    hand.submit(50)
    assert [ask.count for ask in hand.step(OverlayDue(hand.t)).decided.asks] == [4]
    hand = SiteHand()
    hand.step(PoolsConfigured(hand.t, [hand.site.rules.pool]))
    hand.submit(50)
    hand.request(2.0)
    assert [ask.count for ask in hand.step(OverlayDue(hand.t)).decided.asks] == [2]


def test_a_bag_that_waits_for_a_full_site_is_told_so():
    hand = SiteHand()
    hand.step(PoolsConfigured(hand.t, [hand.site.rules.pool]))
    bag = hand.submit(1)
    (free,) = outlook(hand.state, hand.engine.policies, bag, 1, hand.t)
    assert free.hopeful
    hand.request(2.0)
    hand.request(2.0)
    (full,) = outlook(hand.state, hand.engine.policies, bag, 1, hand.t)
    assert full.what == "its hosts have no room" and not full.hopeful


def test_a_site_of_a_pools_file_has_instances_and_nothing_else_has(tmp_path: Path):
    file = tmp_path / "pools.toml"
    file.write_text('[[pool]]\nname = "lab"\nkind = "site"\ngrace = "30s"\ninstance = {vcpu = 2, ram_mb = 1000}\n')
    rules = site_rules(read_pools(file)[0])
    assert (rules.grace_s, rules.slots, rules.limit) == (30.0, 2, 1000)
    for text, what in (
        ('name = "lab"\nkind = "site"', "names no resource"),
        ('name = "lab"\nkind = "site"\ninstance = {vcpu = -1}', "instance.vcpu: -1"),
        ('name = "lab"\nkind = "site"\ninstance = {vcpu = 1}\ncost = "time"', "no cost 'time'"),
        ('name = "here"\ninstance = {vcpu = 1}', "unknown field 'instance'"),
    ):
        file.write_text(f"[[pool]]\n{text}\n")
        with pytest.raises(BadInput, match=what):
            read_pools(file)


def test_weighers_of_a_site_rank_its_hosts():
    packed, spread = (SiteHand(weighers={name: 1.0, "overcommit": 10.0}).want(2) for name in ("pack", "spread"))
    assert len(set(packed)) == 1 and len(set(spread)) == 2


def test_preemptible_instances_run_only_on_hosts_with_the_tags_of_the_site():
    hand = SiteHand(only_tags=["disk=ssd"])
    assert hand.want(1) == []
    hand.report("z", boot="b", tags=["disk=ssd"], vcpu=2.0, ram_mb=4000.0)
    placed = hand.step(InstancesWanted(hand.t, "lab", 3)).decided
    assert [one.host for one in placed.placed] == ["z", "z"]
    assert placed.denied


def test_hosts_without_the_tags_of_the_site_are_no_room_for_the_overlay():
    hand = SiteHand(only_tags=["disk=ssd"])
    assert room(hand.site) == 0
    hand.report("z", boot="b", tags=["disk=ssd"], vcpu=2.0, ram_mb=4000.0)
    assert room(hand.site) == 2


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"weighers": {"pck": 1.0}}, "no weigher 'pck'"),
        ({"weighers": {"pack": float("nan")}}, "pack"),
        ({"only_tags": [""]}, "only_tags"),
        ({"only_tags": ["ssd"]}, "'ssd' is no tag of a host"),
    ],
)
def test_wrong_weighers_and_tags_of_a_site_are_refused(wrong, word):
    with pytest.raises(BadInput, match=word):
        check_site(SiteRules("lab", WORKER, **wrong), "site lab")


def test_a_host_that_says_it_has_less_than_what_it_runs_has_to_begin_anew():
    """Nothing could be decided any more: one report of one agent stopped the server, and again after each start."""
    hand = SiteHand()
    hand.want(4)
    assert hand.report("x", vcpu=1.0, ram_mb=4000.0).refused == GIVEN_UP
    assert hand.report("y", vcpu=2.0).refused == GIVEN_UP, "no memory at all"
    assert hand.request().victims, "as before"


def test_less_room_is_taken_where_what_runs_fits_or_ends():
    hand = SiteHand()
    hand.want(4)
    first, *_ = [one.number for one in hand.site.on("x")]
    assert not hand.report("x", ended=[(first, "done")], vcpu=1.0, ram_mb=1000.0).refused
    assert hand.site.hosts["x"].capacity["vcpu"] == 1.0


def test_a_state_whose_host_holds_more_than_it_has_is_decided_on():
    """As an earlier version may have left it."""
    hand = SiteHand()
    hand.want(4)
    hand.site.hosts["x"].capacity = {"vcpu": 1.0, "ram_mb": 4000.0}
    asked = InstanceRequested(hand.t, "lab", Wish({"vcpu": 1.0, "ram_mb": 500.0}, ["serve"]))
    (placed,) = hand.engine.step(hand.state, asked).decided.placed
    assert placed.host == "y"
