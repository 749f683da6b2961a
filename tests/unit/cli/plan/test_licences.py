"""Licences in plans of files: counted where a server is named that has them, and said where they are not."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest

from windfall.cli.options import Place
from windfall.cli.plan.licences import licensed, workflow_in_turns
from windfall.errors import BadInput
from windfall.planning.offers import Offer
from windfall.planning.workflow.model import US, make_problem
from windfall.planning.workflow.planners import NAMES, plan, publish
from windfall.sim.studies.forecast import Question, supply_of
from windfall.workflows import read

QUESTION = Question(
    estimates_s=(60.0,) * 4, memory_bytes=(0,) * 4, spread=0.0, planner="",
    supplies=(supply_of(Offer(name="small", cores=1, price_usd=0.1)),), resources={"gpus": 1.0},
)  # fmt: skip


class Server:
    """A place whose server counts something."""

    def __init__(self, **resources: float) -> None:
        self.resources = resources

    @contextmanager
    def open(self):
        yield self

    def machines(self):
        return {"machines": [], "offers": [], "strangers": [], "resources": self.resources}


def test_what_the_server_has_is_counted():
    assumed: list[str] = []
    found = licensed(QUESTION, [{"gpus": 1.0, "licence": 0.5}], Server(licence=3.0, other=1.0), True, assumed)
    assert (found.resources, found.of_server) == ({"gpus": 1.0, "licence": 0.5}, {"licence": 3.0})
    assert assumed == ["at most 6 tasks run at once: the server has 3 licence, all for this job"]


def test_a_task_that_needs_more_than_there_is_is_refused():
    with pytest.raises(BadInput, match="needs 4 licence, and the server has 3 licence"):
        licensed(QUESTION, [{"licence": 4.0}], Server(licence=3.0), True, [])


@pytest.mark.parametrize(
    ("needs", "ask", "words"),
    [
        ([{"licence": 1.0}], False, "licence: not counted; name the server"),
        ([{"licence": 1.0}], True, "licence: neither the server nor an offer has it"),
        ([{"licence": 1.0}, {}], True, "licence: only some tasks need it"),
        ([{"gpus": 1.0}], True, None),
    ],
)
def test_what_is_not_counted_is_said(needs, ask, words):
    assumed: list[str] = []
    assert licensed(QUESTION, needs, Server() if ask else Place(), ask, assumed) == QUESTION
    assert [line[: len(words or "")] for line in assumed] == ([words] if words else [])


@pytest.fixture
def flow(tmp_path):
    """Eight tasks that need a licence, one that needs none, and one behind all of them."""
    one = '[[task]]\nname = "t{}"\ncommand = "x"\nruntime_s = 600\nresources = {{ licence = 1 }}\n'
    tasks = [one.format(n) for n in range(8)]
    free = '[[task]]\nname = "free"\ncommand = "x"\nruntime_s = 600\n'
    last = f'[[task]]\nname = "last"\ncommand = "x"\nruntime_s = 60\nafter = {[f"t{n}" for n in range(8)]}\n'
    (tmp_path / "flow.toml").write_text('name = "flow"\n' + "".join([*tasks, free, last]))
    return read(str(tmp_path / "flow.toml"))


@pytest.mark.parametrize("planner", NAMES)
def test_no_plan_of_a_workflow_runs_more_tasks_at_once_than_there_are_licences(flow, planner):
    offers, assumed = (Offer(name="m", price_usd=0.1, cores=2, cycle_s=60.0),), list[str]()
    spec = workflow_in_turns(flow, offers, Server(licence=2.0), True, assumed)
    assert assumed == ["at most 2 tasks run at once: the server has 2 licence, all for this job"]
    problem = make_problem(spec.for_planning(), offers, 4 * 3600.0)
    rows = publish(problem, plan(problem, planner, np.random.default_rng(1)))["tasks"]
    spans = [(row["start_s"], row["end_s"]) for row in rows if row["id"].startswith("t")]
    assert len(spans) == 8
    most = max(sum(start <= at < end for start, end in spans) for at, _ in spans)
    assert most <= 2 and problem.deadline == 4 * 3600 * US


def test_a_workflow_without_a_server_is_planned_as_it_is_and_says_so(flow):
    assumed: list[str] = []
    spec = workflow_in_turns(flow, (Offer(name="m", price_usd=0.1),), Place(), False, assumed)
    assert spec.graph.edges == flow.graph.edges and "not counted" in assumed[0]


def test_a_task_of_a_workflow_that_needs_more_than_there_is_is_refused(flow):
    with pytest.raises(BadInput, match="needs 1 licence, and the server has"):
        workflow_in_turns(flow, (Offer(name="m", price_usd=0.1),), Server(licence=0.5), True, [])
