"""Sets of machines in plans of workflows: what planners see of them, and what their plans come to."""

from __future__ import annotations

import math

import pytest

from windfall.graph import from_edges
from windfall.planning.contract import SET_MARK, Later, Machine, Phase, Plan, Running, Snapshot, Start, Task
from windfall.planning.offers import Offer
from windfall.planning.workflow.live import WorkflowPlanner
from windfall.planning.workflow.model import NoOffer, Workflow, make_problem
from windfall.planning.workflow.planners import plan as plan_offline
from windfall.planning.workflow.planners import publish
from windfall.planning.workflow.sets import SetOffer, bundled, unbundled, with_sets

STEADY = Offer(name="steady", price_usd=0.4, cores=4, cycle_s=60.0, lag_s=60.0, pool="c")
SPOT = Offer(name="spot", price_usd=0.1, cores=4, cycle_s=60.0, lag_s=60.0, pool="c", market="spot")
TASKS = {0: Task(0, 600.0, job=1), 1: Task(1, 1200.0, job=1, nodes=3, cores=2), 2: Task(2, 60.0, job=1)}
AFTER = {1: (0,), 2: (1,)}


def shot(machines=(), offers=(STEADY,), tasks=TASKS, after=AFTER, **more: object) -> Snapshot:
    return Snapshot(
        t=0.0, deadline_t=14_400.0, tasks=tasks, machines=tuple(machines), offers=offers, after=after,
        is_workflow=True, **more,
    )  # fmt: skip


def machine(name: str, offer: Offer = STEADY, phase: Phase = Phase.IDLE, **more: object) -> Machine:
    return Machine(id=name, offer=offer, phase=phase, paid_until_t=3600.0, **more)


def sets_of(snapshot: Snapshot) -> list[SetOffer]:
    return [offer for offer in snapshot.offers if isinstance(offer, SetOffer)]


def test_a_workflow_without_such_tasks_is_left_as_it_is():
    assert bundled(shot(tasks={0: Task(0, 60.0)}, after={})) is None


def test_a_set_costs_as_its_machines_and_takes_its_own_tasks_alone():
    view = bundled(shot(offers=(SPOT, STEADY))).snapshot
    (made,) = sets_of(view)
    assert made.single == STEADY and made.price_usd == pytest.approx(1.2) and made.name == "3 x steady"
    assert view.tasks[1].fits(made) and not view.tasks[0].fits(made)
    assert not view.tasks[1].fits(STEADY) and view.tasks[0].fits(STEADY)


@pytest.mark.parametrize(("limit", "singles", "sets"), [(3, 3, None), (4, 1, 1), (7, 4, 1)])
def test_limited_machines_are_shared_and_other_tasks_keep_one(limit, singles, sets):
    offer = Offer(name="few", price_usd=0.4, cores=4, limit=limit, pool="c")
    view = bundled(shot(offers=(offer,))).snapshot
    assert view.offers[0].limit == singles
    assert [each.limit for each in sets_of(view)] == ([] if sets is None else [sets])


def test_free_machines_of_one_offer_are_a_set_that_the_task_waits_for():
    idle = [machine("1"), machine("2", phase=Phase.PENDING, ready_t=50.0), machine("3"), machine("4")]
    busy = machine("5", running=(Running(0, 100.0),))
    view = bundled(shot([*idle, busy]))
    (made,) = [each for each in view.snapshot.machines if isinstance(each.offer, SetOffer)]
    assert view.members == {made.id: ("1", "3", "4")} and made.waiting == (1,)
    assert [each.id for each in view.snapshot.machines if each is not made] == ["2", "5"]
    assert view.spare == {("c/steady", "on-demand"): ["2"]}


def test_machines_that_have_a_queue_or_are_reclaimed_or_spot_join_no_set():
    several = [machine("1", waiting=(0,)), machine("2", noticed_t=1.0), machine("3", SPOT), machine("4")]
    assert bundled(shot(several)).members == {}


def test_a_task_that_runs_keeps_its_machines_together():
    view = bundled(shot([machine(str(n), running=(Running(1, 300.0),)) for n in range(3)]))
    (made,) = view.snapshot.machines
    assert made.running == (Running(1, 300.0),) and view.members[made.id] == ("0", "1", "2") and made.waiting == ()


