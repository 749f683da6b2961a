"""What a live log holds, job by job and host by host, for its replay. Pure.

Read from the records in turn, with the state that they lead to: run times and for how long attempts had their slots,
losses, hosts, plans, and what became of rented machines (`replayed_clouds`).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from windfall.core.decisions import ACCEPTED, HostAnswered, TimeJudged
from windfall.core.engine import Engine
from windfall.core.events import (
    HostAsked,
    JobCancelled,
    JobRules,
    JobSealed,
    JobSubmitted,
    PlanProposed,
    Result,
    ResultsReported,
    ServerStarted,
    Settings,
    TaskClass,
    TasksAdded,
)
from windfall.core.records import Record
from windfall.core.renting.money import usd
from windfall.core.renting.shares import charged_to_job_microusd
from windfall.core.state.renting.fleet import TAKEN, MachineState
from windfall.core.state.state import State
from windfall.drivers.simulated import PlanTook, ToldPlan
from windfall.sim.studies.replayed_clouds import MarketNews, clouds_of
from windfall.wire.messages import CANCELLED, CAUSES, DONE, LOSSES

DONE_CODES = frozenset({CAUSES.index(DONE)})
NO_FAILURES = DONE_CODES | {CAUSES.index(CANCELLED)}
"""Causes for which a task is not to blame: it was done twice, or we stopped an attempt that was no longer needed."""
LOSS_CODES = frozenset(CAUSES.index(cause) for cause in LOSSES)
CUT_SHORT = LOSS_CODES | {CAUSES.index(CANCELLED)}
"""Causes of attempts that would have run longer."""
AT_WAKING_S = 0.25
"""A result that comes this soon after its machine woke from hibernation, or before, was there when it woke.

The replay must not have it later: by then the machine may have been given back, and the plans of the log, for which
the task is done, would leave it out.
"""


BEFORE_INTERRUPTION_S = 0.001
"""A result that was under way when its machine was interrupted had been sent this long before."""


class RentedResult(NamedTuple):
    """An accepted result of a rented machine: (task, attempt), its machine, and when it was sent and came back."""

    attempt: tuple[int, int]
    machine: int
    sent_t: float
    t: float
    held_s: float
    """For how long it had its slot, on a machine of speed 1."""


class SeenJob(Struct):
    """A job of the log."""

    name: str
    submitted_s: float
    tasks: int = 0
    policies: dict[str, str] = field(default_factory=dict)
    priority: float = 0.0
    cpus: float = 1.0
    runs_s: list[float] = field(default_factory=list)
    finished_s: float = 0.0
    done: int = 0
    rules: JobRules = JobRules("")
    estimate_s: float | None = None
    task_class: str = ""
    cost_usd: float | None = None
    """What its machines cost; None without any."""
    runs_of: dict[int, float] = field(default_factory=dict)
    """Run time of each task on a machine of speed 1."""
    held_of: dict[int, float] = field(default_factory=dict)
    """For how long each task had its slot, from being sent to its result, on a machine of speed 1."""
    cut_s: dict[tuple[int, int], float] = field(default_factory=dict)
    """(task, attempt): for how long an attempt that was cut short had had its slot, on a machine of speed 1."""
    second_s: dict[tuple[int, int], float] = field(default_factory=dict)
    """(task, attempt): for how long an attempt had its slot that was done after another one of its task."""
    rented_results: list[RentedResult] = field(default_factory=list)
    sent_of: dict[tuple[int, int], tuple[int, float]] = field(default_factory=dict)
    """(task, attempt): the rented machine that it was handed out to, and when."""
    at_waking: list[tuple[int, int, float]] = field(default_factory=list)
    """(task, attempt, seconds): attempts whose result was there when their machine woke, and how soon it came."""
    classes: list[TaskClass] = field(default_factory=list)
    classes_of: list[int] = field(default_factory=list)
    """The place of each task's class among `classes`."""
    edges: tuple[tuple[int, int], ...] = ()
    """Of a workflow: (parent, child)."""
    cancelled_s: float | None = None
    """When somebody cancelled what was left of it."""

    def class_of(self, task: int) -> TaskClass:
        known = task < len(self.classes_of) and self.classes_of[task] < len(self.classes)
        return self.classes[self.classes_of[task]] if known else TaskClass(self.cpus, name=self.task_class)

    def runs_by_task(self) -> list[float]:
        """Run time of every task; one that did not end is as long as the median of its class."""
        of_class: dict[int, list[float]] = {}
        for task, run_s in self.runs_of.items():
            of_class.setdefault(self.classes_of[task], []).append(run_s)
        usual = {which: float(np.median(runs)) for which, runs in of_class.items()}
        otherwise = float(np.median(self.runs_s))
        return [self.runs_of.get(task, usual.get(self.classes_of[task], otherwise)) for task in range(self.tasks)]

    @property
    def rents(self) -> bool:
        return bool(self.rules.rent_from)

    @property
    def is_timed(self) -> bool:
        """Whether it rents, and is known for how long each of its tasks had a slot; of a cancelled one, those done."""
        known = len(self.held_of)
        return self.rents and (known == self.tasks or (known > 0 and self.cancelled_s is not None))

    def held_by_task(self) -> list[float]:
        """For how long each task had its slot; one that did not end, as long as the median of the others."""
        usual = float(np.median(list(self.held_of.values())))
        return [self.held_of.get(task, usual) for task in range(self.tasks)]

    @property
    def turnaround_s(self) -> float:
        """Seconds from its submission to its last result, or to its cancelling."""
        ended_s = self.finished_s if self.cancelled_s is None else self.cancelled_s
        return ended_s - self.submitted_s


