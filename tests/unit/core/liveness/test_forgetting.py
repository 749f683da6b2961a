"""Hosts that have left are forgotten by age and beyond a number, and what they did stays in the sums of their pools."""

from __future__ import annotations

from math import inf

import pytest

from tests.support.engine.hand import Hand
from windfall.core.decisions import TimeJudged
from windfall.core.engine import Engine
from windfall.core.events import (
    HostAsked,
    HostBlocked,
    HostDrained,
    PoolsConfigured,
    ServerStarted,
    Settings,
    TimerFired,
)
from windfall.core.liveness import forgetting
from windfall.core.liveness.apply import apply_time_judged
from windfall.core.liveness.forgetting import MOST_SUMS, look
from windfall.core.records import decode_record, encode_record
from windfall.core.state.hosts.hosts import GONE, ForgottenHosts, Host
from windfall.core.state.hosts.pools import PoolRules
from windfall.core.state.snapshot import load, save
from windfall.core.state.state import State
from windfall.core.wishes import due, wake_at

DAY_S = 86400.0


def came_once(hand: Hand, name: str, **ad: object) -> None:
    hand.ask(name, **ad)
    hand.ask(name, leaving="signal")


def known(hand: Hand) -> set[str]:
    return set(hand.state.hosts.by_name)


def replayed(hand: Hand) -> State:
    state, engine = State(), Engine()
    for record in hand.log:
        engine.apply(state, decode_record(encode_record(record)))
    return state


def test_a_host_is_forgotten_after_its_age_and_its_work_stays_in_the_sum_of_its_pool():
    hand = Hand(lease_s=10.0, host_forget_s=DAY_S)
    hand.submit(2)
    hand.report("old", *hand.tasks("old", pool="p"))
    hand.ask("old", leaving="signal")
    hand.wait(DAY_S - 3600)
    hand.report("young", *hand.tasks("young", pool="p"))
    hand.ask("young", leaving="signal")
    hand.wait(3 * 3600)
    assert known(hand) == {"young"}
    assert hand.state.hosts.forgotten == {"p": ForgottenHosts(hosts=1, done=1, results=1)}
    assert save(replayed(hand)) == save(hand.state)
    assert save(load(save(hand.state))) == save(hand.state)


def test_beyond_a_number_those_heard_longest_ago_go_first():
    hand = Hand(lease_s=10.0, hosts_kept=3)
    for number in range(8):
        hand.wait(30.0)
        came_once(hand, f"h{number}")
    hand.wait(30.0)
    assert known(hand) == {"h5", "h6", "h7"}
    assert save(replayed(hand)) == save(hand.state)


def test_a_host_that_a_pool_has_started_is_known_for_a_day_whatever_the_number():
    """Or the ticket that it was given would enrol another worker under its name."""
    hand = Hand(lease_s=10.0, hosts_kept=0)
    hand.step(PoolsConfigured(hand.t, [PoolRules("p", limit=4), PoolRules("v", joins_itself=True)]))
    for name, pool in (("p-1-1", "p"), ("v-1", "v"), ("own", "")):
        came_once(hand, name, pool=pool)
    hand.wait(2 * 3600)
    assert known(hand) == {"p-1-1"}
    hand.wait(DAY_S)
    assert known(hand) == set()


def test_with_no_limits_nothing_is_forgotten():
    hand = Hand(lease_s=10.0, hosts_kept=None, host_forget_s=inf)
    for number in range(30):
        came_once(hand, f"h{number}")
    hand.wait(1000 * DAY_S)
    assert len(known(hand)) == 30 and wake_at(hand.state) == inf


def test_a_server_that_starts_with_other_limits_looks_at_once():
    hand = Hand(lease_s=10.0)
    for number in range(5):
        came_once(hand, f"h{number}")
    hand.wait(100.0)
    assert len(known(hand)) == 5
    hand.step(ServerStarted(hand.t, Settings(lease_s=10.0, hosts_kept=2)))
    hand.wait(0.0)
    assert len(known(hand)) == 2


def test_the_timer_that_finds_hosts_lost_after_a_restart_fires_once():
    hand = Hand(lease_s=10.0, hosts_kept=1)
    for number in range(4):
        hand.ask(f"h{number}", 0)
    hand.t += 11.0
    hand.step(ServerStarted(hand.t, Settings(lease_s=10.0, hosts_kept=1)))
    hand.t += 22.0  # all are lost at once, later than three leases after they were heard
    before = len(hand.log)
    for event in due(hand.state, hand.t):
        hand.step(event)
    assert len(hand.log) == before + 1 and wake_at(hand.state) > hand.t
    hand.wait(30.0)
    assert len(known(hand)) == 1


@pytest.mark.parametrize("said", [HostBlocked(1000.0, "h0", "broken"), HostDrained(1000.0, "h0")])
def test_what_an_operator_said_of_a_host_keeps_it(said):
    hand = Hand(lease_s=10.0, hosts_kept=0, host_forget_s=DAY_S)
    for name in ("h0", "h1"):
        hand.ask(name)
    hand.step(said)
    for name in ("h0", "h1"):
        hand.ask(name, leaving="signal")
    hand.wait(30 * DAY_S)
    assert known(hand) == {"h0"}


