"""The driver in virtual time: an agenda of calls, and the same engine that the live server drives. Touches nothing.

A simulated world schedules calls (`at`, `after`) and hands events to the engine (`submit`). There is no other clock
than the time of the call that runs, and calls of the same time run in the order in which they were scheduled. Where a
plan is due the job's planner is called, as the live server would call it, after what else happens at that moment.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from windfall.core.engine import Engine, wake_at
from windfall.core.events import AnyEvent, PlanProposed, Record, ServerStarted, Settings, TimerFired
from windfall.core.renting import plans
from windfall.core.state.agenda import Agenda
from windfall.core.state.snapshot import load, save
from windfall.core.state.state import State
from windfall.errors import BadInput
from windfall.planning.contract import Plan, Planner

Call = Callable[..., None]
FALLBACK, WORKFLOW_FALLBACK = "on-demand", "greedy"
AGAIN_S = 10.0
"""When to look again if even that failed."""
PAUSE_S = 0.1
"""Between two plans for one job, as live: what follows from a plan at once must not keep time from passing."""
FindPlanner = Callable[[str, bool], Planner]
"""A planner by the name that a job gives, and whether the job is a workflow."""


class Simulated:
    """Drives one engine through virtual seconds, from zero."""

    def __init__(
        self, engine: Engine, settings: Settings | None = None, keep: Callable[[Record], None] | None = None,
        planner: FindPlanner | None = None, planning_s: float = 0.0,
    ) -> None:  # fmt: skip
        self.engine = engine
        self.state = State()
        self.now = 0.0
        self.events = 0
        """Calls that have run: what a benchmark counts."""
        self._keep = keep
        self._agenda: Agenda[tuple[float, int, Call, tuple[Any, ...]]] = Agenda()
        self._scheduled = 0
        self._timer_at = inf
        self._saved: bytes | None = None
        self._planner, self._planning_s = planner, planning_s
        self._planned: set[int] = set()
        """Jobs for which a planner is about to be called or is at work."""
        self._last_plan: dict[int, float] = {}
        self.submit(ServerStarted(0.0, settings or Settings()))

    def at(self, t: float, call: Call, *args: Any) -> None:
        """Run `call(*args)` at time `t`, or now if that has passed; what is never due is not kept."""
        if t < inf:
            self._scheduled += 1
            self._agenda.push((t if t > self.now else self.now, self._scheduled, call, args))

    def after(self, seconds: float, call: Call, *args: Any) -> None:
        self.at(self.now + seconds, call, *args)

    def submit(self, event: AnyEvent) -> Record:
        """Decide and apply at once: in virtual time a commit takes no time."""
        record = self.engine.step(self.state, event)
        if self._keep is not None:
            self._keep(record)
        at = wake_at(self.state)
        if at is not None and at < self._timer_at:
            self._timer_at = at
            self.at(at, self._fire)
        if self._planner is not None and self.state.fleet.plans_due:
            for job in plans.due(self.state):
                if job not in self._planned:
                    self._planned.add(job)
                    self.at(self._last_plan.get(job, -inf) + PAUSE_S, self._plan, job)
        return record

    def _plan(self, job: int) -> None:
        """Show the job's planner how things stand; what it says comes after the time that planning takes."""
        if self._saved is not None or self._planner is None or job not in self.state.fleet.plans_due:
            self._planned.discard(job)
            return
        plan, error = self._thought(job)
        if self._planning_s:
            self.after(self._planning_s, self._propose, job, self.state.seq, plan, error)
        else:
            self._propose(job, self.state.seq, plan, error)

    def _thought(self, job: int) -> tuple[Plan, str]:
        """The planner's plan, and why it is not its own, if so: as live, one that fails is replaced for the moment."""
        bag = self.state.bags[job]
        name, fallback = bag.rules.planner, FALLBACK if bag.shape is None else WORKFLOW_FALLBACK
        try:
            return self._think(name, job), ""
        except Exception as failure:
            error = f"planner {name}: {_why(failure)}; {fallback} stepped in"
        try:
            return self._think(fallback, job), error
        except Exception as failure:
            return Plan(replan_t=self.now + AGAIN_S), f"{error} and failed as well: {_why(failure)}"

    def _think(self, name: str, job: int) -> Plan:
        assert self._planner is not None
        ended = plans.closing(self.state, job)
        if ended is not None:
            return ended
        planner = self._planner(name, self.state.bags[job].shape is not None)
        return planner(plans.view(self.state, job, self.now, planner.names_up_to))

    def _propose(self, job: int, seq: int, plan: Plan, error: str) -> None:
        if job in self._planned and self._saved is None:
            self._planned.discard(job)
            self._last_plan[job] = self.now
            self.submit(PlanProposed(self.now, job, seq, plan, error))

    def stop_server(self) -> None:
        """The server goes down: what it keeps is its saved state, and its timers are silent."""
        self._saved = save(self.state)

    def start_server(self, settings: Settings) -> None:
        """It is back with what it had kept."""
        if self._saved is not None:
            self.state, self._saved = load(self._saved), None
        self._timer_at = inf
        self._planned.clear()
        self.submit(ServerStarted(self.now, settings))

    def _fire(self) -> None:
        """The engine's timer. Heartbeats only move it away, so it may ring early and is then set again."""
        if self.now < self._timer_at or self._saved is not None:
            return
        self._timer_at = inf
        at = wake_at(self.state)
        if at is None:
            return
        if at <= self.now:
            self.submit(TimerFired(self.now))
        else:
            self._timer_at = at
            self.at(at, self._fire)

    def run(self, until: float = inf, done: Callable[[], bool] | None = None) -> None:
        """Let time pass until nothing is scheduled, `until` has come, or `done()` holds."""
        agenda = self._agenda
        while agenda.front and agenda.front[0][0] <= until:
            self.now, _, call, args = agenda.pop()
            call(*args)
            self.events += 1
            if done is not None and done():
                return
        if until < inf:
            self.now = max(self.now, until)


def _why(failure: Exception) -> str:
    return failure.message if isinstance(failure, BadInput) else repr(failure)[:500]
