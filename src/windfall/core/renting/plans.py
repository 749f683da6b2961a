"""Plans in the engine: when one is due, and what of a planner's proposal is carried out. Pure.

A planner works on a snapshot while the engine goes on, so every part of its plan is compared with the present state.
Parts that can no longer be carried out are left out, with a reason; the others are carried out.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from windfall.core.decisions import OTHERS_RUN, RETURNED, JobSettled, PlanTaken
from windfall.core.events import JobRules, PlanProposed
from windfall.core.jobs import attempts
from windfall.core.liveness import lessons
from windfall.core.renting import backlog, budgets, free_hosts, machines, money
from windfall.core.renting.caps import Caps
from windfall.core.renting.runtimes import Outlook
from windfall.core.renting.views import fetching, pools_of, rented, rented_of_pool, rents_nothing
from windfall.core.state.jobs.attempts import Attempt
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.jobs.columns import HELD, WAITING
from windfall.core.state.renting import fleet
from windfall.core.state.renting.budgets import lead_s, limit_of, soon_owed_microusd
from windfall.core.state.renting.fleet import ENDED, HIBERNATED, PENDING, RUNNING, MachineState
from windfall.core.state.renting.fleets import OPEN, PAUSED, meant, named
from windfall.core.state.state import State
from windfall.core.supply import modes
from windfall.core.wishes import there
from windfall.planning.contract import (
    SET_MARK,
    Plan,
    Start,
)
from windfall.planning.offers import Offer
from windfall.units import show_usd

Loss = tuple[int, int, int, int]
"""(job, task, attempt, verdict)."""
PAUSE_S = 0.1
"""Least seconds between two plans for one fleet."""
FEW_MACHINES, PAUSE_PER_MACHINE_S, PAUSE_SHARE = 50, 0.2, 1 / 100
"""Changes that the safety net covers are collected for this long for each machine beyond the first ones, at most for
this share of the time to the deadline, or since it. A large fleet has many changes, and each costs little."""


def settled(state: State, bag: Bag, rules: JobRules, sealed: bool) -> JobSettled:
    """Whether a job under these rules gets a plan now, and when the first is made. All its tasks must be there."""
    if not (sealed or rules.streaming) or state.fleet.plan_of(bag.number) is not None:
        return JobSettled()
    if rules.fleet:
        return JobSettled(planned=True, fleet=state.fleet.book.by_name.get(rules.fleet, 0))
    if not rules.rent_from:
        return JobSettled()
    first_t = free_hosts.head_start_until_t(state, bag, rules)
    return JobSettled(planned=True, replan_t=first_t if first_t > -math.inf else None)


def closing(state: State, number: int) -> Plan | None:
    """The plan of a fleet whose job has ended, for which no planner is needed: every machine goes back.

    A named fleet waits for more jobs unless it is drained: its planner says when machines go.
    """
    named = state.fleet.book.by_number.get(number)
    if named is not None:
        if named.mode in (OPEN, PAUSED) or state.fleet.book.active[number]:
            return None
        because = "the fleet is drained and its jobs have ended"
    elif state.bags[number].finished_t is None:
        return None
    else:
        because = "the job has ended"
    return Plan(stop=[str(machine.number) for machine in there(state, number)], because=[because])


def on_plan_proposed(state: State, event: PlanProposed, policies: Any) -> PlanTaken:
    taken = PlanTaken()
    if event.job not in state.fleet.plans:
        taken.refused.append(f"job {event.job} rents no machines")
        return taken
    bags = _watched(state, event.job)
    numbers = _starts(state, event, taken)
    left = free_hosts.left_of_each(state, bags, event.t)
    _assignments(state, event, taken, numbers, left)
    _second_attempts(state, event, taken, numbers)
    _overtaken(state, event, taken)
    _stops(state, event, taken)
    _recalls(state, event, taken)
    taken.not_before_t = event.t + PAUSE_S
    taken.collects_until_t = _collects_until_t(state, event, taken)
    _complete(state, bags, event, taken, left)
    return taken


def complete(state: State, event: PlanProposed, taken: PlanTaken) -> None:
    """Add when to plan again, and what is learned from attempts that are given up."""
    if event.job in state.fleet.plans:
        bags = _watched(state, event.job)
        left = free_hosts.left_of_each(state, bags, event.t)
        _complete(state, bags, event, taken, left)


def _collects_until_t(state: State, event: PlanProposed, taken: PlanTaken) -> float:
    """Until when changes that may wait are collected. Those that the safety net does not cover never wait, nor does
    the time at which a plan asks to be made again."""
    bag = state.bags.get(event.job)
    if bag is None or bag.shape is not None or bag.finished_t is not None or bag.rules.deadline_s is None:
        return -math.inf
    count = len(state.fleet.there_of.get(event.job, ())) + len(taken.started)
    left_s = bag.submitted_t + bag.rules.deadline_s - event.t
    return event.t + min(PAUSE_PER_MACHINE_S * max(0, count - FEW_MACHINES), PAUSE_SHARE * abs(left_s))


def _watched(state: State, number: int) -> list[Bag]:
    """The jobs of a fleet that set the time of its next plan and may leave tasks to free hosts."""
    if number in state.bags or free_hosts.can_help(state):
        return backlog.shown_and_rest(state, number)[0]
    active = (state.bags[job] for job in state.fleet.book.active[number])
    return [bag for bag in active if bag.attempts.live]


def _serves(state: State, number: int, job: int) -> bool:
    return job == number if number in state.bags else job in state.fleet.book.active[number]


def _complete(
    state: State, bags: list[Bag], event: PlanProposed, taken: PlanTaken, left: dict[int, free_hosts.Left]
) -> None:
    taken.lessons = lessons.of_losses(state, taken.moved, event.t)
    unsure = (_unsure_until_t(state, bag, event.t) for bag in bags)
    reviews = (each.review_t for each in left.values())
    taken.replan_t = min(event.plan.replan_t, _reopens_t(state, event.job, event.t), *unsure, *reviews)


def _unsure_until_t(state: State, bag: Bag, t: float) -> float:
    """When to replan because tasks of unknown run time still run: they cause no event. Infinite if there are none."""
    if bag.finished_t is not None or not bag.attempts.live:
        return math.inf
    looks = (Outlook(state, bag, index, bag.rules.confidence, t) for index in range(len(bag.classes)))
    return min((t + look.mean_s / 2 for look in looks if look.is_unknown), default=math.inf)


def _reopens_t(state: State, number: int, t: float) -> float:
    """When the next refused offer may be asked for again."""
    offers = [offer for pool in pools_of(state, number) for offer in state.fleet.offers.get(pool, ())]
    seen = [(state.fleet.markets.get(offer.key), offer) for offer in offers]
    times = [machines.shut_until_t(market, offer) for market, offer in seen if market is not None]
    return min((time for time in times if time > t), default=math.inf)


def _starts(state: State, event: PlanProposed, taken: PlanTaken) -> dict[str, int]:
    """Machines to start, within limits and budget; returns their numbers by the plan's labels."""
    numbers: dict[str, int] = {}
    lead = lead_s(state, event.job)
    committed = sum(soon_owed_microusd(machine, event.t, lead) for machine in machines.machines_of(state, event.job))
    limit, _ = limit_of(state, event.job, event.t)
    budget, own, closed = money.Budget(limit), state.bags.get(event.job), rents_nothing(state, event.job)
    together, begun, refused = "", 0, False
    for start in event.plan.start:
        name = start.label.partition(SET_MARK)[0] if SET_MARK in start.label else ""
        if not name or name != together:
            together, begun, refused = name, len(taken.started), False
        elif refused:
            continue
        offer, reason = _available(state, event.job, start, [offer for _, _, offer in taken.started])
        reason = reason or closed
        if not reason and own is not None and own.finished_t is not None:
            reason = "the job has ended"
        price = budgets.first_cost_microusd(offer)
        if not reason and not budget.allows(committed, price):
            reason = (
                f"the budget of {show_usd(money.usd(limit or 0))} does not allow it: "
                f"{show_usd(money.usd(committed))} is committed, and its first cycle costs {show_usd(money.usd(price))}"
            )
        if reason:
            refused = True
            if name:
                # One machine of a set would wait for the others, which are not to be had.
                committed -= sum(budgets.first_cost_microusd(each) for _, _, each in taken.started[begun:])
                del taken.started[begun:]
                reason = f"{reason}; its tasks need all of their machines at once"
            taken.refused.append(f"start {start.offer.name}: {reason}")
            continue
        committed += price
        number = state.fleet.next + len(taken.started)
        numbers[start.label] = number
        taken.started.append((number, start.label, offer))
    return numbers


