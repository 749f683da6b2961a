"""Any plan by any planner, on any graph and any offers, holds before an independent checker."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec import structs

from tests.support.clouds.bag_plans import World
from windfall.graph import from_edges
from windfall.planning.contract import Task
from windfall.planning.offers import Offer
from windfall.planning.workflow.check import faults
from windfall.planning.workflow.live import WorkflowPlanner
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
@given(workflow=workflows(), offers=offers_strategy, slack=st.sampled_from([0.8, 1.3, 3.0, 9.0]),
       pools=st.lists(st.integers(0, 1), min_size=4, max_size=4),
       limits=st.lists(st.sampled_from([None, 1, 2, 3]), min_size=2, max_size=2))  # fmt: skip
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_limit_of_a_pool_holds_over_its_offers(planner, workflow, offers, slack, pools, limits):
    offers = tuple(
        structs.replace(offer, pool=f"p{pool}", pool_limit=limits[pool])
        for offer, pool in zip(offers, pools, strict=False)
    )
    widest = max(offer.cores for offer in offers)
    workflow.cores[:] = [min(width, widest) for width in workflow.cores]
    deadline_s = slack * earliest_finish(make_problem(workflow, offers, 1.0)) / US + 1.0
    problem = make_problem(workflow, offers, deadline_s)
    document = publish(problem, plan(problem, planner, np.random.default_rng(0), looks=2_000))
    assert faults(document, workflow, offers, deadline_s) == []


LIVE_OFFERS = (
    Offer(name="small", price_usd=0.01, cores=1, memory_gb=4.0, cycle_s=60.0, lag_s=20.0, market="spot"),
    Offer(name="wide", price_usd=0.05, cores=2, memory_gb=4.0, cycle_s=900.0, lag_s=60.0),
    Offer(name="large", price_usd=0.03, cores=1, memory_gb=16.0, cycle_s=60.0, lag_s=20.0),
)
"""No offer holds every task: in a pool of one machine they must follow each other."""


@pytest.mark.parametrize("planner", NAMES)
@given(raw=st.lists(st.tuples(st.sampled_from([5.0, 60.0, 400.0]), st.sampled_from([(1, 0.0), (2, 1.0), (1, 8.0)])),
                    min_size=1, max_size=10),
       edges=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=14), limit=st.integers(1, 4),
       deadline_t=st.sampled_from([300.0, 1500.0, 9000.0, float("inf")]),
       strikes=st.lists(st.tuples(st.floats(1.0, 3000.0), st.integers(0, 3), st.just(1e9)), max_size=5))  # fmt: skip
@example(raw=[(5.0, (1, 0.0))] * 8 + [(5.0, (1, 8.0))], edges=[], limit=2, deadline_t=1500.0,
         strikes=[(1.1, 0, 1e9)])  # a paid cycle that ended by rounding after the moment of its review  # fmt: skip
@example(raw=[(5.0, (1, 8.0)), (400.0, (1, 0.0)), (5.0, (2, 1.0)), (400.0, (1, 8.0)), (5.0, (1, 0.0)),
              (400.0, (1, 0.0)), (60.0, (2, 1.0)), (60.0, (1, 8.0))], edges=[(1, 3), (0, 6)], limit=1, deadline_t=300.0,
         strikes=[])  # a machine that waits for a task of a machine that waits for its place  # fmt: skip
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_running_workflow_comes_to_its_end_within_the_limit_of_its_pool(
    planner, raw, edges, limit, deadline_t, strikes
):
    tasks = [Task(i, runtime_s, memory_gb, cores=cores) for i, (runtime_s, (cores, memory_gb)) in enumerate(raw)]
    after = {
        child: tuple(sorted({a for a, b in edges if a < b == child})) for child in range(len(tasks))
    }  # fmt: skip
    offers = tuple(structs.replace(offer, pool="p", pool_limit=limit) for offer in LIVE_OFFERS)
    world = World(WorkflowPlanner(planner, 1_000), tasks, offers, deadline_t, strikes, after=after)
    world.run()  # it refuses more machines than the limit
    assert not world.tasks


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
