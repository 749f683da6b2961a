"""Why a job or a task waits where machines are rented, and what is told of its money: from the engine's own state."""

from __future__ import annotations

from msgspec.structs import replace

from tests.support.clouds.rented_cloud import SPOT, SURE, Cloud
from windfall.core.events import HostsEnded, JobChanged
from windfall.core.explain import jobs as explain
from windfall.core.explain import plan as explain_plan
from windfall.core.state.jobs.columns import WAITING
from windfall.server.queries.jobs import STORY_KINDS


def why(cloud, bag, task=None):
    return explain.why_waiting(cloud.state, cloud.engine.policies, bag, task, cloud.t)


def test_before_there_is_a_plan_a_job_waits_for_it_and_is_not_stuck():
    cloud = Cloud()
    told = why(cloud, cloud.rent())
    assert (told["because"], told["stuck"]) == ("its plan is being made", False)


def test_a_task_says_which_machine_it_is_reserved_for_and_that_it_boots():
    cloud = Cloud()
    bag = cloud.rent()
    cloud.plan(bag, start=[SPOT], assign={"new-0": [2, 3]})
    cloud.t += 20
    told = why(cloud, bag, 3)
    assert told["because"] == (
        "its plan has reserved it for a machine: m1 (small) boots; ready in about 40.0 s; 1 goes first there"
    )
    assert told["machine"] == 1 and not told["stuck"]


def test_a_task_says_that_its_machine_is_hibernated():
    cloud = Cloud()
    bag = cloud.rent()
    cloud.plan(bag, start=[SPOT], assign={"new-0": [0, 1, 2, 3]})
    cloud.boot(1)
    cloud.t += 30
    cloud.sleep(1)
    cloud.t += 15
    assert "m1 (small) has been hibernated by its provider for 15.0 s" in why(cloud, bag, 3)["because"]


def test_machines_that_boot_are_help_on_its_way():
    cloud = Cloud()
    bag = cloud.rent()
    cloud.plan(bag, start=[SPOT, SURE])
    told = why(cloud, bag)
    assert told["because"] == "2 machines are rented for it: 2 boot" and not told["stuck"]
    assert [entry["pool"] for entry in told["pools"]] == ["cloud", "cloud"]


def test_a_budget_that_allows_nothing_leaves_the_job_stuck_and_says_what_to_do():
    cloud = Cloud()
    bag = cloud.rent(budget_microusd=100_000)
    cloud.plan(bag, start=[SURE])
    told = why(cloud, bag)
    assert told["stuck"] and "the budget of $0.10 does not allow it" in told["because"]
    assert told["try"] == ["windfall change 1 --budget USD"]
    money = explain_plan.money_of(cloud.state, bag, cloud.t)
    assert money["held_by_budget"] and money["machines"]["rented"] == 0


def test_a_budget_holds_nothing_while_a_machine_is_there():
    cloud = Cloud()
    bag = cloud.rent(budget_microusd=300_000)
    taken = cloud.plan(bag, start=[SPOT, SURE])
    assert len(taken.started) == 1
    assert not explain_plan.money_of(cloud.state, bag, cloud.t)["held_by_budget"]


def test_the_forecast_is_never_below_what_was_spent():
    cloud = Cloud()
    bag = cloud.rent()
    cloud.plan(bag, start=[SURE], predicted_cost_usd=0.4)
    money = explain_plan.money_of(cloud.state, bag, cloud.t)
    assert (money["spent_usd"], money["forecast_usd"], money["first_forecast_usd"]) == (1.0, 1.0, 0.4)


def test_machines_are_counted_by_what_they_do():
    cloud = Cloud()
    bag = cloud.rent()
    cloud.plan(bag, start=[SPOT, SPOT, SURE], assign={"new-0": [0, 1], "new-1": [2, 3]})
    cloud.boot(1)
    cloud.boot(2, want=0)
    cloud.sleep(2)
    fleet = explain_plan.fleet_of(cloud.state, bag)
    assert (fleet["there"], fleet["pending"], fleet["hibernated"]) == (3, 1, 1)
    assert fleet["offers"] == [
        {"offer": "small", "market": "spot", "there": 2, "rented": 2},
        {"offer": "sure", "market": "on-demand", "there": 1, "rented": 1},
    ]


