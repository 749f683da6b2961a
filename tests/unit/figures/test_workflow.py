"""The picture of a workflow: where tasks and steps stand, and which state they are in."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from windfall.figures.graph import graph_document, graph_picture
from windfall.figures.standalone import DRAWN
from windfall.figures.workflow import MOST_TASKS, layout, state_of, steps_of


def task(number, name, parents=(), state="done", blocked=False, left=0):
    waits = {"blocked": blocked, "parents_left": left, "parents": list(parents)}
    return {"task": number, "name": name, "state": state, **waits}


def told(tasks):
    return {"job": 1, "name": "w", "state": "running", "class": "", "tasks": tasks}


def test_a_task_stands_right_of_all_its_parents_and_no_two_in_one_place():
    parents = [[], [0], [0], [1, 2], [0, 3], []]
    place = layout(parents)
    assert all(place[task][0] > place[parent][0] for task, mine in enumerate(parents) for parent in mine)
    assert len(set(place)) == len(parents)


def test_those_that_wait_are_told_apart():
    states = [
        state_of(task(0, "a", state="waiting")),
        state_of(task(0, "a", state="waiting", left=1)),
        state_of(task(0, "a", state="waiting", left=1, blocked=True)),
        state_of(task(0, "a", state="failed")),
    ]
    assert states == ["ready", "waiting", "blocked", "failed"]


def test_a_step_is_all_tasks_of_one_kind_and_edges_between_steps_are_counted():
    tasks = [task(0, "prep"), task(1, "fit_1", [0]), task(2, "fit_2", [0, 1]), task(3, "merge", [1, 2])]
    names, place, edges = steps_of(tasks)
    assert names == ["prep", "fit", "merge"]
    assert [x for x, _ in place] == [0, 1, 2]
    assert edges == {(0, 1): 2, (1, 2): 2}, "what a step says to itself is not drawn"


@pytest.mark.parametrize("count", [1, 60, MOST_TASKS + 50])
def test_workflows_of_any_size_are_drawn_as_the_console_draws_them(count):
    tasks = [task(0, "prep"), *(task(i, f"fit_{i}", [0], state="waiting") for i in range(1, count))]
    drawn = graph_document(told(tasks))
    assert ElementTree.fromstring(drawn).tag.endswith("svg")
    assert "prep" in drawn and "job 1" in drawn
    assert DRAWN.search(graph_picture(told(tasks))["html"])["inner"] in drawn
