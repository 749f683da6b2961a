"""Plans, rented machines and what is known of their tasks, as records change them. Decides nothing."""

from __future__ import annotations

from collections import Counter
from math import inf

from msgspec.structs import replace

from windfall.core.decisions import (
    Assigned,
    CheckpointKept,
    FleetSettled,
    JobSettled,
    MachineSettled,
    Nothing,
    OfferJudged,
    PlanTaken,
    TimeJudged,
)
from windfall.core.events import (
    CheckpointSaved,
    FleetChanged,
    FleetCreated,
    MachineEnded,
    MachineHibernated,
    MachineNoticed,
    MachineRefused,
    MachineResumed,
    MachineStarted,
    OffersConfigured,
    PlanProposed,
    PricesReported,
    SeriesImported,
    StrangersSeen,
    TasksEstimated,
    TimerFired,
)
from windfall.core.jobs import attempts
from windfall.core.liveness import apply as liveness_apply
from windfall.core.liveness.apply import apply_losses, hibernate, leave, resume
from windfall.core.renting import money
from windfall.core.state.hosts.hosts import GONE, Host
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.jobs.columns import HELD, WAITING
from windfall.core.state.renting.budgets import watch, watch_again
from windfall.core.state.renting.fleet import (
    ENDED,
    FAILED,
    HIBERNATED,
    PENDING,
    REFUSED,
    RUNNING,
    TAKEN,
    MachineState,
    PlanState,
    Seen,
    again_of,
    awake_since,
    held_at,
    machine_of,
    queue_of,
    row_of,
)
from windfall.core.state.renting.fleets import DELETED, NamedFleet, meant
from windfall.core.state.saving import Floats
from windfall.core.state.state import State
from windfall.planning import counts
from windfall.planning.contract import SPOT
from windfall.planning.counts import SpellCounts


def follow(state: State, bag: Bag, decided: JobSettled) -> None:
    """A job that may rent machines enters its fleet, or gets one of its own; that is planned, or planned again."""
    watch(state, state.fleet.serving(bag.number), state.t)
    if decided.fleet:
        state.fleet.book.enter(bag.number, decided.fleet)
        state.fleet.book.note(bag.number, bag.finished_t is not None)
    elif decided.planned:
        planned = state.fleet.plans[bag.number] = PlanState(bag.number)
        if decided.replan_t is not None:
            planned.replan_t = decided.replan_t
            state.fleet.schedule()
            return
    state.touch(bag.number)


def apply_plan_taken(state: State, event: PlanProposed, decided: PlanTaken) -> None:
    planned = state.fleet.plans.get(event.job)
    if planned is None:
        return
    overtaken = planned.changed_seq > event.seq
    because = {start.label: start.because for start in event.plan.start}
    for number, label, offer in decided.started:
        state.fleet.add(MachineState(number, event.job, offer, event.t, because=because.get(label, "")))
    _give_up(state, decided, event.t)
    reserve(state, event.job, decided.queues, dict(decided.beside))
    for number, names in decided.again:
        state.fleet.machines[number].again = list(names)
    for number in decided.stopped:
        stop(state, state.fleet.machines[number], event.t)
    for number in decided.recalled:
        _recall(state, state.fleet.machines[number], event.t)
    watch(state, event.job, event.t)
    _remember(state, planned, event, decided)
    # What this very plan has changed does not call for another one; what happened while it was made does.
    if not overtaken:
        planned.changed_seq, planned.change_by_t = event.seq, inf
        state.fleet.plans_due.pop(event.job, None)


def stop(state: State, machine: MachineState, t: float) -> None:
    """From now on it shall end."""
    machine.stopping, machine.stopping_t = True, t
    state.fleet.note_order(machine)


def _recall(state: State, machine: MachineState, t: float) -> None:
    """Its worker shall save what runs there and end; what waits for it may run elsewhere."""
    machine.recalled_t = t
    unreserve(state, machine)
    host = state.hosts[machine.host]
    host.session.to_recall = True
    state.hosts.to_tell[host.number] = None


