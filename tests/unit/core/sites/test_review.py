"""What a site does beside making way: its market, hosts that are emptied, instances that do not pay."""

from __future__ import annotations

import pytest

from tests.unit.core.sites.test_site import WORKER, SiteHand
from windfall.core.events import InstanceRequested, InstancesWanted, PoolsConfigured, SiteCreated, SiteLooked
from windfall.core.records import decode_record, encode_record
from windfall.core.sites.checks import check_site
from windfall.core.sites.instances import ReviewRules, SiteRules, Wish
from windfall.core.sites.site import why_now
from windfall.core.state.snapshot import load, save
from windfall.core.supply.pools import look, outlook
from windfall.core.wishes import due, wake_at
from windfall.errors import BadInput


class ReviewHand(SiteHand):
    def __init__(self, price_usd=0.0, cost="work", **review) -> None:
        super().__init__(price_usd=price_usd, cost=cost, review=ReviewRules(**review))

    def bid(self, usd, vcpu=1.0, **more):
        return self.request(vcpu, bid_usd=usd, **more)

    def review(self, after_s=60.0):
        """Time passes, agents report, and what is due happens."""
        self.t += after_s
        for host in self.site.hosts:
            self.report(host)
        looked = [self.step(event).decided for event in due(self.state, self.t) if isinstance(event, SiteLooked)]
        assert self.site.problems() == []
        return looked[0] if looked else None

    def settle(self):
        """Hosts do as they are told: who shall leave ends, who is placed starts."""
        for host in self.site.hosts:
            here = self.site.on(host)
            self.report(host, ended=[(one.number, "preempted") for one in here if one.state == "leaving"])
            self.report(host)
            self.report(host, started=[one.number for one in self.site.on(host) if one.state == "placed"])

    def states(self):
        return {one.number: one.state for one in self.site.instances.values()}


def test_a_site_without_these_rules_is_never_reviewed():
    hand = SiteHand()
    hand.want(4)
    hand.t += 5.0
    assert due(hand.state, hand.t) == [] and hand.site.review_t == float("inf")


def test_a_higher_bid_takes_the_room_of_a_worker_and_starts_when_it_has_gone():
    hand = ReviewHand(market=True, bid_usd=0.01)
    hand.want(4)
    asked = hand.bid(0.05)
    ending = [one for one in hand.site.instances.values() if one.state == "leaving"]
    assert len(ending) == 1 and ending[0].is_worker and asked.state == "placed" and asked.after == [ending[0].number]
    assert "it bids $0.01 an hour for 1 vCPU; an hour of one vCPU costs $0.01" in ending[0].text
    assert asked.why[0] == "it bids $0.05 an hour for 1 vCPU; an hour of one vCPU costs $0.01"
    assert hand.site.price_usd == pytest.approx(0.01)
    assert any("ends: it bids" in text for _, text in hand.site.notes)


def test_a_bid_below_the_price_waits_says_why_and_starts_when_room_comes_free():
    hand = ReviewHand(market=True, bid_usd=0.05)
    hand.want(4)
    asked = hand.bid(0.01)
    assert asked.state == "waiting" and asked.why[0].startswith("it bids $0.01")
    said = why_now(hand.state, hand.site, hand.engine.policies.sites, asked, hand.t)
    assert said[1] == "it waits for room on one host, for lower bids there, or for a lower price"
    first = next(one for one in hand.site.instances.values() if one.is_worker)
    hand.report(first.host, ended=[(first.number, "done")])
    hand.review()
    assert asked.state == "placed"


def test_workers_that_bid_less_than_the_least_price_are_not_started_and_the_reason_is_told():
    hand = ReviewHand(market=True, reserve_usd=0.02, bid_usd=0.01)
    decided = hand.step(InstancesWanted(hand.t, "lab", 3)).decided
    assert not decided.placed
    assert decided.denied[0][1] == ["workers bid $0.01 an hour; an hour of one vCPU costs $0.02"]


