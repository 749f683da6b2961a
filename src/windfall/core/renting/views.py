"""What a planner is shown of a fleet: its tasks, machines, offers and budget at a moment. Pure."""

from __future__ import annotations

import math
from collections import Counter
from functools import partial
from itertools import repeat

from msgspec.structs import replace

from windfall.core.events import TaskClass
from windfall.core.renting import arrivals, backlog, free_hosts, licences, machines, money, parents
from windfall.core.renting.lead_times import with_lead_time
from windfall.core.renting.runtimes import Outlook, ran_so_far, unit_of
from windfall.core.state.jobs.attempts import Attempt
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.jobs.columns import HELD, WAITING
from windfall.core.state.renting import fleet
from windfall.core.state.renting.budgets import limit_of
from windfall.core.state.renting.fleet import HIBERNATED, PENDING, MachineState
from windfall.core.state.renting.fleets import DELETED, PAUSED, FleetRules, named
from windfall.core.state.state import State
from windfall.core.supply import modes
from windfall.core.wishes import there
from windfall.planning.contract import (
    BudgetPeriod,
    Columns,
    Group,
    Job,
    Machine,
    Phase,
    Running,
    Snapshot,
    Task,
)
from windfall.planning.data import with_data, with_task_data
from windfall.planning.offers import GIB, Offer


class Shown:
    """One job as it is shown: what is expected of its tasks, and what of them is left to free hosts."""

    __slots__ = ("_of_server", "bag", "deadline_t", "fleet", "is_plain", "left", "looks", "needs", "ran")

    def __init__(self, state: State, fleet: int, bag: Bag, t: float, left: free_hosts.Left) -> None:
        self.bag, self.fleet, self.left = bag, fleet, left
        self._of_server = state.settings.resources
        self.ran = ran_so_far(state, bag, t)
        self.looks = [
            Outlook(state, bag, index, bag.rules.confidence, t, self.ran) for index in range(len(bag.classes))
        ]
        self.is_plain = is_plain(bag)
        self.deadline_t = machines.deadline_first(bag)[0]
        self.needs = [(rules, max(1, math.ceil(rules.cpus)), self.resources(rules)) for rules in bag.classes]
        """By class: its rules, whole cores, and resources of the machine."""

    def open(self, names_tasks: bool) -> list[int]:
        """The tasks that are shown one by one."""
        bag, hidden = self.bag, self.left.running | self.left.waiting
        if bag.finished_t is not None:
            return []
        if not names_tasks:
            if not hidden and not bag.queues.reserved:
                return sorted(bag.attempts.live)  # nearly in order already
            return sorted({*bag.queues.reserved, *bag.attempts.live} - hidden)
        unfinished = (task for task, value in enumerate(bag.columns.state) if value in (WAITING, HELD))
        return [task for task in unfinished if task not in hidden]

    def resources(self, rules: TaskClass) -> tuple[tuple[str, float], ...]:
        """What a task needs of its machine."""
        if not rules.needs:
            return ()
        return tuple((name, amount / 1000) for name, amount in rules.needs if name not in self._of_server)

    def job(self, arrived: arrivals.Arrivals) -> Job:
        bag, rules = self.bag, self.bag.rules
        return Job(
            bag.number, self.deadline_t, bag.submitted_t, bag.shape is not None, rules.priority, rules.owner,
            bag.total, *arrived.of(bag),
        )  # fmt: skip


def is_plain(bag: Bag) -> bool:
    """Whether its tasks differ only in how long they have run, so that most is asked once for all of them."""
    known = bag.progress
    return len(bag.classes) == 1 and not (known.estimates or known.memory or known.saved)