def give_back(state: State, machine: MachineState, t: float) -> None:
    """It shall end, and what waits for it may run elsewhere."""
    stop(state, machine, t)
    unreserve(state, machine)
    state.touch(machine.fleet)


def apply_time_judged(state: State, event: TimerFired, decided: TimeJudged) -> None:
    liveness_apply.apply_time_judged(state, event, decided)
    _give_back(state, decided, event.t)


def _give_back(state: State, decided: TimeJudged, t: float) -> None:
    """Machines end before the billing cycles that would exceed a budget; what waits for them may run elsewhere."""
    for number in decided.given_back:
        give_back(state, state.fleet.machines[number], t)
    for fleet in list(state.fleet.budgets):
        watch_again(state, fleet, t)


def _give_up(state: State, decided: PlanTaken, t: float) -> None:
    """Give up attempts on hibernated machines: their tasks wait again; a machine that resumes is told to drop them."""
    for job, task, number, _ in decided.moved:
        attempt = next(a for a in state.bags[job].attempts.live[task] if a.number == number)
        host = state.hosts[attempt.host]
        host.session.to_cancel.append((job, task, number))
        state.hosts.to_tell[host.number] = None
    if decided.moved:
        apply_losses(state, decided.moved, decided.lessons, t)


def _remember(state: State, planned: PlanState, event: PlanProposed, decided: PlanTaken) -> None:
    plan = event.plan
    planned.plan, planned.planned_t, planned.planned_seq = plan, event.t, event.seq
    planned.not_before_t, planned.collects_until_t = decided.not_before_t, decided.collects_until_t
    planned.refused, planned.error = decided.refused, event.error
    planned.replan_t = decided.replan_t
    if not planned.plans:
        planned.first_cost_usd, planned.first_finish_t = plan.predicted_cost_usd, plan.predicted_finish_t
    planned.plans += 1
    state.fleet.schedule()


def apply_tasks_estimated(state: State, event: TasksEstimated, decided: Nothing) -> None:
    estimates = Floats()
    estimates.frombytes(event.seconds)
    state.bags[event.job].progress.estimates = estimates
    state.touch(event.job)


def apply_checkpoint_saved(state: State, event: CheckpointSaved, decided: CheckpointKept) -> None:
    if not decided.kept:
        return
    bag = state.bags.get(event.job)
    if bag is None or not 0 <= event.task < bag.total or bag.columns.state[event.task] not in (WAITING, HELD):
        return
    saved = bag.progress.saved.setdefault(event.task, [])
    if saved and saved[-1][0] == event.attempt:
        saved.pop()
    saved.append((event.attempt, decided.saved_s))
    if event.blob:
        bag.progress.checkpoints[event.task] = event.blob


def apply_offers_configured(state: State, event: OffersConfigured, decided: Nothing) -> None:
    state.fleet.offers[event.pool] = list(event.offers)
    for job in state.fleet.plans:
        state.touch(job)


def apply_prices_reported(state: State, event: PricesReported, decided: Nothing) -> None:
    prices = dict(event.prices)
    changed = [
        replace(offer, price_usd=prices[offer.name]) if offer.name in prices else offer
        for offer in state.fleet.offers.get(event.pool, ())
    ]
    state.fleet.offers[event.pool] = changed
    since_t = event.t if event.since_t is None else event.since_t
    for name, usd in prices.items():
        key = f"{event.pool}/{name}"
        state.fleet.priced_t[key] = since_t
        counts.priced(state.fleet.markets.setdefault(key, Seen()).counts.prices, since_t, usd)
    # Machines that have ended since then are billed at that price, too.
    late = event.since_t is not None
    for machine in (state.fleet.machines if late else state.fleet.there).values():
        is_named = machine.offer.pool == event.pool and machine.offer.name in prices
        if is_named and (machine.there or (machine.ended_t or 0.0) > since_t):
            held_s = held_at(machine, since_t, event.t)
            # A float also where it is whole: a snapshot gives floats back, and equal states have equal bytes.
            machine.rates.append((held_s, float(money.price_microusd(prices[machine.offer.name]))))
    for job in state.fleet.plans:
        state.touch(job)
        watch(state, job, event.t)


