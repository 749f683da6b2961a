"""Licences in the plan of a file: what the server that is named counts for all its hosts. Touches that server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from windfall.cli.options import Place
from windfall.errors import BadInput
from windfall.resources import GPUS, largest, show, thousandths

if TYPE_CHECKING:
    from windfall.planning.offers import Offer
    from windfall.sim.studies.forecast import Question
    from windfall.workflows import WorkflowSpec


def of_machines(needed: Mapping[str, float], offers: Sequence[Offer]) -> dict[str, float]:
    """What a task needs of its machine. A name that no offer has, except GPUs, is counted for the whole server."""
    return {
        name: amount for name, amount in needed.items() if name == GPUS or any(name in offer.units for offer in offers)
    }


def licensed(
    question: Question, needs: Sequence[dict[str, float]], place: Place, ask: bool, assumed: list[str]
) -> Question:
    """The question with what the server has of the resources that every task needs and that no machine on offer has.

    `needs`: of each class of tasks. `ask`: whether a server was named; `assumed` says what is not counted.
    """
    asked_for = {name: amount for name, amount in largest(needs).items() if name not in question.resources}
    needed = {name: amount for name, amount in asked_for.items() if all(each.get(name) for each in needs)}
    if some := sorted(asked_for.keys() - needed.keys()):
        assumed.append(f"{', '.join(some)}: only some tasks need it, so it is not counted")
    if not needed:
        return question
    if not ask:
        assumed.append(f"{', '.join(sorted(needed))}: not counted; name the server that has it: --server or --state")
        return question
    with place.open() as client:
        there: dict[str, float] = client.machines().get("resources", {})
    if unknown := sorted(needed.keys() - there.keys()):
        assumed.append(f"{', '.join(unknown)}: neither the server nor an offer has it; it is not counted")
    counted = {name: amount for name, amount in needed.items() if name in there}
    for name, amount in counted.items():
        _at_once(name, amount, there[name], assumed)
    return replace(
        question, resources={**question.resources, **counted}, of_server={name: there[name] for name in counted}
    )


def workflow_in_turns(
    spec: WorkflowSpec, offers: Sequence[Offer], place: Place, ask: bool, assumed: list[str]
) -> WorkflowSpec:
    """The workflow with what its tasks need of machines. Tasks that need what the server counts follow each other.

    So no plan runs more of them at once than there are licences. `assumed` says what is not counted, and why.
    """
    from windfall.core.renting.parents import in_order, turns
    from windfall.graph import from_edges

    needed = largest(dict(task.resources) for task in spec.tasks)
    counted = {name: need for name, need in needed.items() if name not in of_machines(needed, offers)}
    if not counted:
        return spec
    there: dict[str, float] = {}
    if ask:
        with place.open() as client:
            there = client.machines().get("resources", {})
    edges = {(parent, task) for task, parents in enumerate(spec.graph.parent_rows()) for parent in parents}
    for name, need in sorted(counted.items()):
        if name not in there:
            why = (
                "neither the server nor an offer has it" if ask else "name the server that has it: --server or --state"
            )
            assumed.append(f"{name}: not counted; {why}")
            continue
        at_once = _at_once(name, need, there[name], assumed)
        needing = {number for number, task in enumerate(spec.tasks) if dict(task.resources).get(name)}
        edges |= set(turns(in_order(spec.graph, needing, set()), at_once))
    tasks = tuple(
        replace(task, resources=tuple(of_machines(dict(task.resources), offers).items())) for task in spec.tasks
    )
    return replace(spec, tasks=tasks, graph=from_edges(len(tasks), sorted(edges)))


def _at_once(name: str, need: float, there: float, assumed: list[str]) -> int:
    """Tasks that may run at once; says so in `assumed`, and refuses a task that needs more than there is."""
    has = show(thousandths(there), name)
    if need > there:
        raise BadInput(
            f"a task needs {show(thousandths(need), name)}, and the server has {has}",
            hint=f"ask for less, or start the server with more: windfall server --resource {name}={need:g}",
        )
    at_once = thousandths(there) // thousandths(need)
    assumed.append(f"at most {at_once} tasks run at once: the server has {has}, all for this job")
    return at_once
