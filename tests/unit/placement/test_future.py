"""The paper's future work: a market, consolidation by moves, termination ahead of need."""

import numpy as np
import pytest

from windfall.placement import Host, Instance, Request, Scheduler, Site
from windfall.placement.evictions.consolidate import consolidate, rehome
from windfall.placement.evictions.market import clear
from windfall.placement.evictions.proactive import headroom, unprofitable


def bidder(identity, bid, vcpu=1.0, run_s=0.0):
    return Instance(identity, True, run_s, {"vcpu": vcpu}, bid_usd_per_h=bid)


def test_with_room_for_all_the_price_is_the_reserve_and_nobody_ends():
    site = Site([Host("a", {"vcpu": 4}, (bidder("r", 1.0),))])
    outcome = clear(site, [bidder("w", 0.5)], reserve_microusd_per_h=10_000)
    assert outcome.price_microusd_per_h == 10_000
    assert outcome.admitted == (("w", "a"),)
    assert outcome.terminated == ()


def test_the_first_bid_that_finds_no_room_sets_the_price_and_ends_whoever_bids_less():
    site = Site([Host("a", {"vcpu": 2}, (bidder("low", 0.1), bidder("mid", 0.3)))])
    outcome = clear(site, [bidder("high", 0.9), bidder("higher", 1.0)])
    assert outcome.price_microusd_per_h == 300_000
    assert outcome.terminated == ("mid", "low")
    assert [identity for identity, _ in outcome.admitted] == ["higher", "high"]
    assert outcome.waiting == ()


def test_a_bid_that_fits_on_no_host_does_not_drive_the_price():
    site = Site([Host(name, {"vcpu": 2}, (bidder(f"r{name}", 0.1),)) for name in "ab"])
    outcome = clear(site, [bidder("huge", 90.0, vcpu=3)])
    assert outcome.price_microusd_per_h == 0
    assert outcome.terminated == ()
    assert outcome.waiting == ("huge",)


def test_a_bid_under_the_reserve_waits_and_a_running_one_ends():
    site = Site([Host("a", {"vcpu": 4}, (bidder("r", 0.1),))])
    outcome = clear(site, [bidder("w", 0.2)], reserve_microusd_per_h=500_000)
    assert outcome.terminated == ("r",)
    assert outcome.waiting == ("w",)


def test_instances_without_a_bid_take_no_part_in_the_market():
    site = Site([Host("a", {"vcpu": 2}, (Instance("free", True, 0, {"vcpu": 1}), bidder("r", 0.1)))])
    outcome = clear(site, [bidder("w", 0.2)])
    assert outcome.price_microusd_per_h == 100_000
    assert outcome.terminated == ("r",)
    assert outcome.admitted == (("w", "a"),)
    with pytest.raises(ValueError, match="waits without a bid"):
        clear(site, [Instance("x", True, 0, {"vcpu": 1})])


def test_over_random_markets_a_bid_that_is_tied_waits_only_where_its_hosts_hold_no_lower_bids():
    rng = np.random.default_rng(11)
    displaced = 0
    for _ in range(300):
        hosts = [
            Host(
                f"h{h}",
                {"vcpu": 4},
                tuple(bidder(f"{h}-{i}", float(rng.integers(1, 100)) / 100) for i in range(int(rng.integers(0, 5)))),
            )
            for h in range(4)
        ]
        site = Site(hosts)
        bids = [bidder(f"w{i}", float(rng.integers(1, 100)) / 100) for i in range(int(rng.integers(1, 8)))]
        tied = {bid.id: np.arange(4) == int(rng.integers(0, 4)) for bid in bids if rng.random() < 0.5}
        outcome = clear(site, bids, 50_000, tied=tied)
        displaced += len(outcome.displaced)
        usd = {one.id: one.bid_usd_per_h for one in (*bids, *(i for host in hosts for i in host.instances))}
        gone = {*outcome.terminated, *(identity for identity, _ in outcome.displaced)}
        held = {host.name: [i.id for i in host.instances if i.id not in gone] for host in hosts}
        for identity, host in outcome.admitted:
            held[host].append(identity)
            assert identity not in tied or tied[identity][int(host[1:])]
        assert all(len(here) <= 4 for here in held.values())
        assert all(usd[victim] < usd[winner] for victim, winner in outcome.displaced)
        for identity in set(outcome.waiting) & set(tied):
            if usd[identity] * 1e6 > outcome.price_microusd_per_h:
                here = held[f"h{int(np.flatnonzero(tied[identity])[0])}"]
                assert len(here) == 4 and min(usd[other] for other in here) >= usd[identity]
    assert displaced > 50