def _available(state: State, number: int, start: Start, chosen: list[Offer]) -> tuple[Offer, str]:
    """The offer as it stands now, and why it cannot be had, if so."""
    offers = {offer.key: offer for pool in pools_of(state, number) for offer in state.fleet.offers.get(pool, ())}
    offer = offers.get(start.offer.key)
    if offer is None:
        return start.offer, "there is no such offer any more"
    offer = fetching(state, number, offer)
    if shut := modes.starts_nothing(state, offer.pool):
        return offer, shut
    mine, others = rented(state, number, offer)
    if offer.limit is not None and mine + others + sum(each.key == offer.key for each in chosen) >= offer.limit:
        return offer, f"all {offer.limit} are rented"
    mine, others = rented_of_pool(state, number, offer.pool)
    in_pool = mine + others + sum(each.pool == offer.pool for each in chosen)
    if offer.pool_limit is not None and in_pool >= offer.pool_limit:
        return offer, f"pool {offer.pool} has its {offer.pool_limit} machines"
    return offer, ""


def _assignments(
    state: State, event: PlanProposed, taken: PlanTaken, numbers: dict[str, int], left: dict[int, free_hosts.Left]
) -> None:
    chosen: set[int] = set()
    limits: dict[int, free_hosts.Limits] = {}
    caps = Caps(state, event.job, event.plan.assign)
    for label, names in event.plan.assign.items():
        number = numbers.get(label) or _number(label)
        machine = state.fleet.machines.get(number)
        if label not in numbers and not _is_ours(machine, event.job):
            taken.refused.append(f"assign to {label}: there is no such machine")
            continue
        if machine is not None and modes.gives_nothing(state, machine.offer.pool):
            taken.refused.append(f"assign to {label}: {modes.starts_nothing(state, machine.offer.pool)}")
            continue
        queue, beside = list[int](), list[int]()
        for name in names:
            job, task = meant(event.job, name)
            bag = state.bags.get(job)
            if name in chosen or bag is None or not _serves(state, event.job, job) or not 0 <= task < bag.total:
                continue
            value, moved, is_beside = bag.columns.state[task], list[Loss](), False
            if value == HELD:
                limits[job] = limits.get(job) or free_hosts.limits_of(state, bag, event.t)
                moved, is_beside = _taken_over(state, bag, task, machine or number, limits[job], event.t)
            if (value == WAITING or moved or is_beside) and caps.allow(bag, task):
                chosen.add(name)
                queue.append(name)
                taken.moved += moved
                if is_beside:
                    beside.append(name)
        taken.queues.append((number, queue))
        if beside:
            taken.beside.append((number, beside))
    taken.refused += caps.refused
    _free(state, event.job, taken, left)


