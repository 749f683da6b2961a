"""A scenario fitted to a live log: its run times, latencies and losses, for "what if" questions.

Touches the state that it reads. What is fitted: the run times of every job (their quantiles), when hosts came, how
long they stayed, how often their attempts were lost or failed, and what an attempt costs a slot beyond its run time.
Rented machines live as they did in the log (`replayed_clouds`), and tasks of a job that is done run as long. A workflow
is replayed as one: its tasks wait for each other as they did. Without a change of the world, machines are rented and
released by the plans of the log; with one, the planner decides anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from windfall.core.decisions import ACCEPTED, HostAnswered, TimeJudged
from windfall.core.engine import Engine
from windfall.core.events import (
    HostAsked,
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
from windfall.core.records import Record, decode_record
from windfall.core.renting.money import usd
from windfall.core.renting.shares import charged_to_job_microusd
from windfall.core.state.state import State
from windfall.core.wishes import PLANNER
from windfall.drivers.simulated import PlanTook, ToldPlan
from windfall.errors import BadInput
from windfall.sim.run import RunOutcome
from windfall.sim.scenario import Bag, Scenario, change, check
from windfall.sim.studies.replayed_clouds import MarketNews, clouds_of, seconds
from windfall.sim.studies.sweep import Interval, interval
from windfall.store import holds_state, open_store
from windfall.store.location import StateLocation, locate
from windfall.wire.messages import CANCELLED, CAUSES, DONE, LOSSES

DONE_CODES = frozenset({CAUSES.index(DONE)})
NO_FAILURES = DONE_CODES | {CAUSES.index(CANCELLED)}
"""Causes for which a task is not to blame: it was done twice, or we stopped an attempt that was no longer needed."""
LOSS_CODES = frozenset(CAUSES.index(cause) for cause in LOSSES)
CUT_SHORT = LOSS_CODES | {CAUSES.index(CANCELLED)}
"""Causes of attempts that would have run longer."""
QUANTILES = 101
READ_AT_A_TIME = 2000
AT_WAKING_S = 0.25
"""A result that comes this soon after its machine woke from hibernation, or before, was there when it woke.

The replay must not have it later: by then the machine may have been given back, and the plans of the log, for which
the task is done, would leave it out.
"""
LONGER_THAN_SEEN = 1.1
"""An attempt that was cut short takes this many times as long as was seen of it, or as long as its task took later.

It had not ended, and must not end in the replay, whose clock differs from the log's by some tenths of a second.
"""


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
    at_waking: list[tuple[int, int]] = field(default_factory=list)
    """(task, attempt): attempts whose result was there when their machine woke."""
    classes: list[TaskClass] = field(default_factory=list)
    classes_of: list[int] = field(default_factory=list)
    """The place of each task's class among `classes`."""
    edges: tuple[tuple[int, int], ...] = ()
    """Of a workflow: (parent, child)."""

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
        """Whether it rents, and is known for how long each of its tasks had a slot."""
        return self.rents and len(self.held_of) == self.tasks

    @property
    def turnaround_s(self) -> float:
        return self.finished_s - self.submitted_s


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


