"""Very large bags are simulated as a sample that is planned like the whole."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from windfall.planning.estimates import GUESSED, Estimates, Prior, Record, chance_of_sample
from windfall.planning.offers import Offer
from windfall.sim.studies import forecast, smaller
from windfall.sim.studies.forecast import Question, Run, run_once, supply_of
from windfall.sim.work import Work

SPOT = Offer(name="spot", pool="cloud", market="spot", cores=2, price_usd=0.03, cycle_s=3600.0, lag_s=60.0, limit=400)
STEADY = Offer(name="steady", pool="cloud", cores=2, price_usd=0.1, cycle_s=3600.0, lag_s=60.0)
DEADLINE_S = 7200.0


def question(tasks: int, **changes) -> Question:
    made = Question(
        estimates_s=(600.0,) * tasks, memory_bytes=(0,) * tasks, spread=0.3, planner="windfall",
        supplies=(supply_of(SPOT), supply_of(STEADY)),
    )  # fmt: skip
    return replace(made, **changes)


def test_bags_that_are_simulated_in_seconds_are_simulated_whole():
    asked = question(smaller.MOST_SIMULATED)
    assert smaller.smaller(asked, DEADLINE_S) == (asked, [])


def test_a_sample_has_its_share_of_machines_and_budget_and_says_so():
    asked = question(4 * smaller.MOST_SIMULATED, budget_usd=100.0)
    made, words = smaller.smaller(asked, DEADLINE_S)
    assert made.tasks == smaller.MOST_SIMULATED and made.stands_for == 4.0
    assert [supply.offer.limit for supply in made.supplies] == [100, None] and made.budget_usd == 25.0
    assert words == ["1 of 4 tasks is simulated, on as small a share of the machines: there are very many"]


def test_a_sample_has_as_many_long_tasks_as_the_bag_has():
    count = 2 * smaller.MOST_SIMULATED
    asked = question(count, estimates_s=(100.0,) * (count // 2) + (900.0,) * (count // 2))
    made = smaller.sampled(asked)
    assert made.estimates_s.count(100.0) == made.estimates_s.count(900.0) == made.tasks / 2


def test_few_machines_are_never_simulated_as_none():
    few = replace(SPOT, limit=20)
    made = smaller.sampled(question(100_000, supplies=(supply_of(few), supply_of(STEADY))))
    assert made.stands_for == 2.0 and made.supplies[0].offer.limit == 10


@pytest.mark.parametrize(
    "changes", [{"edges": ((0, 1),)}, {"free_slots": (4,)}, {"of_server": {"licence": 4.0}}, {"nodes": 2}]
)
def test_bags_that_share_more_than_machines_are_simulated_whole(changes):
    asked = question(20_000, **changes)
    assert smaller.sampled(asked) is asked


@pytest.mark.parametrize("prior", [GUESSED, Prior(0.5, 50.0)])
def test_each_task_of_a_sample_keeps_the_quantile_that_it_keeps_among_all(prior):
    estimates = Estimates({"": Record(guess_s=1.0, prior=prior)})
    chance = chance_of_sample(0.95, 2_000, 50_000, prior)
    assert 0.95 < chance <= 0.95 ** (1 / 25) + 1e-9
    whole = estimates.quantile_of_each("", 0.95, 50_000)
    assert estimates.quantile_of_each("", chance, 2_000) == pytest.approx(whole, abs=1e-6)


def test_the_longest_task_of_a_sample_is_as_long_as_the_longest_of_all():
    asked = question(4 * smaller.MOST_SIMULATED, spread=0.5)
    longest = {"whole": [], "sample": []}
    for seed in range(40):
        for name, each in (("whole", asked), ("sample", smaller.sampled(asked))):
            work = Work(forecast.scenario(each, DEADLINE_S).bags[0], 0, seed, 0.0)
            longest[name].append(max(work.run_s(task) for task in range(each.tasks)))
    means = {name: sum(values) / len(values) for name, values in longest.items()}
    assert means["sample"] == pytest.approx(means["whole"], rel=0.08)


def test_a_run_of_a_sample_tells_of_the_whole_bag(monkeypatch):
    asked = question(200, spread=0.1)
    whole = msgspec.msgpack.decode(run_once(msgspec.msgpack.encode(asked), DEADLINE_S, 1), type=Run)
    monkeypatch.setattr(smaller, "MOST_SIMULATED", 100)
    half = msgspec.msgpack.decode(run_once(msgspec.msgpack.encode(smaller.sampled(asked)), DEADLINE_S, 1), type=Run)
    assert half.stands_for == 2.0 and half.rented == 2 * len(half.machines)
    assert half.cost_usd == pytest.approx(whole.cost_usd, rel=0.3)
    made = forecast.Forecast(DEADLINE_S, (half,))
    assert made.most_at_once() <= half.rented and max(map(max, made.machines_over_time()[1].values())) <= half.rented
