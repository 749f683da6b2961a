"""Second attempts on rented machines of tasks that run on free hosts: reserved, begun, dropped, told, replayed."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.support.clouds.rented_cloud import SPOT, SURE, Cloud
from tests.support.engine.wishes import plans_wanted
from windfall.core.decisions import OTHERS_RUN, SECOND_ATTEMPT, HostAnswered, PlanTaken
from windfall.core.events import TaskClass, TimerFired
from windfall.core.explain import jobs as explain
from windfall.core.renting import views
from windfall.core.renting.free_hosts import limits_of
from windfall.core.state.invariants import problems
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.jobs.columns import DONE, HELD
from windfall.core.state.renting import fleet
from windfall.core.state.snapshot import load, save
from windfall.core.state.state import State

TOLD = TaskClass(estimate_s=180.0)
DEADLINE_S = 480.0


class Beside(Cloud):
    """A free host of four slots, and machines of two cores that boot for 60 s."""

    def __init__(self) -> None:
        super().__init__()
        self.own()

    def own(self, want: int = 4, host: str = "own") -> list[Any]:
        return self.tasks(host, want, 4)

    def job(self, count: int, rules: TaskClass = TOLD, deadline_s: float = DEADLINE_S, **rest: Any) -> Bag:
        return self.submit(count, [rules], rent_from=["cloud"], deadline_s=deadline_s, **rest)

    def shown(self, bag: Bag) -> dict[int, Any]:
        return views.view(self.state, bag.number, self.t, 1000).tasks

    def machines(self, bag: Bag) -> dict[str, Any]:
        return {each.id: each for each in views.view(self.state, bag.number, self.t, 1000).machines}

    def later(self, seconds: float) -> None:
        """Time passes; the free host is heard of all the while."""
        until = self.t + seconds
        while self.t < until:
            self.t = min(until, self.t + 20.0)
            self.own(0)

    def result(self, host: str, bag: Bag, task: int, attempt: int) -> None:
        self.report(host, (bag.number, task, attempt))


def planned(on: int = 2) -> tuple[Beside, Bag]:
    """Four tasks run on the free host and are due; machine 1 is ordered for the first `on` of them."""
    cloud = Beside()
    bag = cloud.job(4)
    assert len(cloud.own()) == 4
    cloud.later(235.0)
    taken = cloud.plan(bag, start=[SURE], assign={"new-0": list(range(on))})
    assert isinstance(taken, PlanTaken) and taken.beside == [(1, list(range(on)))]
    return cloud, bag


def test_a_trusted_host_has_the_time_that_was_told_before_a_machine_begins_its_task_as_well() -> None:
    cloud = Beside()
    bag = cloud.job(4)
    cloud.own()
    cloud.later(190.0)
    assert not cloud.shown(bag), "at a high quantile a machine would be too late already"
    early = cloud.plan(bag, start=[SURE], assign={"new-0": [0]})
    assert (early.beside, early.moved, early.started) == ([], [], []), "a machine for it would have nothing to do"
    cloud.later(45.0)
    assert sorted(cloud.shown(bag)) == [0, 1, 2, 3]


def test_the_plan_is_made_again_when_the_first_task_is_due() -> None:
    cloud = Beside()
    bag = cloud.job(4)
    cloud.own()
    taken = cloud.plan(bag)
    sent_t = bag.attempts.live[0][0].sent
    limits = limits_of(cloud.state, bag, cloud.t)
    assert cloud.t < taken.replan_t <= limits.due_t(bag, 0, sent_t)
    cloud.later(230.0)
    cloud.step(TimerFired(cloud.t))
    assert bag.number in plans_wanted(cloud.state)


def test_each_class_of_tasks_has_its_own_time() -> None:
    cloud = Beside()
    short = TaskClass(name="short", estimate_s=60.0)
    bag = cloud.submit_mixed(1, [TOLD, short], rent_from=["cloud"], deadline_s=DEADLINE_S)
    cloud.own()
    limits = limits_of(cloud.state, bag, cloud.t)
    assert limits.last_t_of(bag, 0) < cloud.t < limits.last_t_of(bag, 1)
    assert limits.due_t(bag, 0, cloud.t) > cloud.t


def test_the_next_look_at_running_tasks_is_never_a_moment_later() -> None:
    cloud = Beside()
    bag = cloud.job(4)
    cloud.own()
    wait_s = math.inf
    while wait_s > 0.4:
        limits = limits_of(cloud.state, bag, cloud.t)
        wait_s = limits.due_t(bag, 0, bag.attempts.live[0][0].sent) - cloud.t
        cloud.later(max(0.0, wait_s - 0.2))
    assert wait_s > 0.0 and not cloud.shown(bag)
    assert cloud.plan(bag).replan_t >= cloud.t + 0.48 - 1e-9


@pytest.mark.parametrize("factor", [1.0, 2.0, 10.0, 1000.0])
def test_a_machine_is_asked_in_time_for_what_was_told_however_slow_the_host_is(factor: float) -> None:
    cloud = Beside()
    bag = cloud.job(4)
    cloud.own()
    limits = limits_of(cloud.state, bag, cloud.t)
    due_t = limits.due_t(bag, 0, bag.attempts.live[0][0].sent)
    if due_t < cloud.t + factor * 180.0:
        assert due_t + SURE.lag_s + 180.0 < bag.submitted_t + DEADLINE_S


def test_who_wants_to_be_surer_has_the_machine_sooner() -> None:
    due = []
    for confidence in (0.8, 0.95, 0.99, 0.999):
        cloud = Beside()
        bag = cloud.job(4, confidence=confidence)
        cloud.own()
        due.append(limits_of(cloud.state, bag, cloud.t).due_t(bag, 0, cloud.t))
    assert due == sorted(due, reverse=True) and due[0] > due[-1]


def test_once_a_free_host_of_the_job_was_lost_the_others_are_not_waited_for() -> None:
    cloud = Beside()
    cloud.tasks("other", 0, 1)
    bag = cloud.job(5)
    assert len(cloud.own()) == 4 and len(cloud.tasks("other", 1, 1)) == 1
    cloud.later(110.0)
    assert not cloud.shown(bag).keys() & {0, 1, 2, 3}
    cloud.later(30.0)
    cloud.step(TimerFired(cloud.t))
    assert sorted(cloud.shown(bag)) == [0, 1, 2, 3, 4]


def test_a_silent_host_is_not_waited_for_where_machines_may_be_too_late() -> None:
    cloud = Beside()
    bag = cloud.job(4)
    cloud.own()
    taken = cloud.plan(bag)
    assert taken.replan_t <= cloud.t + cloud.state.settings.lease_s
    cloud.t += 61.0
    assert sorted(cloud.shown(bag)) == [0, 1, 2, 3]


def test_a_silent_host_is_waited_for_where_there_is_time() -> None:
    cloud = Beside()
    bag = cloud.job(4, deadline_s=7200.0)
    cloud.own()
    cloud.t += 61.0
    assert not cloud.shown(bag)


def test_a_plan_sees_second_attempts_in_the_queue_of_their_machine_and_the_tasks_stay_shown() -> None:
    cloud, bag = planned()
    machine = cloud.machines(bag)["1"]
    assert (machine.waiting, machine.again) == ((0, 1), ())
    assert {0, 1} <= cloud.shown(bag).keys()
    assert problems(cloud.state) == []


def test_nothing_is_given_up_on_the_free_host_and_both_attempts_run() -> None:
    cloud, bag = planned()
    cloud.later(60.0)
    assert [(task, attempt) for _, task, attempt in cloud.boot(1)] == [(0, 2), (1, 2)]
    answer = [record.decided for record in cloud.log if isinstance(record.decided, HostAnswered)][-1]
    assert [piece.why for piece in answer.assigned] == [SECOND_ATTEMPT] * 2
    assert all(len(bag.attempts.live[task]) == 2 for task in (0, 1))
    assert cloud.machines(bag)["1"].waiting == ()
    assert problems(cloud.state) == []


def test_the_first_result_counts_and_the_other_attempt_is_cancelled() -> None:
    for winner, loser in (("own", 1), ("machine", 0)):
        cloud, bag = planned()
        cloud.boot(1)
        name = cloud.state.fleet.machines[1].host_name
        cloud.result("own" if winner == "own" else name, bag, 0, 1 if winner == "own" else 2)
        assert bag.columns.state[0] == DONE and 0 not in bag.attempts.live
        slow = cloud.state.hosts.by_name[name if loser else "own"]
        assert (bag.number, 0, 1 + loser) in slow.session.to_cancel


def test_a_task_that_the_free_host_has_done_leaves_the_queue_and_the_job_is_planned_again() -> None:
    cloud, bag = planned()
    cloud.t += 1.0
    for task in (2, 3):
        cloud.result("own", bag, task, 1)
    cloud.plan(bag)
    assert plans_wanted(cloud.state) == []
    # The third run time alone would not change what is expected enough.
    cloud.result("own", bag, 0, 1)
    assert cloud.machines(bag)["1"].waiting == (1,)
    assert plans_wanted(cloud.state) == [bag.number]


def test_a_task_with_a_second_attempt_stays_shown_though_it_is_no_longer_overdue() -> None:
    cloud = Beside()
    bag = cloud.job(4, TaskClass(estimate_s=60.0), deadline_s=7200.0)
    cloud.own()
    cloud.later(400.0)
    assert sorted(cloud.shown(bag)) == [0, 1, 2, 3]
    cloud.plan(bag, start=[SURE], assign={"new-0": [0]})
    cloud.report("own", *[(bag.number, task, 1) for task in (2, 3)], run_s=400.0)
    assert sorted(cloud.shown(bag)) == [0], "what is overdue has changed, and a machine is on its way for this one"
    assert cloud.machines(bag)["1"].waiting == (0,)


def test_a_machine_that_boots_for_nothing_else_is_given_back_or_never_ordered() -> None:
    cloud, bag = planned()
    cloud.t += 1.0
    for task in (0, 1):
        cloud.result("own", bag, task, 1)
    assert cloud.plan(bag).stopped == [1]
    assert cloud.state.fleet.machines[1].stopping
    assert problems(cloud.state) == []


def test_a_machine_that_has_something_else_is_kept() -> None:
    cloud, bag = planned()
    cloud.t += 1.0
    cloud.result("own", bag, 0, 1)
    assert cloud.plan(bag).stopped == []
    refused = cloud.plan(bag, stop=["1"])
    assert refused.stopped == [] and refused.refused == ["stop m1: tasks wait for it"]


def test_a_machine_begins_tasks_and_second_attempts_in_the_order_of_the_plan() -> None:
    cloud = Beside()
    bag = cloud.job(6)
    cloud.own()
    cloud.later(235.0)
    cloud.plan(bag, start=[SURE], assign={"new-0": [4, 0, 5, 1]})
    assert cloud.machines(bag)["1"].waiting == (4, 0, 5, 1)
    assert [task for _, task, _ in cloud.boot(1)] == [4, 0]
    assert cloud.machines(bag)["1"].waiting == (5, 1)


def test_a_task_moves_to_the_machine_that_a_later_plan_names() -> None:
    cloud, bag = planned()
    cloud.plan(bag, start=[SURE], assign={"1": [1], "new-0": [0]})
    seen = cloud.machines(bag)
    assert (seen["1"].waiting, seen["2"].waiting) == ((1,), (0,))
    assert cloud.state.fleet.beside == {(bag.number, 1): 1, (bag.number, 0): 2}


def test_what_a_later_plan_leaves_out_gets_no_second_attempt() -> None:
    cloud, bag = planned()
    cloud.plan(bag, assign={"1": []})
    assert cloud.state.fleet.beside == {}
    assert cloud.boot(1) == []
    assert bag.columns.state[0] == HELD


def test_the_end_of_its_machine_leaves_the_task_on_the_free_host_and_plans_again() -> None:
    cloud, bag = planned()
    cloud.end(1)
    assert [attempt.number for attempt in bag.attempts.live[0]] == [1]
    assert cloud.state.fleet.beside == {} and plans_wanted(cloud.state) == [bag.number]


def test_a_task_whose_free_host_is_lost_before_the_machine_is_ready_waits_for_a_machine_again() -> None:
    cloud, bag = planned()
    cloud.t += 2 * cloud.state.settings.lease_s + 1.0
    cloud.step(TimerFired(cloud.t))
    assert 0 in cloud.shown(bag) and plans_wanted(cloud.state) == [bag.number]
    cloud.plan(bag, assign={"1": [0, 1]})
    assert bag.queues.reserved == {0: 1, 1: 1} and cloud.state.fleet.beside == {}
    assert [task for _, task, _ in cloud.boot(1)] == [0, 1]
    assert problems(cloud.state) == []


def test_an_attempt_on_a_hibernated_machine_is_given_up_and_one_on_a_free_host_beside_it_goes_on() -> None:
    cloud, bag = planned()
    cloud.plan(bag, start=[SPOT], assign={"1": [1], "new-0": [0]})
    cloud.boot(2)
    cloud.sleep(2)
    taken = cloud.plan(bag, assign={"1": [0, 1]})
    assert taken.moved == [(bag.number, 0, 2, OTHERS_RUN)] and taken.beside == [(1, [0, 1])]
    assert [attempt.number for attempt in bag.attempts.live[0]] == [1]
    assert problems(cloud.state) == []


def test_a_task_of_whole_hosts_begins_again_only_when_a_machine_is_ready() -> None:
    cloud = Beside()
    gang = TaskClass(estimate_s=180.0, nodes=1)
    bag = cloud.job(1, gang)
    if not cloud.own():
        cloud.own()
    assert bag.columns.state[0] == HELD
    cloud.later(235.0)
    booting = cloud.plan(bag, start=[SURE], assign={"new-0": [0]})
    assert booting.moved == [] and booting.beside == []
    cloud.boot(1, 0)
    assert [loss[1:3] for loss in cloud.plan(bag, assign={"1": [0]}).moved] == [(0, 1)]


def test_second_attempts_outlive_a_restart_and_a_replay_gives_the_same_state() -> None:
    cloud, bag = planned()
    again = load(save(cloud.state))
    assert again.fleet.beside == cloud.state.fleet.beside == {(bag.number, 0): 1, (bag.number, 1): 1}
    assert fleet.row_of(again, again.fleet.machines[1]) == [0, 1]
    cloud.boot(1)
    cloud.result("own", bag, 0, 1)
    replayed = State()
    for record in cloud.log:
        cloud.engine.apply(replayed, record)
    assert save(replayed) == save(cloud.state)


def told(cloud: Beside, bag: Bag, task: int) -> Any:
    return explain.explain(cloud.state, cloud.engine.policies, bag, task, cloud.t, cloud.log)


def test_explain_tells_the_story_of_a_second_attempt() -> None:
    cloud, bag = planned()
    assert told(cloud, bag, 0)["because"].startswith(
        "a machine begins it as well, because own might be too late: m1 (sure) boots"
    )
    cloud.boot(1)
    document = told(cloud, bag, 0)
    assert document["because"] == "it also runs on machine m1, because own might be too late; the first result counts"
    steps = document["story"]
    assert [step["what"] for step in steps] == ["sent", "second attempt planned", "sent"]
    assert steps[1]["reason"] == "on machine m1, because free host own might be too late; it goes on there as well"
    assert steps[2]["why"] == "second attempt: free host own might be too late"
    assert "because" not in told(cloud, bag, 3), "no machine begins it"
