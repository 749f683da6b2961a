"""How long an attempt may stay silent: a stated prior, then what the pool has taught."""

from __future__ import annotations

from tests.support.engine.hand import Hand
from windfall import graph as graphs
from windfall.core.events import JobRules, JobSealed, JobShaped, JobSubmitted, TaskClass, TasksAdded
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


def test_before_enough_results_the_prior_is_shown_with_the_attempts_that_it_waits_for():
    hand = Hand(lease_s=1e6)
    hand.ask("b", want=0)
    bag = hand.submit(200)
    teach(hand, 7, latency_s=400)
    (shown,) = explain(hand.state, hand.engine.policies, bag, None, hand.t)["timeouts"]
    assert (shown["basis"], shown["timeout_s"], shown["finished"]) == ("prior", timeouts.PRIOR_S, 7)
    assert shown["because"].startswith(f"7 of {LEAST} attempts have come back")
    assert timeouts.all_shown(hand.state, pool="another") == []


def test_when_just_enough_came_back_the_prior_that_still_holds_is_shown():
    hand = Hand(lease_s=1e6)
    hand.ask("b", want=0)
    hand.submit(200)
    teach(hand, LEAST, latency_s=400)
    (shown,) = timeouts.all_shown(hand.state)
    assert (shown["basis"], shown["finished"], shown["running"], shown["given_up"]) == ("prior", LEAST, 0, 0)
    assert sent_deadline_s(hand, "a") == timeouts.PRIOR_S


def test_a_new_bag_in_a_known_pool_rests_on_the_pool_until_enough_of_its_own_have_come_back_and_then_on_these():
    hand = Hand(lease_s=1e6)
    hand.ask("b", want=0)
    hand.submit(100)
    teach(hand, 100, latency_s=400)
    bag = hand.submit(200, name="new")
    teach(hand, LEAST - 2, latency_s=100)
    (shown,) = timeouts.all_shown(hand.state, bag="new")
    assert shown["finished"] > 90 and "lost attempts of the whole pool" in shown["because"]
    assert shown["timeout_s"] > 400
    teach(hand, 4, latency_s=100)
    (shown,) = timeouts.all_shown(hand.state, bag="new")
    assert LEAST <= shown["finished"] <= LEAST + 2 and "of the whole pool" not in shown["because"]
    assert shown["timeout_s"] < 150
    assert bag.number == 2 and save(load(save(hand.state))) == save(hand.state)


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


def test_attempts_that_are_still_silent_count_with_their_age_and_the_figures_say_so():
    hand = Hand(lease_s=1e6)
    hand.ask("b", want=0)
    bag = hand.submit(400)
    silent = hand.tasks("quiet", want=20, slots=20, pool="grid")
    teach(hand, 60, latency_s=400)
    (shown,) = explain(hand.state, hand.engine.policies, bag, None, hand.t)["timeouts"]
    assert len(silent) == 20
    assert (shown["running"], shown["given_up"]) == (20, 0) and shown["finished"] == shown["samples"]
    # A quarter of the attempts has not come back although all those that did took 400 s.
    assert shown["lost"] > 0.2
    assert "20 silent" in shown["because"]


def test_what_is_silent_now_leaves_no_trace_in_the_counts():
    counts = Sketch()
    for _ in range(30):
        counts.observe(100.0)
    before = (dict(counts.cut_short), counts.total, counts.samples)
    assert counts.with_silent([500.0] * 5).curve().left > counts.curve().left
    assert (dict(counts.cut_short), counts.total, counts.samples) == before


def test_a_task_of_a_workflow_gets_the_latency_of_its_pool_and_the_run_times_of_its_class():
    hand = Hand(lease_s=1e6)
    hand.ask("b", want=0)
    classes = [TaskClass(name="quick"), TaskClass(name="slow")]
    job = hand.step(JobSubmitted(hand.t, JobRules("flow"), classes)).decided.job
    shape = graphs.from_edges(80, [])
    hand.step(JobShaped(hand.t, job, shape.key, shape.offsets.tobytes(), shape.children.tobytes()))
    hand.step(TasksAdded(hand.t, job, 70, 0))
    hand.step(TasksAdded(hand.t, job, 10, 1))
    hand.step(JobSealed(hand.t, job))
    teach(hand, 60, latency_s=400)
    host, bag = hand.state.host("a"), hand.state.bags[job]
    quick_s = timeouts.deadline_s(hand.state, bag, host, hand.t, 0)
    assert quick_s is not None and quick_s < 0.1 * timeouts.PRIOR_S
    assert timeouts.deadline_s(hand.state, bag, host, hand.t, 1) == timeouts.PRIOR_S
    bag.tally.by_class[1] = (5.0, 5000.0, 1500.0)
    slow_s = timeouts.deadline_s(hand.state, bag, host, hand.t, 1)
    assert slow_s is not None and 2900 < slow_s - quick_s < 3100


def test_a_task_that_was_lost_after_a_long_run_is_given_longer_than_others():
    """On its next host it was given up after three times the mean run time, although it was known to take longer."""
    hand = Hand(lease_s=1e6)
    hand.ask("b", want=0)
    bag = hand.submit(200)
    teach(hand, 60, latency_s=100)
    (key,) = hand.tasks("a", pool="grid")
    usual_s = timeouts.deadline_s(hand.state, bag, hand.state.hosts.by_name["a"], hand.t)
    assert usual_s is not None
    bag.progress.interrupted_s[key[1]] = 4000.0
    hand.ask("a", want=0, boot="anew")
    hand.ask("b", want=0)
    (piece,) = hand.ask("c", pool="grid").assigned
    assert (piece.first, piece.attempt) == (key[1], 2)
    assert usual_s < timeouts.RUN_FACTOR * 4000.0 == piece.deadline - hand.t
