"""Any plan by any planner, on any graph and any offers, holds before an independent checker."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from windfall.graph import from_edges
from windfall.planning.offers import Offer
from windfall.planning.workflow.check import faults
from windfall.planning.workflow.model import US, Workflow, earliest_finish, make_problem
from windfall.planning.workflow.planners import NAMES, plan, publish

offers_strategy = st.lists(
    st.builds(
        Offer,
        name=st.just(""),
        cores=st.integers(1, 4),
        speed=st.one_of(st.sampled_from([0.5, 1.0, 1.7, 3.0]), st.just({"a": 2.0, "default": 0.8})),
        price_usd=st.sampled_from([0.0, 0.01, 0.085, 0.5]),
        cycle_s=st.sampled_from([1.0, 60.0, 3600.0]),
        lag_s=st.sampled_from([0.0, 30.0, 97.3]),
        limit=st.sampled_from([None, None, 1, 2]),
        memory_gb=st.sampled_from([4.0, 16.0]),
    ),
    min_size=1,
    max_size=4,
).map(lambda rows: tuple(structs.replace(row, name=f"o{i}") for i, row in enumerate(rows)))


@st.composite
def workflows(draw):
    n = draw(st.integers(1, 14))
    edges = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=24))
    column = st.lists
    return Workflow(
        name="any",
        ids=[f"t{i}" for i in range(n)],
        classes=draw(column(st.sampled_from("ab"), min_size=n, max_size=n)),
        runtime_s=draw(column(st.sampled_from([0.0, 0.1, 7.0, 60.0, 333.3, 4000.0]), min_size=n, max_size=n)),
        cores=draw(column(st.sampled_from([1, 1, 1, 2]), min_size=n, max_size=n)),
        memory_bytes=draw(column(st.sampled_from([0, 0, 3 * 10**9]), min_size=n, max_size=n)),
        graph=from_edges(n, [(min(e), max(e)) for e in edges if e[0] != e[1]]),
    )


@pytest.mark.parametrize("planner", NAMES)
@given(workflow=workflows(), offers=offers_strategy, slack=st.sampled_from([0.8, 1.0, 1.3, 3.0]))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_plan_holds_before_the_checker(planner, workflow, offers, slack):
    widest = max(offer.cores for offer in offers)
    workflow.cores[:] = [min(width, widest) for width in workflow.cores]
    fitting = max((offer.memory_gb for offer in offers if offer.cores >= max(workflow.cores)), default=0.0)
    assert fitting > 0
    deadline_s = slack * earliest_finish(make_problem(workflow, offers, 1.0)) / US + 1.0
    problem = make_problem(workflow, offers, deadline_s)
    document = publish(problem, plan(problem, planner, np.random.default_rng(0), looks=2_000))
    assert faults(document, workflow, offers, deadline_s) == []


@pytest.mark.parametrize("planner", NAMES)
@given(workflow=workflows(), offers=offers_strategy, slack=st.sampled_from([1.0, 1.3, 3.0]))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_carried_out_without_noise_a_plan_costs_exactly_what_it_says(planner, workflow, offers, slack):
    widest = max(offer.cores for offer in offers)
    workflow.cores[:] = [min(width, widest) for width in workflow.cores]
    deadline_s = slack * earliest_finish(make_problem(workflow, offers, 1.0)) / US + 1.0
    problem = make_problem(workflow, offers, deadline_s)
    made = plan(problem, planner, np.random.default_rng(0), looks=2_000)
    cost_usd, makespan = carried_out(problem, made)
    assert cost_usd == pytest.approx(publish(problem, made)["cost_usd"], abs=1e-12)
    assert makespan == made.makespan


def carried_out(problem, made):
    """Follow only the plan's orders: rent when it says, start a task when it says unless a parent is late."""
    parents = problem.workflow.graph.parent_rows()
    ended, released = {}, [lease.start + problem.lag[lease.offer] for lease in made.leases]
    for task in sorted(range(problem.n), key=lambda task: (made.start[task], made.end[task])):
        machine = made.machine[task]
        offer = made.leases[machine].offer
        up = made.leases[machine].start + problem.lag[offer]
        start = max([made.start[task], up, *(ended[p] for p in parents[task])])
        ended[task] = start + problem.duration[offer][task]
        released[machine] = max(released[machine], ended[task])
    bills = [problem.cost(lease.offer, released[number] - lease.start) for number, lease in enumerate(made.leases)]
    return sum(bills), max(ended.values())
