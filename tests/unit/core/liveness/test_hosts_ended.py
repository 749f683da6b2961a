"""Workers that their pool shows as ended: what they held is lost at once, and nobody else is touched."""

from __future__ import annotations

from tests.support.engine.hand import Hand
from windfall.core.events import HostsEnded
from windfall.core.state.hosts.hosts import GONE, LIVE


def test_what_a_worker_held_that_has_ended_runs_elsewhere_before_its_lease_is_over():
    hand = Hand(lease_s=60.0)
    bag = hand.submit(1)
    hand.tasks("p-1-1", pool="p")
    hand.step(HostsEnded(hand.t, "p", [("p-1-1", "its job was cancelled")]))
    host = hand.state.host("p-1-1")
    assert (host.state, host.left, host.held) == (GONE, "its job was cancelled", {})
    assert bag.columns.losses[0] == 1 and bag.tally.lost_by_pool == {"p": 1}
    assert len(hand.tasks("p-2-1", pool="p")) == 1


def test_hosts_of_other_pools_and_unknown_names_are_not_touched():
    hand = Hand()
    hand.submit(1)
    hand.tasks("p-1-1", pool="p")
    hand.step(HostsEnded(hand.t, "q", [("p-1-1", ""), ("nobody", "")]))
    assert hand.state.host("p-1-1").state == LIVE


def test_a_worker_that_lives_although_its_pool_called_it_ended_comes_back_and_its_result_counts():
    hand = Hand()
    bag = hand.submit(1)
    keys = hand.tasks("p-1-1", pool="p")
    hand.step(HostsEnded(hand.t, "p", [("p-1-1", "")]))
    hand.report("p-1-1", *keys)
    hand.ask("p-1-1", want=0)
    assert bag.counts[2] == 1 and hand.state.host("p-1-1").state == LIVE
