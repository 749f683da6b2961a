"""A hand to drive the engine in unit tests: short calls, a settable clock, promises checked after every step."""

from __future__ import annotations

from typing import Any

from windfall.core.decisions import HostAnswered
from windfall.core.engine import Engine
from windfall.core.events import (
    AnyEvent,
    HostAsked,
    JobRules,
    JobSealed,
    JobSubmitted,
    Key,
    Result,
    ResultsReported,
    ServerStarted,
    Settings,
    TaskClass,
    TasksAdded,
)
from windfall.core.records import Record
from windfall.core.state.invariants import over_budget, problems
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.state import State
from windfall.core.wishes import due, wake_at
from windfall.wire.messages import CAUSES


class Hand:
    """One engine, its state, and the time."""

    def __init__(self, compile_: Any = None, **settings: Any) -> None:
        self.engine = Engine(compile_)
        self.state = State()
        self.t = 1000.0
        self.log: list[Record] = []
        self._n: dict[str, int] = {}
        self.step(ServerStarted(self.t, Settings(**settings)))

    def step(self, event: AnyEvent) -> Record:
        record = self.engine.step(self.state, event)
        self.log.append(record)
        assert problems(self.state) == [] == over_budget(self.state)
        return record

    def submit(self, count: int, classes: list[TaskClass] | None = None, **rules: Any) -> Bag:
        rules.setdefault("name", "bag")
        decided = self.step(JobSubmitted(self.t, JobRules(**rules), classes or [TaskClass()])).decided
        self.step(TasksAdded(self.t, decided.job, count))
        self.step(JobSealed(self.t, decided.job))
        return self.state.bags[decided.job]

    def submit_mixed(self, count: int, classes: list[TaskClass], **rules: Any) -> Bag:
        """`count` tasks of each class."""
        decided = self.step(JobSubmitted(self.t, JobRules("bag", **rules), classes)).decided
        for klass in range(len(classes)):
            self.step(TasksAdded(self.t, decided.job, count, klass))
        self.step(JobSealed(self.t, decided.job))
        return self.state.bags[decided.job]

    def ask(self, host: str, want: int = 1, slots: int = 1, boot: str = "b", **ad: Any) -> HostAnswered:
        first = host not in self._n
        self._n[host] = self._n.get(host, 0) + 1
        leaving, room, secret = ad.pop("leaving", None), ad.pop("room", 0), ad.pop("secret", "")
        described = ad if ad or first else None
        event = HostAsked(self.t, host, boot, self._n[host], want, slots, described, leaving, room=room, secret=secret)
        return self.step(event).decided

    def tasks(self, host: str, want: int = 1, slots: int = 1, **ad: Any) -> list[Key]:
        """What the host is given, task by task."""
        answer = self.ask(host, want, slots, **ad)
        return [
            (piece.job, task, piece.attempt)
            for piece in answer.assigned
            for task in range(piece.first, piece.first + piece.count)
        ]

    def report(
        self,
        host: str,
        *keys: Key,
        cause: str = "done",
        run_s: float = 1.0,
        digest: str = "",
        cpu_s: float | None = None,
    ) -> list[int]:
        code, cpu_s = 0 if cause == "done" else 1, run_s if cpu_s is None else cpu_s
        results = [
            Result(*key, CAUSES.index(cause), code, self.t - run_s, self.t, cpu_s, digest=digest) for key in keys
        ]
        return self.step(ResultsReported(self.t, host, results)).decided.verdicts

    def wait(self, seconds: float) -> None:
        """Let time pass; timers fire when they are due."""
        end = self.t + seconds
        while (at := wake_at(self.state)) <= end:
            self.t = max(self.t, at)
            for event in due(self.state, self.t):
                self.step(event)
        self.t = end