class Fitted(Struct):
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
    told_plans: list[ToldPlan] = field(default_factory=list)
    """The plans of jobs that had not ended, in seconds since the first submission."""
    clouds: list[dict[str, Any]] = field(default_factory=list)
    """Clouds from which machines were rented, as tables of a scenario."""

    def document(self) -> dict[str, Any]:
        """The fitted world as a scenario document."""
        pools = [self._pool(name) for name in sorted({host.pool for host in self.hosts.values() if not host.machine})]
        bags = [self._bag(number, job) for number, job in self.jobs.items() if job.tasks and job.runs_s]
        server = {
            "lease": seconds(self.settings.lease_s),
            "max_replicas": self.settings.max_replicas,
            "tail_enter": self.settings.tail_enter,
            "tail_leave": self.settings.tail_leave or 0.0,
            "replication": self.settings.replication,
            "replication_cycle": seconds(self.settings.replication_cycle_s),
            "spread_bundles": self.settings.spread_bundles,
        }
        if self.plans_took:
            server["planning"] = seconds(float(np.median([took.seconds for took in self.plans_took])))
        document = {"name": "replay", "about": f"fitted to {self.source}", "server": server, "pool": pools, "bag": bags}
        return document | ({"cloud": self.clouds} if self.clouds else {})

    def scenario(self, changes: list[str]) -> Scenario:
        scenario = check(change(self.document(), changes), Path("replay.toml"))
        if any(what.startswith("bag") for what in changes):
            return replace(scenario, bags=tuple(self._shaped(bag) for bag in scenario.bags))
        if changes or not self._plans_hold():
            bags = tuple(self._as_run(bag) for bag in scenario.bags)
            return replace(scenario, bags=bags, plans_took=tuple(self.plans_took))
        bags = tuple(self._as_held(bag) for bag in scenario.bags)
        # What a machine needs before its first task is part of the time for which that task had its slot.
        clouds = tuple(replace(cloud, warm_up_s=0.0) for cloud in scenario.clouds)
        return replace(scenario, bags=bags, clouds=clouds, told_plans=tuple(self.told_plans))

    def _plans_hold(self) -> bool:
        """Whether the plans of the log are taken as they were.

        Planners weigh choices that cost nearly the same, and a tenth of a second later choose another. A planner that
        took no time, in a log of the simulator, comes to the same plan again. Fleets must have the numbers of the log,
        and it must be known of each task for how long it had its slot.
        """
        numbers = [number for number, job in self.jobs.items() if job.tasks and job.runs_s]
        in_turn = sorted(self.jobs, key=lambda number: self.jobs[number].submitted_s)
        same_numbers = numbers == in_turn == list(range(1, len(self.jobs) + 1))
        timed = all(job.is_timed for job in self.jobs.values())
        took_s = [took.seconds for took in self.plans_took]
        return same_numbers and timed and bool(took_s) and float(np.median(took_s)) > 0.0

    def _as_run(self, bag: Bag) -> Bag:
        """Each task of a job that is done runs as long as it did, beyond a law that only knows how often."""
        job = self._job_of(bag)
        if job.edges:
            return self._shaped(bag)
        if not job.rents or len(job.runs_of) < job.tasks:
            return bag
        gap_s = self._gap_s()
        return replace(bag, run_times_s=tuple(job.runs_of[task] + gap_s for task in range(job.tasks)))

    def _as_held(self, bag: Bag) -> Bag:
        """Each task has its slot for as long as it had, and an attempt that was cut short for longer than it had."""
        job = self._job_of(bag)
        least_s = job.second_s | {key: LONGER_THAN_SEEN * cut_s for key, cut_s in job.cut_s.items()}
        unfinished = tuple((*key, seconds) for key, seconds in least_s.items())
        run_times_s = tuple(job.held_of[task] for task in range(job.tasks))
        at_waking = tuple(job.at_waking)
        return replace(self._shaped(bag), run_times_s=run_times_s, unfinished=unfinished, at_waking=at_waking)

    def _job_of(self, bag: Bag) -> SeenJob:
        return self.jobs[int(bag.name.partition("-")[0])]

    def _shaped(self, bag: Bag) -> Bag:
        """A workflow as it was; one whose number of tasks was changed has no shape any more."""
        job = self._job_of(bag)
        if not job.edges or bag.tasks != job.tasks:
            return bag
        classes = [job.class_of(task) for task in range(job.tasks)]
        return replace(
            bag,
            edges=job.edges,
            # Without what lies between two attempts of a slot: in a workflow that is mostly waiting for parents.
            run_times_s=tuple(job.runs_by_task()),
            classes_of=tuple(one.name for one in classes),
            cpus_of=tuple(max(1, round(one.cpus)) for one in classes),
            memory_bytes_of=(0,) * job.tasks,  # hosts of the replay do not say how much they have
            told="each" if all(one.estimate_is_exact for one in classes) else bag.told,
            estimates_of=tuple(one.estimate_s for one in classes),
            planner=(job.rules.planner or PLANNER) if bag.planner else "",
        )

    def warm_up_s(self) -> float:
        """Median of the seconds from the first request of a rented machine to the start of its first task."""
        rented = [host for host in self.hosts.values() if host.machine and host.runs]
        first = [min(start for start, _ in host.runs) - host.came_s for host in rented]
        return max(0.0, float(np.median(first))) if first else 0.0

    def _gap_s(self) -> float:
        gaps = [gap_s for host in self.hosts.values() for gap_s in host.gaps_s()]
        # The median, so that slots that were idle for lack of work do not count.
        return float(np.median(gaps)) if gaps else 0.0

    def _pool(self, name: str) -> dict[str, Any]:
        hosts = [host for host in self.hosts.values() if host.pool == name and not host.machine]
        stays = [host.last_s - host.came_s for host in hosts]
        gone = sum(host.lost for host in hosts)
        pool: dict[str, Any] = {
            "name": name,
            "hosts": len(hosts),
            "slots": max(1, round(float(np.median([host.slots for host in hosts])))),
            "arrive": _law([host.came_s - self.began_s for host in hosts]),
            "errors": min(1.0, self.failed / self.attempts) if self.attempts else 0.0,
            "heartbeat": seconds(self.settings.lease_s / 3),
            "poll": "1s",
            "poll_max": seconds(max(1.0, self.settings.lease_s / 3)),
        }
        if gone:
            # Losses per hour of presence; hosts that stayed to the end count as time without a loss.
            pool["stay"] = {"law": "exponential", "mean": seconds(max(1.0, sum(stays) / gone))}
        return pool

    def _bag(self, number: int, job: SeenJob) -> dict[str, Any]:
        gap_s = self._gap_s()
        row = {
            "name": f"{number}-{job.name}",
            "tasks": job.tasks,
            "run": _law([run_s + gap_s for run_s in job.runs_s]),
            "submit": seconds(max(0.0, job.submitted_s - self.began_s)),
            "priority": max(0.0, job.priority),
            "cpus": max(1, round(job.cpus)),
            "policy": dict(job.policies),
        }
        if job.rents and self.clouds:
            row |= _renting(job, [cloud["name"] for cloud in self.clouds])
        return row

    def describe(self) -> str:
        runs = [run_s for job in self.jobs.values() for run_s in job.runs_s]
        span_h = (self.ended_s - self.began_s) / 3600
        return (
            f"{self.source}: {len(self.jobs)} jobs, {len(self.hosts)} hosts, {self.attempts:,} attempts"
            f" in {span_h:.2f} h\n"
            f"  run time: median {np.median(runs):.3g} s, 95 % under {np.quantile(runs, 0.95):.3g} s"
            f"   latency: median {np.median(self.latencies_s or [0.0]):.3g} s"
            f"   lost {self.lost / max(1, self.attempts):.2%}   failed {self.failed / max(1, self.attempts):.2%}"
        )


