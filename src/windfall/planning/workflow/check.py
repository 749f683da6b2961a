"""An independent check that a plan is valid and costs what it says. Pure; shares no code with the planners.

It works on the published form (seconds and dollars) and lists every fault.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from windfall.planning.offers import GIB, Offer
from windfall.planning.workflow.model import Workflow

TOLERANCE_S = 2e-6  # times are published from microseconds; anything larger is a fault


def faults(document: Mapping[str, Any], workflow: Workflow, offers: Iterable[Offer], deadline_s: float) -> list[str]:
    """Every fault of a published plan as a sentence; empty if the plan is valid."""
    by_name = {offer.name: offer for offer in offers}
    machines = {machine["id"]: machine for machine in document["machines"]}
    tasks = {task["id"]: task for task in document["tasks"]}
    found = []
    if len(machines) != len(document["machines"]) or len(tasks) != len(document["tasks"]):
        found.append("a machine or a task is listed twice")
    if set(tasks) != set(workflow.ids):
        return [*found, "the tasks of the plan are not the tasks of the workflow"]
    unknown = [m["id"] for m in document["machines"] if m["offer"] not in by_name]
    homeless = [t["id"] for t in document["tasks"] if t["machine"] not in machines]
    if unknown or homeless:
        return [*found, f"unknown offers on {unknown[:3]}, unknown machines for {homeless[:3]}"]
    found += _precedence(workflow, tasks)
    found += _durations_and_leases(workflow, tasks, machines, by_name)
    found += _room(workflow, tasks, machines, by_name)
    found += _money(document, by_name)
    found += _limits(document, by_name)
    found += _summary(document, deadline_s)
    return found


def _precedence(workflow: Workflow, tasks: Mapping[str, Any]) -> list[str]:
    graph, found = workflow.graph, []
    for child in range(graph.tasks):
        begin = tasks[workflow.ids[child]]["start_s"]
        for parent in graph.parents_of(child):
            if tasks[workflow.ids[parent]]["end_s"] > begin + TOLERANCE_S:
                found.append(f"{workflow.ids[child]} starts before its parent {workflow.ids[parent]} has ended")
    return found


def _durations_and_leases(
    workflow: Workflow, tasks: Mapping[str, Any], machines: Mapping[Any, Any], offers: Mapping[str, Offer]
) -> list[str]:
    found = []
    for i, name in enumerate(workflow.ids):
        task = tasks[name]
        machine = machines[task["machine"]]
        offer = offers[machine["offer"]]
        need_s = workflow.runtime_s[i] / offer.speed_for(workflow.classes[i])
        if abs(task["end_s"] - task["start_s"] - need_s) > TOLERANCE_S + 1e-9 * need_s:
            found.append(f"{name} takes {task['end_s'] - task['start_s']} s, not {need_s} s")
        if task["start_s"] + TOLERANCE_S < machine["start_s"] + offer.lag_s:
            found.append(f"{name} starts before machine {machine['id']} has booted")
        if task["end_s"] > machine["end_s"] + TOLERANCE_S:
            found.append(f"{name} ends after machine {machine['id']} was released")
    return found


def _room(
    workflow: Workflow, tasks: Mapping[str, Any], machines: Mapping[Any, Any], offers: Mapping[str, Offer]
) -> list[str]:
    """Sweep over the starts and ends of each machine; an end frees its cores before a start at the same moment."""
    moments: dict[Any, list[tuple[float, int, int, int]]] = defaultdict(list)
    for i, name in enumerate(workflow.ids):
        task = tasks[name]
        length_s = task["end_s"] - task["start_s"]
        give = min(TOLERANCE_S, length_s / 4)  # rounding must not make neighbours overlap
        width, size = workflow.cores[i], workflow.memory_bytes[i]
        moments[task["machine"]] += [(task["start_s"] + give, 1, width, size), (task["end_s"] - give, 0, -width, -size)]
    found = []
    for key, events in moments.items():
        offer = offers[machines[key]["offer"]]
        cores = size = 0
        for _, _, width, memory in sorted(events):
            cores, size = cores + width, size + memory
            if cores > offer.cores or size > offer.memory_gb * GIB:
                found.append(f"machine {key} runs more at once than its cores or its memory allow")
                break
    return found


def _money(document: Mapping[str, Any], offers: Mapping[str, Offer]) -> list[str]:
    found = []
    for machine in document["machines"]:
        offer = offers[machine["offer"]]
        length = machine["end_s"] - machine["start_s"]
        if machine["start_s"] < 0 or length < offer.lag_s - TOLERANCE_S:
            found.append(f"machine {machine['id']} has an impossible lease")
        # Whether the last microsecond begins a new cycle is a matter of rounding: both answers may stand.
        billed_s = max(length - (0.0 if offer.bills_boot else offer.lag_s), offer.minimum_s)
        cycles = {max(1, math.ceil((billed_s + d) / offer.cycle_s)) for d in (-TOLERANCE_S, TOLERANCE_S)}
        if not any(math.isclose(machine["cost_usd"], n * offer.price_usd, abs_tol=1e-9) for n in cycles):
            found.append(f"machine {machine['id']} costs {machine['cost_usd']}, not {offer.price_usd} x {cycles}")
    total = math.fsum(machine["cost_usd"] for machine in document["machines"])
    if not math.isclose(total, document["cost_usd"], rel_tol=1e-9, abs_tol=1e-9):
        found.append(f"the machines cost {total} together, the plan says {document['cost_usd']}")
    return found


def _limits(document: Mapping[str, Any], offers: Mapping[str, Offer]) -> list[str]:
    events = []
    for machine in document["machines"]:
        events += [(machine["start_s"] + TOLERANCE_S, 1, machine["offer"]), (machine["end_s"], -1, machine["offer"])]
    live: Counter[str] = Counter()
    live_of_pool: Counter[str] = Counter()
    found = []
    for _, change, name in sorted(events):
        offer = offers[name]
        live[name] += change
        live_of_pool[offer.pool] += change
        if change > 0 and offer.limit is not None and live[name] > offer.limit:
            found.append(f"{live[name]} machines of {name} at once, the limit is {offer.limit}")
        if change > 0 and offer.pool_limit is not None and live_of_pool[offer.pool] > offer.pool_limit:
            in_pool = f"{live_of_pool[offer.pool]} machines of pool {offer.pool or '(no name)'}"
            found.append(f"{in_pool} at once, the limit is {offer.pool_limit}")
    return found


def _summary(document: Mapping[str, Any], deadline_s: float) -> list[str]:
    makespan_s = max((task["end_s"] for task in document["tasks"]), default=0.0)
    found = []
    if not math.isclose(makespan_s, document["makespan_s"], abs_tol=TOLERANCE_S):
        found.append(f"the last task ends at {makespan_s} s, the plan says {document['makespan_s']} s")
    if document["met"] != (document["makespan_s"] <= deadline_s + TOLERANCE_S):
        found.append(f"met is {document['met']} with a makespan of {makespan_s} s and a deadline of {deadline_s} s")
    return found