def test_a_new_set_is_ordered_whole_and_nothing_is_reserved_on_it():
    view = bundled(shot())
    (made,) = sets_of(view.snapshot)
    given = Plan(start=[Start("new-0", made), Start("new-1", STEADY)], assign={"new-0": [1], "new-1": [0, 2]})
    plan = unbundled(given, view)
    assert [start.label.partition(SET_MARK)[0] for start in plan.start] == ["new-0"] * 3 + ["new-1"]
    assert len({start.label for start in plan.start}) == 4 and all(s.offer == STEADY for s in plan.start)
    assert plan.assign == {"new-1": [0, 2]} and plan.only_reserved


def test_a_set_that_lost_a_machine_is_completed_and_not_rented_anew():
    view = bundled(shot([machine("1"), machine("2")]))
    (made,) = sets_of(view.snapshot)
    plan = unbundled(Plan(start=[Start("again-0", made)], stop=["1", "2"]), view)
    assert len(plan.start) == 1 and plan.stop == []


def test_machines_of_a_set_are_stopped_together():
    view = bundled(shot([machine(str(n)) for n in range(3)]))
    (name,) = view.members
    assert unbundled(Plan(stop=[name]), view).stop == ["0", "1", "2"]


def test_a_set_that_is_intended_for_later_is_known_again():
    view = bundled(shot())
    (made,) = sets_of(view.snapshot)
    plan = unbundled(Plan(later=[Later("new-0", made, 500.0, (1,))]), view)
    assert [(entry.offer, entry.tasks) for entry in plan.later] == [(STEADY, (1,)), (STEADY, ()), (STEADY, ())]
    again = bundled(shot(last_later=tuple(plan.later))).snapshot.last_later
    assert [(entry.label, entry.offer.name, entry.tasks) for entry in again] == [("new-0", "3 x steady", (1,))]


def test_the_first_plan_rents_the_set_later_and_counts_all_its_machines():
    plan = WorkflowPlanner("prolis")(shot())
    assert [start.offer for start in plan.start] == [STEADY]
    sets = [entry for entry in plan.later if entry.label.startswith("new-1")]
    assert [entry.tasks for entry in sets] == [(1,), (), ()]
    # The set boots while the first task runs: 3 machines for 21 minutes at $0.40 a minute.
    assert plan.predicted_cost_usd > 3 * 21 * 0.4


def workflow(nodes: list[int]) -> Workflow:
    return Workflow(
        name="w", ids=["a", "b", "c"], classes=[""] * 3, runtime_s=[600.0, 1200.0, 60.0], cores=[1, 2, 1],
        memory_bytes=[0] * 3, graph=from_edges(3, [(0, 1), (1, 2)]), nodes=nodes,
    )  # fmt: skip


def test_a_plan_of_a_file_shows_the_set_and_its_price():
    flow, offers = with_sets(workflow([0, 3, 0]), (STEADY,))
    problem = make_problem(flow, offers, 14_400.0)
    made = plan_offline(problem, "prolis", None)
    document = publish(problem, made)
    (at,) = [each for each in document["machines"] if each["offer"] == "3 x steady"]
    assert at["cost_usd"] == pytest.approx(3 * 0.4 * 21) and document["tasks"][1]["machine"] == at["id"]


def test_too_few_machines_are_said_with_what_is_needed():
    few = Offer(name="few", price_usd=0.4, cores=4, limit=3, pool="c")
    with pytest.raises(NoOffer, match="3 on-demand machines of one offer at once beside one for the other tasks"):
        with_sets(workflow([0, 3, 0]), (few,))
    with_sets(workflow([3, 3, 2]), (few,))
    with pytest.raises(NoOffer):
        with_sets(workflow([0, 3, 0]), (SPOT,))


def test_nothing_changes_where_no_task_takes_whole_machines():
    flow = workflow([])
    assert with_sets(flow, (STEADY,)) == (flow, (STEADY,)) and math.isinf(STEADY.memory_gb)
