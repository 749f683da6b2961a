"""Sets of machines for tasks that take several at once: how many, of which offer, until when on spot."""

from __future__ import annotations

import math

import pytest

from windfall.planning.contract import Group, Machine, Phase, Plan, Running, Snapshot, Task
from windfall.planning.gangs import SET_MARK, WithGangs
from windfall.planning.offers import Offer

STEADY = Offer(name="steady", price_usd=0.4, cores=4, cycle_s=60.0, lag_s=60.0, pool="c")
SPOT = Offer(
    name="spot", price_usd=0.1, cores=4, cycle_s=60.0, lag_s=60.0, pool="c", market="spot", interruptions_per_h=0.05
)


def nothing(snapshot: Snapshot) -> Plan:
    nothing.seen = snapshot
    return Plan(stop=[machine.id for machine in snapshot.machines])


nothing.names_up_to = math.inf


def wide(count: int, nodes: int = 3, seconds: float = 1200.0, **more: object) -> dict[int, Task]:
    return {n: Task(n, seconds, job=1, nodes=nodes, **more) for n in range(count)}


def shot(tasks: dict[int, Task], offers=(STEADY,), deadline_t: float = 14_400.0, machines=(), **more) -> Snapshot:
    return Snapshot(t=0.0, deadline_t=deadline_t, tasks=tasks, machines=tuple(machines), offers=offers, **more)


def plan(snapshot: Snapshot, market: str | None = None) -> Plan:
    return WithGangs(nothing, market)(snapshot)


def idle(name: str, offer: Offer = STEADY, **more: object) -> Machine:
    return Machine(id=name, offer=offer, phase=Phase.IDLE, paid_until_t=3600.0, **more)


def test_machines_come_in_whole_sets_that_are_rented_together():
    made = plan(shot(wide(6)))
    assert len(made.start) % 3 == 0 and made.start
    names = [start.label.partition(SET_MARK)[0] for start in made.start]
    assert all(names.count(name) == 3 for name in names) and len({start.label for start in made.start}) == len(names)
    assert made.predicted_finish_t <= 14_400.0 and made.predicted_cost_usd > 0


def test_the_tighter_the_deadline_the_more_sets_and_never_more_than_tasks():
    sets = [len(plan(shot(wide(6), deadline_t=deadline_t)).start) // 3 for deadline_t in (14_400, 3_800, 1_300)]
    assert sets == sorted(sets) and sets[-1] == 6


def test_too_late_is_done_as_soon_as_can_be_and_said():
    made = plan(shot(wide(2), deadline_t=600.0))
    assert len(made.start) == 6 and any("late" in line for line in made.because)


def test_spot_is_taken_while_on_demand_could_still_do_all_and_no_longer():
    made = plan(shot(wide(2), (SPOT, STEADY)))
    assert {start.offer.name for start in made.start} == {"spot"}
    # Two sets on demand need 1260 s, an attempt on spot 1200 s, and the plan keeps a margin of 5 s.
    assert made.spot_until_t == pytest.approx(14_400 - 5 - 1260 - 1200) and made.replan_t > made.spot_until_t
    assert any("survive one task with a chance of" in line for line in made.because)
    tight = plan(shot(wide(2), (SPOT, STEADY), deadline_t=2400.0))
    assert {start.offer.name for start in tight.start} == {"steady"}


def test_a_set_is_as_likely_to_be_lost_as_all_its_machines_together():
    often = Offer(**{name: getattr(SPOT, name) for name in SPOT.__struct_fields__} | {"interruptions_per_h": 1.0})
    assert {start.offer.name for start in plan(shot(wide(1, nodes=2), (often, STEADY))).start} == {"spot"}
    assert {start.offer.name for start in plan(shot(wide(1, nodes=30), (often, STEADY))).start} == {"steady"}


def test_where_no_offer_has_enough_machines_nothing_is_rented():
    few = Offer(name="few", price_usd=0.4, cores=4, limit=2, pool="c")
    made = plan(shot(wide(2), (few,)))
    assert made.start == [] and "no offer has 3 machines left" in made.because[0]


def test_machines_that_are_there_are_used_and_a_lost_one_is_replaced():
    made = plan(shot(wide(1), machines=[idle("1"), idle("2")]))
    assert len(made.start) == 1 and made.stop == []


def test_machines_in_no_set_go_to_the_planner_of_the_other_tasks():
    small = {9: Task(9, 60.0, job=1)}
    machines = [idle(str(n)) for n in range(5)]
    made = plan(shot(wide(1) | small, machines=machines))
    assert [machine.id for machine in nothing.seen.machines] == ["3", "4"] and list(nothing.seen.tasks) == [9]
    assert made.stop == ["3", "4"] and made.start == []


def test_a_machine_with_small_tasks_or_a_queue_is_no_member():
    small = {9: Task(9, 60.0, job=1), 8: Task(8, 60.0, job=1)}
    busy = [idle("1", running=(Running(9, 50.0),)), idle("2", waiting=(8,)), idle("3", noticed_t=5.0)]
    assert len(plan(shot(wide(1) | small, machines=busy)).start) == 3


def test_running_parts_keep_their_machines():
    runs = [idle(str(n), running=(Running(0, 600.0),)) for n in range(3)]
    made = plan(shot(wide(1), machines=runs))
    assert made.start == [] and made.stop == [] and made.predicted_finish_t == 600.0


def test_the_limits_that_others_see_are_what_is_left():
    offer = Offer(name="steady", price_usd=0.4, cores=4, limit=5, pool_limit=4, pool="c", cycle_s=60.0)
    plan(shot(wide(1) | {9: Task(9, 60.0, job=1)}, (offer,)))
    assert [(each.limit, each.pool_limit) for each in nothing.seen.offers] == [(2, 1)]


def test_groups_of_a_large_bag_are_planned_too():
    made = plan(shot({}, groups=(Group(Task(-1, 60.0, job=1, nodes=2), 5000),), deadline_t=86_400.0))
    assert made.start and len(made.start) % 2 == 0


def test_a_market_that_the_planner_does_not_use_is_not_used():
    assert {s.offer.market for s in plan(shot(wide(2), (SPOT, STEADY)), "on-demand").start} == {"on-demand"}
