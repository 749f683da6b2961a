"""Plans in the engine: what a planner is shown, and what of its proposal is carried out. Pure.

A planner works on a snapshot while the engine goes on, so every part of its plan is compared with the present state.
Parts that can no longer be carried out are left out, with a reason; the others are carried out.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from msgspec.structs import replace

from windfall.core.decisions import RETURNED, JobSettled, PlanTaken
from windfall.core.events import JobRules, PlanProposed
from windfall.core.jobs import attempts
from windfall.core.liveness import lessons
from windfall.core.renting import budgets, free_hosts, machines, money
from windfall.core.renting.lead_times import with_lead_time
from windfall.core.renting.runtimes import Outlook, ran_so_far, unit_of
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.jobs.columns import HELD, WAITING
from windfall.core.state.renting import fleet
from windfall.core.state.renting.budgets import soon_owed_microusd
from windfall.core.state.renting.fleet import ENDED, HIBERNATED, PENDING, MachineState
from windfall.core.state.state import State
from windfall.core.supply import modes
from windfall.core.wishes import there
from windfall.planning.contract import Group, Machine, Phase, Plan, Running, Snapshot, Start, Task
from windfall.planning.offers import GIB, Offer
from windfall.units import show_usd

PAUSE_S = 0.1
"""Least seconds between two plans for one job."""


def settled(state: State, bag: Bag, rules: JobRules, sealed: bool) -> JobSettled:
    """Whether a job under these rules gets a plan now, and when the first is made. All its tasks must be there."""
    if not rules.rent_from or not (sealed or rules.streaming) or bag.number in state.fleet.plans:
        return JobSettled()
    first_t = free_hosts.head_start_until_t(state, bag, rules)
    return JobSettled(planned=True, replan_t=first_t if first_t > -math.inf else None)


def closing(state: State, job: int) -> Plan | None:
    """The plan of a job that has ended, for which no planner is needed: every machine goes back."""
    if state.bags[job].finished_t is None:
        return None
    return Plan(stop=[str(machine.number) for machine in there(state, job)], because=["the job has ended"])


# --- what a planner is shown ----------------------------------------------------------------------------------------


def view(state: State, job: int, t: float, names_up_to: float) -> Snapshot:
    """The state as a planner sees it; a job with more unfinished tasks than that is shown in groups."""
    bag = state.bags[job]
    names_tasks = bag.counts[WAITING] + bag.counts[HELD] <= names_up_to
    ran = ran_so_far(state, bag, t)
    looks = [Outlook(state, bag, index, bag.rules.confidence, t, ran) for index in range(len(bag.classes))]
    left = free_hosts.left_to_free_hosts(state, bag, t)
    shown = tuple(_shown(state, bag, machine, t, looks, left) for machine in there(state, job))
    hidden = left.running | left.waiting
    if names_tasks:
        unfinished = (task for task, value in enumerate(bag.columns.state) if value in (WAITING, HELD))
        open_ = [task for task in unfinished if task not in hidden]
    else:
        open_ = sorted({*bag.queues.reserved, *bag.attempts.live} - hidden)
    finished = bag.finished_t is not None
    return Snapshot(
        t=t,
        deadline_t=math.inf if bag.rules.deadline_s is None else bag.submitted_t + bag.rules.deadline_s,
        tasks={} if finished else {task: _task(bag, task, looks, ran.get(task, 0.0)) for task in open_},
        machines=shown,
        offers=tuple(_on_offer(state, bag, t)),
        groups=() if finished or names_tasks else _groups(bag, looks, left),
        markets={key: seen.market() for key, seen in state.fleet.markets.items()},
        begun_t=bag.submitted_t,
        spent_usd=money.usd(machines.spent_microusd(state, job, t)),
        budget_usd=None if bag.rules.budget_microusd is None else money.usd(bag.rules.budget_microusd),
        confidence=bag.rules.confidence,
        run_time_quantile=max(look.quantile for look in looks),
        is_workflow=bag.shape is not None,
        last_later=tuple(planned.plan.later) if (planned := state.fleet.plans[job]).plan is not None else (),
        after={} if finished or not names_tasks else _parents(bag, open_),
        total=bag.total,
    )


def _task(bag: Bag, task: int, looks: list[Outlook], ran_s: float) -> Task:
    index = bag.class_of(task)
    look, rules = looks[index], bag.classes[index]
    saved_s = max((saved for _, saved in bag.progress.saved.get(task, ())), default=0.0)
    memory_gb = bag.memory_for(task, bag.columns.attempts[task] + 1) / GIB
    runtime_s, mean_s = look.given(ran_s, unit_of(bag, task))
    return Task(
        task, runtime_s, memory_gb, rules.name, rules.checkpoint_mb, saved_s, mean_s, max(1, math.ceil(rules.cpus)),
    )  # fmt: skip


def _groups(bag: Bag, looks: list[Outlook], left: free_hosts.Left) -> tuple[Group, ...]:
    found = []
    not_shown = Counter(bag.class_of(task) for task in left.waiting if task not in bag.queues.reserved)
    for index, queue in enumerate(bag.queues.by_class):
        if queue.size > not_shown[index]:
            rules, look = bag.classes[index], looks[index]
            memory_gb = rules.memory_for(1) / GIB
            cores = max(1, math.ceil(rules.cpus))
            unit_s = math.fsum(unit_of(bag, task) for task in queue) / queue.size if bag.progress.estimates else 1.0
            seconds, mean_s = look.runtime_s * unit_s, look.mean_s * unit_s
            alike = Task(-1, seconds, memory_gb, rules.name, rules.checkpoint_mb, 0.0, mean_s, cores)
            found.append(Group(alike, queue.size - not_shown[index]))
    return tuple(found)


def _parents(bag: Bag, open_: list[int]) -> dict[int, tuple[int, ...]]:
    """In a workflow: what each unfinished task still waits for."""
    if bag.shape is None:
        return {}
    unfinished = set(open_)
    parents: dict[int, list[int]] = {}
    for task in open_:
        for child in bag.shape.children_of(task):
            if child in unfinished:
                parents.setdefault(child, []).append(task)
    return {child: tuple(found) for child, found in parents.items()}


def _shown(
    state: State, bag: Bag, machine: MachineState, t: float, looks: list[Outlook], left: free_hosts.Left
) -> Machine:
    running = tuple(_running(state, bag, machine, t, looks))
    freed = left.freed.get(machine.number, ())
    waiting = tuple(task for task in fleet.queue_of(state, machine) if task not in freed)
    if machine.phase == PENDING:
        phase = Phase.PENDING
    elif machine.phase == HIBERNATED:
        phase = Phase.HIBERNATED
    else:
        phase = Phase.BUSY if running or waiting else Phase.IDLE
    ready_t = machine.ready_t
    return Machine(
        id=str(machine.number),
        offer=machine.offer,
        phase=phase,
        ready_t=_ready_t(state, machine, t) if ready_t is None else ready_t,
        running=running,
        waiting=waiting,
        paid_until_t=fleet.paid_until_t(machine, t),
        hibernated_since_t=machine.sleeps[-1][0] if machine.phase == HIBERNATED else None,
        # A machine that is drained is as good as announced to end: nothing new is planned on it.
        noticed_t=t if modes.gives_nothing(state, machine.offer.pool) else machine.noticed_t,
        up_since_t=fleet.awake_since(machine) if machine.phase != HIBERNATED else None,
    )


def _ready_t(state: State, machine: MachineState, t: float) -> float:
    """When a machine that boots is expected to be ready: as told, and if that is past, as was seen."""
    told_t = machine.requested_t + machine.offer.lag_s
    return max(t, told_t if told_t > t else machine.requested_t + with_lead_time(state, machine.offer).lag_s)


def _running(state: State, bag: Bag, machine: MachineState, t: float, looks: list[Outlook]) -> list[Running]:
    host = state.hosts.get(machine.host)
    found = []
    for job, task, number in host.held if host is not None else ():
        attempt = bag.attempts.find(task, number) if job == bag.number else None
        if attempt is None:
            continue
        index = bag.class_of(task)
        speed = machine.offer.speed_for(bag.classes[index].name)
        elapsed_s = t - attempt.sent - machine.slept_s(attempt.sent, t)
        # What it began with: progress that an earlier attempt had saved, and the time to restore it.
        before = [saved for earlier, saved in bag.progress.saved.get(task, ()) if earlier < number]
        if before:
            look = looks[index]
            begun = Task(
                task, look.runtime_s, 0.0, bag.classes[index].name, bag.classes[index].checkpoint_mb, max(before)
            )
            left_s = max(0.0, begun.seconds_on(machine.offer) - elapsed_s)
        else:
            left_s = looks[index].left_s(elapsed_s, speed, unit_of(bag, task))
        found.append(Running(task, left_s))
    return found


def _on_offer(state: State, bag: Bag, t: float) -> list[Offer]:
    """The offers that the job may rent, each with the number that it could have at this moment as its limit."""
    found = []
    for pool in bag.rules.rent_from:
        for told in state.fleet.offers.get(pool, ()):
            offer = with_lead_time(state, told)
            mine, others = _rented(state, bag.number, offer)
            seen = state.fleet.markets.get(offer.key)
            if modes.starts_nothing(state, pool) or (seen is not None and machines.shut_until_t(seen, told) > t):
                found.append(replace(offer, limit=mine))
            else:
                found.append(offer if offer.limit is None else replace(offer, limit=max(mine, offer.limit - others)))
    return found


def _rented(state: State, job: int, offer: Offer) -> tuple[int, int]:
    """Machines of an offer that are there, the job's own and those of others."""
    jobs = [machine.job for machine in state.fleet.there.values() if machine.offer.key == offer.key]
    mine = jobs.count(job)
    return mine, len(jobs) - mine