def test_a_normal_request_evicts_whoever_bids_and_is_never_evicted_by_a_bid():
    hand = ReviewHand(market=True)
    bids = [hand.bid(1.0) for _ in range(4)]
    hand.settle()
    assert {one.state for one in bids} == {"running"}
    normal = [hand.request(2.0), hand.request(2.0)]
    hand.settle()
    assert {one.state for one in normal} == {"running"}
    assert {one.cause for one in bids} == {"preempted"} and all(one.evicted_by is not None for one in bids)
    assert hand.bid(100.0, queue=False).state == "refused"
    hand.review()
    assert {one.state for one in normal} == {"running"}


def test_equal_bids_cause_no_change_at_a_review():
    hand = ReviewHand(market=True, bid_usd=0.01)
    hand.want(4)
    before = hand.states()
    assert hand.review().leaving == [] and hand.states() == before
    assert hand.site.review_t == hand.t + 60.0 and wake_at(hand.state) <= hand.site.review_t


def test_a_higher_bid_for_two_cores_takes_the_place_of_two_workers_on_one_host():
    hand = ReviewHand(market=True, bid_usd=0.01)
    first, *_ = hand.want(4)
    hand.report(first, ended=[(1, "done")])
    assert hand.want(1) == [first], "the last two workers are on two hosts"
    asked = hand.bid(0.05, vcpu=2.0)
    ending = [one for one in hand.site.instances.values() if one.state == "leaving"]
    assert asked.state == "placed" and {one.host for one in ending} == {asked.host} and len(ending) == 2
    assert sorted(asked.after) == sorted(one.number for one in ending)
    assert any(f"lab-{asked.number} bids more and needs so much room on one host" in one.text for one in ending)
    hand.settle()
    assert asked.state == "running" and hand.review().leaving == []
    assert [one.state for one in hand.site.instances.values() if one.is_worker].count("running") == 2


def with_a_gpu_host():
    """Host x has two bids of $0.02 and carries a tag; y is empty."""
    hand = ReviewHand(market=True)
    hand.report("x", tags=["gpu"], vcpu=2.0, ram_mb=4000.0)
    low = [hand.bid(0.02, tags=["gpu"]), hand.bid(0.02, tags=["gpu"])]
    hand.settle()
    assert {one.host for one in low} == {"x"} and {one.state for one in low} == {"running"}
    return hand, low


def test_a_bid_tied_to_a_tag_takes_the_place_of_a_lower_one_on_its_hosts_though_others_have_room():
    hand, low = with_a_gpu_host()
    tied = hand.bid(0.05, tags=["gpu"])
    assert tied.state == "placed" and tied.host == "x"
    ending = [one for one in low if one.state == "leaving"]
    assert len(ending) == 1 and tied.after == [ending[0].number]
    assert ending[0].text == (
        f"it bids $0.02 an hour for 1 vCPU; lab-{tied.number} bids more and may run only on hosts like this one"
    )
    assert tied.why[1] == f"lab-{ending[0].number} makes way on x"
    assert hand.site.price_usd == 0.0, "there is room for all bids on the site"
    hand.settle()
    assert tied.state == "running" and hand.review().leaving == []


def test_a_bid_tied_to_a_tag_waits_behind_higher_ones_and_leaves_the_room_elsewhere_to_others():
    hand, low = with_a_gpu_host()
    tied = hand.bid(0.01, tags=["gpu"])
    assert tied.state == "waiting" and tied.why[1].startswith("it waits for room on hosts with gpu, for lower bids")
    others = [hand.bid(0.005), hand.bid(0.005)]
    assert {one.host for one in others} == {"y"} and hand.site.price_usd == 0.0
    assert {one.state for one in low} == {"running"} and tied.state == "waiting"


def test_an_equal_bid_tied_to_a_tag_displaces_nobody():
    hand, low = with_a_gpu_host()
    assert hand.bid(0.02, tags=["gpu"]).state == "waiting"
    assert {one.state for one in low} == {"running"}


