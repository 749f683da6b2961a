"""A workflow in the engine: who may start, what a failure holds up, how it is taken up again, what people are told."""

from __future__ import annotations

import pytest

from tests.support.engine.hand import Hand
from windfall import graph as graphs
from windfall.core.decisions import ACCEPTED, FAILED_FOR_GOOD
from windfall.core.events import (
    JobCancelled,
    JobRetried,
    JobRules,
    JobSealed,
    JobShaped,
    JobSubmitted,
    TaskClass,
    TasksAdded,
)
from windfall.core.explain.jobs import explain
from windfall.core.records import encode_record
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.jobs.columns import CANCELLED, DONE, FAILED, HELD, WAITING
from windfall.core.state.snapshot import load, save

NAMES = ["prepare", "left", "right", "merge", "apart"]
EDGES = [(0, 1), (0, 2), (1, 3), (2, 3)]


class Flow(Hand):
    """A hand with a diamond of five tasks: prepare, left and right, merge; and one without parents."""

    def workflow(self, classes: list[TaskClass] | None = None, edges=EDGES, tasks: int = 5, **rules) -> Bag:
        shape = graphs.from_edges(tasks, edges)
        classes = classes or [TaskClass(max_failures=1)]
        job = self.step(JobSubmitted(self.t, JobRules("flow", **rules), classes)).decided.job
        packed = () if shape.key in self.state.bags.shapes else (shape.offsets.tobytes(), shape.children.tobytes())
        self.step(JobShaped(self.t, job, shape.key, *packed))
        self.step(TasksAdded(self.t, job, tasks))
        self.step(JobSealed(self.t, job))
        return self.state.bags[job]

    def explained(self, bag: Bag, task: int | None):
        return explain(self.state, self.engine.policies, bag, task, self.t, self.log, lambda number: NAMES[number])


@pytest.fixture
def flow() -> Flow:
    return Flow()


def test_only_tasks_without_unfinished_parents_are_handed_out(flow):
    bag = flow.workflow()
    assert flow.tasks("h", want=9, slots=9) == [(1, 0, 1), (1, 4, 1)]
    assert bag.waiting == 0 and bag.queues.held == 3 and not flow.state.bags.ready


def test_a_task_starts_when_the_last_of_its_parents_is_done(flow):
    bag = flow.workflow()
    flow.tasks("h", want=9, slots=9)
    flow.report("h", (1, 0, 1), (1, 4, 1))
    assert flow.tasks("h", want=9, slots=9) == [(1, 1, 1), (1, 2, 1)]
    flow.report("h", (1, 1, 1))
    assert flow.tasks("h", want=9, slots=9) == []
    flow.report("h", (1, 2, 1))
    assert flow.tasks("h", want=9, slots=9) == [(1, 3, 1)]
    flow.report("h", (1, 3, 1))
    assert bag.state == "done" and bag.finished_t is not None


def failed(flow: Flow) -> Bag:
    """Prepare and apart are done, left too; right has failed for good."""
    bag = flow.workflow()
    flow.tasks("h", want=9, slots=9)
    flow.report("h", (1, 0, 1), (1, 4, 1))
    flow.tasks("h", want=9, slots=9)
    flow.report("h", (1, 1, 1))
    assert flow.report("h", (1, 2, 1), cause="exit") == [FAILED_FOR_GOOD]
    return bag


def test_what_waits_for_a_failed_task_is_blocked_and_the_job_ends_as_failed(flow):
    bag = failed(flow)
    assert bag.state == "failed" and bag.finished_t is not None
    assert list(bag.columns.state) == [DONE, DONE, FAILED, WAITING, DONE]


def test_a_job_goes_on_while_anything_of_it_can_run(flow):
    bag = flow.workflow()
    flow.tasks("h", want=1, slots=9)
    flow.report("h", (1, 0, 1), cause="exit")
    assert bag.state == "running", "apart still waits for a host"
    flow.tasks("h", want=1, slots=9)
    flow.report("h", (1, 4, 1))
    assert bag.state == "failed"


def test_retry_takes_it_up_where_it_stopped(flow):
    bag = failed(flow)
    assert flow.step(JobRetried(flow.t, 1)).decided.tasks == [2]
    assert bag.state == "running"
    assert flow.tasks("h", want=9, slots=9) == [(1, 2, 2)]
    flow.report("h", (1, 2, 2))
    assert flow.tasks("h", want=9, slots=9) == [(1, 3, 1)]
    flow.report("h", (1, 3, 1))
    assert bag.state == "done"


def test_a_failure_within_its_budget_is_tried_again_while_its_children_wait(flow):
    bag = flow.workflow([TaskClass(max_failures=2)])
    flow.tasks("h", want=1, slots=9)
    flow.report("h", (1, 0, 1), cause="exit")
    assert bag.columns.state[0] == WAITING and bag.queues.held == 3
    flow.wait(10)
    assert (1, 0, 2) in flow.tasks("h", want=9, slots=9)