def view(state: State, number: int, t: float, names_up_to: float, in_columns: bool = False) -> Snapshot:
    """A fleet as its planner sees it; if it has more unfinished tasks than that, they are shown in groups.

    `in_columns`: where all jobs are plain, their tasks are columns, and the planner makes it whole.
    """
    jobs, rest = backlog.shown_and_rest(state, number)
    left = free_hosts.left_of_each(state, jobs, t)
    shown = [Shown(state, number, bag, t, left.get(bag.number, free_hosts.NOTHING)) for bag in jobs]
    by_job = {entry.bag.number: entry for entry in shown}
    unfinished = sum(entry.bag.counts[WAITING] + entry.bag.counts[HELD] for entry in shown)
    names_tasks = unfinished <= names_up_to
    in_columns = in_columns and all(entry.is_plain and not entry.bag.classes[0].memory_per_attempt for entry in shown)
    tasks: dict[int, Task] = {}
    columns: list[Columns] = []
    after: dict[int, tuple[int, ...]] = {}
    for entry in shown:
        open_ = entry.open(names_tasks)
        if in_columns:
            columns.append(_columns(entry, open_))
        elif entry.is_plain:
            tasks |= _with_memory(entry, open_, _columns(entry, open_).tasks())
        else:
            tasks |= {named(number, entry.bag.number, task): _task(entry, task) for task in open_}
        if names_tasks:
            found = parents.of_workflow(entry.bag, open_, state.settings.resources)
            above = named(number, entry.bag.number, 0)
            after |= {above | task: tuple(above | each for each in before) for task, before in found.items()}
    own = state.bags.get(number)
    planned = state.fleet.plans[number]
    freed = {
        named(number, entry.bag.number, task)
        for entry in shown
        for tasks_of_machine in entry.left.freed.values()
        for task in tasks_of_machine
    }
    limit, until_t = limit_of(state, number, t)
    arrived = arrivals.Arrivals(state, number, t)
    return Snapshot(
        t=t,
        deadline_t=max((entry.deadline_t for entry in shown), default=math.inf),
        tasks=tasks,
        machines=tuple(_shown(state, machine, t, by_job, freed) for machine in there(state, number)),
        offers=tuple(_on_offer(state, number, t)),
        groups=() if names_tasks else tuple(group for entry in shown for group in _groups(entry)),
        markets={key: seen.market() for key, seen in state.fleet.markets.items()},
        begun_t=t if own is None else own.submitted_t,
        spent_usd=money.usd(machines.spent_microusd(state, number, t)),
        budget_usd=None if limit is None else money.usd(limit),
        confidence=0.95 if own is None else own.rules.confidence,
        run_time_quantile=max((look.quantile for entry in shown for look in entry.looks), default=0.95),
        is_workflow=own is not None and own.shape is not None,
        last_later=() if planned.plan is None else tuple(planned.plan.later),
        after=after,
        total=sum(entry.bag.total for entry in shown),
        jobs=tuple(entry.job(arrived) for entry in shown),
        is_fleet=own is None,
        owner_shares={} if own is not None else state.fleet.book.by_number[number].rules.owner_shares,
        owner_caps={} if own is not None else state.fleet.book.by_number[number].rules.owner_caps,
        backlog=backlog.told(rest, t, partial(_one_of_each, state, number, t)) if rest else (),
        budget_period=None if own is not None else _period(state.fleet.book.by_number[number].rules, until_t),
        columns=tuple(columns),
    )


def _one_of_each(state: State, fleet: int, t: float, bag: Bag) -> list[Task]:
    """The first unfinished task of each class of a job, under the id -1."""
    entry = Shown(state, fleet, bag, t, free_hosts.NOTHING)
    found: dict[int, Task] = {}
    for task in entry.open(True):
        index = bag.class_of(task)
        if index not in found:
            found[index] = replace(_task(entry, task), id=-1)
            if len(found) == len(bag.classes):
                break
    return list(found.values())


def _period(rules: FleetRules, until_t: float) -> BudgetPeriod | None:
    budget = rules.budget_microusd
    return None if budget is None else BudgetPeriod(money.usd(budget), rules.budget_s, until_t)


def _task(entry: Shown, task: int) -> Task:
    bag, progress = entry.bag, entry.bag.progress
    index = bag.class_of(task)
    look, (rules, cores, resources) = entry.looks[index], entry.needs[index]
    saved_s = max((saved for _, saved in progress.saved.get(task, ())), default=0.0) if progress.saved else 0.0
    memory_gb = bag.memory_for(task, bag.columns.attempts[task] + 1) / GIB
    runtime_s, mean_s = look.given(entry.ran.get(task, 0.0), unit_of(bag, task))
    return Task(
        named(entry.fleet, bag.number, task), runtime_s, memory_gb, rules.name, rules.checkpoint_mb, saved_s, mean_s,
        cores, bag.number, entry.deadline_t, resources, rules.checkpoint_s, rules.nodes,
    )  # fmt: skip


def _columns(entry: Shown, open_: list[int]) -> Columns:
    """The same as `_task` for each of a plain job, without asking for each what is equal for all."""
    bag, look, rules = entry.bag, entry.looks[0], entry.bag.classes[0]
    above = named(entry.fleet, bag.number, 0)
    like = Task(
        -1, look.runtime_s, rules.memory_for(1) / GIB, rules.name, rules.checkpoint_mb, 0.0, look.mean_s,
        max(1, math.ceil(rules.cpus)), bag.number, entry.deadline_t, entry.resources(rules), rules.checkpoint_s,
        rules.nodes,
    )  # fmt: skip
    kinds, times = look.given_each(list(map(entry.ran.get, open_, repeat(0.0))))
    return Columns(like, [above | task for task in open_] if above else open_, kinds, times)


