"""The attempts of a job that are out, by task and by the number of a task's replicas. Pure data."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping
from typing import Any

from msgspec import Struct, field


class Attempt(Struct, array_like=True, gc=False):
    """One execution of a task on one host that the server still counts on, or has given up but may yet hear of."""

    number: int
    host: int
    sent: float
    deadline: float | None = None
    why: int = 0


class Gang(Struct, array_like=True, gc=False):
    """The whole hosts that one task has: `hosts[rank]` runs the attempt `first + rank`."""

    first: int
    hosts: list[int]
    joined: list[int] = field(default_factory=list)
    """Ranks whose hosts hold their attempts. None begins before all do."""
    done: list[int] = field(default_factory=list)
    """Ranks that have succeeded."""

    @property
    def has_begun(self) -> bool:
        return len(self.joined) == len(self.hosts)


class Levels:
    """Running tasks by the number of their live attempts, each level in the order of sending.

    Until a task has a second attempt, or somebody looks for tasks to replicate, the first level is what is live, in its
    order, and nothing is kept of it. Later in ordered dicts: a plain one that is emptied from its front walks over the
    removed entries at every look.
    """

    __slots__ = ("_live", "kept")

    def __init__(self, kept: dict[int, OrderedDict[int, None]] | None = None) -> None:
        self.kept = kept
        self._live: Mapping[int, object] = {}

    def follow(self, live: Mapping[int, object]) -> None:
        """These are the tasks with live attempts, now and later."""
        self._live = live
        if self.kept is not None and self.kept.keys() <= {1} and list(self.kept.get(1, ())) == list(live):
            self.kept = None

    def by_number(self) -> dict[int, OrderedDict[int, None]]:
        """All levels, kept from now on."""
        if self.kept is None:
            self.kept = {1: OrderedDict.fromkeys(self._live)} if self._live else {}
        return self.kept

    def alone(self) -> Collection[int]:
        """Tasks with one live attempt."""
        return self._live.keys() if self.kept is None else self.kept.get(1, ())

    def saved(self) -> dict[int, Any]:
        if self.kept is None:
            return {1: dict.fromkeys(self._live)} if self._live else {}
        return self.kept

    @classmethod
    def restored(cls, values: dict[int, Any]) -> Levels:
        return cls({number: OrderedDict(tasks) for number, tasks in values.items()})


class Attempts(Struct, array_like=True):
    """The attempts of a bag that are out."""

    live: dict[int, tuple[Attempt, ...]] = field(default_factory=dict)
    """Tuples: nearly every task has one attempt, and a list of one is two objects."""
    given_up: dict[int, list[Attempt]] = field(default_factory=dict)
    """No longer counted on; a late result is still accepted."""
    levels: Levels = field(default_factory=Levels)
    released: dict[int, dict[int, int]] = field(default_factory=dict)
    """Attempts of unfinished tasks that went with their host, by task and number: a success counts from it alone."""
    gangs: dict[int, Gang] = field(default_factory=dict)
    """Running tasks that have whole hosts."""

    def __post_init__(self) -> None:
        self.levels.follow(self.live)

    def find(self, task: int, number: int) -> Attempt | None:
        """The live attempt of this number; None if it has ended or was given up."""
        for attempt in self.live.get(task, ()):
            if attempt.number == number:
                return attempt
        return None

    def add(self, task: int, attempt: Attempt) -> None:
        live = self.live
        if task not in live:
            live[task] = (attempt,)
            if self.levels.kept is not None:
                self._level(task, 0, 1)
        else:
            attempts = live[task]
            live[task] = (*attempts, attempt)
            self._level(task, len(attempts), len(attempts) + 1)

    def drop(self, task: int, number: int) -> Attempt | None:
        """Take a live attempt off; None if it is not live."""
        attempts = self.live.get(task)
        if attempts is None:
            return None
        if len(attempts) == 1:
            # Nearly always: no replica runs.
            attempt = attempts[0]
            if attempt.number != number:
                return None
            del self.live[task]
            if self.levels.kept is not None:
                self._level(task, 1, 0)
            return attempt
        for attempt in attempts:
            if attempt.number == number:
                self.live[task] = tuple(other for other in attempts if other is not attempt)
                self._level(task, len(attempts), len(attempts) - 1)
                return attempt
        return None

    def drop_all(self, task: int) -> tuple[Attempt, ...]:
        attempts = self.live.pop(task, ())
        self._level(task, len(attempts), 0)
        return attempts

    def _level(self, task: int, old: int, new: int) -> None:
        if self.levels.kept is None and old <= 1 and new <= 1:
            return
        levels = self.levels.by_number()
        if old:
            level = levels[old]
            del level[task]
            if not level:
                del levels[old]
        if new:
            if new not in levels:
                levels[new] = OrderedDict()
            levels[new][task] = None
        if not levels:
            self.levels.kept = None
