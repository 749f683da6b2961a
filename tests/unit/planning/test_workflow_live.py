"""A running workflow with machines that may vanish: every task on spot keeps the time to run again on demand."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from windfall.planning.contract import Machine, Market, Phase, Snapshot, Task
from windfall.planning.offers import Offer
from windfall.planning.workflow.live import WorkflowPlanner, mended, paced, replanned
from windfall.planning.workflow.seats import play, rented, review

SPOT = Offer(name="spot", price_usd=0.01, cores=1, cycle_s=60.0, lag_s=60.0, market="spot", pool="cloud")
SURE = Offer(name="sure", price_usd=0.05, cores=1, cycle_s=60.0, lag_s=60.0, pool="cloud")


def chain(t: float, deadline_t: float, *waiting: int, offers: tuple[Offer, ...] = (SPOT, SURE)) -> Snapshot:
    """Two tasks of 1,000 s one after the other, and one ready spot machine with a queue."""
    machine = Machine(
        id="1", offer=SPOT, phase=Phase.IDLE, ready_t=0.0, waiting=waiting, paid_until_t=t + 60.0, up_since_t=0.0
    )
    return Snapshot(
        t=t, deadline_t=deadline_t, tasks={0: Task(0, 1000.0), 1: Task(1, 1000.0)}, machines=(machine,), offers=offers,
        after={1: (0,)}, total=2, is_workflow=True,
    )  # fmt: skip


def test_spot_begins_only_what_the_plan_gives_it_where_machines_on_demand_can_berented():
    snapshot = chain(10.0, 9000.0, 0, 1)
    assert WorkflowPlanner("windfall")(snapshot).spot_until_t == snapshot.t
    alone = chain(10.0, 9000.0, 0, 1, offers=(SPOT,))
    assert WorkflowPlanner("windfall")(alone).spot_until_t > alone.deadline_t


def test_a_plan_that_is_in_time_but_leaves_no_time_to_run_again_is_made_anew():
    # In time on spot (2,010 s), but if the second task is lost at its end, 60 + 1,000 s more do not fit.
    plan = WorkflowPlanner("windfall")(chain(10.0, 2500.0, 0, 1))
    placed = [task for queue in plan.assign.values() for task in queue] + [t for e in plan.later for t in e.tasks]
    assert "could not run again in time" in plan.because[0]
    assert {start.offer.name for start in plan.start} | {entry.offer.name for entry in plan.later} == {"sure"}
    assert placed.count(1) == 1


def test_a_plan_whose_spot_tasks_can_all_run_again_is_followed():
    plan = WorkflowPlanner("windfall")(chain(10.0, 9000.0, 0, 1))
    assert plan.because == ["the plan is in time"] and not plan.start and not plan.assign


def test_the_last_task_goes_on_demand_where_neither_is_safe():
    seats = replanned(paced(chain(10.0, 1900.0)))
    assert {seat.offer.name for seat in seats if seat.tasks} == {"sure"}


def test_a_task_in_no_queue_makes_the_finish_infinite():
    snapshot = chain(10.0, 9000.0, 0)
    assert review(snapshot, rented(snapshot)).finish_t == float("inf")


WIDE = Offer(name="wide", price_usd=0.05, cores=2, cycle_s=3600.0, lag_s=60.0, pool="cloud", pool_limit=1)
NARROW = Offer(name="narrow", price_usd=0.01, cores=1, cycle_s=3600.0, lag_s=60.0, pool="cloud", pool_limit=1)


def full_pool(*waiting: int) -> Snapshot:
    """A pool of one place with a narrow machine; the first task, and so the second behind it, needs a wide one."""
    machine = Machine(id="1", offer=NARROW, phase=Phase.IDLE, waiting=waiting, paid_until_t=3000.0, up_since_t=0.0)
    tasks = {0: Task(0, 100.0, cores=2), 1: Task(1, 100.0), 2: Task(2, 100.0)}
    return Snapshot(t=10.0, deadline_t=9000.0, tasks=tasks, machines=(machine,), offers=(WIDE, NARROW),
                    after={1: (0,)}, total=3, is_workflow=True)  # fmt: skip


def test_a_task_that_only_another_machine_of_a_full_pool_could_hold_waits_for_its_place():
    plan = WorkflowPlanner("windfall")(full_pool())
    assert (plan.assign, plan.start, plan.stop) == ({"1": [2]}, [], [])


def test_an_idle_machine_gives_up_the_place_that_a_task_waits_for_before_its_paid_cycle_ends():
    snapshot = full_pool()
    del snapshot.tasks[2]
    plan = WorkflowPlanner("windfall")(snapshot)
    assert (plan.start, plan.stop) == ([], ["1"])


def test_an_idle_machine_stays_for_its_paid_cycle_if_its_place_is_not_waited_for():
    snapshot = full_pool()
    for task in (0, 1):
        del snapshot.tasks[task]
    del snapshot.after[1]
    roomy = replace(snapshot, offers=(replace(WIDE, pool_limit=2), replace(NARROW, pool_limit=2)))
    wide = replace(snapshot.machines[0], id="2", offer=replace(WIDE, pool_limit=2), waiting=(2,))
    plan = WorkflowPlanner("windfall")(replace(roomy, machines=(*snapshot.machines, wide)))
    assert plan.stop == [] and plan.replan_t <= 3000.0


def queue_of_two(paid_until_t: float = 60.0) -> Snapshot:
    """Task 1 waits for task 0 on another machine; task 2, behind it in the queue of its machine, waits for nothing."""
    first, second = (
        Machine(id=name, offer=SURE, phase=Phase.IDLE, waiting=waiting, paid_until_t=paid_until_t, up_since_t=0.0)
        for name, waiting in (("1", (0,)), ("2", (1, 2)))
    )
    tasks = {0: Task(0, 500.0), 1: Task(1, 1000.0), 2: Task(2, 400.0)}
    return Snapshot(t=0.0, deadline_t=1540.0, tasks=tasks, machines=(first, second), offers=(SURE,), after={1: (0,)},
                    total=3, is_workflow=True, spent_usd=0.1)  # fmt: skip


def test_a_review_lets_a_task_go_before_one_that_waits_for_its_parent():
    snapshot = queue_of_two()
    assert play(snapshot, rented(snapshot)) == {0: 500.0, 1: 1500.0, 2: 400.0}
    plan = WorkflowPlanner("windfall")(snapshot)
    assert plan.because == ["the plan is in time"] and not plan.start


def test_in_order_a_task_waits_behind_one_that_waits_for_its_parent():
    snapshot = queue_of_two()
    assert play(snapshot, rented(snapshot), in_order=True) == {0: 500.0, 1: 1500.0, 2: 1900.0}


def test_queues_that_would_wait_for_each_other_in_order_are_no_plan():
    first, second = queue_of_two().machines
    machines = (replace(first, waiting=(1, 0)), replace(second, waiting=(3, 2)))
    tasks = {number: Task(number, 100.0) for number in range(4)}
    snapshot = replace(queue_of_two(), tasks=tasks, machines=machines, after={1: (2,), 3: (0,)}, total=4)
    assert play(snapshot, rented(snapshot), in_order=True) is None
    assert WorkflowPlanner("windfall")(snapshot).in_order is False


def test_a_core_waits_for_the_first_of_its_queue_where_that_saves_a_billing_cycle():
    # Task 1 waits 100 s for task 0, and task 3 for task 1. If task 2 goes before task 1, task 3 ends at 3,100 s.
    hourly = replace(SURE, cycle_s=2400.0)
    first, second = (
        Machine(id=name, offer=hourly, phase=Phase.IDLE, waiting=waiting, paid_until_t=2400.0, up_since_t=0.0)
        for name, waiting in (("1", (0, 3)), ("2", (1, 2)))
    )
    tasks = {0: Task(0, 100.0), 1: Task(1, 1000.0), 2: Task(2, 1000.0), 3: Task(3, 1000.0)}
    snapshot = Snapshot(t=0.0, deadline_t=9000.0, tasks=tasks, machines=(first, second), offers=(hourly,),
                        after={1: (0,), 3: (1,)}, total=4, is_workflow=True, spent_usd=0.1)  # fmt: skip
    plan = WorkflowPlanner("windfall")(snapshot)
    assert plan.in_order and plan.predicted_cost_usd == pytest.approx(0.1)
    loose = replace(snapshot, tasks=tasks | {3: Task(3, 10.0)})
    assert not WorkflowPlanner("windfall")(loose).in_order


def test_a_task_that_is_too_wide_for_the_free_cores_lets_a_narrow_one_go_first():
    machine = Machine(id="1", offer=WIDE, phase=Phase.IDLE, waiting=(0, 1, 2), paid_until_t=60.0, up_since_t=0.0)
    tasks = {0: Task(0, 100.0), 1: Task(1, 100.0, cores=2), 2: Task(2, 50.0)}
    snapshot = Snapshot(t=0.0, deadline_t=9000.0, tasks=tasks, machines=(machine,), offers=(WIDE,), total=3,
                        is_workflow=True)  # fmt: skip
    assert play(snapshot, rented(snapshot)) == {0: 100.0, 2: 50.0, 1: 200.0}
    assert play(snapshot, rented(snapshot), in_order=True) == {0: 100.0, 1: 200.0, 2: 250.0}


def test_a_plan_counts_what_its_rented_machines_will_still_cost():
    # Until 500 s and until 1,500 s, of which 60 s of each are paid: 8 and 24 minutes more.
    assert WorkflowPlanner("windfall")(queue_of_two()).predicted_cost_usd == pytest.approx(0.1 + (8 + 24) * 0.05)


def test_a_plan_is_followed_while_half_of_the_reserve_is_left_and_no_longer():
    snapshot = queue_of_two()  # ends after 1,500 s; plans leave 2 % of the time unused
    for deadline_s, followed in ((1500.0 / 0.985, True), (1500.0 / 0.995, False)):
        plan = WorkflowPlanner("windfall")(replace(snapshot, deadline_t=deadline_s))
        assert ("in time" in plan.because[0]) is followed, plan.because


def test_only_the_task_that_lost_its_machine_is_placed_anew():
    # Task 2 is in no queue. The other two stay where they are, though one machine for both would be cheaper.
    whole = queue_of_two()
    machines = (whole.machines[0], replace(whole.machines[1], waiting=(1,)))
    snapshot = replace(whole, machines=machines, deadline_t=4000.0)
    queues = {seat.label: seat.tasks for seat in mended(paced(snapshot), rented(snapshot))}
    assert sorted(task for queue in queues.values() for task in queue) == [0, 1, 2]
    assert 0 in queues["1"] and 1 in queues["2"]


def first_offers(told_per_h: float | None, seen: Market, seen_of_sure: Market | None = None) -> set[str]:
    """The offers of the first plan for two tasks of 1,000 s, one after the other, with much time."""
    spot = replace(SPOT, price_usd=0.04, interruptions_per_h=told_per_h)
    markets = {spot.key: seen} | ({SURE.key: seen_of_sure} if seen_of_sure is not None else {})
    snapshot = replace(chain(0.0, 90_000.0, offers=(spot, SURE)), machines=(), markets=markets)
    plan = WorkflowPlanner("windfall", effort=2000)(snapshot)
    return {start.offer.name for start in plan.start} | {later.offer.name for later in plan.later}


def test_the_first_plan_believes_what_was_seen_of_spot_and_not_only_what_was_told():
    calm = Market(reclaimed=1, spells=1, up_s=1e6)
    wild = Market(reclaimed=300, spells=300, up_s=300 * 60.0)
    assert first_offers(None, calm) == first_offers(60.0, calm) == {"spot"}
    assert first_offers(None, wild) == first_offers(0.01, wild) == {"sure"}


def test_hours_of_on_demand_machines_do_not_make_spot_look_safe():
    wild = Market(reclaimed=3, spells=3, up_s=3 * 60.0)
    assert first_offers(None, wild, Market(up_s=1e7)) == first_offers(None, wild) == {"sure"}