class SeenHost(Struct):
    """A host of the log, from its first exchange to its last."""

    pool: str
    slots: int
    came_s: float
    last_s: float
    lost: bool = False
    machine: int = 0
    """The number of the rented machine that it is; 0: it is not rented."""
    runs: list[tuple[float, float]] = field(default_factory=list)

    def gaps_s(self) -> list[float]:
        """Idle seconds of a slot between two attempts: the cost of an attempt beyond its run time."""
        starts, ends = sorted(start for start, _ in self.runs), sorted(end for _, end in self.runs)
        return [max(0.0, start - end) for start, end in zip(starts[self.slots :], ends, strict=False)]


class SeenLog(Struct):
    """The content of a log."""

    source: str
    jobs: dict[int, SeenJob] = field(default_factory=dict)
    hosts: dict[str, SeenHost] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)
    latencies_s: list[float] = field(default_factory=list)
    attempts: int = 0
    lost: int = 0
    failed: int = 0
    began_s: float = inf
    ended_s: float = 0.0
    plans_took: list[PlanTook] = field(default_factory=list)
    """How each plan went: the seconds from the state that it rests on to its proposal."""
    last_plans_took: list[PlanTook] = field(default_factory=list)
    """The same for plans of jobs that had ended: they give the machines back."""
    told_plans: list[ToldPlan] = field(default_factory=list)
    """The plans of jobs that had not ended, in seconds since the first submission."""
    clouds: list[dict[str, Any]] = field(default_factory=list)
    """Clouds from which machines were rented, as tables of a scenario."""

    def warm_up_s(self) -> float:
        """Median of the seconds from the first request of a rented machine to the start of its first task."""
        rented = [host for host in self.hosts.values() if host.machine and host.runs]
        first = [min(start for start, _ in host.runs) - host.came_s for host in rented]
        return max(0.0, float(np.median(first))) if first else 0.0


def read_into(fitted: SeenLog, records: Iterator[Record]) -> None:
    """Add what the records of a log say, from its first one on."""
    sent: dict[tuple[int, int, int], _Sent] = {}
    engine, state, news = Engine(), State(), MarketNews()
    opened = 0
    at: dict[int, float] = {}
    for record in records:
        event, decided, t = record.event, record.decided, record.event.t
        ordered = len(state.fleet.machines)
        engine.apply(state, record)
        news.hear(event)
        fitted.ended_s = max(fitted.ended_s, t)
        if isinstance(event, ServerStarted):
            fitted.settings = event.settings
        elif isinstance(event, JobSubmitted):
            opened = decided.job  # type: ignore[union-attr]
            _submitted(fitted, opened, event)
        elif isinstance(event, TasksAdded):
            if event.job in fitted.jobs:
                fitted.jobs[event.job].tasks += event.count
                fitted.jobs[event.job].classes_of += [event.klass] * event.count
        elif isinstance(event, JobSealed):
            fitted.began_s = min(fitted.began_s, t)
            _sealed(fitted, state, event.job)
        elif isinstance(event, JobCancelled):
            if event.tasks is None and event.job in fitted.jobs:
                fitted.jobs[event.job].cancelled_s = t
        elif isinstance(event, HostAsked):
            _asked(fitted, event, decided, sent, state)  # type: ignore[arg-type]
        elif isinstance(event, ResultsReported):
            _reported(fitted, event, decided.verdicts, sent, state)  # type: ignore[union-attr]
        elif isinstance(event, PlanProposed) and event.seq in at:
            took = PlanTook(max(0.0, t - at[event.seq]), not event.error)
            fitted.plans_took.append(took)
            if event.job in state.bags and state.bags[event.job].finished_t is not None:
                fitted.last_plans_took.append(took)
            elif event.job in state.bags:
                fitted.told_plans.append(ToldPlan(t, event.job, event.plan, ordered, event.error))
        at[record.seq] = t
        if isinstance(decided, TimeJudged):
            fitted.lost += len(decided.lost) + len(decided.expired)
    fitted.began_s = min([fitted.began_s, *(job.submitted_s for job in fitted.jobs.values())])
    fitted.told_plans = [_since(fitted.began_s, told) for told in fitted.told_plans]
    if state.fleet.machines:
        fitted.clouds = clouds_of(state, fitted.began_s, news, fitted.settings.lease_s / 3, fitted.warm_up_s())
        for number, job in fitted.jobs.items():
            _find_results_under_way(job, fitted, state)
            _find_results_at_waking(job, state)
            if job.rents and number in state.bags:
                job.cost_usd = usd(charged_to_job_microusd(state, number, fitted.ended_s))