def test_a_host_is_emptied_when_its_workers_fit_on_another_and_lose_little():
    hand = ReviewHand(consolidate_s=10.0)
    hand.want(4)
    stays = {"x": 1, "y": 1}
    for one in list(hand.site.instances.values()):
        if stays[one.host]:
            stays[one.host] = 0
        else:
            hand.report(one.host, ended=[(one.number, "done")])
    decided = hand.review()
    assert len(decided.leaving) == 1 and len(decided.placed) == 1
    moved, text = decided.leaving[0]
    new = decided.placed[0]
    source = hand.site.instances[moved].host
    assert text == f"lab-{new.number} on {new.host} follows: {source} is emptied" and new.host != source
    hand.settle()
    assert hand.site.on(source) == [] and len(hand.site.on(new.host)) == 2
    assert hand.review().leaving == [], "a site that is packed stays as it is"
    assert hand.want(1) == [source], "an empty host is used when the others are full"


def test_workers_that_follow_to_another_host_are_pending_and_no_others_are_asked_for():
    hand = ReviewHand(consolidate_s=1000.0)
    hand.want(4)
    kept = [hand.site.on(host)[0] for host in ("x", "y")]
    for one in list(hand.site.instances.values()):
        if one not in kept:
            hand.report(one.host, ended=[(one.number, "done")])
    hand.submit(2)
    for one in kept:
        assert hand.tasks(f"lab-{one.number}", pool="lab")
    hand.step(PoolsConfigured(hand.t, [hand.site.rules.pool]))
    (moved, _), *_ = hand.review().leaving
    hand.report(hand.site.instances[moved].host, ended=[(moved, "preempted")])
    assert sum(bag.waiting for bag in hand.state.bags.values()) == 1
    _, asks = look(hand.state, hand.engine.policies, hand.t)
    assert [ask.count for ask in asks if ask.count] == [], "the worker that follows takes the task"


def test_a_worker_is_not_moved_when_more_work_would_be_lost_than_allowed():
    hand = ReviewHand(consolidate_s=10.0)
    hand.want(4)
    hand.submit(2)
    kept = {host: next(one for one in hand.site.on(host)) for host in ("x", "y")}
    for one in list(hand.site.instances.values()):
        if one is not kept[one.host]:
            hand.report(one.host, ended=[(one.number, "done")])
    for one in kept.values():
        assert hand.tasks(f"lab-{one.number}", pool="lab")
    assert hand.review().leaving == []


def test_where_hosts_are_emptied_new_workers_go_beside_others():
    hand = ReviewHand(consolidate_s=0.0)
    assert len(set(hand.want(2))) == 1


def test_an_instance_that_does_not_pay_ends_with_its_hour_and_not_before():
    hand = ReviewHand(price_usd=0.10, power_usd=0.10)
    hand.want(4)  # each takes half of a host: 0.05 of power against 0.10
    hand.review()
    assert set(hand.states().values()) == {"running"}
    rules = SiteRules("lab", WORKER, price_usd=0.10, review=ReviewRules(power_usd=0.30))
    hand.step(SiteCreated(hand.t, rules))
    began_t = hand.site.instances[1].started_t
    assert hand.review().leaving == [] and hand.site.review_t <= hand.t + 60.0
    while hand.t + 60.0 < began_t + 3600.0:
        decided = hand.review()
        assert decided is None or decided.leaving == []
    assert hand.site.review_t == pytest.approx(began_t + 3600.0), "the next review is when the hour ends"
    decided = hand.review(began_t + 3600.0 - hand.t)
    assert len(decided.leaving) == 4
    assert decided.leaving[0][1] == (
        "an hour of it earns $0.1 with a chance of 100% that it is not evicted before; "
        "its share of the host costs $0.15"
    )
    refused = hand.step(InstancesWanted(hand.t, "lab", 1)).decided
    assert not refused.placed and refused.denied[0][1] == [decided.leaving[0][1]]


