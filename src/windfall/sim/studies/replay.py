"""A scenario fitted to a live log: its run times, latencies and losses, for "what if" questions.

Touches the state that it reads. What is fitted: the run times of every job (their quantiles), when hosts came, how
long they stayed, how often their attempts were lost or failed, and what an attempt costs a slot beyond its run time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field

from windfall.core.decisions import ACCEPTED, HostAnswered, TimeJudged
from windfall.core.events import (
    HostAsked,
    JobSealed,
    JobSubmitted,
    ResultsReported,
    ServerStarted,
    Settings,
    TasksAdded,
)
from windfall.core.records import Record, decode_record
from windfall.errors import BadInput
from windfall.sim.run import RunOutcome
from windfall.sim.scenario import Scenario, change, check
from windfall.sim.studies.sweep import interval
from windfall.store import holds_state, open_store
from windfall.store.location import StateLocation, locate
from windfall.wire.messages import CAUSES, DONE, LOSSES

DONE_CODE = CAUSES.index(DONE)
LOSS_CODES = frozenset(CAUSES.index(cause) for cause in LOSSES)
QUANTILES = 101
READ_AT_A_TIME = 2000


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

    def document(self) -> dict[str, Any]:
        """The fitted world as a scenario document."""
        pools = [self._pool(name) for name in sorted({host.pool for host in self.hosts.values()})]
        bags = [self._bag(number, job) for number, job in self.jobs.items() if job.tasks and job.runs_s]
        server = {
            "lease": _seconds(self.settings.lease_s),
            "max_replicas": self.settings.max_replicas,
            "tail_enter": self.settings.tail_enter,
        }
        return {"name": "replay", "about": f"fitted to {self.source}", "server": server, "pool": pools, "bag": bags}

    def scenario(self, changes: list[str]) -> Scenario:
        return check(change(self.document(), changes), Path("replay.toml"))

    def _pool(self, name: str) -> dict[str, Any]:
        hosts = [host for host in self.hosts.values() if host.pool == name]
        stays = [host.last_s - host.came_s for host in hosts]
        gone = sum(host.lost for host in hosts)
        pool: dict[str, Any] = {
            "name": name,
            "hosts": len(hosts),
            "slots": max(1, round(float(np.median([host.slots for host in hosts])))),
            "arrive": _law([host.came_s - self.began_s for host in hosts]),
            "errors": min(1.0, self.failed / self.attempts) if self.attempts else 0.0,
            "heartbeat": _seconds(self.settings.lease_s / 3),
            "poll": "1s",
            "poll_max": _seconds(max(1.0, self.settings.lease_s / 3)),
        }
        if gone:
            # Losses per hour of presence; hosts that stayed to the end count as time without a loss.
            pool["stay"] = {"law": "exponential", "mean": _seconds(max(1.0, sum(stays) / gone))}
        return pool

    def _bag(self, number: int, job: SeenJob) -> dict[str, Any]:
        gaps = [gap_s for host in self.hosts.values() for gap_s in host.gaps_s()]
        # The median, so that slots that were idle for lack of work do not count.
        gap_s = float(np.median(gaps)) if gaps else 0.0
        return {
            "name": f"{number}-{job.name}",
            "tasks": job.tasks,
            "run": _law([run_s + gap_s for run_s in job.runs_s]),
            "submit": _seconds(max(0.0, job.submitted_s - self.began_s)),
            "priority": max(0.0, job.priority),
            "cpus": max(1, round(job.cpus)),
            "policy": dict(job.policies),
        }

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


def _seconds(value: float) -> str:
    return f"{value:.6f}s"


def _law(values: Sequence[float]) -> dict[str, Any]:
    """A law with the quantiles of the recorded values."""
    at = np.linspace(0, 1, min(QUANTILES, max(2, len(values))))
    return {"law": "seen", "values": [_seconds(max(0.0, float(value))) for value in np.quantile(values, at)]}


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
            yield from (decode_record(row.data) for row in rows)
            after = rows[-1].seq
    finally:
        store.close()


def fit_records(source: str, records: Iterator[Record]) -> Fitted:
    fitted = Fitted(source)
    sent: dict[tuple[int, int, int], float] = {}
    opened = 0
    for record in records:
        event, decided, t = record.event, record.decided, record.event.t
        fitted.ended_s = max(fitted.ended_s, t)
        if isinstance(event, ServerStarted):
            fitted.settings = event.settings
        elif isinstance(event, JobSubmitted):
            opened = decided.job  # type: ignore[union-attr]
            _submitted(fitted, opened, event)
        elif isinstance(event, TasksAdded):
            if event.job in fitted.jobs:
                fitted.jobs[event.job].tasks += event.count
        elif isinstance(event, JobSealed):
            fitted.began_s = min(fitted.began_s, t)
        elif isinstance(event, HostAsked):
            _asked(fitted, event, decided, sent)  # type: ignore[arg-type]
        elif isinstance(event, ResultsReported):
            _reported(fitted, event, decided.verdicts, sent)  # type: ignore[union-attr]
        if isinstance(decided, TimeJudged):
            fitted.lost += len(decided.lost) + len(decided.expired)
    fitted.began_s = min([fitted.began_s, *(job.submitted_s for job in fitted.jobs.values())])
    return fitted


def _submitted(fitted: Fitted, number: int, event: JobSubmitted) -> None:
    rules = event.rules
    cpus = event.classes[0].cpus if event.classes else 1.0
    fitted.jobs.setdefault(
        number, SeenJob(rules.name, event.t, policies=dict(rules.policies), priority=rules.priority, cpus=cpus)
    )


def _asked(fitted: Fitted, event: HostAsked, decided: HostAnswered, sent: dict[tuple[int, int, int], float]) -> None:
    host = fitted.hosts.get(event.host)
    if host is None:
        pool = str((event.ad or {}).get("pool") or "default")
        host = fitted.hosts[event.host] = SeenHost(pool, event.slots, event.t, event.t)
    host.last_s = event.t
    fitted.lost += len(decided.lost)
    host.lost = host.lost or bool(decided.lost)
    for piece in decided.assigned:
        for task in range(piece.first, piece.first + piece.count):
            sent[piece.job, task, piece.attempt] = event.t
            fitted.attempts += 1


def _reported(
    fitted: Fitted, event: ResultsReported, verdicts: list[int], sent: dict[tuple[int, int, int], float]
) -> None:
    for result, verdict in zip(event.results, verdicts, strict=True):
        sent_s = sent.pop((result.job, result.task, result.attempt), None)
        job = fitted.jobs.get(result.job)
        if job is None:
            continue
        if verdict == ACCEPTED:
            job.runs_s.append(max(1e-6, result.end - result.start))
            job.done += 1
            if event.host in fitted.hosts:
                fitted.hosts[event.host].runs.append((result.start, result.end))
            job.finished_s = max(job.finished_s, event.t)
            if sent_s is not None:
                fitted.latencies_s.append(max(0.0, result.start - sent_s))
        elif result.cause in LOSS_CODES:
            fitted.lost += 1
        elif result.cause != DONE_CODE:
            fitted.failed += 1


def answer(fitted: Fitted, outcomes: list[RunOutcome], changed: bool) -> dict[str, Any]:
    """Predicted against actual turnaround of each job; with changes, the predicted effect."""
    rows, lines = [], []
    for number, job in fitted.jobs.items():
        name = f"{number}-{job.name}"
        times = [
            bag.turnaround_s
            for run in outcomes
            for bag in run.bags
            if bag.name == name and bag.turnaround_s is not None
        ]
        if not times:
            continue
        predicted = interval(times)
        complete = job.done == job.tasks
        error = predicted.mean / job.turnaround_s - 1 if complete and job.turnaround_s > 0 else None
        rows.append({"job": number, "name": job.name, "predicted_s": predicted, "actual_s": job.turnaround_s if complete
                     else None, "off_by": error})  # fmt: skip
        word = "would take" if changed else "predicted"
        actual = f"actual {job.turnaround_s:,.1f} s" if complete else "not complete in the log"
        off = "" if error is None or changed else f"   off by {error:+.1%}"
        gain = "" if error is None or not changed else f"   {error:+.1%} against the log"
        lines.append(f"  job {number} '{job.name}': {word} {predicted.mean:,.1f} s   {actual}{off}{gain}")
    return {"source": fitted.source, "changed": changed, "jobs": rows, "lines": lines,
            "lost": fitted.lost / max(1, fitted.attempts), "scenario": fitted.document()}  # fmt: skip
