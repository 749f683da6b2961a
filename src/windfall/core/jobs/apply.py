"""Jobs and results as records change them: submitted, sealed, changed, cancelled, reported. Decides nothing."""

from __future__ import annotations

from collections import OrderedDict
from math import inf

from msgspec.structs import replace

from windfall import graph as graphs
from windfall.core.decisions import (
    ACCEPTED,
    DROPPED,
    FAILED_FOR_GOOD,
    GROWN,
    LOST_FOR_GOOD,
    PART,
    REQUEUED,
    RETRIED,
    RETURNED,
    STALE,
    VOTED,
    WASTE,
    JobLetGo,
    JobSettled,
    JobTaken,
    Nothing,
    ResultsJudged,
    TasksChosen,
    TasksTaken,
)
from windfall.core.events import (
    HostBlocked,
    HostDrained,
    HostUnblocked,
    JobCancelled,
    JobChanged,
    JobForgotten,
    JobRetried,
    JobSealed,
    JobShaped,
    JobSubmitted,
    Result,
    ResultsReported,
    ServerStarted,
    TasksAdded,
)
from windfall.core.jobs import attempts, parts
from windfall.core.matching.turnarounds import cell_of
from windfall.core.renting.apply import follow
from windfall.core.renting.settling import settle
from windfall.core.sites.apply import welcome
from windfall.core.state.hosts.hosts import LIVE, Host
from windfall.core.state.hosts.learned import RunTimes
from windfall.core.state.jobs.bags import Bag, Terms, Vote
from windfall.core.state.jobs.causes import CANCEL, DISAGREEMENT, LOSS_CODES, LOST_CODE, SUCCESS
from windfall.core.state.jobs.columns import CANCELLED, DONE, FAILED, HELD, NO_EXIT, WAITING
from windfall.core.state.state import State


def apply_server_started(state: State, event: ServerStarted, decided: Nothing) -> None:
    """Hosts could not reach the server while it was down: their leases begin anew."""
    state.settings = event.settings
    # How many are kept, and for how long, may have changed. Snapshots do not hold these, so a replay forgets them, too.
    state.hosts.forget_t, state.hosts.forget_beyond = event.t if state.hosts.away else inf, 0
    for number in [*state.hosts.unknown]:
        host = state.hosts[number]
        host.state = LIVE
        state.hosts.live_slots += host.slots
        state.hosts.note_held(host)
    state.hosts.live = OrderedDict.fromkeys(sorted([*state.hosts.live, *state.hosts.unknown]))
    state.hosts.unknown.clear()
    for number in state.hosts.live:
        state.hosts[number].times.seen_t = event.t
    welcome(state, event.t)


def apply_job_submitted(state: State, event: JobSubmitted, decided: JobTaken) -> None:
    if decided.known:
        return
    state.bags.add(Bag.new(decided.job, event.rules, event.classes, event.t))


def apply_job_shaped(state: State, event: JobShaped, decided: Nothing) -> None:
    shape = state.bags.shapes.get(event.shape)
    if shape is None:
        shape = state.bags.shapes[event.shape] = graphs.unpack(event.offsets, event.children)
    state.bags[event.job].take_shape(shape)


def apply_tasks_added(state: State, event: TasksAdded, decided: TasksTaken) -> None:
    bag = state.bags[event.job]
    bag.grow(event.count, event.klass)
    if bag.stopped:
        bag.stop(bag.stopped)
    attempts.settle(state, bag, event.t)


def apply_job_sealed(state: State, event: JobSealed, decided: JobSettled) -> None:
    bag = state.bags[event.job]
    bag.sealed = True
    attempts.settle(state, bag, event.t)
    follow(state, bag, decided)


def apply_job_changed(state: State, event: JobChanged, decided: JobSettled) -> None:
    bag = state.bags[event.job]
    planned = state.fleet.plan_of(bag.number)
    if planned is not None and event.rules.budget_microusd != bag.rules.budget_microusd:
        planned.refused = []  # what the old budget did not allow says nothing about the new one
    _hold_memory(state, bag, -1)
    bag.terms = Terms(event.rules, bag.classes if event.classes is None else event.classes, bag.tail)
    _hold_memory(state, bag, 1)
    attempts.settle(state, bag, event.t)
    if decided.stopped:
        attempts.stop_jobs(state, decided.stopped, event.t)
    follow(state, bag, decided)


