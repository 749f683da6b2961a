"""How long an attempt may stay silent: a stated prior, then what the pool has taught."""

from __future__ import annotations

from tests.support.engine.hand import Hand
from windfall.core.events import TaskClass
from windfall.core.explain.jobs import explain
from windfall.core.liveness import timeouts
from windfall.core.matching.ads import pool_ad
from windfall.core.state.snapshot import load, save
from windfall.policy.compiled import compile_policies
from windfall.timeouts.learning.online import LEAST, Sketch


def teach(hand: Hand, tasks: int, latency_s: float, pool: str = "grid") -> None:
    """Let host `a` of a pool return this many results, each `latency_s` after it was sent."""
    for _ in range(tasks):
        keys = hand.tasks("a", pool=pool)
        hand.wait(latency_s)
        hand.report("a", *keys, run_s=0.5)


def sent_deadline_s(hand: Hand, host: str, pool: str = "grid") -> float | None:
    if len(hand.state.hosts) > 1:
        hand.ask("b", want=0)
    (piece,) = hand.ask(host, pool=pool).assigned
    return None if piece.deadline is None else piece.deadline - hand.t


def test_before_enough_has_been_seen_the_stated_prior_holds():
    hand = Hand(lease_s=1e6)
    hand.ask("b", want=0)
    hand.submit(100)
    teach(hand, 3, latency_s=5)
    assert sent_deadline_s(hand, "a") == timeouts.PRIOR_S


def test_a_lone_host_gets_no_deadline_because_no_other_could_take_over():
    hand = Hand()
    hand.submit(5)
    assert sent_deadline_s(hand, "a") is None


def test_after_enough_results_the_deadline_is_learned_and_covers_the_run_time():
    hand = Hand(lease_s=1e6)
    hand.ask("b", want=0)
    bag = hand.submit(200, [TaskClass(wall_s=500.0)])
    teach(hand, 60, latency_s=400)
    learned = sent_deadline_s(hand, "a")
    assert learned is not None and 500 + 300 < learned < timeouts.PRIOR_S
    (shown,) = explain(hand.state, hand.engine.policies, bag, None, hand.t)["timeouts"]
    assert shown["basis"] == "learned" and shown["samples"] >= 50 and shown["because"]


def test_a_silent_attempt_is_given_up_at_the_learned_time_and_teaches_in_its_turn():
    hand = Hand(lease_s=1e6)
    hand.ask("b", want=0)
    bag = hand.submit(200)
    teach(hand, 60, latency_s=400)
    hand.ask("b", want=0)
    (key,) = hand.tasks("a", pool="grid")
    before = hand.state.learned.latencies.pools["grid"].samples
    hand.wait(timeouts.PRIOR_S)
    assert bag.columns.losses[key[1]] == 1 and bag.columns.state[key[1]] == 0
    assert hand.state.learned.latencies.pools["grid"].samples == before + 1


def test_a_policy_of_the_bag_goes_before_what_was_learned_and_can_use_it():
    hand = Hand(compile_policies, lease_s=1e6)
    hand.ask("b", want=0)
    hand.submit(200)
    teach(hand, 60, latency_s=400)
    ad = pool_ad(hand.state, "grid")
    assert ad["BestTimeout"] > 300 and ad["LatencyQuantile95"] > 300
    hand.submit(5, name="own", priority=9.0, policies={"Deadline": "2 * Pool.BestTimeout", "Rank": "9"})
    assert abs(sent_deadline_s(hand, "a") - 2 * ad["BestTimeout"]) < 1e-6


def test_what_was_learned_survives_a_restart():
    hand = Hand(lease_s=1e6)
    hand.ask("b", want=0)
    hand.submit(200)
    teach(hand, 60, latency_s=400)
    again = load(save(hand.state))
    assert again.learned.advice == hand.state.learned.advice and save(again) == save(hand.state)


def test_of_a_well_known_pool_the_share_that_is_lost_stays_what_it_is():
    hand = Hand(lease_s=1e6)
    bag = hand.submit(1)
    hand.ask("a", want=0, pool="grid")
    host = hand.state.host("a")
    latencies = hand.state.learned.latencies
    for hand.state.seq in range(10, 30_000):
        if hand.state.seq * 7919 % 1000 < 300:
            waited_s = timeouts.silence_s(hand.state, host, bag, waited_s=1000.0)
            if waited_s is not None:
                latencies.observe_censored("grid", bag.rules.name, waited_s)
        elif not timeouts.passes_over(hand.state, host, bag):
            latencies.observe("grid", bag.rules.name, 10.0)
    known = Sketch.of(latencies.counts_of("grid", bag.rules.name, LEAST))
    assert timeouts.WELL_KNOWN < known.samples < 10_000
    assert 0.2 < known.curve().left < 0.4