def _since(began_s: float, told: ToldPlan) -> ToldPlan:
    """The same plan with times of the replay, which begins at zero."""
    plan = told.plan
    moved = replace(
        plan,
        replan_t=plan.replan_t - began_s,
        spot_until_t=plan.spot_until_t - began_s,
        predicted_finish_t=None if plan.predicted_finish_t is None else plan.predicted_finish_t - began_s,
        promised_t=None if plan.promised_t is None else plan.promised_t - began_s,
        later=[replace(later, at_t=later.at_t - began_s) for later in plan.later],
    )
    return replace(told, at_s=max(0.0, told.at_s - began_s), plan=moved)


def _submitted(fitted: SeenLog, number: int, event: JobSubmitted) -> None:
    rules = event.rules
    first = event.classes[0] if event.classes else TaskClass()
    fitted.jobs.setdefault(
        number,
        SeenJob(
            rules.name, event.t, policies=dict(rules.policies), priority=rules.priority, cpus=first.cpus, rules=rules,
            estimate_s=first.estimate_s, task_class=first.name, classes=list(event.classes),
        ),
    )  # fmt: skip


def _sealed(fitted: SeenLog, state: State, number: int) -> None:
    shape = state.bags[number].shape if number in state.bags else None
    if shape is not None and number in fitted.jobs:
        rows = enumerate(shape.child_rows())
        fitted.jobs[number].edges = tuple((parent, child) for parent, children in rows for child in children)


class _Sent(NamedTuple):
    """When an attempt was handed out, and to which host."""

    t: float
    host: str


def _asked(
    fitted: SeenLog,
    event: HostAsked,
    decided: HostAnswered,
    sent: dict[tuple[int, int, int], _Sent],
    state: State,
) -> None:
    host = fitted.hosts.get(event.host)
    if host is None:
        pool = str((event.ad or {}).get("pool") or "default")
        machine = int((event.ad or {}).get("machine") or 0)
        host = fitted.hosts[event.host] = SeenHost(pool, event.slots, event.t, event.t, machine=machine)
    host.last_s = event.t
    fitted.lost += len(decided.lost)
    host.lost = host.lost or bool(decided.lost)
    for piece in decided.assigned:
        for task in range(piece.first, piece.first + piece.count):
            sent[piece.job, task, piece.attempt] = _Sent(event.t, event.host)
            if host.machine and piece.job in fitted.jobs:
                fitted.jobs[piece.job].sent_of[task, piece.attempt] = (host.machine, event.t)
            fitted.attempts += 1
            if piece.attempt > 1:
                _cut_short(fitted, sent, state, (piece.job, task, piece.attempt - 1), event.t)


def _cut_short(
    fitted: SeenLog, sent: dict[tuple[int, int, int], _Sent], state: State, key: tuple[int, int, int], t: float
) -> None:
    """Note for how long an attempt has had its slot without a result, where it was sent to a rented machine."""
    job, earlier = fitted.jobs.get(key[0]), sent.get(key)
    if job is None or earlier is None:
        return
    host = fitted.hosts.get(earlier.host)
    machine = state.fleet.machines.get(host.machine) if host is not None else None
    if machine is not None:
        until_t = t if machine.ended_t is None else min(t, machine.ended_t)
        job.cut_s[key[1:]] = _held_s(state, host, earlier.t, until_t, job.class_of(key[1]).name)


def _cut_others_short(
    fitted: SeenLog, sent: dict[tuple[int, int, int], _Sent], state: State, key: tuple[int, int, int], t: float
) -> None:
    """The other attempts of a task that is done have not ended by then, whatever the one that ended took."""
    job, task, attempt = key
    bag = state.bags.get(job)
    for number in range(1, 0 if bag is None else bag.columns.attempts[task] + 1):
        if number != attempt:
            _cut_short(fitted, sent, state, (job, task, number), t)