# --- what of a plan is carried out ----------------------------------------------------------------------------------


def on_plan_proposed(state: State, event: PlanProposed, policies: Any) -> PlanTaken:
    taken = PlanTaken()
    bag = state.bags.get(event.job)
    if bag is None or event.job not in state.fleet.plans:
        taken.refused.append(f"job {event.job} rents no machines")
        return taken
    numbers = _starts(state, bag, event, taken)
    left = free_hosts.left_to_free_hosts(state, bag, event.t)
    _assignments(state, bag, event, taken, numbers, left)
    _stops(state, bag, event, taken)
    taken.not_before_t = event.t + PAUSE_S
    _complete(state, bag, event, taken, left)
    return taken


def complete(state: State, event: PlanProposed, taken: PlanTaken) -> None:
    """Add when to plan again, and what is learned from attempts that are given up."""
    bag = state.bags.get(event.job)
    if bag is not None and event.job in state.fleet.plans:
        _complete(state, bag, event, taken, free_hosts.left_to_free_hosts(state, bag, event.t))


def _complete(state: State, bag: Bag, event: PlanProposed, taken: PlanTaken, left: free_hosts.Left) -> None:
    taken.lessons = lessons.of_losses(state, taken.moved, event.t)
    taken.replan_t = min(
        event.plan.replan_t, _reopens_t(state, bag, event.t), _unsure_until_t(state, bag, event.t), left.review_t
    )


