"""Streams of bags and workflows in the simulated world: shapes, files, arrivals, each instance with its deadline."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from windfall import graph as graphs
from windfall.core.state.invariants import problems
from windfall.errors import BadInput
from windfall.sim.inputs.flows import of_shape
from windfall.sim.run import run
from windfall.sim.scenario import check
from windfall.sim.work import submissions
from windfall.sim.world import World

POOL = {"name": "grid", "hosts": 6, "poll_max": "20s"}


def scenario(bag, where="test.toml", **more):
    document = {"pool": [POOL], "bag": [{"name": "flow"} | bag]}
    return check(document | more, Path(where))


@pytest.mark.parametrize("shape", ["pipeline", "parallel", "hybrid"])
@pytest.mark.parametrize("tasks", [4, 9, 30])
def test_a_simple_shape_has_one_beginning_one_end_and_no_cycle(shape, tasks):
    made = graphs.from_edges(tasks, of_shape(shape, tasks, "here"))
    assert len(made.order()) == tasks
    assert [task for task in range(tasks) if not made.parent_counts[task]] == [0]
    assert [task for task in range(tasks) if not made.children_of(task)] == [tasks - 1]


@pytest.mark.parametrize("shape", ["pipeline", "parallel", "hybrid"])
def test_every_instance_of_a_stream_runs_in_the_order_of_its_edges_and_has_its_own_deadline(shape):
    bag = {
        "tasks": 12, "shape": shape, "run": {"law": "uniform", "low": "1m", "high": "3m"}, "copies": 5,
        "every": {"law": "exponential", "mean": "10m"}, "deadline": "1h",
    }  # fmt: skip
    broken, worlds, ends, starts = [], [], {}, {}

    def watch(host, key, start, end, cause):
        starts.setdefault(key[:2], start)
        ends[key[:2]] = end

    world = World(
        scenario(bag), 2, lambda record: broken.extend(p for w in worlds for p in problems(w.driver.state)), watch
    )
    worlds.append(world)
    world.run()
    assert broken == []
    bags = world.driver.state.bags
    assert [bag.counts for bag in bags.values()] == [[0, 0, 12, 0, 0]] * 5
    assert len(world.driver.state.bags.shapes) == 1, "instances share their shape"
    for job in bags:
        for parent, child in of_shape(shape, 12, ""):
            assert ends[(job, parent)] <= starts[(job, child)] + 1e-6
    submitted = [bag.submitted_t for bag in bags.values()]
    assert submitted == sorted(submitted) and len(set(submitted)) == 5


WFFORMAT = {
    "name": "small", "schemaVersion": "1.5",
    "workflow": {
        "specification": {
            "tasks": [
                {"name": "split", "id": "split", "parents": [], "children": ["a", "b"]},
                {"name": "a", "id": "a", "parents": ["split"], "children": ["join"]},
                {"name": "b", "id": "b", "parents": ["split"], "children": ["join"]},
                {"name": "join", "id": "join", "parents": ["a", "b"], "children": []},
            ],
            "files": [],
        },
        "execution": {
            "makespanInSeconds": 400, "executedAt": "2026-01-01T00:00:00Z",
            "tasks": [
                {"id": "split", "runtimeInSeconds": 60}, {"id": "a", "runtimeInSeconds": 120},
                {"id": "b", "runtimeInSeconds": 180}, {"id": "join", "runtimeInSeconds": 30},
            ],
            "machines": [],
        },
    },
}  # fmt: skip


def test_a_workflow_file_gives_tasks_edges_and_run_times(tmp_path):
    (tmp_path / "small.json").write_text(json.dumps(WFFORMAT))
    made = scenario({"workflow": "small.json", "copies": 2, "every": "1h"}, tmp_path / "mine.toml")
    assert made.bags[0].tasks == 4 and len(made.bags[0].edges) == 4 and made.bags[0].told == "each"
    outcome, _ = run(made, 1)
    assert [bag.done for bag in outcome.bags] == [4, 4]
    assert outcome.bags[0].turnaround_s >= 60 + 180 + 30


def test_arrivals_and_run_times_come_from_traces_and_copies_go_on_where_the_last_one_ended(tmp_path):
    (tmp_path / "jobs.csv").write_text("submit_s,run_s\n100,60\n400,120\n2000,180\n2100,240\n")
    made = scenario({"trace": "jobs.csv", "tasks": 2, "arrivals": "jobs.csv", "copies": 2}, tmp_path / "mine.toml")
    first, second = submissions(made.bags, 1)
    assert (first.submit_s, second.submit_s) == (0.0, 300.0)
    assert [first.run_s(task) for task in range(2)] == [60.0, 120.0]
    assert [second.run_s(task) for task in range(2)] == [180.0, 240.0]
    every = scenario({"trace": "jobs.csv", "tasks": 1, "arrivals": "jobs.csv"}, tmp_path / "mine.toml")
    assert every.bags[0].copies == 4, "without a number, all of them"


def test_gaps_by_a_law_are_the_same_for_a_seed_and_independent_of_other_bags():
    bag = {"tasks": 1, "run": "1m", "copies": 20, "every": {"law": "exponential", "mean": "10m"}}
    moments = [[work.submit_s for work in submissions(scenario(bag).bags, seed)] for seed in (1, 1, 2)]
    assert moments[0] == moments[1] != moments[2]
    assert all(later >= earlier for earlier, later in pairwise(moments[0]))


@pytest.mark.parametrize(
    ("bag", "said", "hint"),
    [
        ({"workflow": "none.json"}, "flow.workflow: there is no file", "existing"),
        ({"workflow": "none.json", "run": "1m"}, "run and workflow are both given", "or a workflow"),
        ({}, "the key 'run' is missing", "or a trace"),
        ({"run": "1m", "tasks": 1, "shape": "pipeline"}, "flow.tasks: a pipeline has 2 at least", "tasks = 2"),
        ({"run": "1m", "tasks": 9, "shape": "star"}, "flow.shape: 'star' cannot be", '"hybrid"'),
        ({"run": "1m", "tasks": 9, "arrivals": "none.csv"}, "flow.arrivals: there is no file", "existing"),
    ],
)
def test_a_stream_that_cannot_be_is_refused_with_its_place_and_what_may_stand_there(bag, said, hint):
    with pytest.raises(BadInput) as caught:
        scenario(bag)
    assert said in caught.value.message and hint in (caught.value.hint or "")
