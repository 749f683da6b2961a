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
    GROWN,
    LOST_FOR_GOOD,
    OTHERS_RUN,
    PART,
    REQUEUED,
    RETRIED,
    RETURNED,
    STALE,
    VOTED,
    WASTE,
    ResultsJudged,
)
from windfall.core.events import Result, ResultsReported
from windfall.core.jobs import attempts, quorum, stops
from windfall.core.liveness import timeouts
from windfall.core.renting import runtimes
from windfall.core.state.hosts.hosts import Host
from windfall.core.state.jobs.attempts import Attempt
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.jobs.causes import (
    CANCEL,
    DISAGREEMENT,
    LOSS_CODES,
    NO_DIRECTORY,
    OUT_OF_MEMORY,
    OVER_QUOTA,
    SUCCESS,
    UNRENDERED,
)
from windfall.core.state.jobs.columns import DONE
from windfall.core.state.renting.fleet import machine_of
from windfall.core.state.state import State

DIRECTORY_ATTEMPTS = 3
"""A task has failed when its working directory was missing this often, or once where there is no other host."""

MEMORY_FACTOR, PEAK_MARGIN = 2, 1.25
"""What a task gets that died of too little memory: times what it had, and times the most that its class has taken."""

STRANGER, SERVER = 0, -1
"""Who reports a result and is no known host; their numbers begin with 1."""


def on_results_reported(state: State, event: ResultsReported, policies: Any) -> ResultsJudged:
    host, results = state.hosts.by_name.get(event.host), event.results
    reporter = host.number if host is not None else SERVER if not event.host else STRANGER
    if len(results) == 1:
        judged = ResultsJudged([judge(state, results[0], reporter, event.t)])
    else:
        judged = ResultsJudged(_judged_once(state, results, reporter, event.t))
    _complete(state, host, event, judged)
    return judged


def _judged_once(state: State, results: list[Result], reporter: int, t: float) -> list[int]:
    """Verdicts on results of different tasks. All are judged by the state before the first is applied: of two results
    of one task the second changes nothing, so that no task is counted twice."""
    verdicts: list[int] = []
    seen: set[tuple[int, int]] = set()
    for result in results:
        task = (result.job, result.task)
        verdicts.append(STALE if task in seen else judge(state, result, reporter, t))
        seen.add(task)
    return verdicts


def complete(state: State, event: ResultsReported, judged: ResultsJudged) -> None:
    """Add to the verdicts what else follows: what is learned, and which jobs have failed too often."""
    _complete(state, state.hosts.by_name.get(event.host), event, judged)


def _complete(state: State, host: Host | None, event: ResultsReported, judged: ResultsJudged) -> None:
    results, verdicts = event.results, judged.verdicts
    if ACCEPTED in verdicts:
        if host is not None:
            judged.observed, advice = timeouts.lessons_of_results(state, host, results, verdicts)
            if advice:
                judged.advice = tuple(advice)
        one = len(verdicts) == 1
        has_digests = results[0].digest if one else any(result.digest for result in results)
        if has_digests or (host is not None and "owner" in host.ad and host.owner):
            judged.checked = tuple(quorum.checks(state, host, results, verdicts))
        if state.fleet.plans:
            ran, replan = runtimes.lessons_of_results(state, host, results, verdicts)
            judged.ran, judged.replan = tuple(ran), tuple(replan)
        if one:
            return
    if not judged.checked and any(result.cause == DISAGREEMENT for result in results):
        judged.checked = tuple(quorum.checks(state, host, results, verdicts))
    if GROWN in verdicts or RETRIED in verdicts or FAILED_FOR_GOOD in verdicts:
        judged.memory = tuple(_more_memory(state, event, verdicts))
    if FAILED_FOR_GOOD in verdicts or LOST_FOR_GOOD in verdicts:
        pairs = zip(results, verdicts, strict=True)
        judged.stopped = tuple(stops.after(state, [(result.job, verdict) for result, verdict in pairs]))


def _more_memory(state: State, event: ResultsReported, verdicts: list[int]) -> list[tuple[int, int]]:
    found = []
    for place, (result, verdict) in enumerate(zip(event.results, verdicts, strict=True)):
        # A task that has failed may be told to try again: not with what was too little.
        if verdict in (GROWN, RETRIED, FAILED_FOR_GOOD) and result.cause == OUT_OF_MEMORY:
            more_bytes = more_memory(state, state.bags[result.job], result)
            if more_bytes:
                found.append((place, more_bytes))
    return found