def test_an_instance_is_billed_by_the_cycle_of_its_site():
    hand = ReviewHand(price_usd=0.10, power_usd=0.10, cycle_s=600.0, every_s=30.0)
    hand.want(4)
    began_t = hand.site.instances[1].started_t
    rules = SiteRules("lab", WORKER, price_usd=0.10, review=ReviewRules(power_usd=0.30, cycle_s=600.0, every_s=30.0))
    hand.step(SiteCreated(hand.t, rules))
    while hand.t + 30.0 < began_t + 600.0:
        decided = hand.review(30.0)
        assert decided is None or decided.leaving == []
    assert len(hand.review(began_t + 600.0 - hand.t).leaving) == 4


def test_the_cost_of_an_eviction_by_period_counts_the_sites_cycle():
    hand = ReviewHand(cost="period", cycle_s=600.0)
    hand.want(4)
    for host in ("x", "y"):
        hand.report(host)
    hand.t += 5.0
    for _ in range(130):  # agents report, or their hosts would be given up
        hand.t += 5.0
        for host in ("x", "y"):
            hand.report(host)
    used_s = (hand.t - hand.site.instances[1].started_t) % 600.0
    assert hand.request().cost == pytest.approx(used_s * 1e6)


def asked_of_lab(hand):
    """The asks of the overlay: how many workers, and what is held back."""
    hand.step(PoolsConfigured(hand.t, [hand.site.rules.pool]))
    _, asks = look(hand.state, hand.engine.policies, hand.t)
    return next((ask.count, ask.held_back) for ask in asks if ask.pool == "lab")


def test_a_site_whose_workers_would_not_pay_is_not_asked_and_does_not_count_as_failing():
    hand = ReviewHand(price_usd=0.10, power_usd=0.30)
    hand.submit(2)
    count, why = asked_of_lab(hand)
    assert count == 0 and why.endswith("its share of the host costs $0.15")
    bag = next(iter(hand.state.bags.ready.values()))
    assert [one.what for one in outlook(hand.state, hand.engine.policies, bag, 1, hand.t)] == [why]
    hand.step(SiteCreated(hand.t, SiteRules("lab", WORKER, price_usd=0.10, review=ReviewRules(power_usd=0.10))))
    assert asked_of_lab(hand)[0] == 2, "at once when one would pay"


def test_a_site_whose_price_is_above_the_workers_bid_is_not_asked():
    hand = ReviewHand(market=True, reserve_usd=0.02, bid_usd=0.01)
    hand.submit(2)
    assert asked_of_lab(hand) == (0, "workers bid $0.01 an hour; an hour of one vCPU costs $0.02")


def test_what_a_review_did_survives_a_snapshot_and_the_log():
    hand = ReviewHand(market=True, bid_usd=0.01)
    hand.want(4)
    record = hand.step(InstanceRequested(hand.t, "lab", Wish({"vcpu": 1.0}, ["x"], bid_usd=0.05)))
    assert record.decided.leaving and decode_record(encode_record(record)) == record
    assert save(load(save(hand.state))) == save(hand.state)


@pytest.mark.parametrize(
    ("review", "says"),
    [
        ({"bid_usd": 0.1}, "belong to a market"),
        ({"reserve_usd": 0.1}, "belong to a market"),
        ({"power_usd": 1.0}, "power without a price"),
        ({"market": True, "reserve_usd": -1.0}, "reserve = -1"),
        ({"consolidate_s": -1.0}, "consolidate = -1"),
        ({"market": True, "every_s": 0.0}, "review = 0"),
        ({"cycle_s": 0.0}, "cycle = 0"),
    ],
)
def test_rules_that_cannot_be_are_refused(review, says):
    with pytest.raises(BadInput, match=says):
        check_site(SiteRules("lab", WORKER, review=ReviewRules(**review)), "site lab")
