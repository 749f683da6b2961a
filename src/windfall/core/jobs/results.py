"""What becomes of a reported result: accepted once, retried within its budgets, or only noted. Pure.

The first success wins. Failures are the task's doing and losses the machine's; they have separate budgets. A stale
report is recorded and changes nothing.
"""

from __future__ import annotations

from typing import Any

from windfall.core.events import (
    ACCEPTED,
    DROPPED,
    FAILED_FOR_GOOD,
    LOST_FOR_GOOD,
    OTHERS_RUN,
    REQUEUED,
    RETRIED,
    RETURNED,
    STALE,
    WASTE,
    Result,
    ResultsJudged,
    ResultsReported,
)
from windfall.core.jobs import attempts
from windfall.core.liveness import timeouts
from windfall.core.matching.turnarounds import cell_of
from windfall.core.renting import runtimes
from windfall.core.state.bags import FINAL, Bag
from windfall.core.state.columns import DONE, FAILED, NO_EXIT, WAITING
from windfall.core.state.hosts import Host
from windfall.core.state.state import State
from windfall.wire.messages import CANCELLED as CANCELLED_CAUSE
from windfall.wire.messages import CAUSES, LOSSES, NO_CWD
from windfall.wire.messages import DONE as DONE_CAUSE

SUCCESS = CAUSES.index(DONE_CAUSE)
CANCEL = CAUSES.index(CANCELLED_CAUSE)
NO_DIRECTORY = CAUSES.index(NO_CWD)
LOSS_CODES = frozenset(CAUSES.index(cause) for cause in LOSSES)


def on_results_reported(state: State, event: ResultsReported, policies: Any) -> ResultsJudged:
    return ResultsJudged([judge(state, result) for result in event.results])


def judge(state: State, result: Result) -> int:
    """The verdict on one result."""
    bag, task = state.bags.get(result.job), result.task
    if bag is None:
        return STALE
    columns = bag.columns
    if not 0 <= task < len(columns.state) or not 0 < result.attempt <= columns.attempts[task]:
        return STALE
    if columns.state[task] in FINAL:
        return WASTE if result.cause == SUCCESS else DROPPED
    if result.cause == SUCCESS:
        return ACCEPTED
    if not attempts.is_live(bag, result.task, result.attempt):
        return STALE
    others = len(bag.attempts.live[result.task]) > 1
    if result.cause == CANCEL:
        return OTHERS_RUN if others else RETURNED
    if result.cause in LOSS_CODES:
        # A host that cannot run it at all, for want of the directory, says so each time it is asked: that is bounded.
        started = result.end > result.start or result.cause == NO_DIRECTORY
        return judge_loss(bag, result.task, others, started)
    rules = bag.classes[bag.class_of(result.task)]
    if others:
        return OTHERS_RUN
    return FAILED_FOR_GOOD if bag.columns.failures[result.task] + 1 >= rules.max_failures else RETRIED


def judge_loss(bag: Bag, task: int, others: bool, started: bool = True) -> int:
    """The verdict on a live attempt whose machine went away. One that never started costs the task nothing."""
    if others:
        return OTHERS_RUN
    if not started:
        return RETURNED
    rules = bag.classes[bag.class_of(task)]
    return LOST_FOR_GOOD if bag.columns.losses[task] + 1 >= rules.max_losses else REQUEUED


def apply_results(state: State, event: ResultsReported, decided: ResultsJudged) -> None:
    host = state.hosts.by_name.get(event.host)
    if host is not None:
        host.record.fade(event.t)
    touched: dict[int, Bag] = {}
    learned, bags = 0, state.bags
    for result, verdict in zip(event.results, decided.verdicts, strict=True):
        bag = bags.get(result.job)
        if bag is None:
            continue
        touched[result.job] = bag
        if verdict == ACCEPTED:
            turnaround_s = _accept(state, bag, host, result)
            if host is not None and learned < timeouts.OBSERVED_PER_RECORD:
                learned += 1
                timeouts.learn(state, host, bag, turnaround_s, result.end - result.start)
        else:
            _other(state, bag, host, result, verdict, event.t)
    for bag in touched.values():
        attempts.settle(state, bag, event.t)


def _accept(state: State, bag: Bag, host: Host | None, result: Result) -> float:
    """The task is done; returns how long its result took from the moment the attempt was sent."""
    task = result.task
    was_waiting = bag.columns.state[task] == WAITING
    attempt = attempts.release(state, bag, task, result.attempt)
    if was_waiting:
        # A late result of an attempt that had been given up: the task need not run again.
        bag.withdraw(task)
    if task in bag.attempts.live or task in bag.attempts.given_up:
        attempts.cancel_attempts(state, bag, task)
    bag.move(task, DONE)
    if bag.progress.saved:
        bag.progress.forget_checkpoint(task)
    if bag.progress.interrupted_s:
        bag.progress.interrupted_s.pop(task, None)
    if bag.shape is not None:
        bag.release_children(task)
    _note(bag, host, result)
    bag.tally.run_s += result.end - result.start
    if bag.number in state.fleet.plans:
        runtimes.learn(state, bag, host, result)
    turnaround_s = result.end - (attempt.sent if attempt else result.start)
    cell = cell_of(turnaround_s)
    bag.tally.turnarounds[cell] = bag.tally.turnarounds.get(cell, 0) + 1
    if bag.tally.last_result_t is None or result.end > bag.tally.last_result_t:
        bag.tally.last_result_t = max(0.0, result.end)
    if host is not None:
        host.record.succeeded(turnaround_s, result.cpu_s)
    for number in bag.tally.blame.pop(task, ()) if bag.tally.blame else ():
        if host is None or number != host.number:
            blamed = state.hosts.get(number)
            if blamed is not None:
                blamed.record.blamed(result.end)
    return turnaround_s


def _other(state: State, bag: Bag, host: Host | None, result: Result, verdict: int, t: float) -> None:
    task = result.task
    if verdict in (STALE, WASTE, DROPPED):
        bag.tally.waste += verdict == WASTE
        if 0 <= task < bag.total:
            attempts.release(state, bag, task, result.attempt)
        return
    attempts.release(state, bag, task, result.attempt)
    charge(bag, host, result, verdict)
    if verdict in (RETRIED, FAILED_FOR_GOOD):
        bag.progress.forget_checkpoint(task)
    if verdict in (RETRIED, REQUEUED, RETURNED):
        _note(bag, host, result)
        attempts.requeue(state, bag, task)
    elif verdict in (FAILED_FOR_GOOD, LOST_FOR_GOOD):
        bag.move(task, FAILED)
        _note(bag, host, result)
        bag.tally.causes[result.cause] = bag.tally.causes.get(result.cause, 0) + 1
        bag.tally.last_result_t = max(bag.tally.last_result_t or 0.0, result.end)
        # It failed wherever it was tried: nobody's fault but its own.
        bag.tally.blame.pop(task, None)


def charge(bag: Bag, host: Host | None, result: Result, verdict: int) -> None:
    """Count a failure or a loss against the task's budgets and into the host's record."""
    if verdict == RETURNED or result.cause == CANCEL:
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
