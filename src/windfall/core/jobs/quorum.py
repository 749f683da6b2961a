"""Whether the result of a volunteer's host is believed: enough hosts of different owners must agree. Pure.

A host has an owner if its ad says so; all others are trusted, as workers with a token are. A job says how many must
agree (`quorum`); a host with a record needs nobody else, except now and then, and loses that record with the first
result that others contradict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from windfall.core.decisions import ACCEPTED, DROPPED, STALE, Checked
from windfall.core.events import Result
from windfall.core.state.hosts.hosts import Host
from windfall.core.state.jobs.attempts import Attempt
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.jobs.causes import DISAGREEMENT
from windfall.core.state.state import State

VALID_IN_A_ROW = 10
"""Results of a host that others have confirmed, without a contradiction since, before it is believed alone."""
CHECKED_ONE_IN = 10
"""Of the results of a host that is believed, about every tenth is checked all the same."""
AGREED, UNCHECKED, CONTRADICTED = 1, 0, -1
_MIX = 2654435761


def admits(bag: Bag, host: Host) -> bool:
    """Whether tasks of a bag may go to a host at all: to volunteers only if the job says so."""
    return bag.rules.quorum > 0 or not host.owner


def may_try(state: State, bag: Bag, task: int, host: Host) -> bool:
    """Whether a result of this host could count: no two of a task are of one owner."""
    owner = host.owner
    if not owner:
        return True
    if any(vote.owner == owner for vote in bag.progress.votes.get(task, ())):
        return False
    if bag.rules.quorum < 2:
        return True
    running = (state.hosts.get(attempt.host) for attempt in bag.attempts.live.get(task, ()))
    return not any(other is not None and other.owner == owner for other in running)


def lacks_voters(state: State, bag: Bag, task: int, attempts: Iterable[Attempt]) -> bool:
    """Whether a running task needs another owner's result, even if all who run it agree with those who have voted."""
    hosts = [state.hosts.get(attempt.host) for attempt in attempts]
    owners: set[str] = set()
    for host in hosts:
        if host is None or not host.owner or host.record.valid >= VALID_IN_A_ROW:
            return False
        owners.add(host.owner)
    votes = Counter(vote.digest for vote in bag.progress.votes.get(task, ()))
    return len(owners) + max(votes.values(), default=0) < bag.rules.quorum


def needed(state: State, bag: Bag, task: int, host: Host) -> int:
    """How many owners must agree, this host's included."""
    quorum = bag.rules.quorum
    if quorum < 2 or host.record.valid < VALID_IN_A_ROW:
        return quorum
    # One result in CHECKED_ONE_IN. Volunteers cannot tell which: they do not know the number of the record.
    is_checked = (state.seq * _MIX + task * 40503 + bag.number) % (1 << 32) // 7 % CHECKED_ONE_IN == 0
    return quorum if is_checked else 1


def is_enough(state: State, bag: Bag, result: Result, host: Host) -> bool:
    """Whether a success is accepted now; else it is a vote, and the task waits for a host of another owner."""
    if not host.owner:
        return True
    agreeing = {vote.owner for vote in bag.progress.votes.get(result.task, ()) if vote.digest == result.digest}
    return len(agreeing | {host.owner}) >= needed(state, bag, result.task, host)


def is_hopeless(bag: Bag, task: int, owner: str) -> bool:
    """Whether the task fails with a vote of this owner that disagrees, too. Votes of one owner count once."""
    most = bag.rules.quorum + bag.classes[bag.class_of(task)].max_failures
    return len({vote.owner for vote in bag.progress.votes.get(task, ())} | {owner}) >= most


def checks(state: State, host: Host | None, results: Iterable[Result], verdicts: Iterable[int]) -> list[Checked]:
    """What accepted results say about the hosts that have voted, and the processor seconds that each is credited.

    All who agree are credited the least that one of them claims.
    """
    found: list[Checked] = []
    for result, verdict in zip(results, verdicts, strict=True):
        bag = state.bags.get(result.job)
        if result.cause == DISAGREEMENT and host is not None and host.owner and verdict not in (STALE, DROPPED):
            # A validator has found it wrong.
            found.append(Checked(host.number, CONTRADICTED))
        if verdict != ACCEPTED or bag is None:
            continue
        votes = bag.progress.votes.get(result.task, ())
        owner = "" if host is None else host.owner
        if not votes and not owner:
            continue
        agreed = [vote for vote in votes if vote.digest == result.digest]
        granted_s = min([vote.cpu_s for vote in agreed] + ([result.cpu_s] if owner else []), default=0.0)
        if result.digest or owner:
            found += [
                Checked(vote.host, AGREED, granted_s) if vote in agreed else Checked(vote.host, CONTRADICTED)
                for vote in votes
            ]
        if host is not None and owner:
            found.append(Checked(host.number, AGREED if agreed else UNCHECKED, granted_s))
    return found