def test_cancelling_a_task_cancels_what_waits_for_it(flow):
    bag = flow.workflow()
    chosen = flow.step(JobCancelled(flow.t, 1, [1], "not needed")).decided.tasks
    assert chosen == [1, 3]
    assert list(bag.columns.state) == [WAITING, CANCELLED, WAITING, CANCELLED, WAITING]
    told = flow.explained(bag, 3)
    assert told["because"] == "with left, for which it waited"
    assert told["story"][-1] == {"t": flow.t, "what": "JobCancelled", "reason": "not needed"}


def test_cancelling_a_running_task_stops_it_and_what_waits_for_it(flow):
    bag = flow.workflow()
    flow.tasks("h", want=1, slots=1)
    flow.step(JobCancelled(flow.t, 1, [0]))
    assert [bag.columns.state[task] for task in (0, 1, 2, 3)] == [CANCELLED] * 4
    assert flow.ask("h").cancel == [(1, 0, 1)]


def test_cancelling_all_of_it_leaves_nothing_waiting_and_it_can_be_taken_up_again(flow):
    bag = flow.workflow()
    flow.tasks("h", want=1, slots=1)
    flow.report("h", (1, 0, 1))
    flow.step(JobCancelled(flow.t, 1))
    assert bag.state == "cancelled" and bag.queues.held == 0
    flow.step(JobRetried(flow.t, 1, None, cancelled=True))
    assert bag.queues.held == 1 and {task for _, task, _ in flow.tasks("h", want=9, slots=9)} == {1, 2, 4}


def test_too_many_failures_stop_a_workflow_with_all_that_waits(flow):
    bag = flow.workflow(max_failed_tasks=0)
    flow.tasks("h", want=1, slots=1)
    flow.report("h", (1, 0, 1), cause="exit")
    assert bag.state == "failed" and list(bag.columns.state) == [FAILED, *[CANCELLED] * 4]


def test_a_late_result_frees_the_children_of_a_task_that_waited_again(flow):
    flow = Flow(lease_s=10.0)
    bag = flow.workflow([TaskClass()])
    flow.tasks("h", want=1, slots=1)
    flow.wait(25)
    assert bag.columns.state[0] == WAITING
    assert flow.report("h", (1, 0, 1)) == [ACCEPTED]
    assert bag.columns.state[0] == DONE and bag.queues.held == 1


def test_tasks_of_a_workflow_differ_so_that_quick_ones_teach_nothing_about_the_others(flow):
    """Without this the long task after many short ones would be given up, or run twice, as a straggler."""
    bag = flow.workflow(edges=[(i, 20) for i in range(20)], tasks=21)
    flow.ask("other", want=0)
    for _ in range(20):
        (key,) = flow.tasks("h", slots=1)
        flow.wait(1)
        flow.report("h", key, run_s=1.0)
    (key,) = flow.tasks("h", slots=1)
    assert key[1] == 20
    for _ in range(100):
        flow.wait(30)
        flow.ask("h", want=0)
        assert flow.ask("other", want=1).assigned == []
    assert bag.columns.state[20] == HELD


def test_jobs_of_one_shape_share_it_and_a_snapshot_keeps_it_once(flow):
    first, second = flow.workflow(), flow.workflow()
    assert first.shape is second.shape
    flow.tasks("h", want=1, slots=1)
    flow.report("h", (1, 0, 1))
    data = save(flow.state)
    again = load(data)
    assert save(again) == data
    assert again.bags[1].shape is again.bags[2].shape
    assert (
        list(again.bags[1].queues.parents_left) == list(first.queues.parents_left)
        and again.bags[1].queues.held == first.queues.held == 1
    )


def test_deciding_again_gives_the_same_log(flow):
    failed(flow)
    flow.step(JobRetried(flow.t, 1))
    again = Flow()
    for record in flow.log[1:]:
        assert encode_record(again.step(record.event)) == encode_record(record)


# --- what people are told -------------------------------------------------------------------------------------------


def test_a_task_that_waits_says_for_whom(flow):
    bag = flow.workflow()
    waiting = flow.explained(bag, 3)["waiting"]
    assert waiting["because"] == "it waits for 2 of 2 parents: left, right"
    assert not waiting["stuck"] and [parent["name"] for parent in waiting["parents"]] == ["left", "right"]


def test_a_blocked_task_names_what_failed_however_far_above(flow):
    bag = flow.workflow(edges=[(0, 1), (1, 2), (2, 3)])
    flow.tasks("h", want=1, slots=1)
    flow.report("h", (1, 0, 1), cause="exit")
    told = flow.explained(bag, 3)
    assert told["task_name"] == "merge"
    assert told["waiting"]["because"] == "it waits for 1 of 1 parent: right; blocked by prepare, which failed"
    assert told["waiting"]["stuck"] and told["waiting"]["try"] == ["windfall retry 1 --failed"]


def test_a_job_whose_tasks_wait_for_running_ones_is_not_stuck(flow):
    bag = flow.workflow()
    flow.tasks("h", want=9, slots=9)
    waiting = flow.explained(bag, None)["waiting"]
    assert waiting["because"] == "every task that could run has been handed out; 3 wait for others to be done"
    assert not waiting["stuck"]


def test_a_workflow_that_ended_as_failed_says_what_was_blocked_by_what(flow):
    told = flow.explained(failed(flow), None)
    assert told["blocked"] == {"tasks": 1, "by": "right", "try": "windfall retry 1 --failed"}