def _reported(
    fitted: SeenLog,
    event: ResultsReported,
    verdicts: list[int],
    sent: dict[tuple[int, int, int], _Sent],
    state: State,
) -> None:
    for result, verdict in zip(event.results, verdicts, strict=True):
        key = (result.job, result.task, result.attempt)
        job = fitted.jobs.get(result.job)
        if result.cause in CUT_SHORT:
            _cut_short(fitted, sent, state, key, event.t)
        elif job is not None:
            job.cut_s.pop(key[1:], None)  # its machine hibernated, woke, and went on with it
        sent_s = sent.pop(key).t if key in sent else None
        if job is None:
            continue
        if verdict == ACCEPTED:
            _cut_others_short(fitted, sent, state, key, event.t)
            host = fitted.hosts.get(event.host)
            job.runs_s.append(_work_s(state, host, result, job.class_of(result.task).name))
            job.runs_of[result.task] = job.runs_s[-1]
            if sent_s is not None:
                held_s = _held_s(state, host, sent_s, event.t, job.class_of(result.task).name)
                job.held_of[result.task] = held_s
                if host is not None and host.machine:
                    job.rented_results.append(RentedResult(key[1:], host.machine, sent_s, event.t, held_s))
            job.done += 1
            if host is not None:
                host.runs.append((result.start, result.end))
            job.finished_s = max(job.finished_s, event.t)
            if sent_s is not None:
                fitted.latencies_s.append(max(0.0, result.start - sent_s))
        elif result.cause in DONE_CODES and sent_s is not None:
            host = fitted.hosts.get(event.host)
            job.second_s[key[1:]] = _held_s(state, host, sent_s, event.t, job.class_of(result.task).name)
        elif result.cause in LOSS_CODES:
            fitted.lost += 1
        elif result.cause not in NO_FAILURES:
            fitted.failed += 1


def _work_s(state: State, host: SeenHost | None, result: Result, task_class: str) -> float:
    """What a task took, on a machine of speed 1; its worker does not count the time that the machine slept."""
    machine = state.fleet.machines.get(host.machine) if host is not None else None
    return max(1e-6, result.end - result.start) * (1.0 if machine is None else machine.offer.speed_for(task_class))


def _held_s(state: State, host: SeenHost | None, sent_t: float, t: float, task_class: str) -> float:
    """For how long a task had its slot by the server's clock, on a machine of speed 1, hibernations left out."""
    machine = state.fleet.machines.get(host.machine) if host is not None else None
    if machine is None:
        return max(1e-6, t - sent_t)
    return max(1e-6, t - sent_t - machine.slept_s(sent_t, t)) * machine.offer.speed_for(task_class)


def _find_results_under_way(job: SeenJob, fitted: SeenLog, state: State) -> None:
    """Results that a slow server took after their machine had hibernated or ended: they were there before.

    Known at the end of the log alone, as the provider's news come later.
    """
    hosts = {host.machine: host for host in fitted.hosts.values() if host.machine}
    for place, found in enumerate(job.rented_results):
        machine = state.fleet.machines.get(found.machine)
        at_t = None if machine is None else _interrupted_t(machine, found.sent_t, found.t)
        if at_t is not None:
            task, host = found.attempt[0], hosts.get(found.machine)
            held_s = _held_s(state, host, found.sent_t, at_t - BEFORE_INTERRUPTION_S, job.class_of(task).name)
            job.held_of[task] = held_s
            job.rented_results[place] = found._replace(t=at_t - BEFORE_INTERRUPTION_S, held_s=held_s)


def _interrupted_t(machine: MachineState, sent_t: float, t: float) -> float | None:
    """When a machine was interrupted that had an attempt since `sent_t`, and had not woken when its result came."""
    for from_t, to_t in machine.sleeps:
        if sent_t < from_t < t and (to_t is None or t < to_t - AT_WAKING_S):
            return from_t
    ended_t = machine.ended_t if machine.cause == TAKEN else None
    return ended_t if ended_t is not None and sent_t < ended_t < t else None


def _find_results_at_waking(job: SeenJob, state: State) -> None:
    """Mark the attempts whose result came when their machine woke from hibernation: just behind the moment that the
    provider named, or just before. Known at the end of the log alone: a machine may not have woken at all."""
    for found in job.rented_results:
        sleeps = state.fleet.machines[found.machine].sleeps if found.machine in state.fleet.machines else []
        woke_t = [to for from_, to in sleeps if to is not None and found.sent_t < from_ < found.t]
        after_s = [found.t - to for to in woke_t if abs(found.t - to) < AT_WAKING_S]
        if after_s:
            # A plan may have been made in between, and have left its machine other tasks than it would get at once.
            job.at_waking.append((*found.attempt, max(0.0, after_s[-1])))
            job.cut_s[found.attempt] = found.held_s  # it must not end before the machine hibernates
