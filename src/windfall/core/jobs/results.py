"""What becomes of a reported result: accepted once, retried within its budgets, or only noted. Pure.

The first success wins. Failures are the task's doing and losses the machine's; they have separate budgets. A stale
report is recorded and changes nothing.
"""

from __future__ import annotations

from typing import Any

from windfall.core.decisions import (
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
    ResultsJudged,
)
from windfall.core.events import Result, ResultsReported
from windfall.core.jobs import attempts, stops
from windfall.core.liveness import timeouts
from windfall.core.renting import runtimes
from windfall.core.state.jobs.bags import FINAL, Bag
from windfall.core.state.jobs.causes import CANCEL, LOSS_CODES, NO_DIRECTORY, SUCCESS, UNRENDERED
from windfall.core.state.state import State

DIRECTORY_ATTEMPTS = 3
"""A task has failed when its working directory was missing this often, or once where there is no other host."""


def on_results_reported(state: State, event: ResultsReported, policies: Any) -> ResultsJudged:
    judged = ResultsJudged([judge(state, result, event.host, event.t) for result in event.results])
    complete(state, event, judged)
    return judged


def complete(state: State, event: ResultsReported, judged: ResultsJudged) -> None:
    """Add to the verdicts what else follows: what is learned, and which jobs have failed too often."""
    verdicts = judged.verdicts
    if ACCEPTED in verdicts:
        host = state.hosts.by_name.get(event.host)
        if host is not None:
            judged.observed, judged.advice = timeouts.lessons_of_results(state, host, event.results, verdicts)
        if state.fleet.plans:
            judged.ran, judged.replan = runtimes.lessons_of_results(state, host, event.results, verdicts)
    if FAILED_FOR_GOOD in verdicts or LOST_FOR_GOOD in verdicts:
        pairs = zip(event.results, verdicts, strict=True)
        judged.stopped = stops.after(state, [(result.job, verdict) for result, verdict in pairs])


def judge(state: State, result: Result, host: str, t: float) -> int:
    """The verdict on one result of a host."""
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
        if result.cause == NO_DIRECTORY:
            return OTHERS_RUN if others else _judge_no_directory(state, bag, task, host, t)
        return judge_loss(bag, result.task, others, result.end > result.start)
    rules = bag.classes[bag.class_of(result.task)]
    if others:
        return OTHERS_RUN
    if result.cause == UNRENDERED:
        # Another attempt would end the same way.
        return FAILED_FOR_GOOD
    return FAILED_FOR_GOOD if bag.columns.failures[result.task] + 1 >= rules.max_failures else RETRIED


def _judge_no_directory(state: State, bag: Bag, task: int, name: str, t: float) -> int:
    """The working directory is not on this host, and will not be there a moment later: only another host may help."""
    host = state.hosts.by_name.get(name)
    elsewhere = host is not None and state.hosts.others_there(host, t, state.settings.lease_s)
    if not elsewhere or bag.columns.losses[task] + 1 >= DIRECTORY_ATTEMPTS:
        return LOST_FOR_GOOD
    return judge_loss(bag, task, others=False)


def judge_loss(bag: Bag, task: int, others: bool, started: bool = True) -> int:
    """The verdict on a live attempt whose machine went away. One that never started costs the task nothing."""
    if others:
        return OTHERS_RUN
    if not started:
        return RETURNED
    rules = bag.classes[bag.class_of(task)]
    return LOST_FOR_GOOD if bag.columns.losses[task] + 1 >= rules.max_losses else REQUEUED
