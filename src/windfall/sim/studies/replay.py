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
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from windfall.core.records import Record, decode_record
from windfall.core.renting.money import usd
from windfall.core.wishes import PLANNER
from windfall.errors import BadInput
from windfall.sim.run import RunOutcome
from windfall.sim.scenario import Bag, Scenario, change, check
from windfall.sim.studies.one_bag import budget_of_scenario
from windfall.sim.studies.replayed_clouds import seconds
from windfall.sim.studies.replayed_log import SeenJob, SeenLog, read_into
from windfall.sim.studies.sweep import Interval, interval
from windfall.store import holds_state, open_store
from windfall.store.location import StateLocation, locate

QUANTILES = 101
READ_AT_A_TIME = 2000
LONGER_THAN_SEEN = 1.1
"""An attempt that was cut short takes this many times as long as was seen of it, or as long as its task took later.

It had not ended, and must not end in the replay, whose clock differs from the log's by some tenths of a second.
"""


class Fitted(SeenLog):
    """The content of a log, and the scenarios that are fitted to it."""

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
        scenario = replace(scenario, bags=tuple(self._as_cancelled(bag) for bag in scenario.bags))
        if any(what.startswith("bag") for what in changes):
            return replace(scenario, bags=tuple(self._shaped(bag) for bag in scenario.bags))
        if changes or not self._plans_hold():
            bags = tuple(self._as_run(bag) for bag in scenario.bags)
            return replace(scenario, bags=bags, plans_took=tuple(self.plans_took))
        bags = tuple(self._as_held(bag) for bag in scenario.bags)
        # What a machine needs before its first task is part of the time for which that task had its slot.
        clouds = tuple(replace(cloud, warm_up_s=0.0) for cloud in scenario.clouds)
        return replace(
            scenario,
            bags=bags,
            clouds=clouds,
            told_plans=tuple(self.told_plans),
            plans_took=tuple(self.last_plans_took),
        )

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

    def _as_cancelled(self, bag: Bag) -> Bag:
        """What somebody cancelled is cancelled at the same time."""
        cancelled_s = self._job_of(bag).cancelled_s
        return bag if cancelled_s is None else replace(bag, cancelled_s=cancelled_s - self.began_s)

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
        run_times_s = tuple(job.held_by_task())
        at_waking = tuple(job.at_waking)
        sent = tuple((*key, machine, t - self.began_s) for key, (machine, t) in job.sent_of.items())
        return replace(
            self._shaped(bag), run_times_s=run_times_s, unfinished=unfinished, at_waking=at_waking, sent=sent
        )

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
            told_spread=classes[0].spread if classes else None,
            planner=(job.rules.planner or PLANNER) if bag.planner else "",
        )

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
        "budget_usd": budget_of_scenario(None if rules.budget_microusd is None else usd(rules.budget_microusd)),
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
    read_into(fitted, records)
    return fitted


def answer(fitted: Fitted, outcomes: list[RunOutcome], changed: bool) -> dict[str, Any]:
    """Predicted against actual turnaround and cost of each job; with changes, the predicted effect."""
    rows, lines = [], []
    for number, job in fitted.jobs.items():
        bags = [bag for run in outcomes for bag in run.bags if bag.name == f"{number}-{job.name}"]
        times = [bag.turnaround_s for bag in bags if bag.turnaround_s is not None]
        if not times:
            continue
        complete = job.done == job.tasks or job.cancelled_s is not None
        took = _Compared(interval(times), job.turnaround_s if complete else None)
        row: dict[str, Any] = {
            "job": number, "name": job.name, "predicted_s": took.predicted, "actual_s": took.actual,
            "off_by": took.off_by,
        }  # fmt: skip
        cancelled = " (cancelled)" if job.cancelled_s is not None else ""
        line = f"  job {number} '{job.name}'{cancelled}: {took.say(changed, '{:,.1f} s')}"
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
