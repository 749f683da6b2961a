"""Plans on machines that may vanish: whatever is lost, and whenever, the deadline is kept on on-demand machines."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from windfall.graph import from_edges
from windfall.planning.offers import Offer
from windfall.planning.workflow.check import TOLERANCE_S, faults
from windfall.planning.workflow.model import US, Workflow, earliest_finish, make_problem
from windfall.planning.workflow.planners import NAMES, plan, publish
from windfall.planning.workflow.risk import Risk

ONDEMAND = Offer(name="ondemand", speed=1.5, price_usd=0.4, lag_s=60.0)
SLOW = Offer(name="slow", speed=1.0, price_usd=0.25, lag_s=90.0)
SPOT = Offer(name="spot", speed=1.5, price_usd=0.1, lag_s=60.0, market="spot", interruptions_per_h=0.2)
OFFERS = (ONDEMAND, SLOW, SPOT)


@st.composite
def workflows(draw):
    n = draw(st.integers(1, 10))
    edges = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=16))
    runtime = draw(st.lists(st.sampled_from([5.0, 60.0, 333.3, 900.0]), min_size=n, max_size=n))
    names = [f"t{i}" for i in range(n)]
    graph = from_edges(n, [(min(e), max(e)) for e in edges if e[0] != e[1]])
    return Workflow("any", names, ["a"] * n, runtime, [1] * n, [0] * n, graph)


def finish_with_losses(document, workflow, lost_at_s):
    """Play a plan through in which spot machines vanish for good at given times.

    A task whose machine is gone runs on an on-demand machine of its own, as soon as it is known to be gone and its
    parents have ended; so does a task that its planned machine could not end by what was planned for it.
    """
    graph, ends = workflow.graph, [0.0] * workflow.graph.tasks
    tasks = {task["id"]: task for task in document["tasks"]}
    known_s = min(lost_at_s.values(), default=np.inf)  # from the first loss on everything late is moved at once
    for i in graph.order().tolist():
        task = tasks[workflow.ids[i]]
        ready = max((ends[p] for p in graph.parent_rows()[i]), default=0.0)
        gone = lost_at_s.get(task["machine"], np.inf)
        start = task["start_s"]
        if task["end_s"] <= gone and ready <= start + 1e-6:
            ends[i] = task["end_s"]
            continue
        known = gone if gone < task["end_s"] else known_s
        ends[i] = max(ready, known + ONDEMAND.lag_s) + workflow.runtime_s[i] / ONDEMAND.speed
    return max(ends)


def exposed(document, workflow, offers, deadline_s):
    """Tasks on spot machines that, lost at their very end, could not be run again on on-demand machines in time.

    It assumes that every on-demand offer can hold every task.
    """
    by_name = {offer.name: offer for offer in offers}
    offer_of = {machine["id"]: by_name[machine["offer"]] for machine in document["machines"]}
    ondemand = [offer for offer in by_name.values() if offer.market == "on-demand"]
    if not ondemand:
        return []  # there is nothing to fall back on
    graph, names = workflow.graph, set(workflow.classes)
    quickest = {name: max(ondemand, key=lambda offer: offer.speed_for(name)) for name in names}
    boot_s = max(offer.lag_s for offer in quickest.values())
    children = defaultdict(list)
    for child in range(graph.tasks):
        for parent in graph.parents_of(child):
            children[parent].append(child)
    path_s = [0.0] * graph.tasks
    for i in reversed(graph.order().tolist()):
        need_s = workflow.runtime_s[i] / quickest[workflow.classes[i]].speed_for(workflow.classes[i])
        path_s[i] = need_s + max((path_s[child] for child in children[i]), default=0.0)
    found = []
    for i, task in enumerate(document["tasks"]):
        if offer_of[task["machine"]].market == "spot" and task["end_s"] + boot_s + path_s[i] > deadline_s + TOLERANCE_S:
            found.append(f"{task['id']} ends at {task['end_s']} s on a spot machine: too late to run it again")
    return found


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(workflows(), st.floats(1.05, 6.0), st.sampled_from(NAMES), st.integers(0, 10**6))
def test_any_losses_at_any_time_leave_the_deadline_kept(workflow, factor, planner, seed):
    deadline_s = earliest_finish(make_problem(workflow, OFFERS, 1.0)) / US * factor
    problem = make_problem(workflow, OFFERS, deadline_s)
    made = plan(problem, planner, np.random.default_rng(0), looks=1_500)
    document = publish(problem, made)
    assert not faults(document, workflow, OFFERS, deadline_s)
    if not document["met"]:
        return
    assert not exposed(document, workflow, OFFERS, deadline_s)
    rng = np.random.default_rng(seed)
    spot = [machine for machine in document["machines"] if machine["offer"] == "spot"]
    for _ in range(5):
        lost = {m["id"]: rng.uniform(0, m["end_s"]) for m in spot if rng.random() < 0.7}
        assert finish_with_losses(document, workflow, lost) <= deadline_s + 1e-3


def chain(*seconds):
    n = len(seconds)
    names = [f"t{i}" for i in range(n)]
    edges = [(i, i + 1) for i in range(n - 1)]
    return Workflow("chain", names, ["a"] * n, [float(s) for s in seconds], [1] * n, [0] * n, from_edges(n, edges))


def made(workflow, offers, deadline_s, **risk):
    problem = make_problem(workflow, offers, deadline_s, Risk(**risk))
    return publish(problem, plan(problem, "windfall", np.random.default_rng(0), looks=20_000))


def test_spot_is_used_where_there_is_time_for_a_second_run_and_not_where_there_is_none():
    flow = chain(900, 900)
    assert {m["offer"] for m in made(flow, OFFERS, 5000)["machines"]} == {"spot"}
    assert {m["offer"] for m in made(flow, OFFERS, 1300)["machines"]} == {"ondemand"}


def test_a_spot_machine_that_hardly_ever_lives_is_not_worth_its_price():
    from msgspec import structs

    for rate, expected in ((0.1, "spot"), (60.0, "slow")):
        spot = structs.replace(SPOT, interruptions_per_h=rate, price_usd=0.2)
        document = made(chain(900, 900), (ONDEMAND, SLOW, spot), 6000)
        assert {m["offer"] for m in document["machines"]} == {expected}


def test_the_risk_says_what_losses_cost_and_how_many_to_expect():
    document = made(chain(900), (ONDEMAND, SPOT), 5000)
    chance = 1 - np.exp(-0.2 * 600 / 3600)
    assert document["risk"]["losses_expected"] == pytest.approx(chance)
    assert document["risk"]["expected_usd"] == pytest.approx(0.1 + chance * (0.4 + 0.1 * 60 / 3600))
    assert document["risk"]["chance_late"] == 0.0


def test_a_plan_without_anything_to_lose_says_nothing_about_risk():
    assert "risk" not in made(chain(900), (ONDEMAND, SLOW), 5000)


def test_tasks_that_may_fail_leave_time_to_run_again_where_the_deadline_allows_it():
    flow, offers = chain(900), (ONDEMAND, SLOW)
    roomy = made(flow, offers, 1800, task_failures=0.05)
    assert roomy["makespan_s"] <= 1800 - 90 - 600
    assert roomy["risk"]["chance_late"] == 0.0
    tight = made(flow, offers, 1000, task_failures=0.05)
    assert tight["met"]
    assert tight["risk"]["chance_late"] == pytest.approx(0.05)


def test_a_failure_rarer_than_the_accepted_risk_keeps_no_time():
    document = made(chain(900), (ONDEMAND, SLOW), 1000, task_failures=0.005, accept=0.01)
    assert {m["offer"] for m in document["machines"]} == {"slow"}
    assert 0 < document["risk"]["chance_late"] <= 0.01


def test_an_offer_that_bills_no_boot_and_a_minimum_costs_so():
    flow = chain(30)
    free = Offer(name="free", price_usd=0.01, cycle_s=1.0, lag_s=100.0, bills_boot=False, minimum_s=60.0)
    document = made(flow, (free,), 500)
    assert document["cost_usd"] == pytest.approx(0.60)
    assert not faults(document, flow, (free,), 500)