def _free(state: State, fleet_number: int, taken: PlanTaken, left: dict[int, free_hosts.Left]) -> None:
    """What is left to free hosts, and was not shown to the planner, is reserved for no machine."""
    queues = {number for number, _ in taken.queues}
    freed: dict[int, set[int]] = {}
    for job, each in left.items():
        for number, tasks in each.freed.items():
            freed.setdefault(number, set()).update(named(fleet_number, job, task) for task in tasks)
    for number, names in freed.items():
        if number not in queues:
            machine = state.fleet.machines[number]
            row = fleet.row_of(state, machine)
            taken.queues.append((number, [name for name in row if name not in names]))
            if beside := fleet.beside_of(state, machine):
                taken.beside.append((number, beside))


def _taken_over(
    state: State, bag: Bag, task: int, machine: MachineState | int, limits: free_hosts.Limits, t: float
) -> tuple[list[Loss], bool]:
    """The attempts of a running task that are given up for one on this machine, and whether others go on beside it.

    Attempts on hibernated machines are given up. Those on free hosts go on once they are due, and the machine begins a
    second one. Empty and false if some attempt leaves no place for another one.
    """
    hibernated, free = list[int](), list[Attempt]()
    own = machine if isinstance(machine, int) else machine.number
    for attempt in bag.attempts.live.get(task, ()):
        host = state.hosts.get(attempt.host)
        other = None if host is None else fleet.machine_of(state, host)
        if other is None:
            free.append(attempt)
        elif other.phase == HIBERNATED and other.number != own:
            hibernated.append(attempt.number)
        else:
            return [], False
    begins_again = _begins_again(bag, task)
    # The plan of a workflow counts on the machine for what follows from the task, wherever that runs.
    is_due = (bag.shape is not None and not begins_again) or (bag.number, task) in state.fleet.beside
    is_due = is_due or all(free_hosts.due_t(state, bag, task, each, limits, t) <= t for each in free)
    if not is_due:
        return [], False
    if free and begins_again:
        # Such a task gets no second attempt: it begins again, as soon as there is a machine that can begin it.
        is_ready = isinstance(machine, MachineState) and machine.phase == RUNNING
        hibernated, free = [*hibernated, *(a.number for a in free)] if is_ready else [], []
    verdict = OTHERS_RUN if free else RETURNED
    return [(bag.number, task, number, verdict) for number in hibernated], bool(free)


