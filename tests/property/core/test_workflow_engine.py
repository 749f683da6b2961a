"""Workflows in the engine under random events: nothing goes before its parents, every result once, the log is all."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.support.engine.engine_machine import OPEN, EngineMachine
from windfall.core.events import JobCancelled, JobRetried, JobRules, JobSealed, JobShaped, JobSubmitted, TaskClass
from windfall.core.events import TasksAdded as Added
from windfall.core.state.jobs.columns import CANCELLED, DONE, FAILED, HELD, WAITING
from windfall.graph import from_edges


@st.composite
def graphs(draw, most: int = 12):
    """(tasks, edges) without cycles; the numbers of the tasks say nothing about their order."""
    tasks = draw(st.integers(1, most))
    names = draw(st.permutations(range(tasks)))
    pairs = draw(st.lists(st.tuples(st.integers(0, tasks - 1), st.integers(0, tasks - 1)), max_size=2 * most))
    return tasks, [(names[a], names[b]) for a, b in pairs if a < b]


class WorkflowMachine(EngineMachine):
    """Everything that the engine is put through anyway, with workflows among the bags."""

    @rule(target=EngineMachine.jobs, graph=graphs(), split=st.integers(0, 12), failures=st.integers(1, 2),
          limit=st.sampled_from([None, None, None, 1]))  # fmt: skip
    def submit_workflow(self, graph, split, failures, limit):
        tasks, edges = graph
        shape = from_edges(tasks, edges)
        classes = [TaskClass(1.0, max_failures=failures), TaskClass(2.0)]
        job = self.step(JobSubmitted(self.t, JobRules("w", max_failed_tasks=limit), classes)).decided.job
        packed = () if shape.key in self.state.bags.shapes else (shape.offsets.tobytes(), shape.children.tobytes())
        self.step(JobShaped(self.t, job, shape.key, *packed))
        for count, klass in ((min(split, tasks), 0), (max(0, tasks - split), 1)):
            if count:
                self.step(Added(self.t, job, count, klass))
        self.step(JobSealed(self.t, job))
        return job

    @rule(index=st.integers(0, 2), want=st.integers(1, 6))
    def ask_and_see_that_parents_are_done(self, index, want):
        before = {job: bag.columns.state[:] for job, bag in self.state.bags.items()}
        self.ask(index, want, None)
        for job, _, _ in self.hosts[index].held:
            bag = self.state.bags.get(job)  # None: forgotten, and the host has not heard of it
            for task in range(bag.total) if bag is not None and bag.shape is not None else ():
                if bag.columns.state[task] == HELD and before[job][task] != HELD:
                    assert all(before[job][parent] == DONE for parent in bag.shape.parents_of(task))

    @rule(job=EngineMachine.jobs, task=st.integers(0, 11))
    def cancel_one(self, job, task):
        bag = self.state.bags.get(job)
        if bag is None:
            return
        open_ = task < bag.total and bag.columns.state[task] in (WAITING, HELD)
        chosen = self.step(JobCancelled(self.t, job, [task])).decided.tasks
        if bag.shape is not None and open_:
            below = bag.shape.descendants([task])
            assert set(below) <= set(chosen) | {t for t in below if bag.columns.state[t] in (FAILED, CANCELLED)}
            assert all(bag.columns.state[t] in (FAILED, CANCELLED) for t in below)

    def teardown(self):
        if hasattr(self, "state"):
            self.run_to_the_end()
        super().teardown()

    def run_to_the_end(self):
        """Whatever happened, a workflow can be taken up again, and then every task of it gets done."""
        for host in self.hosts:
            host.restart()
        for pool in ("cheap", "dear", "volunteers"):
            self.switch_a_pool(pool, OPEN)
        for _ in range(400):
            if all(bag.counts[DONE] == bag.total for bag in self.state.bags.values()):
                break
            for job, bag in self.state.bags.items():
                if bag.rules.paused:
                    self.pause(job, False)
                if bag.finished_t is not None and bag.state != "done":
                    self.step(JobRetried(self.t, job, None, True))
            self.t += 30.0  # beyond every probation, lease and deadline
            self.wait(0.1)
            for index in (2, 1):  # those with two slots or more
                self.ask(index, 6, None)
                while self.hosts[index].held:
                    self.report(index, 4, "done", False)
                while self.hosts[index].ending:
                    self.end_what_was_cancelled(index)
        for bag in self.state.bags.values():
            assert bag.counts[DONE] == bag.total and bag.state == "done"
        self.promises_hold()


WorkflowMachine.TestCase.settings = settings(max_examples=120, stateful_step_count=30, deadline=None)
TestWorkflows = WorkflowMachine.TestCase


@given(graph=graphs(30), data=st.data())
def test_readiness_by_counters_is_readiness_by_looking_at_all_parents(graph, data):
    tasks, edges = graph
    shape = from_edges(tasks, edges)
    left, done, ready = shape.counters(), set(), {t for t in range(tasks) if not shape.parent_counts[t]}
    while ready:
        task = data.draw(st.sampled_from(sorted(ready)))
        done.add(task)
        ready = (ready - {task}) | set(shape.finish(left, task))
        looked = {t for t in range(tasks) if t not in done and {a for a, b in edges if b == t} <= done}
        assert ready == looked
        assert left == shape.counters(done)
    assert done == set(range(tasks))


@given(graph=graphs(20), seed=st.integers(0, 99))
def test_upward_ranks_are_longest_paths(graph, seed):
    tasks, edges = graph
    shape = from_edges(tasks, edges)
    run_s = [float((seed + 7 * task) % 11) for task in range(tasks)]

    def longest(task: int) -> float:
        return run_s[task] + max((longest(child) for child in {b for a, b in edges if a == task}), default=0.0)

    ranks = shape.tail(run_s)
    assert list(ranks) == [longest(task) for task in range(tasks)]
    path = shape.critical_path(run_s)
    assert sum(run_s[task] for task in path) == max(ranks)
    assert all((a, b) in edges for a, b in pairwise(path))
    order = list(shape.order())
    assert sorted(order) == list(range(tasks)) and all(order.index(a) < order.index(b) for a, b in edges)


@given(graph=graphs(20))
def test_descendants_are_what_can_be_reached(graph):
    tasks, edges = graph
    shape = from_edges(tasks, edges)
    for root in range(tasks):
        reached, to_see = set(), [root]
        while to_see:
            at = to_see.pop()
            new = {b for a, b in edges if a == at} - reached
            reached |= new
            to_see += new
        assert shape.descendants([root]) == sorted(reached)
        assert all(root in set(shape.walk_up(task, lambda _: True)) for task in reached)
