"""What hosts share while nothing is special about them stays apart once it is, in memory and in snapshots."""

from __future__ import annotations

from tests.support.engine.hand import Hand
from windfall.core.events import HostBlocked, HostDrained, HostUnblocked, TaskClass
from windfall.core.state.hosts.hosts import NO_UNITS, NOTHING_SAID
from windfall.core.state.snapshot import load, save


def two_hosts() -> Hand:
    hand = Hand()
    for name in ("a", "b"):
        hand.ask(name, resources={"gpus": 2})
    return hand


def test_what_is_said_of_one_host_is_not_said_of_others():
    hand = two_hosts()
    hand.step(HostBlocked(hand.t, "a", "bad disk"))
    hand.step(HostDrained(hand.t, "a"))
    a, b = (hand.state.hosts.by_name[name].access for name in ("a", "b"))
    assert (a.blocked, a.draining, b.blocked, b.draining) == ("bad disk", True, "", False)
    hand.step(HostUnblocked(hand.t, "a"))
    assert hand.state.hosts.by_name["a"].access == NOTHING_SAID == b


def test_units_of_one_host_are_not_those_of_others():
    hand = two_hosts()
    hand.submit(1, [TaskClass(needs=(("gpus", 1000),))])
    (key,) = hand.tasks("a", resources={"gpus": 2})
    assert list(hand.state.hosts.by_name["a"].units) == [key]
    assert hand.state.hosts.by_name["b"].units == {} == NO_UNITS
    hand.report("a", key)
    assert hand.state.hosts.by_name["a"].units == {}


def test_hosts_of_a_snapshot_share_what_those_before_shared():
    hand = two_hosts()
    hand.step(HostDrained(hand.t, "a"))
    a, b = load(save(hand.state)).hosts.values()
    assert a.access.draining and b.access is NOTHING_SAID and a.units is b.units is NO_UNITS