def _second_attempts(state: State, event: PlanProposed, taken: PlanTaken, numbers: dict[str, int]) -> None:
    """Second attempts of tasks that run: of those with one attempt, on another machine, that need one machine each."""
    for label, names in event.plan.again.items():
        number = numbers.get(label) or _number(label)
        machine = state.fleet.machines.get(number)
        if label not in numbers and not _is_ours(machine, event.job):
            taken.refused.append(f"second attempts on {label}: there is no such machine")
            continue
        tasks = []
        for name in names:
            job, task = meant(event.job, name)
            bag = state.bags.get(job)
            if bag is None or not _serves(state, event.job, job) or not 0 <= task < bag.total:
                continue
            live = bag.attempts.live.get(task, ())
            is_alone = len(live) == 1 and (machine is None or not machine.host or live[0].host != machine.host)
            if is_alone and not bag.classes[bag.class_of(task)].nodes and not bag.rules.quorum:
                tasks.append(name)
        taken.again.append((number, tasks))


def _overtaken(state: State, event: PlanProposed, taken: PlanTaken) -> None:
    """Leave out machines for tasks alone that are done by now, or have begun on hosts that go on with them."""
    queues, again = dict(taken.queues), dict(taken.again)
    needless = {
        number: offer
        for number, label, offer in taken.started
        if event.plan.assign.get(label)
        and not queues.get(number) and not again.get(number)
        and all(_has_begun(state, event.job, name) for name in event.plan.assign[label])
    }  # fmt: skip
    if not needless:
        return
    taken.started = [each for each in taken.started if each[0] not in needless]
    taken.queues = [each for each in taken.queues if each[0] not in needless]
    taken.again = [each for each in taken.again if each[0] not in needless]
    names = Counter(offer.name for offer in needless.values())
    taken.refused += [f"start {count} {name}: their tasks run elsewhere by now" for name, count in names.items()]


def _has_begun(state: State, fleet_number: int, name: int) -> bool:
    job, task = meant(fleet_number, name)
    bag = state.bags.get(job)
    if bag is None or not 0 <= task < bag.total or bag.columns.state[task] == WAITING:
        return False
    return bag.columns.state[task] != HELD or not _begins_again(bag, task)


def _begins_again(bag: Bag, task: int) -> bool:
    """Whether a task gets no second attempt beside a free host, but begins again where a plan moves it."""
    return bool(bag.classes[bag.class_of(task)].nodes or bag.rules.quorum)


def _stops(state: State, event: PlanProposed, taken: PlanTaken) -> None:
    """Machines to stop: only idle ones, so that no work in progress is lost."""
    moved = {(job, task, attempt) for job, task, attempt, _ in taken.moved}
    queues, again = dict(taken.queues), dict(taken.again)
    for label in event.plan.stop:
        machine = state.fleet.machines.get(_number(label))
        if machine is None or not _is_ours(machine, event.job):
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
        elif queues.get(machine.number, fleet.row_of(state, machine)) or again.get(machine.number):
            taken.refused.append(f"stop {machine.name}: tasks wait for it")
        else:
            taken.stopped.append(machine.number)
    # One whose host was lost while its pool was drained would wait for nobody.
    for machine in there(state, event.job):
        drained = modes.gives_nothing(state, machine.offer.pool) and not modes.is_busy(state, machine)
        if drained and machine.number not in taken.stopped:
            taken.stopped.append(machine.number)
    if not event.plan.start:
        taken.stopped += [each for each in _not_needed(state, event.job, queues) if each not in taken.stopped]


def _not_needed(state: State, fleet_number: int, queues: dict[int, list[int]]) -> list[int]:
    """Machines that boot for second attempts alone, all of which free hosts have made needless: they are given back, or
    never ordered."""
    return [
        machine.number
        for machine in there(state, fleet_number)
        if machine.phase == PENDING and machine.beside
        and not queues.get(machine.number, fleet.row_of(state, machine))
        and not fleet.again_of(state, machine)
    ]  # fmt: skip


def _recalls(state: State, event: PlanProposed, taken: PlanTaken) -> None:
    """Machines whose tasks save and wait again: only where every task that runs there checkpoints."""
    for label in event.plan.recall:
        machine = state.fleet.machines.get(_number(label))
        if machine is None or not _is_ours(machine, event.job):
            taken.refused.append(f"recall {label}: there is no such machine")
            continue
        host = state.hosts.get(machine.host)
        held = [] if host is None else [key[:2] for key in host.held]
        rules = [state.bags[job].classes[state.bags[job].class_of(task)] for job, task in held]
        if host is None or any(each.checkpoint_mb is None for each in rules):
            taken.refused.append(f"recall {machine.name}: what runs there cannot be saved")
        elif machine.recalled_t is None:
            taken.recalled.append(machine.number)


def _is_ours(machine: MachineState | None, number: int) -> bool:
    return machine is not None and machine.fleet == number and machine.phase != ENDED and not machine.stopping


def _number(label: str) -> int:
    return int(label) if label.isdecimal() else 0
