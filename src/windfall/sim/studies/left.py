"""The question that a forecast answers about a job on a server: what is left of it, or the whole of it. Pure.

`left` is what `GET /v1/jobs/JOB/unfinished` tells; `windfall plan JOB` and the console's page both ask with it. What
servers of older versions do not tell is taken for empty.
"""

from __future__ import annotations

from math import ceil
from typing import Any

from msgspec import convert

from windfall.api.asking import OpenClass, Unfinished
from windfall.errors import BadInput
from windfall.planning.contract import BAG, WORKFLOW
from windfall.planning.estimates import GUESSED, RECORDED
from windfall.planning.offers import Offer
from windfall.planning.registry import known_planner
from windfall.resources import largest
from windfall.sim.clouds.market import Supply
from windfall.sim.studies.forecast import Question, supply_of

Json = dict[str, Any]


def from_the_start(left: Unfinished) -> Unfinished:
    """The job as it was submitted: all its tasks, its whole deadline and budget, no machine yet."""
    classes: list[OpenClass] = [{**each, "tasks": each["of"]} for each in left["classes"]]
    graph = left.get("graph")
    if graph is not None:
        graph = {**graph, "tasks": [{**task, "open": True} for task in graph["tasks"]]}
    return {
        **left, "classes": classes, "deadline_in_s": left["deadline_s"], "budget_left_usd": left["budget_usd"],
        "machines": 0, "graph": graph,
    }  # fmt: skip


def offers_in(left: Unfinished) -> tuple[Supply, ...]:
    """The markets of the offers that the job may rent."""
    offers = [{key: value for key, value in row.items() if value is not None} for row in left["offers"]]
    return tuple(supply_of(convert(offer, Offer)) for offer in offers)


def question_left(
    left: Unfinished, supplies: tuple[Supply, ...], *, guess_s: float | None = None, spread: float | None = None,
    planner: str | None = None, confidence: float | None = None, budget_usd: float | None = None,
) -> Question:  # fmt: skip
    """BadInput says why it cannot be simulated. What is None is as the job has it."""
    if not any(each["tasks"] for each in left["classes"]):
        raise BadInput(f"{_named(left)} has ended: nothing is left to plan", hint="all of it again: --whole")
    licences = _licences(left)
    told = left["classes"][0].get("spread")
    known = told if spread is None else spread
    guessed = RECORDED.spread if left["workflow"] else GUESSED.spread
    common: Json = {
        "supplies": supplies, "spread": guessed if known is None else known,
        "spread_is_guessed": known is None, "told_spread": told,
        "confidence": left["confidence"] if confidence is None else confidence,
        "budget_usd": left["budget_left_usd"] if budget_usd is None else budget_usd,
        "resources": largest([*(each["resources"] for each in left["classes"]), licences]),
        "of_server": {name: left["of_server"][name] for name in licences},
        "free_slots": () if left["workflow"] else tuple(left.get("free_slots", ())),
    }  # fmt: skip
    if left["workflow"]:
        return _of_workflow(left, known_planner(planner or left["planner"], WORKFLOW), guess_s, common)
    classes = [each for each in left["classes"] if each["tasks"]]
    if guess_s is None and any(each["estimate_s"] is None for each in classes):
        raise _unknown(left)
    seen_s = tuple(classes[0]["run_times_s"]) if len(classes) == 1 and len(classes[0]["run_times_s"]) >= 5 else ()
    return Question(
        estimates_s=tuple(each["estimate_s"] or guess_s or 0.0 for each in classes for _ in range(each["tasks"])),
        memory_bytes=tuple(each["memory_bytes"] for each in classes for _ in range(each["tasks"])),
        seen_s=seen_s, cpus=ceil(max(each["cpus"] for each in classes)),
        planner=known_planner(planner or left["planner"], BAG), **common,
    )  # fmt: skip


def _licences(left: Unfinished) -> dict[str, float]:
    """The most that a task needs of what the whole server counts, where every open task needs some of it."""
    needs = [each.get("of_server", {}) for each in left["classes"] if each["tasks"]]
    return {name: most for name, most in largest(needs).items() if all(name in each for each in needs)}


def _of_workflow(left: Unfinished, planner: str, guess_s: float | None, common: Json) -> Question:
    """Open tasks in their order; edges from tasks that have ended are gone."""
    graph = left.get("graph")
    if graph is None:
        raise BadInput(
            f"{_named(left)} is a workflow with too many tasks to simulate", hint="windfall plan --workflow FILE"
        )
    open_ = [number for number, task in enumerate(graph["tasks"]) if task["open"]]
    tasks = [graph["tasks"][number] for number in open_]
    if guess_s is None and any(task["estimate_s"] is None for task in tasks):
        raise _unknown(left)
    place = {number: index for index, number in enumerate(open_)}
    edges = tuple((place[parent], place[child]) for parent, child in graph["edges"] if {parent, child} <= place.keys())
    cpus = tuple(ceil(task["cpus"]) for task in tasks)
    if not edges:  # what is left are independent tasks: a bag, and planners of workflows do not plan those
        planner = known_planner("", BAG)
    return Question(
        estimates_s=tuple(max(task["estimate_s"] or guess_s or 0.0, 1e-3) for task in tasks),
        memory_bytes=tuple(task["memory_bytes"] for task in tasks), edges=edges, cpus=max(cpus),
        classes_of=tuple(f"class {task['class']}" for task in tasks), cpus_of=cpus, planner=planner, **common,
    )  # fmt: skip


def _named(left: Unfinished) -> str:
    return f"job {left['job']} '{left['name']}'" if left.get("job") else left["name"]


def _unknown(left: Unfinished) -> BadInput:
    return BadInput(
        f"nothing is known of the run times of {_named(left)} yet", hint="say how long a task takes: --estimate 5m"
    )
