"""Second attempts that a plan asks for: a task that runs on one machine begins on another one as well."""

from __future__ import annotations

from tests.support.clouds.rented_cloud import SPOT, SURE, Cloud
from windfall.core.decisions import SECOND_ATTEMPT, WHY_NAMES, HostAnswered, PlanTaken
from windfall.core.events import TaskClass
from windfall.core.renting import views
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.jobs.columns import DONE, HELD
from windfall.core.state.snapshot import load, save

LONG = TaskClass(estimate_s=3000.0)


def on_spot() -> tuple[Cloud, Bag]:
    """A task that runs on a spot machine (1), and an idle on-demand machine (2)."""
    cloud = Cloud()
    bag = cloud.rent(1, [LONG])
    cloud.plan(bag, start=[SPOT], assign={"new-0": [0]})
    assert len(cloud.boot(1)) == 1
    cloud.plan(bag, start=[SURE])
    assert cloud.boot(2) == []
    return cloud, bag


def test_an_idle_machine_begins_the_second_attempt_and_the_record_says_why() -> None:
    cloud, bag = on_spot()
    taken = cloud.plan(bag, again={"2": [0]})
    assert isinstance(taken, PlanTaken)
    assert taken.again == [(2, [0])]
    assert [(task, attempt) for _, task, attempt in cloud.boot(2)] == [(0, 2)]
    answers = [record.decided for record in cloud.log if isinstance(record.decided, HostAnswered)]
    assert answers[-1].assigned[0].why == SECOND_ATTEMPT
    assert "second attempt" in WHY_NAMES[SECOND_ATTEMPT]
    assert len(bag.attempts.live[0]) == 2


def test_a_machine_that_boots_for_a_second_attempt_is_shown_with_it_and_is_kept() -> None:
    cloud, bag = on_spot()
    cloud.plan(bag, start=[SURE], again={"new-0": [0]})
    seen = {machine.id: machine for machine in views.view(cloud.state, bag.number, cloud.t, 1e9).machines}
    assert (seen["2"].again, seen["3"].again) == ((), (0,))
    assert [task for _, task, _ in cloud.boot(3)] == [0]
    seen = {machine.id: machine for machine in views.view(cloud.state, bag.number, cloud.t, 1e9).machines}
    assert seen["3"].again == ()
    assert [entry.task for entry in seen["3"].running] == [0]


def test_the_loss_of_the_first_attempt_leaves_the_second_running() -> None:
    cloud, bag = on_spot()
    cloud.plan(bag, again={"2": [0]})
    cloud.boot(2)
    cloud.end(1)
    assert bag.columns.state[0] == HELD
    assert [attempt.number for attempt in bag.attempts.live[0]] == [2]


def test_the_first_result_counts() -> None:
    cloud, bag = on_spot()
    cloud.plan(bag, again={"2": [0]})
    cloud.boot(2)
    cloud.report(cloud.state.fleet.machines[1].host_name, (bag.number, 0, 1))
    assert bag.columns.state[0] == DONE
    assert bag.attempts.live == {}


def test_a_task_with_two_attempts_a_waiting_one_and_one_of_the_same_machine_get_none() -> None:
    cloud = Cloud()
    bag = cloud.rent(2, [LONG])
    cloud.plan(bag, start=[SPOT, SURE], assign={"new-0": [0]})
    cloud.boot(1, want=1)
    taken = cloud.plan(bag, again={"1": [0], "2": [1, 7], "9": [0]})
    assert isinstance(taken, PlanTaken)
    assert taken.again == [(1, []), (2, [])]
    assert taken.refused == ["second attempts on 9: there is no such machine"]


def test_second_attempts_outlive_a_restart() -> None:
    cloud, bag = on_spot()
    cloud.plan(bag, again={"2": [0]})
    assert load(save(cloud.state)).fleet.machines[2].again == [0]
