"""The driver in virtual time: an agenda of calls, and the same engine that the live server drives. Touches nothing.

A simulated world schedules calls (`at`, `after`) and hands events to the engine (`submit`). There is no other clock
than the time of the call that runs, and calls of the same time run in the order in which they were scheduled. Where a
plan is due the fleet's planner is called, as the live server would call it, after what else happens at that moment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import takewhile
from math import inf
from typing import Any, NamedTuple

from msgspec import Struct

from windfall.core.decisions import HostAnswered
from windfall.core.engine import Engine
from windfall.core.events import AnyEvent, PlanProposed, ServerStarted, Settings
from windfall.core.idle_hosts import IdleHosts
from windfall.core.records import Record
from windfall.core.state.agenda import Agenda
from windfall.core.state.snapshot import load, save
from windfall.core.state.state import State
from windfall.core.wishes import PlanWish, Wishes, due, plan_wish, wake_at, wishes
from windfall.drivers import thinking
from windfall.errors import BadInput
from windfall.planning.contract import Plan, Planner, Snapshot

Call = Callable[..., None]
FindPlanner = Callable[[str, str], Planner]
"""A planner by its name and by what it plans: a bag, a workflow or a fleet."""


class PlanTook(NamedTuple):
    """How the making of one plan goes."""

    seconds: float
    answered: bool = True
    """False: the planner had no answer in time, and its fallback stepped in."""


class ToldPlan(Struct, frozen=True):
    """A plan of a replayed log: when it was proposed, for which fleet, and how many machines there had been by then."""

    at_s: float
    fleet: int
    plan: Plan
    machines: int
    error: str = ""


def _no_answer(name: str, snapshot: Snapshot) -> Plan:
    raise BadInput("no answer in time")


class Simulated:
    """Drives one engine through virtual seconds, from zero."""

    def __init__(
        self, engine: Engine, settings: Settings | None = None, keep: Callable[[Record], None] | None = None,
        planner: FindPlanner | None = None, planning_s: float = 0.0, plans_took: tuple[PlanTook, ...] = (),
        told_plans: tuple[ToldPlan, ...] = (),
    ) -> None:  # fmt: skip
        self._step = engine.step
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
        self._plans_took = iter(plans_took)
        """How the first plans go, one after the other; all later ones take `planning_s`."""
        self._told_plans = list(reversed(told_plans))
        """Plans that are taken as they were, the next one last."""
        self._told_of = Counter(told.fleet for told in told_plans)
        """How many of them are left, by fleet: no planner is asked for a fleet before its plans are over."""
        self._planned: dict[int, float] = {}
        """Fleets for which a planner is at work or will be called, and when."""
        self.carry_out: Callable[[Wishes], None] = _nobody
        """The world: it rents machines and starts workers."""
        self.idle = IdleHosts(engine.policies)
        self.wake: Callable[[str], None] = _nobody
        """The world: a host asks again, for work or to hear what it shall cancel."""
        self._look_at = inf
        self._told_changes = -1
        self._telling: set[int] = set()
        """Hosts that were woken because there is something to tell them."""
        self.submit(ServerStarted(0.0, settings or Settings()))
        for told in told_plans:
            self.at(told.at_s, self._tell_plan)

    def at(self, t: float, call: Call, *args: Any) -> None:
        """Run `call(*args)` at time `t`, or now if that has passed; what is never due is not kept."""
        if t < inf:
            self._scheduled += 1
            self._agenda.push((t if t > self.now else self.now, self._scheduled, call, args))

    def after(self, seconds: float, call: Call, *args: Any) -> None:
        self.at(self.now + seconds, call, *args)

    def submit(self, event: AnyEvent, more: bool = False) -> Record:
        """Decide and apply at once: in virtual time a commit takes no time.

        `more`: the same call submits another event next, so when to wake is asked after that one.
        """
        state = self.state
        record = self._step(state, event)
        if self._keep is not None:
            self._keep(record)
        fleet = state.fleet
        # Asked after every one of millions of events: mostly the list of wishes holds nothing but a time.
        if fleet.plans_due or fleet.to_order or fleet.to_end or state.supply.asked:
            self._carry_out(wishes(state))
        elif not more and (wake_t := wake_at(state)) < self._timer_at:
            self._wake(wake_t)
        if self.idle.since:
            self.idle.heed(state, record)
            self.look_at_idle()
        if state.hosts.to_tell.changes != self._told_changes:
            self._tell(record)
        return record

    def _tell(self, record: Record) -> None:
        """Wake hosts that have something to cancel or to return, each once until it has been told."""
        hosts, telling, decided = self.state.hosts, self._telling, record.decided
        self._told_changes = hosts.to_tell.changes
        if type(decided) is HostAnswered and decided.host not in hosts.to_tell:
            telling.discard(decided.host)
        # Hosts that vanished are never told, and may be thousands: those that were woken stand before the others.
        found = list(takewhile(lambda number: number not in telling, reversed(hosts.to_tell)))
        for number in reversed(found):
            telling.add(number)
            self.wake(hosts[number].name)

    def look_at_idle(self) -> None:
        """Have hosts ask that wait for work, where there may be some for them."""
        if self._saved is not None:
            return
        names, look_t = self.idle.look(self.state, self.now)
        for name in names:
            self.wake(name)
        if look_t < self._look_at:
            self._look_at = look_t
            self.at(look_t, self._look, look_t)

    def _look(self, look_t: float) -> None:
        if look_t == self._look_at:
            self._look_at = inf
            self.look_at_idle()

    def _wake(self, t: float) -> None:
        self._timer_at = t
        self.at(t, self._fire)

    def _carry_out(self, wanted: Wishes) -> None:
        if wanted.wake_t < self._timer_at:
            self._wake(wanted.wake_t)
        if self._planner is not None and wanted.plans:
            for fleet in wanted.plans:
                if self._told_of and self._told_of[fleet]:
                    continue
                planned_t = self._planned.get(fleet, inf)
                if planned_t <= self.now or (planned_t == inf and fleet in self._planned):
                    continue
                # Changes that are collected may be followed by one that cannot wait.
                if (wish := plan_wish(self.state, fleet)) is not None and wish.at_t < planned_t:
                    self._planned[fleet] = wish.at_t
                    self.at(wish.at_t, self._plan, fleet)
        if wanted.order or wanted.end or wanted.asks:
            self.carry_out(wanted)

    def _plan(self, scheduled: int) -> None:
        """Show a fleet's planner how things stand; what it says comes after the time that planning takes.

        Of several fleets whose plans are due now the first in the list of wishes is planned first.
        """
        due_now = (fleet for fleet in self.state.fleet.plans_due if self._planned.get(fleet, inf) <= self.now)
        fleet = next(due_now, scheduled)
        wish = plan_wish(self.state, fleet) if fleet in self.state.fleet.plans_due else None
        if self._planned.get(fleet, -inf) > self.now:
            return  # a planner is at work, or it was planned before for a change that could not wait
        if self._saved is not None or wish is None:
            self._planned.pop(fleet, None)
            return
        self._planned[fleet] = inf
        names_up_to = self._names_up_to(wish)
        asked = thinking.question(self.state, wish, self.now, names_up_to)
        took = next(self._plans_took, PlanTook(self._planning_s))
        answered = thinking.answer(wish, asked, self._ask if took.answered else _no_answer, self._ask)
        if took.seconds:
            self.after(took.seconds, self._propose, wish, self.state.seq, asked, answered)
        else:
            self._propose(wish, self.state.seq, asked, answered)

    def _tell_plan(self) -> None:
        """The next plan of the log. Once other machines were ordered than there, the fleet's planner goes on."""
        if not self._told_plans or self._saved is not None:
            return
        told = self._told_plans.pop()
        self._told_of[told.fleet] -= 1
        if len(self.state.fleet.machines) != told.machines or told.fleet not in self.state.fleet.plans:
            self._told_plans.clear()
            self._told_of.clear()
            self._carry_out(wishes(self.state))
        else:
            self.submit(PlanProposed(self.now, told.fleet, self.state.seq, told.plan, told.error))

    def _names_up_to(self, wish: PlanWish) -> float:
        assert self._planner is not None
        try:
            return self._planner(wish.planner, wish.kind).names_up_to
        except Exception:  # the question is asked next, fails likewise, and the plan tells why
            return 0.0

    def _ask(self, name: str, snapshot: Snapshot) -> Plan:
        assert self._planner is not None
        return self._planner(name, snapshot.kind)(snapshot)

    def _propose(self, wish: PlanWish, seq: int, asked: Plan | Snapshot, answered: tuple[Plan, str]) -> None:
        if wish.fleet in self._planned and self._saved is None:
            del self._planned[wish.fleet]
            self.submit(thinking.proposal(wish, seq, self.now, asked, answered))

    def stop_server(self) -> None:
        """The server goes down: it keeps its saved state, and its timers do not fire."""
        self._saved = save(self.state)

    def start_server(self, settings: Settings) -> None:
        """It is back with what it had kept."""
        if self._saved is not None:
            self.state, self._saved = load(self._saved), None
        self._timer_at = inf
        self._planned.clear()
        self._telling.clear()
        self._told_changes = -1
        self.submit(ServerStarted(self.now, settings))

    def _fire(self) -> None:
        """The engine's timer. Heartbeats only move it away, so it may ring early and is then set again."""
        if self.now < self._timer_at or self._saved is not None:
            return
        self._timer_at = inf
        events = due(self.state, self.now)
        for event in events:
            self.submit(event)
        if not events:
            self._carry_out(wishes(self.state))

    def run(
        self, until: float = inf, done: Callable[[], bool] | None = None, is_over: Callable[[], bool] | None = None
    ) -> None:  # fmt: skip
        """Let time pass until nothing is scheduled, `until` has come, or `done()` or `is_over()` holds.

        `done` is asked after every call, `is_over` only while no job could run.
        """
        agenda = self._agenda
        while (front := agenda.front) and front[0][0] <= until:
            self.now, _, call, args = agenda.pop()
            call(*args)
            self.events += 1
            if done is not None and done():
                return
            if is_over is not None and not self.state.bags.unfinished and is_over():
                return
        if until < inf:
            self.now = max(self.now, until)


def _nobody(wanted: object) -> None:
    """A world without pools, providers and hosts carries nothing out."""