def apply_series_imported(state: State, event: SeriesImported, decided: Nothing) -> None:
    seen = state.fleet.markets.setdefault(event.offer, Seen())
    if seen.imported is None:
        seen.imported = SpellCounts()
    counts.add_series(seen.imported, event.cells, event.prices)
    seen.sources.append(event.source)
    for job in state.fleet.plans:
        state.touch(job)


def apply_machine_started(state: State, event: MachineStarted, decided: Nothing) -> None:
    machine = state.fleet.machines.get(event.machine)
    if machine is None or machine.id:
        return
    machine.id = event.id
    state.fleet.note_order(machine)
    seen = _seen(state, machine)
    seen.refusals, seen.started_t, seen.started = 0, event.t, seen.started + 1
    if machine.offer.market == SPOT:
        counts.launched(seen.counts, event.t, state.settings.bookkeeping.spells)
    if machine.offer.bills_boot and machine.meter.since_t is None and machine.there:
        machine.meter = money.start(event.at)
    watch(state, machine.fleet, event.t)


def apply_machine_refused(state: State, event: MachineRefused, decided: OfferJudged) -> None:
    machine = state.fleet.machines.get(event.machine)
    if machine is None or not machine.there or machine.id:
        return
    if event.capacity:
        seen = _seen(state, machine)
        seen.refused, seen.refusals, seen.refused_t = seen.refused + 1, decided.refusals, event.t
        counts.refused(seen.counts, event.t)
    machine.error = event.error
    _finish(state, machine, event.t, REFUSED)


def apply_machine_noticed(state: State, event: MachineNoticed, decided: Nothing) -> None:
    machine = state.fleet.machines.get(event.machine)
    if machine is not None and machine.there and machine.noticed_t != event.until:
        machine.noticed_t = event.until
        _seen(state, machine).counts.notices += 1
        state.touch(machine.fleet, (event.t + event.until) / 2)


def apply_machine_hibernated(state: State, event: MachineHibernated, decided: Nothing) -> None:
    machine = state.fleet.machines.get(event.machine)
    if machine is None or machine.phase in (ENDED, HIBERNATED):
        return
    seen = _seen(state, machine)
    seen.hibernated += 1
    _was_up(state, machine, event.at, interrupted=True)
    machine.phase, machine.noticed_t = HIBERNATED, None
    machine.meter = money.pause(machine.meter, event.at)
    machine.sleeps.append((event.at, None))
    host = state.hosts.get(machine.host)
    if host is not None and host.state != GONE:
        hibernate(state, host)
    state.touch(machine.fleet, inf)
    watch(state, machine.fleet, event.t)


def apply_machine_resumed(state: State, event: MachineResumed, decided: Nothing) -> None:
    machine = state.fleet.machines.get(event.machine)
    if machine is None or machine.phase != HIBERNATED:
        return
    wake(state, machine, event.at)
    host = state.hosts.get(machine.host)
    if host is not None and host.state == HIBERNATED:
        resume(state, host, event.t)


def apply_machine_ended(state: State, event: MachineEnded, decided: MachineSettled) -> None:
    machine = state.fleet.machines.get(event.machine)
    if machine is None or not machine.there:
        return
    cause = decided.cause or event.cause
    if machine.phase == HIBERNATED:
        _seen(state, machine).hibernated_s += max(0.0, event.at - machine.sleeps[-1][0])
        machine.sleeps[-1] = (machine.sleeps[-1][0], event.at)
        if cause == TAKEN:
            _seen(state, machine).cut(event.at, state.settings.bookkeeping.together_s)
    elif machine.ready_t is not None or cause == TAKEN:
        _was_up(state, machine, event.at, interrupted=cause == TAKEN)
    if cause == TAKEN:
        _seen(state, machine).reclaimed += 1
    if machine.ready_t is None or cause == FAILED:
        machine.error = machine.error or event.about
    machine.meter = money.end(machine.meter, event.at, taken=cause == TAKEN)
    _finish(state, machine, event.at, cause)
    if decided.lost:
        apply_losses(state, decided.lost, decided.lessons, event.t)
        attempts.stop_jobs(state, decided.stopped, event.t)
    host = state.hosts.get(machine.host)
    if host is not None and host.state != GONE:
        attempts.let_go(state, host)
        leave(state, host, f"its machine ended: {cause}")