def _renting(job: SeenJob, clouds: list[str]) -> dict[str, Any]:
    """What the plan of a job is made from."""
    rules = job.rules
    return {
        # A workflow gets its own planner with its shape (`_shaped`): a table of a scenario has no place for one.
        "planner": PLANNER if job.edges else rules.planner or PLANNER,
        "clouds": [name for name in rules.rent_from if name in clouds],
        "deadline": seconds(inf if rules.deadline_s is None else rules.deadline_s),
        "budget_usd": usd(rules.budget_microusd or 0),
        "confidence": rules.confidence,
        "class": job.task_class,
        "told": "nothing" if job.estimate_s is None else "mean",
        "estimate": seconds(job.estimate_s or 0.0),
    }


def _law(values: Sequence[float]) -> dict[str, Any]:
    """A law with the quantiles of the recorded values."""
    at = np.linspace(0, 1, min(QUANTILES, max(2, len(values))))
    return {"law": "seen", "values": [seconds(max(0.0, float(value))) for value in np.quantile(values, at)]}


def fit(named: str | Path) -> Fitted:
    """Read the log of a state. BadInput where there is none, or nothing has run yet."""
    state = locate(named)
    if not holds_state(state):
        raise BadInput(f"{state} holds no state", hint="a live server keeps one: windfall server --state DIR")
    fitted = fit_records(str(state), _records(state))
    if not any(job.runs_s for job in fitted.jobs.values()):
        raise BadInput(f"{state}: no task has been done in this log", hint="replay a state in which a job has run")
    return fitted


def _records(state: StateLocation) -> Iterator[Record]:
    store = open_store(state)
    try:
        after = 0
        while rows := store.records(after, READ_AT_A_TIME):
            if not after and rows[0].seq > 1:
                raise BadInput(
                    f"{state}: the beginning of the log was forgotten, so it cannot be replayed",
                    hint="replay a backup or an archive that was made before:  windfall archive JOB -o job.tar.gz",
                )
            yield from (decode_record(row.data) for row in rows)
            after = rows[-1].seq
    finally:
        store.close()


def fit_records(source: str, records: Iterator[Record]) -> Fitted:
    fitted = Fitted(source)
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
        elif isinstance(event, HostAsked):
            _asked(fitted, event, decided, sent, state)  # type: ignore[arg-type]
        elif isinstance(event, ResultsReported):
            _reported(fitted, event, decided.verdicts, sent, state)  # type: ignore[union-attr]
        elif isinstance(event, PlanProposed) and event.seq in at:
            fitted.plans_took.append(PlanTook(max(0.0, t - at[event.seq]), not event.error))
            if event.job in state.bags and state.bags[event.job].finished_t is None:
                fitted.told_plans.append(ToldPlan(t, event.job, event.plan, ordered, event.error))
        at[record.seq] = t
        if isinstance(decided, TimeJudged):
            fitted.lost += len(decided.lost) + len(decided.expired)
    fitted.began_s = min([fitted.began_s, *(job.submitted_s for job in fitted.jobs.values())])
    fitted.told_plans = [_since(fitted.began_s, told) for told in fitted.told_plans]
    if state.fleet.machines:
        fitted.clouds = clouds_of(state, fitted.began_s, news, fitted.settings.lease_s / 3, fitted.warm_up_s())
        for number, job in fitted.jobs.items():
            _find_results_at_waking(job, state)
            if job.rents and number in state.bags:
                job.cost_usd = usd(charged_to_job_microusd(state, number, fitted.ended_s))
    return fitted


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