def _hold_memory(state: State, bag: Bag, sign: int) -> None:
    """What hosts hold for attempts that are out follows what their tasks ask for: it is given back by the same rule."""
    for task, attempts_ in (*bag.attempts.live.items(), *bag.attempts.given_up.items()):
        for attempt in attempts_:
            host = state.hosts.get(attempt.host)
            if host is not None and (bag.number, task, attempt.number) in host.held:
                host.memory_held += sign * bag.memory_for(task, attempt.number)


def apply_job_cancelled(state: State, event: JobCancelled, decided: TasksChosen) -> None:
    bag = state.bags[event.job]
    if event.tasks is None:
        attempts.stop_job(state, bag, event.reason or "cancelled")
        bag.sealed = True
    for task in decided.tasks:
        if bag.columns.state[task] == WAITING:
            bag.withdraw(task)
        bag.move(task, CANCELLED)
        attempts.cancel_attempts(state, bag, task)
    attempts.settle(state, bag, event.t)


def apply_job_retried(state: State, event: JobRetried, decided: TasksChosen) -> None:
    """The same tasks under the same ids, with fresh budgets; attempts go on being counted."""
    bag = state.bags[event.job]
    if decided.tasks:
        bag.stopped = ""
    for task in decided.tasks:
        bag.columns.failures[task] = bag.columns.losses[task] = 0
        bag.progress.votes.pop(task, None)
        if bag.columns.state[task] == FAILED:
            cause = bag.columns.cause[task]
            bag.tally.causes[cause] -= 1
            if not bag.tally.causes[cause]:
                del bag.tally.causes[cause]
        attempts.requeue(state, bag, task)
    attempts.settle(state, bag, event.t)
    if decided.stopped:
        attempts.stop_jobs(state, decided.stopped, event.t)


def apply_job_forgotten(state: State, event: JobForgotten, decided: JobLetGo) -> None:
    if decided.refused:
        return
    bag = state.bags[event.job]
    for task in list(bag.attempts.given_up):
        attempts.cancel_attempts(state, bag, task)  # hosts that hold them still, silent or gone
    settle(state, bag, event.t, decided.share_microusd)
    state.bags.remove(bag)


def apply_host_blocked(state: State, event: HostBlocked, decided: Nothing) -> None:
    host = state.host(event.host)
    if host is not None:
        host.access = replace(host.access, blocked=event.reason or "blocked", blocked_until=event.until)


def apply_host_unblocked(state: State, event: HostUnblocked, decided: Nothing) -> None:
    host = state.host(event.host)
    if host is not None:
        host.access = replace(host.access, blocked="", blocked_until=None, draining=False)
        host.record.pardon()


def apply_host_drained(state: State, event: HostDrained, decided: Nothing) -> None:
    host = state.host(event.host)
    if host is not None:
        host.access = replace(host.access, draining=True)


def apply_results(state: State, event: ResultsReported, decided: ResultsJudged) -> None:
    host, books, results, t = state.hosts.by_name.get(event.host), state.settings.bookkeeping, event.results, event.t
    if host is not None:
        host.record.fade(t, books.host_half_life_s)
        if host.units:
            for result in results:
                state.hosts.free_units(host, (result.job, result.task, result.attempt))
    touched: dict[int, Bag] = {}
    bags, observed = state.bags, decided.observed
    for place, verdict in enumerate(decided.verdicts):
        result = results[place]
        bag = bags.get(result.job)
        if bag is None:
            continue
        touched[result.job] = bag
        if result.rss_bytes and verdict != STALE:
            bag.tally.note_peak(bag.class_of(result.task), result.rss_bytes)
        if verdict == ACCEPTED:
            latency_s = _accept(state, bag, host, result)
            if host is not None and place in observed:
                state.learned.latencies.observe(host.pool, bag._terms.rules.name, latency_s, 0.0, books.latencies)
        else:
            _other(state, bag, host, result, verdict, t)
    if decided.memory or decided.checked or decided.ran or decided.replan or decided.advice:
        _carry_on(state, event, decided)
    for bag in touched.values():
        attempts.settle_results(state, bag, t)
    if decided.stopped:
        attempts.stop_jobs(state, decided.stopped, t)


