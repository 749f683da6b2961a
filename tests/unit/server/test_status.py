"""Looking tasks up by state: the same answer as a look at each of them, whatever the limit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from windfall.core.events import JobRules, TaskClass
from windfall.core.state.jobs.bags import Bag
from windfall.server.queries.status import recovered, tasks_in


def bag_of(states: list[int], failures: list[int]) -> Bag:
    bag = Bag(1, JobRules("bag"), [TaskClass()], 0.0)
    bag.columns.grow(len(states))
    for task, (state, failed) in enumerate(zip(states, failures, strict=True)):
        bag.columns.state[task] = state
        bag.columns.failures[task] = failed
    return bag


tasks = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), max_size=40)


@given(tasks, st.sets(st.integers(0, 4)), st.integers(0, 45), st.integers(1, 10))
def test_tasks_in_states_are_found_page_by_page(rows, states, after, limit):
    bag = bag_of([row[0] for row in rows], [row[1] for row in rows])
    expected = [task for task, (state, _) in enumerate(rows) if state in states and task >= after]
    found, following = [], after
    while following is not None:
        page, following = tasks_in(bag, frozenset(states), following, limit)
        assert len(page) <= limit
        found += page
    assert found == expected


@given(tasks)
def test_recovered_tasks_failed_once_and_are_done(rows):
    bag = bag_of([row[0] for row in rows], [row[1] for row in rows])
    assert recovered(bag, 100) == [task for task, (state, failed) in enumerate(rows) if state == 2 and failed]