def _unsure_until_t(state: State, bag: Bag, t: float) -> float:
    """When to replan because tasks of unknown run time still run: they cause no event. Infinite if there are none."""
    if bag.finished_t is not None or not bag.attempts.live:
        return math.inf
    looks = (Outlook(state, bag, index, bag.rules.confidence, t) for index in range(len(bag.classes)))
    return min((t + look.mean_s / 2 for look in looks if look.is_unknown), default=math.inf)


def _reopens_t(state: State, bag: Bag, t: float) -> float:
    """When the next refused offer may be asked for again."""
    offers = [offer for pool in bag.rules.rent_from for offer in state.fleet.offers.get(pool, ())]
    seen = [(state.fleet.markets.get(offer.key), offer) for offer in offers]
    times = [machines.shut_until_t(market, offer) for market, offer in seen if market is not None]
    return min((time for time in times if time > t), default=math.inf)


def _starts(state: State, bag: Bag, event: PlanProposed, taken: PlanTaken) -> dict[str, int]:
    """Machines to start, within limits and budget; returns their numbers by the plan's labels."""
    numbers: dict[str, int] = {}
    committed = sum(soon_owed_microusd(machine, event.t) for machine in machines.machines_of(state, bag.number))
    budget = money.Budget(bag.rules.budget_microusd)
    for start in event.plan.start:
        offer, reason = _available(state, bag, start, [offer.key for _, _, offer in taken.started])
        if not reason and bag.finished_t is not None:
            reason = "the job has ended"
        price = budgets.first_cost_microusd(offer)
        if not reason and not budget.allows(committed, price):
            reason = (
                f"the budget of {show_usd(money.usd(bag.rules.budget_microusd or 0))} does not allow it: "
                f"{show_usd(money.usd(committed))} is committed, and its first cycle costs {show_usd(money.usd(price))}"
            )
        if reason:
            taken.refused.append(f"start {start.offer.name}: {reason}")
            continue
        committed += price
        number = state.fleet.next + len(taken.started)
        numbers[start.label] = number
        taken.started.append((number, start.label, offer))
    return numbers