def apply_strangers_seen(state: State, event: StrangersSeen, decided: Nothing) -> None:
    state.fleet.strangers[event.pool] = list(event.strangers)


def apply_fleet_created(state: State, event: FleetCreated, decided: FleetSettled) -> None:
    if decided.refused:
        return
    number = decided.number
    state.fleet.book.add(NamedFleet(number, event.rules, event.t))
    state.fleet.plans[number] = PlanState(number)
    state.bags.next = max(state.bags.next, number + 1)


def apply_fleet_changed(state: State, event: FleetChanged, decided: FleetSettled) -> None:
    book = state.fleet.book
    named = book.by_number.get(event.fleet)
    if decided.refused or named is None:
        return
    if event.rules is not None:
        named.rules = event.rules
        watch(state, named.number, event.t)
    if event.mode is not None:
        named.mode, named.mode_t = event.mode, event.t
    for number in decided.stopped:
        give_back(state, state.fleet.machines[number], event.t)
    if named.mode == DELETED:
        del book.by_name[named.rules.name]
    state.touch(named.number)


def wake(state: State, machine: MachineState, at: float) -> None:
    hibernated_t = machine.sleeps[-1][0]
    at = max(at, hibernated_t)
    machine.sleeps[-1] = (hibernated_t, at)
    machine.meter = money.resume(machine.meter, at)
    machine.phase = PENDING if machine.ready_t is None else RUNNING
    seen = _seen(state, machine)
    seen.resumed += 1
    seen.hibernated_s += at - hibernated_t
    counts.came_back(seen.counts, at, state.settings.bookkeeping.spells)
    state.touch(machine.fleet, inf)
    watch(state, machine.fleet, at)


def joined(state: State, host: Host, t: float) -> None:
    """The worker of a machine has asked for work: it has booted or resumed."""
    machine = machine_of(state, host)
    if machine is None or not machine.there:
        return
    if machine.phase == PENDING:
        machine.phase, machine.ready_t, machine.host = RUNNING, t, host.number
        if machine.meter.since_t is None:
            machine.meter = money.start(t)
        seen = _seen(state, machine)
        seen.started_t = t
        boot_s = t - machine.requested_t - machine.slept_s(machine.requested_t, t)
        seen.boot_delays_s = [*seen.boot_delays_s, boot_s - machine.offer.lag_s][
            -state.settings.bookkeeping.boots_kept :
        ]
        state.touch(machine.fleet, inf)
        watch(state, machine.fleet, t)
    elif machine.phase == HIBERNATED:
        wake(state, machine, t)


def note_idle(state: State, host: Host) -> None:
    """After an answer: has the machine of this host run out of work?"""
    machine = machine_of(state, host)
    if machine is None or not machine.there:
        return
    idle = not host.held and not row_of(state, machine) and not again_of(state, machine)
    if idle and not machine.idle:
        # Its next billing cycle would be paid for nothing, unless cycles are shorter than changes are collected.
        planned = state.fleet.plans.get(machine.fleet)
        collects_s = 0.0 if planned is None else planned.collects_until_t - (planned.planned_t or 0.0)
        cycle_s = machine.offer.cycle_s
        cycle_ends_t = state.t + cycle_s - money.held_s(machine.meter, state.t) % cycle_s
        state.touch(machine.fleet, cycle_ends_t if cycle_s > collects_s else inf)
    machine.idle = idle