def test_over_random_markets_the_price_protects_higher_bids_and_rises_with_demand():
    rng = np.random.default_rng(5)
    for _ in range(200):
        hosts = [
            Host(
                f"h{h}",
                {"vcpu": 4},
                tuple(bidder(f"{h}-{i}", float(rng.integers(1, 100)) / 100) for i in range(int(rng.integers(0, 5)))),
            )
            for h in range(3)
        ]
        site = Site(hosts)
        bids = [bidder(f"w{i}", float(rng.integers(1, 100)) / 100, vcpu=float(rng.integers(1, 3))) for i in range(8)]
        few, many = clear(site, bids[:3], 50_000), clear(site, bids, 50_000)
        assert 50_000 <= few.price_microusd_per_h <= many.price_microusd_per_h
        rates = {i.id: round(i.bid_usd_per_h * 1e6 / i.resources["vcpu"]) for i in bids}
        rates |= {i.id: round(i.bid_usd_per_h * 1e6) for host in hosts for i in host.instances}
        assert all(rates[identity] <= many.price_microusd_per_h for identity in many.terminated)
        assert all(rates[identity] >= many.price_microusd_per_h for identity, _ in many.admitted)
        for identity in (*many.terminated, *(victim for victim, _ in many.displaced)):
            site.remove(identity)
        by_id = {bid.id: bid for bid in bids}
        for identity, host in many.admitted:
            site.boot(host, by_id[identity])  # raises where there is no room


def two_full_hosts():
    """Hosts of three cores, each with three workers; all bid alike, and the last two are on different hosts."""
    return Site([Host(f"h{h}", {"vcpu": 3}, tuple(bidder(f"{i}.{h}", 0.4) for i in range(3))) for h in range(2)])


def test_a_bid_for_two_cores_takes_the_place_of_two_workers_on_one_host_and_no_other_worker_ends():
    outcome = clear(two_full_hosts(), [bidder("wide", 2.0, vcpu=2)])
    ((name, host),) = outcome.admitted
    gone = [*outcome.terminated, *(victim for victim, _ in outcome.displaced)]
    assert name == "wide" and len(gone) == 2 and {identity[-1] for identity in gone} == {host[-1]}


def test_a_bid_that_no_host_has_room_for_ends_nobody_and_raises_no_price():
    site = Site([Host(name, {"vcpu": 2}, (bidder(f"{name}0", 9.0), bidder(f"{name}1", 0.1))) for name in "ab"])
    outcome = clear(site, [bidder("wide", 2.0, vcpu=2)])
    assert outcome.terminated == outcome.displaced == outcome.admitted == ()
    assert outcome.price_microusd_per_h == 0


def test_over_random_markets_nobody_ends_in_vain_and_a_winner_waits_only_where_no_host_has_lower_bids_enough():
    rng = np.random.default_rng(12)
    wide = 0
    for _ in range(300):
        hosts = [
            Host(
                f"h{h}",
                {"vcpu": 4},
                tuple(bidder(f"{h}-{i}", float(rng.integers(1, 100)) / 100) for i in range(int(rng.integers(0, 5)))),
            )
            for h in range(3)
        ]
        bids = [bidder(f"w{i}", float(rng.integers(1, 400)) / 100, vcpu=float(rng.integers(1, 4))) for i in range(4)]
        outcome = clear(Site(hosts), bids, 50_000)
        price, by_id = outcome.price_microusd_per_h, {bid.id: bid for bid in bids}
        size = {bid.id: bid.resources["vcpu"] for bid in bids} | {i.id: 1.0 for host in hosts for i in host.instances}
        rate = {bid.id: bid.bid_usd_per_h * 1e6 / size[bid.id] for bid in bids}
        rate |= {i.id: i.bid_usd_per_h * 1e6 for host in hosts for i in host.instances}
        gone = {*outcome.terminated, *(victim for victim, _ in outcome.displaced)}
        held = {host.name: [i.id for i in host.instances if i.id not in gone] for host in hosts}
        for identity, host in outcome.admitted:
            held[host].append(identity)
        free = {host: 4 - sum(size[i] for i in here) for host, here in held.items()}
        assert min(free.values()) >= 0
        for host in hosts:
            for ended in host.instances:
                if ended.id in outcome.terminated and rate[ended.id] >= price:
                    assert free[host.name] < 1, "its room is taken"
        wide += any(size[identity] > 1 for _, identity in outcome.displaced)
        for identity in outcome.waiting:
            if rate[identity] > price + 1:
                for host, here in held.items():
                    lower = sum(size[i] for i in here if rate[i] < rate[identity] and i not in by_id)
                    assert free[host] + lower < size[identity], (identity, host)
    assert wide > 30