def test_a_job_that_rents_nothing_has_neither_money_nor_a_plan():
    cloud = Cloud()
    bag = cloud.submit(2)
    told = explain.explain(cloud.state, cloud.engine.policies, bag, None, cloud.t)
    assert told["money"] is None and told["plan"] is None


def test_a_plan_is_told_with_what_was_refused_of_it():
    cloud = Cloud()
    bag = cloud.rent()
    cloud.plan(bag, start=[SURE, SURE, SURE], because=["the safety net demands them"])
    record = next(record for record in reversed(cloud.log) if type(record.event).__name__ == "PlanProposed")
    told = explain_plan.told(record.event, record.decided)
    assert [row["offer"] for row in told["started"]] == ["sure", "sure"]
    assert told["refused"] == ["start sure: all 2 are rented"]
    assert told["because"] == ["the safety net demands them"]


def test_it_is_said_how_many_tasks_are_left_to_hosts_that_cost_nothing():
    cloud = Cloud()
    cloud.tasks("own", 0, 2)
    bag = cloud.rent(6)
    cloud.plan(bag, start=[SPOT], assign={"new-0": [0, 1]})
    because = explain_plan.coming(cloud.state, bag, cloud.t).because
    assert because == (
        "2 tasks are reserved for its machines; 4 are left to free hosts; 1 machine is rented for it: 1 boots"
    )


def test_tasks_that_are_reserved_for_machines_are_counted_among_those_that_wait():
    cloud = Cloud()
    bag = cloud.rent(6)
    cloud.plan(bag, start=[SPOT], assign={"new-0": [0, 1, 2]})
    cloud.tasks("own", 1, 1)
    told = why(cloud, bag)
    assert told["because"] == "1 task runs, 5 wait (3 for rented machines): all slots are busy"
    assert bag.counts[WAITING] == 5


def test_the_story_of_a_task_says_what_became_of_the_machine_of_each_attempt():
    cloud = Cloud()
    bag = cloud.rent()
    cloud.plan(bag, start=[SPOT, SURE], assign={"new-0": [0], "new-1": []})
    cloud.boot(1)
    cloud.sleep(1)
    cloud.boot(2, want=0)
    cloud.plan(bag, assign={"2": [0]})
    cloud.boot(2)
    cloud.end(2, "taken")
    told = explain.story(cloud.state, cloud.log, bag, 0)
    assert [step["why"] for step in told if step["what"] == "given up"] == [
        "its machine hibernates, and the plan moved it elsewhere",
        "its machine m2 was reclaimed by its provider",
    ]


def test_the_story_of_a_task_says_that_its_worker_is_no_more_if_its_pool_says_so():
    cloud = Cloud()
    bag = cloud.submit(1)
    cloud.tasks("w1", pool="cluster")
    cloud.step(HostsEnded(cloud.t, "cluster", [("w1", "scancel")]))
    told = explain.story(cloud.state, cloud.log, bag, 0)
    assert [step["why"] for step in told if step["what"] == "given up"] == [
        "its worker is no more, says its pool 'cluster'"
    ]
    losing = {type(record.event).__name__ for record in cloud.log if getattr(record.decided, "lost", None)}
    assert losing == {"HostsEnded"} and losing <= set(STORY_KINDS)


def test_a_job_whose_budget_was_raised_is_no_longer_held_by_the_old_one():
    cloud = Cloud()
    bag = cloud.rent(budget_microusd=100_000)
    cloud.plan(bag, start=[SURE])
    assert explain_plan.money_of(cloud.state, bag, cloud.t)["held_by_budget"]
    cloud.step(JobChanged(cloud.t, bag.number, replace(bag.rules, priority=1.0)))
    assert explain_plan.money_of(cloud.state, bag, cloud.t)["held_by_budget"]
    cloud.step(JobChanged(cloud.t, bag.number, replace(bag.rules, budget_microusd=5_000_000)))
    assert not explain_plan.money_of(cloud.state, bag, cloud.t)["held_by_budget"]