def _with_memory(entry: Shown, open_: list[int], tasks: dict[int, Task]) -> dict[int, Task]:
    """The tasks of a plain job, those that were tried before with the memory of their next attempt."""
    bag, rules = entry.bag, entry.bag.classes[0]
    above, attempts = named(entry.fleet, bag.number, 0), bag.columns.attempts
    if rules.memory_per_attempt:
        for task in open_:
            if attempts[task]:
                more_gb = rules.memory_for(attempts[task] + 1) / GIB
                tasks[above | task] = replace(tasks[above | task], memory_gb=more_gb)
    return tasks


def _groups(entry: Shown) -> list[Group]:
    found: list[Group] = []
    bag, left = entry.bag, entry.left
    if bag.finished_t is not None:
        return found
    not_shown = Counter(bag.class_of(task) for task in left.waiting if task not in bag.queues.reserved)
    for index, queue in enumerate(bag.queues.by_class):
        if queue.size > not_shown[index]:
            rules, look = bag.classes[index], entry.looks[index]
            memory_gb = rules.memory_for(1) / GIB
            cores = max(1, math.ceil(rules.cpus))
            unit_s = math.fsum(unit_of(bag, task) for task in queue) / queue.size if bag.progress.estimates else 1.0
            seconds, mean_s = look.runtime_s * unit_s, look.mean_s * unit_s
            alike = Task(
                -1, seconds, memory_gb, rules.name, rules.checkpoint_mb, 0.0, mean_s, cores, bag.number,
                entry.deadline_t, entry.resources(rules), nodes=rules.nodes,
            )  # fmt: skip
            found.append(Group(alike, queue.size - not_shown[index]))
    return found


def _shown(state: State, machine: MachineState, t: float, by_job: dict[int, Shown], freed: set[int]) -> Machine:
    # There may be thousands of machines: nothing is called for what nearly none of them has.
    running = tuple(_running(state, machine, t, by_job))
    waiting: tuple[int, ...] = ()
    if machine.queue:
        waiting = tuple([name for name in fleet.row_of(state, machine) if name not in freed])
    is_hibernated = machine.phase == HIBERNATED
    if is_hibernated:
        phase = Phase.HIBERNATED
    elif machine.phase == PENDING:
        phase = Phase.PENDING
    else:
        phase = Phase.BUSY if running or waiting else Phase.IDLE
    ready_t, offer = machine.ready_t, machine.offer
    return Machine(
        id=str(machine.number),
        offer=replace(offer, start_usd=0.0) if offer.start_usd else offer,
        phase=phase,
        ready_t=_ready_t(state, machine, t) if ready_t is None else ready_t,
        running=running,
        waiting=waiting,
        paid_until_t=fleet.paid_until_t(machine, t),
        hibernated_since_t=machine.sleeps[-1][0] if is_hibernated else None,
        # A machine that is drained is as good as announced to end: nothing new is planned on it.
        noticed_t=t if state.supply.modes and modes.gives_nothing(state, offer.pool) else machine.noticed_t,
        up_since_t=None if is_hibernated else fleet.awake_since(machine),
        is_taken=bool(machine.id),
        is_recalled=machine.recalled_t is not None,
        again=tuple(fleet.again_of(state, machine)) if machine.again else (),
    )


def _ready_t(state: State, machine: MachineState, t: float) -> float:
    """When a machine that boots is expected to be ready: as told, and if that is past, as was seen."""
    told_t = machine.requested_t + machine.offer.lag_s
    return max(t, told_t if told_t > t else machine.requested_t + with_lead_time(state, machine.offer).lag_s)


