"""The moves of a task that has whole hosts: formed, joined, partly done, ended. Called by `apply` only."""

from __future__ import annotations

from windfall.core.decisions import Assigned, GangFormed
from windfall.core.events import Key
from windfall.core.jobs import attempts
from windfall.core.state.jobs.attempts import Gang
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.state import State


def form(state: State, formed: GangFormed, t: float) -> None:
    """The task leaves its queue for all its hosts; each is given its part at its next exchange."""
    bag = state.bags[formed.job]
    for rank, number in enumerate(formed.hosts):
        host, piece = state.hosts[number], formed.part(rank)
        attempts.hand_out(state, host, piece, t)
        host.gang = (formed.job, formed.task, piece.attempt)
        if rank:
            host.session.to_join = (piece,)
            state.hosts.to_tell[number] = None
    bag.attempts.gangs[formed.task] = Gang(formed.first, formed.hosts)


def join(state: State, piece: Assigned, all_joined: Key | None) -> None:
    """A host was given its part. If it is the last one, the others are told to begin."""
    gang = state.bags[piece.job].attempts.gangs[piece.first]
    gang.joined.append(piece.attempt - gang.first)
    if all_joined is None:
        return
    for rank, number in enumerate(gang.hosts):
        if gang.first + rank != piece.attempt:
            state.hosts[number].session.to_begin = ((piece.job, piece.first, gang.first + rank),)
            state.hosts.to_tell[number] = None


def note_done(state: State, bag: Bag, task: int, number: int) -> None:
    """One host has succeeded; it is free for other tasks while the others go on."""
    gang = bag.attempts.gangs[task]
    gang.done.append(number - gang.first)
    attempts.release(state, bag, task, number)


def end(state: State, bag: Bag, task: int) -> None:
    """The attempt has ended on one host: the others are told to drop it."""
    if bag.attempts.gangs.pop(task, None) is not None:
        attempts.cancel_attempts(state, bag, task)