def test_consolidation_empties_hosts_by_moves_that_fit_in_order_and_never_moves_a_normal_instance():
    rng = np.random.default_rng(2)
    freed = 0
    for case in range(60):
        hosts = []
        for h in range(8):
            here = tuple(
                Instance(f"{h}-{i}", bool(rng.random() < 0.85), 0.0, {"vcpu": float(rng.integers(1, 3))})
                for i in range(int(rng.integers(0, 4)))
            )
            hosts.append(Host(f"h{h}", {"vcpu": 8}, here))
        site = Site(hosts)
        plan = consolidate(site)
        freed += len(plan.emptied)
        for move in plan.moves:
            instance = site.remove(move.instance)
            assert instance.preemptible, case
            site.boot(move.target, instance)  # raises where there is no room
        for name in plan.emptied:
            assert not site.on_host[site.index[name]]
        assert len({move.instance for move in plan.moves}) == len(plan.moves)
    assert freed > 60


def test_consolidation_keeps_within_the_number_of_moves():
    hosts = [Host(f"h{h}", {"vcpu": 8}, (Instance(f"p{h}", True, 0, {"vcpu": 1}),)) for h in range(6)]
    assert len(consolidate(Site(hosts)).emptied) == 5
    assert len(consolidate(Site(hosts), max_moves=2).moves) == 2


def test_a_victim_moves_instead_of_ending_where_another_host_has_room():
    full = Host("full", {"vcpu": 4}, tuple(Instance(f"p{i}", True, 60, {"vcpu": 2}) for i in range(2)))
    site = Site([full, Host("half", {"vcpu": 4}, (Instance("n", False, 60, {"vcpu": 2}),))])
    decision = Scheduler(site).decide(Request(False, {"vcpu": 4}))
    assert decision.victims == ("p0", "p1")
    moves = rehome(site, decision.victims)
    assert [(move.instance, move.target) for move in moves] == [("p0", "half")]


def test_headroom_ends_instances_at_the_end_of_their_hour_and_leaves_room_for_the_request():
    hosts = [
        Host("late", {"vcpu": 2}, (Instance("l", True, 600, {"vcpu": 2}, 0.1),)),
        Host("soon", {"vcpu": 2}, (Instance("s", True, 3000, {"vcpu": 2}, 0.5),)),
    ]
    plan = headroom(Site(hosts), Request(False, {"vcpu": 2}), copies=1, now_s=0.0, horizon_s=900.0)
    assert [(one.instance, one.at_s) for one in plan] == [("s", 600.0)]
    assert headroom(Site(hosts), Request(False, {"vcpu": 2}), copies=2, now_s=0.0, horizon_s=900.0) is None
    both = headroom(Site(hosts), Request(False, {"vcpu": 2}), copies=2, now_s=0.0, horizon_s=3600.0)
    assert [one.instance for one in both] == ["s", "l"]


def test_headroom_ends_nobody_where_there_is_room():
    site = Site([Host("a", {"vcpu": 4}, (Instance("p", True, 3000, {"vcpu": 2}),))])
    assert headroom(site, Request(False, {"vcpu": 2}), 1, 0.0, 3600.0) == ()


def test_an_instance_that_is_not_expected_to_pay_for_its_power_ends_with_its_hour():
    instances = (
        Instance("poor", True, 3500, {"vcpu": 1}, 0.01),
        Instance("rich", True, 3500, {"vcpu": 1}, 1.0),
        Instance("young", True, 100, {"vcpu": 1}, 0.01),
    )
    site = Site([Host("a", {"vcpu": 4}, instances)])
    ends = unprofitable(site, now_s=0.0, horizon_s=300.0, evictions_per_h=0.5, power_usd_per_host_h=0.1)
    assert [(one.instance, one.at_s) for one in ends] == [("poor", 100.0)]
    assert unprofitable(site, 0.0, 300.0, evictions_per_h=0.0, power_usd_per_host_h=0.01) == ()