def _running(state: State, machine: MachineState, t: float, by_job: dict[int, Shown]) -> list[Running]:
    """Its running tasks, each with the seconds it still takes there."""
    host = state.hosts.get(machine.host)
    found: list[Running] = []
    add = found.append
    seen, sent_t, alike_s, above, is_alike = -1, -math.inf, 0.0, 0, False
    lives: dict[int, tuple[Attempt, ...]] = {}
    for job, task, number in host.held if host is not None else ():
        if job != seen:
            # Nearly always all are of one job.
            seen, sent_t, entry = job, -math.inf, by_job.get(job)
            lives = {} if entry is None else entry.bag.attempts.live
            is_alike, above = entry is not None and entry.is_plain and not machine.sleeps, named(machine.fleet, job, 0)
        live = lives.get(task)
        if live is None or entry is None:
            continue
        attempt: Attempt | None = live[0]
        if attempt is None or attempt.number != number:
            attempt = entry.bag.attempts.find(task, number)
            if attempt is None:
                continue
        if is_alike:
            if attempt.sent != sent_t:
                # Tasks that were sent together have run equally long.
                sent_t, look = attempt.sent, entry.looks[0]
                alike_s = look.left_s(t - sent_t, machine.offer.speed_for(look.rules.name))
            add(Running(above | task, alike_s))
            continue
        bag = entry.bag
        index = bag.class_of(task)
        speed = machine.offer.speed_for(bag.classes[index].name)
        elapsed_s = t - attempt.sent - machine.slept_s(attempt.sent, t)
        # What it began with: progress that an earlier attempt had saved, and the time to restore it.
        before = [saved for earlier, saved in bag.progress.saved.get(task, ()) if earlier < number]
        if before:
            look = entry.looks[index]
            begun = Task(
                task, look.runtime_s, 0.0, bag.classes[index].name, bag.classes[index].checkpoint_mb, max(before)
            )
            left_s = max(0.0, begun.seconds_on(machine.offer) - elapsed_s)
        else:
            left_s = entry.looks[index].left_s(elapsed_s, speed, unit_of(bag, task))
        add(Running(above | task, left_s))
    return found


def pools_of(state: State, number: int) -> list[str]:
    """The pools that a fleet rents from."""
    own = state.bags.get(number)
    return state.fleet.book.by_number[number].rules.pools if own is None else own.rules.rent_from


def _on_offer(state: State, number: int, t: float) -> list[Offer]:
    """The offers that a fleet may rent, each with the number that it could have at this moment as its limit."""
    found = []
    closed = rents_nothing(state, number)
    for pool in pools_of(state, number):
        shut = closed or modes.starts_nothing(state, pool)
        for told in state.fleet.offers.get(pool, ()):
            offer = fetching(state, number, with_lead_time(state, told))
            offer = _fetching_each(state, number, offer, t)
            mine, others = rented(state, number, offer)
            seen = state.fleet.markets.get(offer.key)
            if shut or (seen is not None and machines.shut_until_t(seen, told) > t):
                offer = replace(offer, limit=mine)
            elif offer.limit is not None:
                offer = replace(offer, limit=max(mine, offer.limit - others))
            if offer.pool_limit is not None:
                mine, others = rented_of_pool(state, number, pool)
                offer = replace(offer, pool_limit=max(mine, offer.pool_limit - others))
            found.append(offer)
    if not state.settings.resources:
        return found
    shown, rest = backlog.shown_and_rest(state, number)
    mine_of = {o.key: (rented(state, number, o)[0], rented_of_pool(state, number, o.pool)[0]) for o in found}
    return licences.limited(state, [*shown, *rest], found, mine_of)


def fetching(state: State, number: int, offer: Offer) -> Offer:
    """The offer with the time and price of the data that machines fetch for the one job of a fleet."""
    own = state.bags.get(number)
    return offer if own is None else with_data(offer, own.rules.data_gb)


def _fetching_each(state: State, number: int, offer: Offer, t: float) -> Offer:
    """The offer with the time and price of what each task of the one job of a fleet fetches: planners see it so."""
    own = state.bags.get(number)
    if own is None or not own.rules.task_data_gb:
        return offer
    look = Outlook(state, own, 0, own.rules.confidence, t)
    unit_s = max(own.progress.estimates) if own.progress.estimates else 1.0
    width = max(1, math.ceil(own.classes[0].cpus))
    return with_task_data(offer, own.rules.task_data_gb, look.mean_s * unit_s, width)


def rents_nothing(state: State, number: int) -> str:
    """Why a fleet rents nothing new, in words; empty if it may. One that drains still serves the jobs it has."""
    known = state.fleet.book.by_number.get(number)
    return f"fleet {known.rules.name} is {known.mode}" if known is not None and known.mode in (PAUSED, DELETED) else ""


def rented(state: State, number: int, offer: Offer) -> tuple[int, int]:
    """Machines of an offer that are there, the fleet's own and those of others."""
    fleets = [machine.fleet for machine in state.fleet.there.values() if machine.offer.key == offer.key]
    mine = fleets.count(number)
    return mine, len(fleets) - mine


def rented_of_pool(state: State, number: int, pool: str) -> tuple[int, int]:
    """Machines of all offers of a pool that are there and not hibernated, the fleet's own and those of others."""
    there = [machine for machine in state.fleet.there.values() if machine.offer.pool == pool]
    fleets = [machine.fleet for machine in there if machine.phase != HIBERNATED]
    mine = fleets.count(number)
    return mine, len(fleets) - mine
