"""How many tasks a host holds beyond what it runs, and what idle hosts get of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.engine.hand import Hand
from windfall.core.events import QUEUED, TaskClass
from windfall.core.matching import bundles
from windfall.policy import compile_policies


def made(**settings) -> Hand:
    return Hand(compile_policies, **settings)


def learn_run_time(hand: Hand, run_s: float, count: int = 5) -> None:
    for _ in range(count):
        (key,) = hand.tasks("teacher")
        hand.t += run_s
        hand.report("teacher", key, run_s=run_s)
    hand.ask("teacher", 0, leaving="signal")


def test_a_host_holds_as_many_tasks_as_concurrency_says():
    hand = made()
    hand.submit(50, policies={"Concurrency": "5"})
    assert len(hand.tasks("h", want=1, slots=1, room=100)) == 5
    assert hand.tasks("h", want=0, slots=1, room=100) == []


def test_a_host_that_has_no_room_gets_only_what_it_asks_for():
    hand = made()
    hand.submit(50, policies={"Concurrency": "5"})
    assert len(hand.tasks("h", want=1, slots=1)) == 1


def test_concurrency_fills_up_what_is_done():
    hand = made()
    hand.submit(50, policies={"Concurrency": "5"})
    first, second, *_ = hand.tasks("h", want=1, room=100)
    hand.report("h", first, second)
    assert len(hand.tasks("h", want=0, room=100)) == 2


def test_concurrency_below_the_slots_leaves_slots_free():
    hand = made()
    hand.submit(50, policies={"Concurrency": "2"})
    assert len(hand.tasks("h", want=4, slots=4, room=100)) == 2


def test_a_bag_without_concurrency_hands_nothing_ahead_to_a_near_host():
    hand = made()
    hand.submit(100)
    learn_run_time(hand, 10.0)
    assert len(hand.tasks("near", want=2, slots=2, room=100)) == 2
    assert hand.tasks("near", want=0, slots=2, room=100) == []


@pytest.mark.parametrize(("round_trip_s", "run_s", "held"), [(0.3, 10.0, 4), (0.3, 100.0, 2), (3.0, 2.0, 8)])
def test_without_a_policy_the_bundle_covers_the_round_trip(round_trip_s, run_s, held):
    hand = made()
    hand.submit(200)
    learn_run_time(hand, run_s)
    assert len(hand.tasks("far", want=2, slots=2, room=100, round_trip_s=round_trip_s)) == held


@pytest.mark.parametrize(("run_s", "got"), [(0.002, 100), (0.003, 66), (0.5, 50)])
def test_the_last_tasks_are_spread_only_if_they_take_longer_than_another_exchange(run_s, got):
    hand = made()
    hand.submit(105)
    learn_run_time(hand, run_s)
    assert len(hand.tasks("h", want=1000, slots=2)) == got


def test_nothing_is_handed_ahead_before_the_run_time_is_known():
    hand = made()
    hand.submit(100)
    assert len(hand.tasks("far", want=1, room=100, round_trip_s=1.0)) == 1


def test_the_estimate_of_a_class_counts_until_there_are_results():
    hand = made()
    hand.submit(100, classes=[TaskClass(estimate_s=5.0)])
    assert len(hand.tasks("far", want=1, room=100, round_trip_s=1.0)) == 2


def test_a_host_that_ends_soon_holds_what_it_finishes():
    hand = made()
    hand.submit(100)
    learn_run_time(hand, 2.0)
    assert len(hand.tasks("far", want=1, room=100, round_trip_s=10.0, lifetime_s=9.0)) == 4
    hand.submit(100, name="greedy", priority=9, policies={"Concurrency": "50"}, classes=[TaskClass(estimate_s=3.0)])
    assert len(hand.tasks("short", want=1, room=100, lifetime_s=10.0)) == 3


def test_a_bundle_is_no_longer_than_the_time_to_the_deadline_of_the_job():
    hand = made()
    hand.submit(100, deadline_s=40.0)
    learn_run_time(hand, 2.0)
    hand.t = 1000.0 + 33.0
    assert len(hand.tasks("far", want=1, room=100, round_trip_s=20.0)) == 3


def test_near_the_end_a_bundle_is_an_equal_share_of_what_is_left():
    hand = made()
    hand.ask("other", 0, slots=3)
    hand.submit(8, policies={"Concurrency": "5"})
    assert len(hand.tasks("h", want=1, slots=1, room=100)) == 2


def test_bundles_that_are_not_spread_stay_as_concurrency_says():
    hand = made(spread_bundles=False)
    hand.ask("other", 0, slots=3)
    hand.submit(8, policies={"Concurrency": "5"})
    assert len(hand.tasks("h", want=1, slots=1, room=100)) == 5
    assert hand.tasks("other", want=3, slots=3) != []
    hand.t += 100
    assert hand.ask("idle", want=1).taken_back == ()


def hoard(hand: Hand, count: int = 5) -> list:
    """One host that holds all tasks of the only bag."""
    hand.submit(count, policies={"Concurrency": str(count)})
    return hand.tasks("full", want=1, slots=1, room=100)


def test_what_has_not_begun_goes_back_to_an_idle_host():
    hand = made()
    keys = hoard(hand)
    assert len(keys) == 5
    hand.t += 10
    assert [entry[1:] for entry in hand.ask("idle", want=2, slots=2).taken_back] == [keys[4], keys[3]]
    told = hand.ask("full", want=0, slots=1, room=100)
    assert told.hand_back == (keys[4], keys[3]) and not told.assigned
    hand.report("full", keys[4], keys[3], cause="preempted", run_s=0.0)
    assert hand.state.bags[1].columns.losses[4] == 0, "what has not begun costs no loss"
    assert hand.tasks("full", want=0, slots=1, room=100) == [], "it is for the idle host"
    again = hand.tasks("idle", want=2, slots=2)
    assert {key[:2] for key in again} == {keys[3][:2], keys[4][:2]}


def test_what_was_asked_for_and_stays_is_not_asked_for_again():
    hand = made()
    keys = hoard(hand, 2)
    hand.t += 10
    assert len(hand.ask("idle", want=1).taken_back) == 1
    assert hand.ask("full", want=0, room=100).hand_back == (keys[1],)
    hand.t += 10
    assert hand.ask("idle", want=1).taken_back == ()
    assert hand.ask("full", want=0, room=100).hand_back == ()


def test_hosts_that_were_asked_for_everything_do_not_hide_one_that_was_not():
    hand = made()
    stuck = bundles.HOSTS_LOOKED_AT
    hand.submit(10 * stuck, policies={"Concurrency": 'Host.Pool == "large" ? 1000 : 2'})
    names = [f"h{number}" for number in range(stuck + 1)]
    for name in names:
        assert len(hand.tasks(name, want=1, room=100)) == 2
    hand.tasks("large", want=1000, slots=1000, pool="large")
    hand.t += 10
    for _ in range(stuck + 1):
        # They vanish without a word: what was asked for stays with them.
        assert len(hand.ask("idle", want=1).taken_back) == 1
    assert hand.ask("idle", want=1).taken_back == () and not hand.state.hosts.bundled


def test_a_silent_host_is_asked_for_nothing_before_it_is_back():
    hand = made(lease_s=60.0)
    (_, ahead) = hoard(hand, 2)
    hand.wait(70)
    assert hand.state.host("full").state == "unknown" and not hand.state.hosts.bundled
    assert hand.ask("idle", want=1).taken_back == ()
    hand.ask("full", want=0)
    assert [*hand.state.hosts.bundled] == [hand.state.host("full").number]
    assert [entry[1:] for entry in hand.ask("idle", want=1).taken_back] == [ahead]


def test_a_repeated_exchange_with_fewer_slots_makes_a_bundle_of_what_the_host_holds():
    hand = made()
    hand.submit(5)
    assert len(hand.tasks("h", want=2, slots=2)) == 2
    hand._n["h"] -= 1
    assert hand.ask("h", want=2, slots=1).repeat
    assert [*hand.state.hosts.bundled] == [hand.state.host("h").number]
    hand._n["h"] -= 1
    assert hand.ask("h", want=2, slots=2).repeat
    assert not hand.state.hosts.bundled


def test_a_repeated_exchange_is_told_again_what_to_return():
    hand = made()
    keys = hoard(hand)
    hand.t += 10
    hand.ask("idle", want=1)
    assert hand.ask("full", want=0).hand_back == (keys[4],)
    hand._n["full"] -= 1
    assert hand.ask("full", want=0).repeat
    assert hand.state.host("full").session.handed_back == (keys[4],)


def test_nothing_is_taken_back_that_begins_as_soon_where_it_is():
    hand = made()
    hand.submit(20, policies={"Concurrency": "9"})
    keys = hand.tasks("full", want=1, room=100)
    for key in keys[:5]:
        hand.t += 0.01
        hand.report("full", key, run_s=0.01)
    hand.tasks("full", want=1, room=100)
    hand.tasks("second", want=9, slots=9, room=0)
    assert hand.ask("idle", want=1).taken_back == ()


def test_a_host_that_the_bag_does_not_want_takes_nothing_back():
    hand = made()
    hand.submit(5, policies={"Concurrency": "5", "JobRequirements": 'Host.Pool == "good"'})
    assert len(hand.tasks("full", want=1, room=100, pool="good")) == 5
    hand.t += 10
    assert hand.ask("bad", want=1, pool="bad").taken_back == ()
    assert len(hand.ask("fine", want=1, pool="good").taken_back) == 1


def test_tasks_that_fit_on_all_slots_at_once_are_held_beyond_the_memory():
    hand = made()
    small = [TaskClass(memory_bytes=1 << 30)]
    hand.submit(50, classes=small, policies={"Concurrency": "9"})
    assert len(hand.tasks("h", want=2, slots=2, room=100, memory_mb=2048)) == 9
    assert len(hand.tasks("tight", want=4, slots=4, room=100, memory_mb=2048)) == 2


def test_a_learned_timeout_counts_the_wait_in_the_bundle():
    hand = made()
    bag = hand.submit(100, policies={"Concurrency": "9"})
    for _ in range(5):
        (key,) = hand.tasks("teacher", want=1)
        hand.t += 100.0
        hand.report("teacher", key, run_s=100.0)
    hand.ask("witness", 0)
    alone = hand.ask("h2", want=1).assigned[0]
    (piece,) = hand.ask("h", want=1, room=100).assigned
    assert piece.count == 9 and alone.count == 1
    assert piece.deadline - alone.deadline == pytest.approx(3.0 * 100.0 * 8)
    assert bag.waiting == 85
    assert piece.deadline > hand.t + 2400


@given(st.floats(0.0, 30.0), st.floats(0.001, 1e4), st.integers(1, 16), st.one_of(st.none(), st.floats(0.0, 1e4)))
def test_a_bundle_is_whole_rounds_and_ends_before_its_host(round_trip_s, run_s, slots, lifetime_s):
    hand = made()
    bag = hand.submit(1, classes=[TaskClass(estimate_s=run_s)])
    ad = {"round_trip_s": round_trip_s} | ({} if lifetime_s is None else {"lifetime_s": lifetime_s})
    hand.ask("h", 0, slots, **ad)
    host = hand.state.host("h")
    ahead = bundles.ahead(hand.state, bag, bag.classes[0], host, hand.t, None)
    assert ahead >= 0 and ahead % slots == 0
    if ahead and lifetime_s is not None:
        assert (ahead / slots + 1) * run_s <= lifetime_s * (1 + 1e-9)


@pytest.mark.parametrize("priority", [0.0, 1.0])
def test_the_last_tasks_of_a_bag_are_not_overtaken_by_tasks_ahead_of_another(priority):
    hand = made()
    hand.submit(100, policies={"Concurrency": "2"})
    held = {f"h{n}": hand.tasks(f"h{n}", want=1, room=100) for n in range(4)}
    last = hand.submit(1, priority=priority, policies={"Concurrency": "2"})
    hand.report("h0", held["h0"][0])
    # Its next task begins at once, so that no slot is free now or later: others keep it full.
    assert [key[0] for key in hand.tasks("h0", want=0, room=1)] == [last.number]


def test_the_last_tasks_of_a_bag_wait_for_free_slots_where_nothing_else_would_take_the_slot():
    hand = made()
    hand.submit(9, policies={"Concurrency": "2"})
    held = {f"h{n}": hand.tasks(f"h{n}", want=1, room=100) for n in range(4)}
    hand.report("h0", held["h0"][0])
    assert hand.tasks("h0", want=0, room=1) == []


@pytest.mark.parametrize("spread", [True, False])
def test_a_queued_replica_goes_before_tasks_ahead_of_a_lower_rank(spread):
    hand = made(replication_cycle_s=60.0, spread_bundles=spread)
    policies = {"Concurrency": "2", "ReplicationRequirements": "true"}
    first = hand.submit(1, priority=1.0, replication=QUEUED, policies=policies)
    assert len(hand.tasks("slow", want=1)) == 1
    hand.submit(100, policies={"Concurrency": "2"})
    held = hand.tasks("h", want=1, room=100)
    hand.wait(61)
    assert first.queues.queued_replicas
    hand.report("h", held[0])
    assert [key[:2] for key in hand.tasks("h", want=0, room=1)] == [(first.number, 0)]