def _submitted(fitted: Fitted, number: int, event: JobSubmitted) -> None:
    rules = event.rules
    first = event.classes[0] if event.classes else TaskClass()
    fitted.jobs.setdefault(
        number,
        SeenJob(
            rules.name, event.t, policies=dict(rules.policies), priority=rules.priority, cpus=first.cpus, rules=rules,
            estimate_s=first.estimate_s, task_class=first.name, classes=list(event.classes),
        ),
    )  # fmt: skip


def _sealed(fitted: Fitted, state: State, number: int) -> None:
    shape = state.bags[number].shape if number in state.bags else None
    if shape is not None and number in fitted.jobs:
        rows = enumerate(shape.child_rows())
        fitted.jobs[number].edges = tuple((parent, child) for parent, children in rows for child in children)


class _Sent(NamedTuple):
    """When an attempt was handed out, and to which host."""

    t: float
    host: str


def _asked(
    fitted: Fitted,
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
            fitted.attempts += 1
            if piece.attempt > 1:
                _cut_short(fitted, sent, state, (piece.job, task, piece.attempt - 1), event.t)


def _cut_short(
    fitted: Fitted, sent: dict[tuple[int, int, int], _Sent], state: State, key: tuple[int, int, int], t: float
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
    fitted: Fitted, sent: dict[tuple[int, int, int], _Sent], state: State, key: tuple[int, int, int], t: float
) -> None:
    """The other attempts of a task that is done have not ended by then, whatever the one that ended took."""
    job, task, attempt = key
    bag = state.bags.get(job)
    for number in range(1, 0 if bag is None else bag.columns.attempts[task] + 1):
        if number != attempt:
            _cut_short(fitted, sent, state, (job, task, number), t)


def _reported(
    fitted: Fitted,
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


def _find_results_at_waking(job: SeenJob, state: State) -> None:
    """Mark the attempts whose result came when their machine woke from hibernation: just behind the moment that the
    provider named, or just before. Known at the end of the log alone: a machine may not have woken at all."""
    for found in job.rented_results:
        sleeps = state.fleet.machines[found.machine].sleeps if found.machine in state.fleet.machines else []
        if any(
            found.sent_t < from_ < found.t and to is not None and abs(found.t - to) < AT_WAKING_S
            for from_, to in sleeps
        ):
            job.at_waking.append(found.attempt)
            job.cut_s[found.attempt] = found.held_s  # it must not end before the machine hibernates


def answer(fitted: Fitted, outcomes: list[RunOutcome], changed: bool) -> dict[str, Any]:
    """Predicted against actual turnaround and cost of each job; with changes, the predicted effect."""
    rows, lines = [], []
    for number, job in fitted.jobs.items():
        bags = [bag for run in outcomes for bag in run.bags if bag.name == f"{number}-{job.name}"]
        times = [bag.turnaround_s for bag in bags if bag.turnaround_s is not None]
        if not times:
            continue
        complete = job.done == job.tasks
        took = _Compared(interval(times), job.turnaround_s if complete else None)
        row: dict[str, Any] = {
            "job": number, "name": job.name, "predicted_s": took.predicted, "actual_s": took.actual,
            "off_by": took.off_by,
        }  # fmt: skip
        line = f"  job {number} '{job.name}': {took.say(changed, '{:,.1f} s')}"
        if job.cost_usd is not None and fitted.clouds:
            cost = _Compared(interval([bag.cost_usd for bag in bags]), job.cost_usd if complete else None)
            row |= {"predicted_usd": cost.predicted, "actual_usd": cost.actual, "cost_off_by": cost.off_by}
            line += f"\n    machines: {cost.say(changed, '${:,.4f}', 'would cost')}"
        rows.append(row)
        lines.append(line)
    return {"source": fitted.source, "changed": changed, "jobs": rows, "lines": lines,
            "lost": fitted.lost / max(1, fitted.attempts), "scenario": fitted.document()}  # fmt: skip


class _Compared(Struct, frozen=True):
    """What simulated runs say, and what happened; None if the job is not complete in the log."""

    predicted: Interval
    actual: float | None

    @property
    def off_by(self) -> float | None:
        return self.predicted.mean / self.actual - 1 if self.actual else None

    def say(self, changed: bool, form: str, would: str = "would take") -> str:
        actual = "not complete in the log" if self.actual is None else f"actual {form.format(self.actual)}"
        off = ""
        if self.off_by is not None:
            off = f"   {self.off_by:+.1%} against the log" if changed else f"   off by {self.off_by:+.1%}"
        return f"{would if changed else 'predicted'} {form.format(self.predicted.mean)}   {actual}{off}"
