"""The attempts of a job that are out, by task and by the number of a task's replicas. Pure data."""

from __future__ import annotations

from collections import OrderedDict

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


class Attempts(Struct, array_like=True):
    """The attempts of a bag that are out."""

    live: dict[int, tuple[Attempt, ...]] = field(default_factory=dict)
    """Tuples: nearly every task has one attempt, and a list of one is two objects."""
    given_up: dict[int, list[Attempt]] = field(default_factory=dict)
    """No longer counted on; a late result is still accepted."""
    levels: dict[int, OrderedDict[int, None]] = field(default_factory=dict)
    """Running tasks by the number of their live attempts, each level in the order of sending.

    Ordered dicts: a plain one that is emptied from its front walks over the removed entries at every look.
    """
    released: dict[int, dict[int, int]] = field(default_factory=dict)
    """Attempts of unfinished tasks that went with their host, by task and number: a success counts from it alone."""
    gangs: dict[int, Gang] = field(default_factory=dict)
    """Running tasks that have whole hosts."""

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
            first = self.levels.get(1)
            if first is None:
                first = self.levels[1] = OrderedDict()
            first[task] = None
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
            only = self.levels[1]
            del only[task]
            if not only:
                del self.levels[1]
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
        if old:
            level = self.levels[old]
            del level[task]
            if not level:
                del self.levels[old]
        if new:
            if new not in self.levels:
                self.levels[new] = OrderedDict()
            self.levels[new][task] = None
