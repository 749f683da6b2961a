"""Latencies read back from a log: what came back is known, what did not is at least as long."""

from __future__ import annotations

from tests.support.engine.hand import Hand
from windfall.cli.timeout.state import latencies


def test_a_result_gives_its_latency_without_the_run_time_and_its_pool():
    hand = Hand()
    hand.submit(1)
    (key,) = hand.tasks("a", pool="grid")
    hand.wait(30)
    hand.report("a", key, run_s=10)
    (one,) = latencies(iter(hand.log), "log")
    assert (one.seconds, one.censored, one.pool) == (20.0, False, "grid")


def test_what_was_lost_or_is_still_out_is_censored_not_missing():
    hand = Hand(lease_s=10)
    hand.submit(2)
    hand.tasks("a")
    hand.wait(25)
    hand.tasks("b")
    hand.wait(5)
    hand.ask("b", want=0)
    lost, out = latencies(iter(hand.log), "log")
    assert lost.censored and lost.seconds == 20.0
    assert out.censored and out.seconds == 5.0
