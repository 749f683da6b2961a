"""What is rented for a job and why: its plan in words, which machine a task waits for, what is still to come. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from windfall.core.decisions import PlanTaken
from windfall.core.events import PlanProposed
from windfall.core.renting import free_hosts, money
from windfall.core.renting.fleets import name_of
from windfall.core.renting.machines import machines_of, pools_of
from windfall.core.renting.shares import after_stop_microusd, charged_to_job_microusd
from windfall.core.renting.views import rents_nothing
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.renting.fleet import GIVEN_UP, HIBERNATED, PENDING, REFUSED, MachineState, machine_of
from windfall.core.state.renting.fleets import named
from windfall.core.state.state import State
from windfall.planning.contract import Plan, PlanInputs
from windfall.units import show_duration

if TYPE_CHECKING:
    from windfall.api.answers import Alternative, JobMachines, JobMoney, JobPlan
    from windfall.api.explained import PoolOutlook, Waiting
    from windfall.api.renting import Inputs, PlanTold

Json = dict[str, Any]
BUDGET = "the budget of"
"""How a refusal for want of money begins, behind what it refuses."""


class Coming(Struct):
    """What a job that rents machines may hope for. `stuck`: nothing, as things stand."""

    because: str
    pools: list[PoolOutlook]
    stuck: bool
    tries: list[str]


def coming(state: State, bag: Bag, t: float) -> Coming | None:
    """Where its machines are; None of a job that rents none."""
    planned = state.fleet.plan_of(bag.number)
    if planned is None:
        return None
    there = [machine for machine in machines_of(state, state.fleet.serving(bag.number)) if machine.there]
    pools: list[PoolOutlook] = [
        {"pool": machine.offer.pool, "what": standing(state, machine, t)} for machine in there[:10]
    ]
    if there:
        reserved = f"{len(bag.queues.reserved)} tasks are reserved for its machines; " if bag.queues.reserved else ""
        left = bag.waiting if free_hosts.any_free_host(state) else 0
        others = f"{left} are left to free hosts; " if left else ""
        return Coming(reserved + others + _counted(there), pools, False, [])
    serving = state.fleet.serving(bag.number)
    if reason := rents_nothing(state, serving):
        return Coming(f"no machine is rented: {reason}", [], True, [f"windfall fleet resume {name_of(state, serving)}"])
    if not planned.plans:
        return Coming("its plan is being made", [], False, [])
    tries = [f"windfall explain {bag.number}"]
    if is_held_by_budget(state, bag):
        raised = f"windfall change {bag.number} --budget USD"
        return Coming(f"no machine is rented: {planned.refused[0]}", [], True, [raised])
    if reason := last_refusal(state, bag) or [*planned.refused, planned.error][0]:
        return Coming(f"no machine is rented: {reason}", [], False, tries)
    offered = any(state.fleet.offers.get(pool) for pool in pools_of(state, bag))
    return Coming("no machine is rented" if offered else "its pools offer no machines", [], not offered, [])


def is_held_by_budget(state: State, bag: Bag) -> bool:
    """Whether nothing is rented and the rest of the budget allows no machine."""
    planned = state.fleet.plan_of(bag.number)
    if planned is None or bag.finished_t is not None:
        return False
    nothing = not state.fleet.there_of.get(state.fleet.serving(bag.number))
    return nothing and any(BUDGET in text for text in planned.refused)


def last_refusal(state: State, bag: Bag) -> str:
    """Why a provider refused the newest order that it answered; empty if it took that one, or there was none."""
    for machine in reversed(machines_of(state, bag.number)):
        if machine.id:
            return ""
        if machine.cause == REFUSED and machine.error != GIVEN_UP:
            return f"{machine.offer.pool} refuses {machine.offer.name}: {machine.error}"
    return ""


def _counted(there: list[MachineState]) -> str:
    boots = sum(machine.phase == PENDING for machine in there)
    sleeps = sum(machine.phase == HIBERNATED for machine in there)
    parts = [f"{boots} boot" if boots != 1 else "1 boots"] * (boots > 0)
    parts += [f"{sleeps} hibernated"] * (sleeps > 0)
    machines = "1 machine is rented for it" if len(there) == 1 else f"{len(there)} machines are rented for it"
    return f"{machines}: {', '.join(parts)}" if parts else machines


def standing(state: State, machine: MachineState, t: float) -> str:
    """One machine in words: what it is and what it does."""
    name = f"{machine.name} ({machine.offer.name})"
    if machine.stopping:
        return f"{name} is being given back"
    if machine.phase == PENDING and not machine.id:
        return f"{name} is ordered"
    if machine.phase == PENDING:
        left_s = machine.requested_t + machine.offer.lag_s - t
        return f"{name} boots" + (
            f"; ready in about {show_duration(left_s)}" if left_s > 0 else ", and should be ready by now"
        )
    if machine.phase == HIBERNATED:
        return f"{name} has been hibernated by its provider for {show_duration(t - machine.sleeps[-1][0])}"
    if machine.noticed_t is not None:
        return f"{name} will be reclaimed in {show_duration(max(0.0, machine.noticed_t - t))}"
    host = state.hosts.get(machine.host)
    held = len(host.held) if host is not None else 0
    return f"{name} runs {held} tasks on {machine.offer.cores} cores"


def why_reserved(state: State, bag: Bag, task: int, t: float) -> Waiting | None:
    """Of a task that a plan has put into the queue of a machine: which one, and what that does; None of any other."""
    machine = state.fleet.machines.get(bag.queues.reserved.get(task, 0))
    if machine is None:
        return None
    name = named(machine.fleet, bag.number, task)
    ahead = machine.queue.index(name) if name in machine.queue else 0
    behind = f"; {ahead} {'goes' if ahead == 1 else 'go'} first there" if ahead else ""
    planned = state.fleet.plan_of(bag.number)
    return {
        "waits": True,
        "stuck": False,
        "because": f"its plan has reserved it for a machine: {standing(state, machine, t)}{behind}",
        "hosts": len(state.hosts.live),
        "reasons": [],
        "pools": [],
        "try": [],
        "machine": machine.number,
        "look_again_s": None if planned is None or math.isinf(planned.replan_t) else planned.replan_t,
    }


def second_attempt(state: State, bag: Bag, task: int, t: float) -> str:
    """Of a task that runs on a free host: the machine that begins it as well, in words; empty if none does."""
    live = bag.attempts.live.get(task, ())
    by_rented: dict[bool, list[str]] = {False: [], True: []}
    for attempt in live:
        host = state.hosts[attempt.host]
        machine = machine_of(state, host)
        by_rented[machine is not None].append(host.name if machine is None else machine.name)
    free, rented = (" and ".join(names) for names in by_rented.values())
    if not free:
        return ""
    if rented:
        return f"it also runs on machine {rented}, because {free} might be too late; the first result counts"
    machine = state.fleet.machines.get(state.fleet.beside.get((bag.number, task), 0))
    if machine is None:
        return ""
    return f"a machine begins it as well, because {free} might be too late: {standing(state, machine, t)}"


# --- plans ------------------------------------------------------------------------------------------------------------


def money_of(state: State, bag: Bag, t: float) -> JobMoney | None:
    """What a job has cost, is expected to cost and may cost; None of one that rents nothing. Begun cycles in full."""
    planned = state.fleet.plan_of(bag.number)
    if planned is None:
        return None
    spent_usd = money.usd(charged_to_job_microusd(state, bag.number, t))
    # The plan of a shared fleet predicts the bill of the fleet and not that of one job.
    is_own = planned.fleet == bag.number
    predicted_usd = planned.plan.predicted_cost_usd if planned.plan is not None and is_own else None
    budget = bag.rules.budget_microusd
    return {
        "spent_usd": spent_usd,
        "budget_usd": None if budget is None else money.usd(budget),
        "forecast_usd": _forecast(bag, spent_usd, predicted_usd),
        "first_forecast_usd": planned.first_cost_usd if is_own else None,
        "held_by_budget": is_held_by_budget(state, bag),
        "after_stop_usd": money.usd(after_stop_microusd(state, bag.number, t)),
        "machines": fleet_of(state, bag),
    }


def _forecast(bag: Bag, spent_usd: float, predicted_usd: float | None) -> float | None:
    """Of a job that has ended, what it has cost; no forecast can be below that."""
    if bag.finished_t is not None:
        return spent_usd
    return None if predicted_usd is None else max(spent_usd, predicted_usd)


def fleet_of(state: State, bag: Bag) -> JobMachines:
    """Its machines: how many of what there are and were, and what they do."""
    machines = [machine for machine in machines_of(state, state.fleet.serving(bag.number)) if machine.cause != REFUSED]
    there = [machine for machine in machines if machine.there]
    offers: dict[tuple[str, str], list[int]] = {}
    for machine in machines:
        row = offers.setdefault((machine.offer.name, machine.offer.market), [0, 0])
        row[0] += machine.there
        row[1] += 1
    return {
        "rented": len(machines),
        "there": len(there),
        "pending": sum(machine.phase == PENDING for machine in there),
        "hibernated": sum(machine.phase == HIBERNATED for machine in there),
        "idle": sum(machine.idle and machine.phase not in (PENDING, HIBERNATED) for machine in there),
        "last_refusal": last_refusal(state, bag),
        "offers": [
            {"offer": name, "market": market, "there": here, "rented": ever}
            for (name, market), (here, ever) in offers.items()
        ],
    }


def plan_of(state: State, bag: Bag) -> JobPlan | None:
    """The plan of a job as it stands; None of one that rents nothing."""
    planned = state.fleet.plan_of(bag.number)
    if planned is None:
        return None
    plan = planned.plan or Plan()
    return {
        "planner": _planner(state, bag),
        "fleet": name_of(state, planned.fleet),
        "plans": planned.plans,
        "planned_s": planned.planned_t,
        "look_again_s": None if math.isinf(planned.replan_t) else planned.replan_t,
        "first_finish_s": planned.first_finish_t,
        "cost_usd": plan.predicted_cost_usd,
        "finish_s": plan.predicted_finish_t,
        "rejected": rejected_of(plan),
        "because": plan.because,
        "refused": planned.refused,
        "error": planned.error,
    }


def _planner(state: State, bag: Bag) -> str:
    shared = state.fleet.book.by_number.get(state.fleet.serving(bag.number))
    return (bag.rules.planner if shared is None else shared.rules.planner) or "windfall"


def rejected_of(plan: Plan) -> list[Alternative]:
    return [{"what": other.what, "cost_usd": other.cost_usd} for other in plan.rejected]


def told(event: PlanProposed, taken: PlanTaken) -> PlanTold:
    """One plan of the log: what was done, why, what was not done, and what else was thought of."""
    return {
        "t": event.t,
        "started": [
            {"machine": number, "offer": offer.name, "price_usd": offer.price_usd} for number, _, offer in taken.started
        ],
        "stopped": list(taken.stopped),
        "moved": [task for _, task, _, _ in taken.moved],
        "because": event.plan.because + _second_attempts(taken),
        "refused": list(taken.refused),
        "error": event.error,
        "inputs": None if event.inputs is None else inputs_told(event.inputs),
        "cost_usd": event.plan.predicted_cost_usd,
        "finish_s": event.plan.predicted_finish_t,
        "rejected": rejected_of(event.plan),
    }


def _second_attempts(taken: PlanTaken) -> list[str]:
    count = sum(len(tasks) for _, tasks in taken.beside)
    text = "1 task that runs" if count == 1 else f"{count} tasks that run"
    return [f"{text} on free hosts, which might be too late, get machines as well"] if count else []


def inputs_told(inputs: PlanInputs) -> Inputs:
    """What a planner was shown when it made a plan."""
    return {
        "unfinished": inputs.unfinished,
        "total": inputs.total,
        "running": inputs.running,
        "core_s": inputs.core_s,
        "longest_s": inputs.longest_s,
        "deadline_s": None if math.isinf(inputs.deadline_t) else inputs.deadline_t,
        "spent_usd": inputs.spent_usd,
        "budget_usd": inputs.budget_usd,
        "confidence": inputs.confidence,
        "machines": inputs.machines,
        "offers": [{"offer": key, "price_usd": price, "limit": limit} for key, price, limit in inputs.offers],
        "jobs": inputs.jobs,
    }
