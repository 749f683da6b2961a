"""Rented machines of tasks that take several at once, in the engine: all or none, of their own fleet, and kept."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.clouds.rented_cloud import KNOWN, SPOT, SURE, Cloud
from windfall.core.events import MachineNoticed, MachineStarted, PlanProposed, TaskClass
from windfall.core.renting import views
from windfall.core.state.renting.fleet import ENDED
from windfall.planning.contract import Plan, Start

PAIR = TaskClass(estimate_s=300.0, estimate_is_exact=True, nodes=2)


def sets(cloud: Cloud, bag: Any, offers: list[Any], size: int = 2, start: bool = True, **more: Any) -> Any:
    starts = [Start(f"set-{place // size}/{place}", offer) for place, offer in enumerate(offers)]
    decided = cloud.step(PlanProposed(cloud.t, bag.number, cloud.state.seq, Plan(start=starts, **more))).decided
    for number, _, _ in decided.started if start else ():
        cloud.step(MachineStarted(cloud.t, number, f"i-{number}", cloud.t))
    return decided


def ask(cloud: Cloud, number: int) -> Any:
    machine = cloud.state.fleet.machines[number]
    return cloud.ask(machine.host_name, 2, 2, pool="cloud", machine=number)


def test_a_planner_sees_how_many_machines_a_task_takes():
    cloud = Cloud()
    bag = cloud.rent(3, [PAIR])
    seen = views.view(cloud.state, bag.number, cloud.t, 100)
    assert [task.nodes for task in seen.tasks.values()] == [2, 2, 2]
    assert views.view(cloud.state, bag.number, cloud.t, 1).groups[0].task.nodes == 2


def test_machines_of_a_set_are_rented_together_or_not_at_all():
    cloud = Cloud()
    bag = cloud.rent(3, [PAIR])
    decided = sets(cloud, bag, [SPOT] * 4)
    assert len(decided.started) == 2, "of 3 machines there is one set of two"
    assert decided.refused == ["start small: all 3 are rented; its tasks need all of their machines at once"]


def test_a_budget_for_half_a_set_rents_none_of_it():
    cloud = Cloud()
    bag = cloud.rent(3, [PAIR], budget_microusd=1_500_000)
    assert sets(cloud, bag, [SURE, SURE]).started == []


def test_a_machine_waits_for_the_others_of_its_set_and_gets_no_small_task_meanwhile():
    cloud = Cloud()
    bag = cloud.submit_mixed(2, [PAIR, KNOWN], rent_from=["cloud"], deadline_s=3600.0)
    sets(cloud, bag, [SURE, SURE])
    assert ask(cloud, 1).assigned == [], "the other one boots"
    formed = ask(cloud, 2)
    assert formed.gang.hosts == [2, 1] and formed.begin == ()
    assert ask(cloud, 1).begin and ask(cloud, 2).begin


def test_machines_of_another_job_are_no_members():
    cloud = Cloud()
    other, bag = cloud.rent(1), cloud.rent(1, [PAIR])
    cloud.plan(other, start=[SURE])
    sets(cloud, bag, [SPOT, SPOT])
    assert cloud.boot(1), "it has the task of its own job"
    cloud.report(cloud.state.fleet.machines[1].host_name, (other.number, 0, 1))
    assert ask(cloud, 2).gang is None
    assert len(ask(cloud, 3).gang.hosts) == 2 and ask(cloud, 1).assigned == []


@pytest.mark.parametrize("what", ["noticed", "spot is over"])
def test_a_machine_that_is_about_to_go_is_no_member(what):
    cloud = Cloud()
    bag = cloud.rent(1, [PAIR])
    sets(cloud, bag, [SPOT, SPOT], **({"spot_until_t": cloud.t - 1} if what == "spot is over" else {}))
    if what == "noticed":
        cloud.step(MachineNoticed(cloud.t, 1, cloud.t + 30))
    assert [ask(cloud, number).gang for number in (1, 2, 1, 2)] == [None] * 4


def test_a_lost_machine_ends_the_attempt_on_all_and_the_task_waits_again():
    cloud = Cloud()
    bag = cloud.rent(1, [PAIR])
    sets(cloud, bag, [SPOT, SPOT])
    for number in (1, 2, 1, 2):
        ask(cloud, number)
    cloud.end(1)
    assert bag.waiting == 1 and not bag.attempts.live and cloud.state.fleet.machines[1].phase == ENDED
    assert ask(cloud, 2).cancel == [(bag.number, 0, 1)]


def test_a_plan_that_gives_small_tasks_to_named_machines_only_leaves_the_others_to_sets():
    cloud = Cloud()
    bag = cloud.submit_mixed(1, [PAIR, KNOWN], rent_from=["cloud"], deadline_s=3600.0)
    starts = [Start("new-0", SPOT), Start("set-0/1", SURE), Start("set-0/2", SURE)]
    plan = Plan(start=starts, assign={"new-0": [1]}, only_reserved=True)
    for number, _, _ in cloud.step(PlanProposed(cloud.t, bag.number, cloud.state.seq, plan)).decided.started:
        cloud.step(MachineStarted(cloud.t, number, f"i-{number}", cloud.t))
    assert cloud.boot(1) == [(bag.number, 1, 1)]
    assert ask(cloud, 2).gang is None and ask(cloud, 3).gang.hosts == [3, 2]
