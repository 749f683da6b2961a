"""What single planners do on workflows small enough to know the answer, and what the checker catches."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from windfall.graph import from_edges
from windfall.planning.offers import Offer
from windfall.planning.workflow.bounds import work_bound_usd
from windfall.planning.workflow.check import faults
from windfall.planning.workflow.methods import search
from windfall.planning.workflow.methods import windfall as windfall_method
from windfall.planning.workflow.methods.assign import assign, bundles, cheapest_offers, reduce_parallelism, upgrade
from windfall.planning.workflow.methods.rivals import _PartialPaths, ic_pcp, ic_pcp_within
from windfall.planning.workflow.model import US, NoOffer, Workflow, earliest_finish, make_problem
from windfall.planning.workflow.planners import NAMES, plan, publish

SLOW = Offer(name="slow", speed=1.0, price_usd=1.0, lag_s=60.0)
FAST = Offer(name="fast", speed=2.0, price_usd=3.0, lag_s=60.0)


def workflow(runtime_s, edges=(), cores=None, memory=None):
    n = len(runtime_s)
    names = [f"t{i}" for i in range(n)]
    graph = from_edges(n, edges)
    return Workflow("w", names, names, list(runtime_s), cores or [1] * n, memory or [0] * n, graph)


def made(planner, flow, offers, deadline_s):
    problem = make_problem(flow, offers, deadline_s)
    document = publish(problem, plan(problem, planner, np.random.default_rng(0), looks=20_000))
    assert faults(document, flow, offers, deadline_s) == []
    return document


@pytest.mark.parametrize("planner", NAMES)
def test_one_task_with_time_to_spare_takes_the_cheap_machine(planner):
    document = made(planner, workflow([600]), (SLOW, FAST), 3600)
    assert [(m["offer"], m["start_s"], m["end_s"]) for m in document["machines"]] == [("slow", 0.0, 660.0)]


@pytest.mark.parametrize("planner", NAMES)
def test_a_tight_deadline_takes_the_fast_machine(planner):
    document = made(planner, workflow([600]), (SLOW, FAST), 400)
    assert (document["met"], document["cost_usd"]) == (True, 3.0)


def two_kinds(limit):
    """Each of two tasks is quick on a machine of its own type; the pool has so many places."""
    terms = {"price_usd": 0.001, "cycle_s": 1.0, "lag_s": 10.0, "pool": "p", "pool_limit": limit}
    return tuple(Offer(name=name, speed={name: 1.0, "default": 0.2}, **terms) for name in ("t0", "t1"))


@pytest.mark.parametrize(("limit", "types"), [(1, 1), (2, 2)])
def test_the_search_rents_no_more_machines_than_the_pool_has_places(limit, types):
    document = made("windfall", workflow([1000, 1000]), two_kinds(limit), 90_000)
    assert len({machine["offer"] for machine in document["machines"]}) == len(document["machines"]) == types


@pytest.mark.parametrize("planner", NAMES)
def test_machines_follow_each_other_in_the_only_place_of_a_pool_if_none_holds_all_tasks(planner):
    terms = {"price_usd": 1.0, "lag_s": 60.0, "pool": "p", "pool_limit": 1}
    offers = (Offer(name="wide", cores=2, memory_gb=1.0, **terms), Offer(name="large", memory_gb=8.0, **terms))
    flow = workflow([600, 600], cores=[2, 1], memory=[0, 4 << 30])
    document = made(planner, flow, offers, 90_000)
    first, second = sorted(document["machines"], key=lambda machine: machine["start_s"])
    assert {first["offer"], second["offer"]} == {"wide", "large"} and second["start_s"] >= first["end_s"]


def test_the_checker_counts_the_machines_of_a_pool():
    document = made("windfall", workflow([1000, 1000]), two_kinds(2), 90_000)
    found = faults(document, workflow([1000, 1000]), two_kinds(1), 90_000)
    assert found == ["2 machines of pool p at once, the limit is 1"]


def test_the_boot_is_paid_for():
    document = made("windfall", workflow([3600]), (SLOW,), 9999)
    assert document["cost_usd"] == 2.0


def test_four_parallel_tasks_share_one_hour_when_there_is_time():
    flow = workflow([800] * 4)
    assert made("windfall", flow, (SLOW,), 3600)["cost_usd"] == 1.0
    assert made("windfall", flow, (SLOW,), 1000)["cost_usd"] == 4.0


def test_windfall_finds_the_wide_machine_that_no_single_task_would_justify():
    wide = Offer(name="wide", cores=8, price_usd=2.5, lag_s=60.0)
    document = made("windfall", workflow([900] * 8), (SLOW, wide), 1000)
    assert document["cost_usd"] == 2.5


def test_an_impossible_deadline_gives_the_earliest_plan():
    flow = workflow([600, 600], [(0, 1)])
    problem = make_problem(flow, (SLOW, FAST), 100)
    assert earliest_finish(problem) == 660 * US
    document = made("windfall", flow, (SLOW, FAST), 100)
    assert (document["met"], document["makespan_s"]) == (False, 660.0)


def test_a_task_that_no_offer_can_hold_is_named():
    with pytest.raises(NoOffer) as homeless:
        make_problem(workflow([1, 1], cores=[1, 9]), (SLOW, FAST), 100)
    assert homeless.value.task == 1


def test_memory_keeps_two_large_tasks_apart():
    roomy = Offer(name="roomy", cores=4, memory_gb=8, price_usd=1.0)
    document = made("windfall", workflow([100, 100], memory=[5 * 10**9] * 2), (roomy,), 3000)
    assert len(document["machines"]) == 1
    assert document["makespan_s"] == 200.0


def test_a_limit_is_kept_even_when_it_costs_the_deadline():
    one = Offer(name="one", price_usd=1.0, limit=1)
    for planner in NAMES:
        document = made(planner, workflow([100] * 3), (one,), 150)
        assert (document["met"], document["makespan_s"]) == (False, 300.0)


def test_the_same_seed_gives_the_same_plan():
    flow = workflow([500, 300, 700, 100, 900, 50], [(0, 2), (1, 2), (2, 3), (2, 4)])
    assert made("windfall", flow, (SLOW, FAST), 2000) == made("windfall", flow, (SLOW, FAST), 2000)


def test_the_work_bound_undercuts_every_plan():
    flow = workflow([500, 300, 700, 100, 900, 50], [(0, 2), (1, 2), (2, 3), (2, 4)])
    problem = make_problem(flow, (SLOW, FAST), 2500)
    costs = [plan(problem, name, np.random.default_rng(0), looks=5_000).cost_usd(problem) for name in NAMES]
    assert 0 < work_bound_usd(problem) <= min(costs)


@pytest.mark.parametrize("annealed", [3_000, 50])
@pytest.mark.parametrize("deadline_s", [1500, 4000])
def test_no_planner_undercuts_windfall_in_small_workflows_nor_in_large_ones(monkeypatch, annealed, deadline_s):
    monkeypatch.setattr(search, "MAX_TASKS_ANNEALED", annealed)  # a large workflow is one with more tasks than this
    rng = np.random.default_rng(3)
    layers = [(p, t) for t in range(20, 120) for p in rng.integers(20 * (t // 20 - 1), 20 * (t // 20), 2).tolist()]
    flow = workflow(rng.uniform(20, 200, 120).tolist(), layers)
    problem = make_problem(flow, (SLOW, FAST), deadline_s)
    own = plan(problem, "windfall", np.random.default_rng(0), looks=20_000)
    assert own.met(problem)
    others = [plan(problem, name, np.random.default_rng(0)) for name in NAMES[1:]]
    assert own.cost_usd(problem) <= min(other.cost_usd(problem) for other in others if other.met(problem))
    assert not faults(publish(problem, own), flow, (SLOW, FAST), deadline_s)


def layered(width, layers):
    """A workflow in which every task has two parents in the layer before it."""
    rng, edges = np.random.default_rng(3), []
    for task in range(width, width * layers):
        first = (task // width - 1) * width
        edges += [(parent, task) for parent in sorted({*rng.integers(first, first + width, 2).tolist()})]
    return workflow(rng.uniform(60, 600, width * layers).tolist(), edges)


def test_ic_pcp_gives_up_after_the_steps_that_it_may_take_and_is_the_same_with_enough():
    problem = make_problem(layered(12, 12), (SLOW, FAST), 20_000.0)
    whole, enough = ic_pcp(problem), ic_pcp_within(problem, 1e9)
    assert enough is not None and publish(problem, enough) == publish(problem, whole)
    assert ic_pcp_within(problem, 200.0) is None


def test_the_most_critical_exit_is_placed_first_although_its_finish_has_risen_since(monkeypatch):
    problem, placed = make_problem(layered(12, 12), (SLOW, FAST), 20_000.0), []
    real = _PartialPaths._assign_from

    def noted(self, end):
        still_open = [t for t in self.order if not self.children[t] and not self.placed[t]]
        placed.append(self.earliest[end] == max(self.earliest[t] for t in still_open))
        return real(self, end)

    monkeypatch.setattr(_PartialPaths, "_assign_from", noted)
    ic_pcp(problem)
    assert len(placed) > 3 and all(placed)


def test_a_very_large_workflow_is_planned_without_ic_pcp_if_that_takes_too_many_steps(monkeypatch):
    monkeypatch.setattr(windfall_method, "MAX_TASKS_ALL_PLANNERS", 100)
    monkeypatch.setattr(windfall_method, "STEPS_PER_TASK", 1)
    problem = make_problem(layered(12, 12), (SLOW, FAST), 20_000.0)
    found = plan(problem, "windfall", np.random.default_rng(0), looks=2_000)
    assert found.met(problem) and not faults(publish(problem, found), problem.workflow, (SLOW, FAST), 20_000.0)


# -- SCS, algorithm 1 -----------------------------------------------------------------------------------------------


def test_an_upgrade_goes_to_the_task_that_gains_most_per_dollar():
    # The second task is three times as fast on the dear type, the first hardly faster.
    dear = Offer(name="dear", speed={"t0": 1.1, "t1": 3.0}, price_usd=5.0)
    cheap = Offer(name="cheap", speed=1.0, price_usd=1.0)
    problem = make_problem(workflow([900, 900], [(0, 1)]), (cheap, dear), 1300)
    assert upgrade(problem) == [0, 1]


def test_parallel_tasks_are_chained_while_no_type_changes():
    fan = workflow([10, 600, 600, 600, 10], [(0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (3, 4)])
    offers = (Offer(name="slow", price_usd=1.0), Offer(name="fast", speed=2.0, price_usd=3.0))
    loose = reduce_parallelism(make_problem(fan, offers, 3600))
    assert loose.workflow.graph.parent_rows()[2] == [0, 1]
    tight = reduce_parallelism(make_problem(fan, offers, 700))
    assert tight.workflow.graph.parent_rows()[2] == [0]
    assert upgrade(loose) == upgrade(tight)


def test_deadlines_of_tasks_leave_each_its_run_time_and_end_with_the_workflows():
    chain = workflow([100, 200, 300], [(0, 1), (1, 2)])
    problem = make_problem(chain, (Offer(name="o", price_usd=1.0),), 1200)
    assert [due // US for due in assign(problem).due] == [200, 600, 1200]


def test_tasks_in_a_row_that_prefer_the_same_type_are_bundled():
    flow = workflow([10, 10, 10, 10], [(0, 1), (1, 2), (1, 3)])
    problem = make_problem(flow, (SLOW, FAST), 1000)
    assert bundles(problem, cheapest_offers(problem)) == [-1, 0, -1, -1]


# -- the checker ----------------------------------------------------------------------------------------------------

BREAKS = {
    "starts before its parent": lambda d: d["tasks"][1].update(start_s=61.0, end_s=161.0),
    "booted": lambda d: d["tasks"][0].update(start_s=10.0, end_s=110.0),
    "takes": lambda d: d["tasks"][0].update(end_s=100.0),
    "released": lambda d: d["machines"][0].update(end_s=d["machines"][0]["end_s"] - 50),
    "costs": lambda d: d["machines"][0].update(cost_usd=0.5),
    "cost": lambda d: d.update(cost_usd=0.5),
    "met": lambda d: d.update(met=False),
    "not the tasks": lambda d: d["tasks"].pop(),
    "listed twice": lambda d: d["tasks"].append(d["tasks"][0]),
    "unknown": lambda d: d["tasks"][0].update(machine="m9"),
    "more at once": lambda d: d["tasks"][2].update(start_s=d["tasks"][1]["start_s"], end_s=d["tasks"][1]["end_s"]),
}


@pytest.mark.parametrize("word", BREAKS)
def test_the_checker_finds_a_plan_that_was_tampered_with(word):
    flow = workflow([100, 100, 100], [(0, 1), (0, 2)])
    document = made("greedy", flow, (SLOW,), 3600)
    broken = copy.deepcopy(document)
    BREAKS[word](broken)
    assert any(word in fault for fault in faults(broken, flow, (SLOW,), 3600))


def test_the_checker_counts_machines_against_the_limit():
    flow = workflow([100, 100])
    document = made("greedy", flow, (SLOW,), 200)
    assert len(document["machines"]) == 2
    one = Offer(name="slow", speed=1.0, price_usd=1.0, lag_s=60.0, limit=1)
    assert any("limit" in fault for fault in faults(document, flow, (one,), 200))


def test_the_exact_bound_meets_the_plan_where_both_are_optimal():
    pytest.importorskip("ortools")
    from windfall.lab.workflows.cpsat import bound

    flow = workflow([800] * 4 + [60], [(0, 4), (1, 4)])
    problem = make_problem(flow, (SLOW, FAST), 1100)
    cost = plan(problem, "windfall", np.random.default_rng(0), looks=20_000).cost_usd(problem)
    answer = bound(problem, cost, limit_s=10)
    assert answer["proved"]
    assert answer["bound_usd"] == pytest.approx(cost, rel=1e-6)


def test_tasks_that_are_lost_together_share_the_machine_on_which_they_run_again():
    def loss_usd(spot_cores: int, sure_cores: int, width: int) -> float:
        offers = tuple(
            Offer(name=market, market=market, price_usd=1.0, cores=cores, cycle_s=3600.0, lag_s=0.0,
                  interruptions_per_h=1.0 if market == "spot" else None)
            for market, cores in (("spot", spot_cores), ("on-demand", sure_cores))
        )  # fmt: skip
        flow = Workflow(name="", ids=["a"], classes=[""], runtime_s=[600.0], cores=[width], memory_bytes=[0],
                        graph=from_edges(1, []))  # fmt: skip
        return make_problem(flow, offers, 1e6).exposure.loss_usd[0][0]

    alone = loss_usd(1, 1, 1)
    assert loss_usd(4, 4, 1) == pytest.approx(alone / 4) and loss_usd(4, 2, 1) == pytest.approx(alone / 2)
    assert loss_usd(2, 8, 1) == pytest.approx(alone / 2) and loss_usd(4, 4, 4) == pytest.approx(alone)