def reserve(
    state: State, fleet: int, queues: list[tuple[int, list[int]]], beside: dict[int, list[int]] | None = None
) -> None:
    """Give machines new queues. What was reserved for them and is named no more becomes unassigned.

    `beside`: by machine, those in its queue that run on free hosts; these are reserved for nobody.
    """
    for number, _ in queues:
        unreserve(state, state.fleet.machines[number])
    for number, names in queues:
        by_job: dict[int, list[int]] = {}
        second = (beside or {}).get(number, [])
        for name in names if not second else [name for name in names if name not in second]:
            job, task = meant(fleet, name)
            by_job.setdefault(job, []).append(task)
        for job, tasks in by_job.items():
            state.bags[job].reserve(number, tasks)
            state.bags.refresh(state.bags[job])
        state.fleet.machines[number].queue = list(names)
        if second:
            state.fleet.set_beside(state.fleet.machines[number], second)


def unreserve(state: State, machine: MachineState) -> None:
    """What is reserved for a machine may run anywhere again."""
    jobs: dict[int, None] = {}
    for name in queue_of(state, machine):
        job, task = meant(machine.fleet, name)
        state.bags[job].unreserve(task)
        jobs[job] = None
    machine.queue = []
    if machine.beside:
        state.fleet.set_beside(machine, [])
    for job in jobs:
        state.bags.refresh(state.bags[job])


def _finish(state: State, machine: MachineState, t: float, cause: str) -> None:
    machine.phase, machine.cause, machine.ended_t = ENDED, cause, t
    state.fleet.remove(machine)
    unreserve(state, machine)
    # That a spot machine goes is covered by the safety net; that we give one back was planned.
    is_covered = cause != REFUSED and (machine.stopping or machine.offer.market == SPOT)
    state.touch(machine.fleet, inf if is_covered else -inf)
    watch(state, machine.fleet, t)


def _seen(state: State, machine: MachineState) -> Seen:
    return state.fleet.markets.setdefault(machine.offer.key, Seen())


def _was_up(state: State, machine: MachineState, until_t: float, interrupted: bool) -> None:
    """Count the time since the machine started or last resumed, which its provider or we have ended now."""
    seen, rules = _seen(state, machine), state.settings.bookkeeping
    since_t = awake_since(machine)
    seen.up_s += max(0.0, until_t - since_t)
    if machine.offer.market == SPOT:
        counts.was_up(seen.counts, since_t, max(since_t, until_t), interrupted, rules.spells)
    if interrupted:
        _count_shared_fate(state, machine, until_t)


def _count_shared_fate(state: State, machine: MachineState, t: float) -> None:
    """Count which other offers, and how many other machines of this one, are interrupted with this machine."""
    seen, own, rules = _seen(state, machine), machine.offer.key, state.settings.bookkeeping
    if not seen.cut(t, rules.together_s):
        seen.counts.peers_lost += 1
        return
    up = Counter(
        other.offer.key
        for other in state.fleet.there.values()
        if other is not machine and other.offer.market == SPOT and other.phase in (PENDING, RUNNING)
    )
    for key, other in state.fleet.markets.items():
        if other is seen:
            continue
        is_cut = other.cut_t is not None and abs(t - other.cut_t) <= rules.together_s
        if is_cut:
            counts.went_together(seen.counts, key, rules.spells)
            counts.went_together(other.counts, own, rules.spells)
        if is_cut or up[key]:
            counts.was_beside(seen.counts, key, rules.spells)
    seen.counts.peers += up[own]


def note_taken(state: State, host: Host, assigned: list[Assigned]) -> None:
    """A free host has taken the last unreserved task: there may be more to leave to free hosts."""
    if machine_of(state, host) is not None:
        return
    for job in {piece.job for piece in assigned if state.fleet.plan_of(piece.job) is not None}:
        if state.bags[job].queues.reserved and not state.bags[job].waiting:
            state.touch(job)