def _carry_on(state: State, event: ResultsReported, decided: ResultsJudged) -> None:
    """What seldom follows from results: more memory, checks of volunteers, and what is learned."""
    results, bags, books = event.results, state.bags, state.settings.bookkeeping
    for place, memory_bytes in decided.memory:
        result = results[place]
        bag = bags[result.job]
        if decided.verdicts[place] == GROWN and result.task not in bag.progress.memory:
            bag.progress.grown.append(result.task)
        bag.progress.memory.setdefault(result.task, []).append((bag.columns.attempts[result.task] + 1, memory_bytes))
    for check in decided.checked:
        state.hosts[check.host].record.checked(check.verdict, check.granted_s, event.t, books.host_half_life_s)
    for place, seconds in decided.ran:
        _learn_run_time(state, results[place], seconds)
    for job in decided.replan:
        state.touch(job)
    for advice in decided.advice:
        state.learned.take(advice)


def _learn_run_time(state: State, result: Result, seconds: float) -> None:
    bag = state.bags[result.job]
    known = state.learned.run_times.setdefault(bag.class_key(bag.class_of(result.task)), RunTimes())
    known.add(seconds, state.settings.bookkeeping.run_times_kept)


def _accept(state: State, bag: Bag, host: Host | None, result: Result) -> float:
    """The task is done; returns the seconds from sending the attempt to its result in which it did not run."""
    task, end, books = result.task, result.end, state.settings.bookkeeping
    out, tally, progress, ran_s = bag.attempts, bag.tally, bag.progress, end - result.start
    gang = out.gangs.pop(task, None) if out.gangs else None
    was_waiting = bag.columns.state[task] == WAITING
    attempt = attempts.release(state, bag, task, result.attempt)
    if was_waiting:
        # A late result of an attempt that had been given up: the task need not run again.
        bag.withdraw(task)
    if task in out.live or task in out.given_up:
        attempts.cancel_attempts(state, bag, task, attempts.REPLICA)
    bag.move(task, DONE)
    if progress.saved or progress.interrupted_s or progress.memory or progress.votes:
        progress.forget(task)
    if bag.shape is not None:
        bag.release_children(task)
        index = bag.class_of(task)
        done, run_s, longest_s = tally.by_class.get(index, (0.0, 0.0, 0.0))
        tally.by_class[index] = (done + 1, run_s + ran_s, max(longest_s, ran_s))
    _note(bag, host, result)
    if gang is not None:
        # What is shown of it, and its value, are those of the host of rank 0.
        bag.columns.attempt[task], bag.columns.host[task] = gang.first, gang.hosts[0]
    tally.run_s += ran_s
    turnaround_s = end - (attempt.sent if attempt else result.start)
    cell = cell_of(turnaround_s, books.turnaround_cells)
    tally.turnarounds[cell] = tally.turnarounds.get(cell, 0) + 1
    if tally.last_result_t is None or end > tally.last_result_t:
        tally.last_result_t = end if end > 0.0 else 0.0
    if host is not None:
        host.record.succeeded(turnaround_s, result.cpu_s, books.host_mean_over)
    if task in tally.blame:
        _blame(state, bag, host, result)
    return turnaround_s - ran_s if turnaround_s > ran_s else 0.0


def _blame(state: State, bag: Bag, host: Host | None, result: Result) -> None:
    """The task has succeeded: the other hosts on which it failed are to blame."""
    for number in bag.tally.blame.pop(result.task, ()):
        if host is None or number != host.number:
            blamed = state.hosts.get(number)
            if blamed is not None:
                blamed.record.blamed(result.end, state.settings.bookkeeping.host_half_life_s)