def test_a_block_that_has_ended_keeps_no_host():
    hand = Hand(lease_s=10.0, host_forget_s=DAY_S)
    hand.ask("h0")
    hand.step(HostBlocked(hand.t, "h0", "broken", hand.t + 2 * DAY_S))
    hand.ask("h0", leaving="signal")
    hand.wait(1.5 * DAY_S)
    assert known(hand) == {"h0"}
    hand.wait(DAY_S)
    assert known(hand) == set()


def test_a_host_that_holds_an_attempt_or_may_report_one_late_is_kept_until_the_job_ends():
    hand = Hand(lease_s=10.0, hosts_kept=0, host_forget_s=100.0)
    bag = hand.submit(1)
    (key,) = hand.tasks("lost")
    hand.wait(1000.0)
    assert hand.state.host("lost").state == "gone" and bag.finished_t is None
    other = hand.tasks("other")
    hand.report("other", *other)
    assert bag.finished_t is not None
    assert hand.report("lost", key) != [0]
    hand.ask("other", leaving="signal")
    hand.wait(2 * 3600.0)
    assert known(hand) == set()


def test_a_host_whose_processes_may_have_a_unit_goes_by_age_alone():
    hand = Hand(lease_s=10.0, hosts_kept=0, host_forget_s=DAY_S)
    hand.ask("h0")
    hand.state.hosts.give_units(hand.state.host("h0"), (1, 0, 1), (("gpus", 0, 1000),))
    hand.wait(DAY_S / 2)
    assert known(hand) == {"h0"}
    hand.wait(DAY_S)
    assert known(hand) == set() and not hand.state.hosts.sharing


def test_a_worker_that_was_forgotten_while_it_was_away_is_asked_what_it_is():
    hand = Hand(lease_s=10.0, hosts_kept=0)
    hand.ask("h0", pool="p")
    hand.wait(7200.0)
    assert known(hand) == set()
    bag = hand.submit(1)
    answer = hand.ask("h0")
    assert answer.tell and not answer.assigned
    answer = hand.ask("h0", pool="p")
    assert not answer.tell and answer.assigned[0].job == bag.number
    assert hand.state.host("h0").pool == "p" and hand.state.hosts.by_pool == {"p": 1}


def test_hosts_that_come_once_cost_nothing_for_ever():
    engine, state = Engine(), State()
    engine.step(state, ServerStarted(0.0, Settings(lease_s=10.0, hosts_kept=200)))
    sizes, t = [], 0.0
    for number in range(6000):
        t += 1.0
        ad = {"pool": "crowd", "cpus": 4.0}
        engine.step(state, HostAsked(t, f"host-{number}", "b", 1, 1, 1, ad))
        engine.step(state, HostAsked(t, f"host-{number}", "b", 2, 0, 1, None, "signal"))
        while wake_at(state) <= t:
            for event in due(state, t):
                engine.step(state, event)
        assert len(state.hosts) <= 200 * 1.2 + 2 * 10.0
        if number in (2999, 5999):
            sizes.append(len(save(state)))
    assert sizes[1] < 1.2 * sizes[0]
    assert state.hosts.forgotten["crowd"].hosts + len(state.hosts) == 6000


def test_pools_that_hosts_make_up_do_not_fill_the_sums():
    state, judged = State(), TimeJudged()
    for number in range(MOST_SUMS + 5):
        host = Host.new(number, f"h{number}", 0.0)
        host.pool, host.state = f"p{number}", GONE
        state.hosts.add(host)
    look(state, 1e9, judged)
    apply_time_judged(state, TimerFired(1e9), judged)
    assert len(state.hosts.forgotten) == MOST_SUMS + 1
    assert state.hosts.forgotten[""].hosts == 5


def test_a_version_with_other_limits_replays_the_same_forgetting(monkeypatch):
    hand = Hand(lease_s=10.0, hosts_kept=3)
    for number in range(12):
        came_once(hand, f"h{number}", pool=f"p{number % 4}")
        hand.wait(600.0)
    before = save(hand.state)
    assert sum(found.hosts for found in hand.state.hosts.forgotten.values()) > 5
    monkeypatch.setattr(forgetting, "MOST_SUMS", 1)
    monkeypatch.setattr(forgetting, "LEFT_BETWEEN_LOOKS", 0.9)
    assert save(replayed(hand)) == before


def test_when_to_look_again_is_no_part_of_a_snapshot():
    """It follows from heartbeats, which the log loses: a replay would tell another state than the snapshot."""
    hand = Hand(lease_s=10.0)
    came_once(hand, "h0")
    data = save(hand.state)
    again = load(data)
    hand.state.hosts.forget_t += 5.0
    assert save(hand.state) == data and again.hosts.forget_t == 0.0
    assert load(save(Hand().state)).hosts.forget_t == inf
