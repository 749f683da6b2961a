"""The sketch that the engine keeps: plain data, bounded, weights that fade, no advice from too few attempts."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest

from windfall.errors import BadInput
from windfall.timeouts.best import best_timeout
from windfall.timeouts.laws.closed import LogNormal
from windfall.timeouts.learning.memory import USUAL, cell_of
from windfall.timeouts.learning.online import ALL_EXPLORE_BELOW, EXPLORE_EVERY, LEAST, Memory, Sketch, edge_above
from windfall.timeouts.process import Process


def taught(values, cut_at=math.inf):
    sketch = Sketch()
    for value in values:
        if value <= cut_at:
            sketch.observe(value)
        else:
            sketch.observe_censored(cut_at)
    return sketch


def test_before_enough_came_back_the_stated_prior_holds():
    decision = taught([5.0] * (LEAST - 1)).best_timeout(prior_s=3600, cap_s=1800)
    assert decision.basis == "prior"
    assert decision.timeout_s == 1800
    assert decision.expected_s is None
    assert "prior" in decision.because


def test_after_enough_the_timeout_is_learned_and_says_why():
    values = np.random.default_rng(1).lognormal(5, 1.2, 500).tolist()
    decision = taught(values).best_timeout(prior_s=3600, submit_cost_s=20)
    process = Process(LogNormal(5, 1.2), submit_cost_s=20)
    assert decision.basis == "learned"
    assert decision.samples == 500
    assert float(process.expected(decision.timeout_s)) <= 1.03 * best_timeout(process).expected_s
    assert decision.half_s > decision.expected_s
    assert "500 finished" in decision.because
    assert "half the timeout" in decision.because


def test_floor_and_cap_hold_and_say_so():
    sketch = taught(np.random.default_rng(1).lognormal(5, 1.2, 500).tolist())
    free = sketch.best_timeout(prior_s=1).timeout_s
    low, high = sketch.best_timeout(prior_s=1, floor_s=2 * free), sketch.best_timeout(prior_s=1, cap_s=free / 2)
    assert (low.basis, low.timeout_s) == ("floor", 2 * free)
    assert (high.basis, high.timeout_s) == ("cap", free / 2)
    assert "would be best" in high.because
    with pytest.raises(BadInput):
        sketch.best_timeout(prior_s=1, floor_s=5, cap_s=4)


def test_the_run_time_is_added_to_the_timeout():
    sketch = taught(np.random.default_rng(1).lognormal(5, 1.2, 500).tolist())
    assert sketch.best_timeout(prior_s=1, run_s=100).timeout_s == pytest.approx(
        sketch.best_timeout(prior_s=1, submit_cost_s=100).timeout_s + 100
    )


def test_a_pool_that_has_lost_nothing_yet_still_gets_a_timeout():
    decision = taught(np.random.default_rng(2).normal(300, 20, 400).tolist()).best_timeout(prior_s=9e9)
    assert decision.timeout_s < 500
    assert 0 < decision.lost < 0.01


def test_quantiles_of_the_latency_count_the_lost():
    sketch = taught([1.0] * 90 + [100.0] * 10, cut_at=50)
    assert sketch.quantile(0.5) == pytest.approx(1.0, rel=0.05)
    assert sketch.quantile(0.95) is None
    assert Sketch().quantile(0.5) is None


def test_looking_at_a_running_attempt_counts_its_wait_once():
    often, once = Sketch(), Sketch()
    for value in np.random.default_rng(3).lognormal(5, 1, 300).tolist():
        looks = [age for age in (20.0, 90.0, 300.0) if age < value]
        before = 0.0
        for age in looks:
            often.observe_running(before, age)
            before = age
        often.observe(value, looked_s=before)
        once.observe(value)
    for q in (0.2, 0.5, 0.9):
        assert often.quantile(q) == pytest.approx(once.quantile(q), rel=0.1)


def test_attempts_still_silent_lengthen_the_estimate():
    quick = taught([10.0] * 50)
    for _ in range(50):
        quick.observe_running(0.0, 500.0)
    assert quick.quantile(0.4) == pytest.approx(10.0, rel=0.05)
    assert quick.quantile(0.6) is None


def test_a_sketch_is_plain_data_and_deterministic():
    values = np.random.default_rng(4).lognormal(3, 2, 400).tolist()
    sketch = taught(values, cut_at=200)
    for encode, decode in (
        (msgspec.json.encode, msgspec.json.decode),
        (msgspec.msgpack.encode, msgspec.msgpack.decode),
    ):
        again = decode(encode(sketch), type=Sketch)
        assert again == sketch
        assert again.best_timeout(prior_s=60) == sketch.best_timeout(prior_s=60)
    assert taught(values, cut_at=200) == sketch


def test_a_sketch_stays_small_and_its_weights_finite():
    rng = np.random.default_rng(5)
    sketch = Sketch()
    for value in np.exp(rng.uniform(-20, 30, 80_000)).tolist():
        sketch.observe(value)
    assert len(sketch.came_back) < 620
    assert sketch.weight < 1e10
    assert len(msgspec.msgpack.encode(sketch)) < 20_000


def test_the_last_thousands_count_most():
    sketch = taught([10.0] * 3000)
    # Too gentle for an alarm: below the allowance, 15 % of the attempts grow slower.
    for index in range(12_000):
        sketch.observe(100.0 if index % 7 == 0 else 10.0)
    assert sketch.quantile(0.9) == pytest.approx(100.0, rel=0.05)


def test_drift_is_noticed_within_a_hundred_attempts_and_relearned():
    rng = np.random.default_rng(6)
    sketch = taught(rng.lognormal(4, 0.8, 1000).tolist())
    assert sketch.drifts == 0
    slower = rng.lognormal(6, 0.8, 300).tolist()
    for value in slower[:100]:
        sketch.observe(value)
    assert sketch.drifts == 1
    for value in slower[100:]:
        sketch.observe(value)
    assert sketch.quantile(0.5) == pytest.approx(math.exp(6), rel=0.3)


@pytest.mark.parametrize("cut_at", [math.inf, 300.0, 100.0, 40.0])
def test_a_timeout_of_any_length_does_not_look_like_drift(cut_at):
    for seed in range(4):
        values = np.random.default_rng(seed).lognormal(5, 1.2, 3000).tolist()
        assert taught(values, cut_at).drifts == 0


def test_some_attempts_wait_longer_so_that_the_tail_stays_known():
    decision = taught(np.random.default_rng(1).lognormal(5, 1.2, 2000).tolist()).best_timeout(prior_s=3600)
    timeouts = [decision.for_attempt(number) for number in range(200)]
    assert timeouts.count(decision.explore_s) == 200 // EXPLORE_EVERY
    assert decision.explore_s > 2 * decision.timeout_s


def test_all_attempts_wait_longer_until_fifty_have_ended():
    values = np.random.default_rng(1).lognormal(5, 1.2, ALL_EXPLORE_BELOW).tolist()
    new = taught(values[:-1]).best_timeout(prior_s=3600)
    assert {new.for_attempt(number) for number in range(50)} == {new.explore_s}
    known = taught(values).best_timeout(prior_s=3600)
    assert {known.for_attempt(number) for number in range(50)} == {known.timeout_s, known.explore_s}


def test_a_decision_is_stale_after_more_attempts_or_a_drift():
    sketch = taught([10.0, 20.0, 30.0] * 40)
    decision = sketch.best_timeout(prior_s=60)
    assert not sketch.stale(decision)
    for _ in range(10):
        sketch.observe(20.0)
    assert sketch.stale(decision)


def test_a_task_class_borrows_from_its_pool_until_it_knows_enough():
    memory = Memory()
    for _ in range(100):
        memory.observe("grid", "short", 10.0)
        memory.observe("grid", "long", 1000.0)
    memory.observe("grid", "new", 5.0)
    assert memory.quantile("grid", "short", 0.9) == pytest.approx(10, rel=0.05)
    assert memory.quantile("grid", "long", 0.1) == pytest.approx(1000, rel=0.05)
    assert memory.of("grid", "new").came_back is memory.pools["grid"].came_back
    assert memory.best_timeout("elsewhere", prior_s=60).basis == "prior"


def test_the_memory_of_classes_is_bounded():
    memory = Memory()
    for number in range(3 * USUAL.most_classes):
        memory.observe("grid", f"class {number}", 1.0)
    assert len(memory.classes) == USUAL.most_classes
    assert msgspec.json.decode(msgspec.json.encode(memory), type=Memory) == memory


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_impossible_latencies_are_refused(bad):
    for teach in (Sketch().observe, Sketch().observe_censored):
        with pytest.raises(BadInput):
            teach(bad)


def test_timeouts_lie_on_edges_of_cells():
    for seconds in (0.37, 1.0, 144.5, 9999.0):
        edge = edge_above(seconds)
        assert seconds <= edge * (1 + 1e-6) < seconds * 1.05
        assert cell_of(edge * (1 - 1e-6)) + 1 == cell_of(edge * (1 + 1e-6))