def _other(state: State, bag: Bag, host: Host | None, result: Result, verdict: int, t: float) -> None:
    task = result.task
    if verdict == VOTED:
        _vote(state, bag, host, result)
        return
    if verdict == PART:
        parts.note_done(state, bag, task, result.attempt)
        return
    if verdict in (STALE, WASTE, DROPPED):
        bag.tally.waste += verdict == WASTE
        if 0 <= task < bag.total and _holds(bag, host, result):
            attempts.release(state, bag, task, result.attempt, attempts.REPLICA, result.end - result.start)
        return
    if result.cause == SUCCESS and verdict in (REQUEUED, LOST_FOR_GOOD):
        # A host of several says that it has done its part, which it was not told to begin.
        result = replace(result, cause=LOST_CODE)
    attempts.release(state, bag, task, result.attempt, _waste_of(result, verdict), result.end - result.start)
    if result.cause == SUCCESS:
        # So many volunteers disagree that the task has failed.
        result = replace(result, cause=DISAGREEMENT)
        bag.columns.failures[task] += 1
        bag.progress.votes.pop(task, None)
    else:
        charge(bag, host, result, verdict)
    if bag.attempts.gangs:
        parts.end(state, bag, task)
    if verdict in (RETRIED, GROWN, FAILED_FOR_GOOD):
        bag.progress.forget_checkpoint(task)
    if verdict in (RETRIED, GROWN, REQUEUED, RETURNED):
        _note(bag, host, result)
        attempts.requeue(state, bag, task)
    elif verdict in (FAILED_FOR_GOOD, LOST_FOR_GOOD):
        bag.move(task, FAILED)
        _note(bag, host, result)
        bag.tally.causes[result.cause] = bag.tally.causes.get(result.cause, 0) + 1
        bag.tally.last_result_t = max(bag.tally.last_result_t or 0.0, result.end)
        # It failed wherever it was tried, so no host is blamed.
        bag.tally.blame.pop(task, None)


def _waste_of(result: Result, verdict: int) -> str:
    """Why its work is wasted; empty of an attempt that was handed back before it began."""
    if verdict == RETURNED:
        return ""
    if result.cause == CANCEL:
        return attempts.CANCELLED_WORK
    return attempts.LOST if result.cause in LOSS_CODES else attempts.FAILED_WORK


def _vote(state: State, bag: Bag, host: Host | None, result: Result) -> None:
    """Keep a success that waits for others to agree; its task waits again, unless it runs or waits already."""
    assert host is not None
    task = result.task
    attempts.release(state, bag, task, result.attempt)
    vote = Vote(result.attempt, host.number, host.owner, result.digest, result.cpu_s)
    bag.progress.votes.setdefault(task, []).append(vote)
    if bag.columns.state[task] == HELD and task not in bag.attempts.live:
        attempts.requeue(state, bag, task)


def _holds(bag: Bag, host: Host | None, result: Result) -> bool:
    """Whether this host holds the attempt, or nobody does: a report about another host's attempt does not end it."""
    task, number = result.task, result.attempt
    attempt = bag.attempts.find(task, number) or attempts.given_up(bag, task, number)
    return attempt is None or (host is not None and attempt.host == host.number)


def charge(bag: Bag, host: Host | None, result: Result, verdict: int) -> None:
    """Count a failure or a loss against the task's budgets and into the host's record."""
    # Of a task that had too little memory, neither the task nor the host is to blame, but the request.
    if verdict in (RETURNED, GROWN) or result.cause == CANCEL:
        return
    task = result.task
    if result.cause in LOSS_CODES:
        bag.columns.losses[task] += 1
        if host is not None:
            host.record.lost_task()
        return
    bag.columns.failures[task] += 1
    if host is not None:
        host.record.failed_task(bag.number, result.cpu_s)
        hosts = bag.tally.blame.setdefault(task, [])
        if host.number not in hosts:
            hosts.append(host.number)


def _note(bag: Bag, host: Host | None, result: Result) -> None:
    columns, task, exit_ = bag.columns, result.task, result.exit
    columns.attempt[task] = result.attempt
    columns.host[task] = 0 if host is None else host.number
    columns.start[task] = result.start
    columns.end[task] = result.end
    columns.exit[task] = NO_EXIT if exit_ is None else exit_ and max(-32767, min(32767, exit_))
    columns.cause[task] = result.cause