def more_memory(state: State, bag: Bag, result: Result) -> int:
    """Bytes for the next attempt of a task that died of too little; 0: as before.

    At least twice what it had, at least what tasks of its class have taken (and a quarter more), at most what the
    largest host has.
    """
    index = bag.class_of(result.task)
    rules, had = bag.classes[index], bag.memory_for(result.task, result.attempt)
    if rules.fixed_memory or (rules.memory_per_attempt and result.task not in bag.progress.memory):
        return 0
    _, peak = bag.tally.peaks.get(index, (0, 0))
    wanted = max(MEMORY_FACTOR * (had or result.rss_bytes), int(PEAK_MARGIN * max(peak, result.rss_bytes)))
    largest = _largest_host(state)
    if largest:
        wanted = min(wanted, largest)
    return wanted if wanted > had else 0


def _largest_host(state: State) -> int:
    """The memory of the largest host that is there, in bytes; 0 if no host says."""
    return max((state.hosts[number].memory_bytes for number in state.hosts.live), default=0)


def _grows(state: State, bag: Bag, result: Result) -> bool:
    """Whether a task that died of memory is tried again with more, which costs it nothing: its request was too small.

    This ends by itself, for it gets more each time and never more than the largest host has; where no host says how
    much that is, the task is charged. With `max_failures` of 1 no task is tried again.
    """
    if result.cause != OUT_OF_MEMORY or bag.classes[bag.class_of(result.task)].max_failures == 1:
        return False
    return _largest_host(state) > 0 and more_memory(state, bag, result) > 0


def judge(state: State, result: Result, reporter: int, t: float) -> int:
    """The verdict on one result of a host, given by its number."""
    bag, task, number = state.bags.get(result.job), result.task, result.attempt
    if bag is None:
        return STALE
    book = bag.attempts
    running = book.live.get(task)
    if running is not None and running[0].number == number:
        live: Attempt | None = running[0]  # nearly always: it is out, and no replica runs
    else:
        columns = bag.columns
        if not 0 <= task < len(columns.state) or not 0 < number <= columns.attempts[task]:
            return STALE
        if columns.state[task] >= DONE:
            return WASTE if result.cause == SUCCESS else DROPPED
        live = book.find(task, number)
    holder = live.host if live is not None else attempts.holder(bag, task, number)
    # Only the host that has an attempt, or had it until it restarted or left, may say how it ended; or the server.
    if holder != reporter and reporter != SERVER:
        return STALE
    gang = book.gangs.get(task) if book.gangs else None
    if live is None and bag.classes[bag.class_of(task)].nodes:
        return STALE  # the attempt has ended on another host of the task, so this part counts for nothing
    if result.cause == SUCCESS:
        if gang is not None:
            if not gang.has_begun:
                return judge_loss(bag, task, others=False)  # no host was told to begin: what this one ran is unknown
            if len(book.live[task]) > 1:
                return PART
        return _judge_success(state, bag, result, reporter) if bag._terms.rules.quorum else ACCEPTED
    if live is None:
        return STALE
    others = len(book.live[task]) > 1 and gang is None
    if result.cause == CANCEL:
        return OTHERS_RUN if others else RETURNED
    if result.cause in LOSS_CODES:
        if _is_recalled(state, reporter):
            return OTHERS_RUN if others else RETURNED
        if result.cause == NO_DIRECTORY:
            return OTHERS_RUN if others else _judge_no_directory(state, bag, task, reporter, t)
        return judge_loss(bag, result.task, others, result.end > result.start)
    rules = bag.classes[bag.class_of(result.task)]
    if others:
        return OTHERS_RUN
    if result.cause in (UNRENDERED, OVER_QUOTA):
        # Another attempt would end the same way.
        return FAILED_FOR_GOOD
    if _grows(state, bag, result):
        return GROWN
    return FAILED_FOR_GOOD if bag.columns.failures[result.task] + 1 >= rules.max_failures else RETRIED


def _is_recalled(state: State, reporter: int) -> bool:
    """Whether a plan has recalled the machine of this host: what it hands back costs its tasks nothing."""
    host = state.hosts.get(reporter) if state.fleet.machines else None
    machine = None if host is None else machine_of(state, host)
    return machine is not None and machine.recalled_t is not None


def _judge_success(state: State, bag: Bag, result: Result, reporter: int) -> int:
    """Of a job that volunteers may run: whether enough of them agree."""
    host = state.hosts.get(reporter)
    if host is None or quorum.is_enough(state, bag, result, host):
        return ACCEPTED
    others = len(bag.attempts.live.get(result.task, ())) > 1
    return FAILED_FOR_GOOD if quorum.is_hopeless(bag, result.task, host.owner) and not others else VOTED


def _judge_no_directory(state: State, bag: Bag, task: int, reporter: int, t: float) -> int:
    """The working directory is not on this host, and will not be there a moment later: only another host may help."""
    host = state.hosts.get(reporter)
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
