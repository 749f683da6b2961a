"""Fronts of deadlines and confidences over random forecasts, and over random jobs that are simulated."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windfall.planning.offers import Offer
from windfall.sim.studies.forecast import Forecast, Question, Run, earliest_s, simulated, supply_of
from windfall.sim.studies.fronts import Row, Variant, front

SEEDS = 4
DEADLINES_S, CONFIDENCES = (600.0, 900.0, 1500.0), (0.5, 0.9, 0.99)
VARIANTS = [Variant(deadline_s, confidence) for deadline_s in DEADLINES_S for confidence in CONFIDENCES]
RUNS = st.lists(st.tuples(st.integers(1, 40), st.integers(300, 1600)), min_size=SEEDS, max_size=SEEDS)


def assert_monotone(rows: list[Row]) -> None:
    """Whatever a row that keeps its confidence costs, no row that asks for less costs more."""
    shown = [(row.variant, row.made) for row in rows if row.made is not None]
    for variant, made in shown:
        if made.met < variant.confidence * len(made.runs):
            continue
        for other, its in shown:
            if variant.is_plan_for(other):
                assert its.cost_usd.mean <= made.cost_usd.mean + 1e-9, (variant, other)


@given(runs=st.lists(RUNS, min_size=len(VARIANTS), max_size=len(VARIANTS)))
def test_no_front_costs_more_for_a_later_deadline_or_a_lower_confidence(runs):
    found = {
        variant: Forecast(
            variant.deadline_s,
            tuple(
                Run(seed, usd / 10, float(end_s), end_s <= variant.deadline_s, (), 0, 0, 1, None, "")
                for seed, (usd, end_s) in enumerate(done)
            ),
        )
        for variant, done in zip(VARIANTS, runs, strict=True)
    }
    assert_monotone(front(found))


def random_question(random: Random, confidence: float) -> Question:
    kind, cycle_s = random.choice(("terminate", "hibernate")), random.choice((60.0, 3600.0))
    spot = Offer(
        name="spot", price_usd=0.03, cores=2, lag_s=60.0, limit=6, market="spot", cycle_s=cycle_s, when_taken=kind,
        interruptions_per_h=random.choice((0.2, 1.0, 3.0)), resumes_per_h=2.0 if kind == "hibernate" else None,
    )  # fmt: skip
    steady = Offer(name="steady", price_usd=0.1, cores=2, lag_s=60.0, limit=6, cycle_s=cycle_s)
    estimates_s = tuple(random.uniform(60.0, 900.0) for _ in range(random.randint(3, 12)))
    return Question(
        estimates_s=estimates_s, memory_bytes=(0,) * len(estimates_s), spread=random.choice((0.0, 0.3, 0.6)),
        supplies=(supply_of(spot), supply_of(steady)), planner="windfall", confidence=confidence,
    )  # fmt: skip


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_jobs_cost_no_more_with_a_later_deadline_or_a_lower_confidence(seed):
    soonest_s = earliest_s(random_question(Random(seed), 0.9))
    found = {}
    for deadline_s in (1.5 * soonest_s, 3.0 * soonest_s):
        for confidence in (0.6, 0.95):
            question = random_question(Random(seed), confidence)
            runs = [run for _, run in simulated(question, [(deadline_s, n) for n in range(1, 4)], None)]
            found[Variant(deadline_s, confidence)] = Forecast(deadline_s, tuple(runs))
    assert_monotone(front(found))


@pytest.mark.parametrize("seed", [2, 3])
def test_a_job_billed_by_the_minute_rents_few_machines_more_than_it_uses(seed):
    """Machines were rented, ended idle and rented again while tasks waited: 55 machines for $10.21, now 4 for $1.83."""
    minute = tuple(
        supply_of(
            Offer(
                name=name,
                price_usd=usd,
                cores=2,
                lag_s=60.0,
                limit=6,
                market=market,
                cycle_s=60.0,
                interruptions_per_h=1.0 if market == "spot" else None,
                when_taken="terminate",
            )
        )
        for name, usd, market in (("spot", 0.03, "spot"), ("steady", 0.1, "on-demand"))
    )
    estimates_s = (458.0, 548.0, 569.0, 823.0, 454.0, 523.0, 221.0, 662.0, 514.0, 522.0, 394.0, 783.0)
    question = Question(
        estimates_s=estimates_s, memory_bytes=(0,) * 12, spread=0.0, supplies=minute, planner="windfall"
    )
    ((_, run),) = simulated(question, [(3556.0, seed)], None)
    assert run.met and len(run.machines) <= 12 and run.cost_usd < 3.0