def _available(state: State, bag: Bag, start: Start, chosen: list[str]) -> tuple[Offer, str]:
    """The offer as it stands now, and why it cannot be had, if so."""
    offers = {offer.key: offer for pool in bag.rules.rent_from for offer in state.fleet.offers.get(pool, ())}
    offer = offers.get(start.offer.key)
    if offer is None:
        return start.offer, "there is no such offer any more"
    if shut := modes.starts_nothing(state, offer.pool):
        return offer, shut
    mine, others = _rented(state, bag.number, offer)
    if offer.limit is not None and mine + others + chosen.count(offer.key) >= offer.limit:
        return offer, f"all {offer.limit} are rented"
    return offer, ""


def _assignments(
    state: State, bag: Bag, event: PlanProposed, taken: PlanTaken, numbers: dict[str, int], left: free_hosts.Left
) -> None:
    named: set[int] = set()
    limits = free_hosts.limits_of(state, bag, event.t)
    for label, tasks in event.plan.assign.items():
        number = numbers.get(label) or _number(label)
        machine = state.fleet.machines.get(number)
        if label not in numbers and not _is_ours(machine, bag):
            taken.refused.append(f"assign to {label}: there is no such machine")
            continue
        if machine is not None and modes.gives_nothing(state, machine.offer.pool):
            taken.refused.append(f"assign to {label}: {modes.starts_nothing(state, machine.offer.pool)}")
            continue
        queue = []
        for task in tasks:
            if task in named or not 0 <= task < bag.total:
                continue
            value = bag.columns.state[task]
            given_up = _given_up(state, bag, task, number, limits, event.t) if value == HELD else []
            if value == WAITING or given_up:
                named.add(task)
                queue.append(task)
                taken.moved += [(bag.number, task, attempt, RETURNED) for attempt in given_up]
        taken.queues.append((number, queue))
    _free(state, taken, left)


def _free(state: State, taken: PlanTaken, left: free_hosts.Left) -> None:
    """What is left to free hosts, and was not shown to the planner, is reserved for no machine."""
    queues = {number for number, _ in taken.queues}
    for number, tasks in left.freed.items():
        if number not in queues:
            queue = fleet.queue_of(state, state.fleet.machines[number])
            taken.queues.append((number, [task for task in queue if task not in tasks]))


def _given_up(
    state: State, bag: Bag, task: int, machine: int, limits: free_hosts.Limits, t: float
) -> list[int]:  # fmt: skip
    """The attempts of a task if all of them may be given up for one on this machine.

    They run on hibernated machines, or take too long on free hosts.
    """
    found = []
    for attempt in bag.attempts.live.get(task, ()):
        host = state.hosts.get(attempt.host)
        other = None if host is None else fleet.machine_of(state, host)
        hibernated = other is not None and other.phase == HIBERNATED and other.number != machine
        if not hibernated and not (other is None and limits.has_ended(bag, task, attempt.sent, t)):
            return []
        found.append(attempt.number)
    return found


def _stops(state: State, bag: Bag, event: PlanProposed, taken: PlanTaken) -> None:
    """Machines to stop: only idle ones, so that no work in progress is lost."""
    moved = {(job, task, attempt) for job, task, attempt, _ in taken.moved}
    queues = dict(taken.queues)
    for label in event.plan.stop:
        machine = state.fleet.machines.get(_number(label))
        if machine is None or not _is_ours(machine, bag):
            taken.refused.append(f"stop {label}: there is no such machine")
            continue
        host = state.hosts.get(machine.host)
        busy = [
            key
            for key in (host.held if host is not None else ())
            if key not in moved and attempts.is_live(state.bags[key[0]], key[1], key[2])
        ]
        if busy:
            taken.refused.append(f"stop {machine.name}: {len(busy)} tasks run on it")
        elif queues.get(machine.number, fleet.queue_of(state, machine)):
            taken.refused.append(f"stop {machine.name}: tasks wait for it")
        else:
            taken.stopped.append(machine.number)
    # One whose host was lost while its pool was drained would wait for nobody.
    for machine in there(state, bag.number):
        drained = modes.gives_nothing(state, machine.offer.pool) and not modes.is_busy(state, machine)
        if drained and machine.number not in taken.stopped:
            taken.stopped.append(machine.number)


def _is_ours(machine: MachineState | None, bag: Bag) -> bool:
    return machine is not None and machine.job == bag.number and machine.phase != ENDED and not machine.stopping


def _number(label: str) -> int:
    return int(label) if label.isdecimal() else 0
