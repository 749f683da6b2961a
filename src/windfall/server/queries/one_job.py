"""The status of a job, worded from the state. Touches nothing; its shape is a public contract.

Loads little: `windfall status` uses it without a server, and what few jobs need is loaded when a job needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from windfall.core.state.jobs.columns import CANCELLED, DONE, FAILED, HELD, WAITING
from windfall.server.queries.downtime import Span, within
from windfall.wire.messages import CAUSES

if TYPE_CHECKING:
    from windfall.api.answers import JobMoney, JobPlan, JobStatus, JobWorkflow
    from windfall.core.state.jobs.bags import Bag
    from windfall.core.state.state import State


class Known(Protocol):
    """What is known of the jobs: by a server, or by a log that is read without one."""

    versions: dict[int, int]

    @property
    def state(self) -> State: ...
    @property
    def downtimes(self) -> list[Span]: ...
    def now(self) -> float: ...
    def blocked(self, bag: Bag) -> frozenset[int]: ...


def job_status(known: Known, bag: Bag) -> JobStatus:
    """One job, in one look."""
    counts = bag.counts
    now = known.now()
    end = bag.tally.last_result_t if bag.finished_t is not None and bag.tally.last_result_t else bag.finished_t or now
    money, plan = _renting(known.state, bag, now)
    return {
        "job": bag.number,
        "name": bag.rules.name,
        "owner": bag.rules.owner,
        "state": bag.state,
        "tasks": {
            "total": bag.total,
            "waiting": counts[WAITING],
            "running": counts[HELD],
            "done": counts[DONE],
            "failed": counts[FAILED],
            "cancelled": counts[CANCELLED],
        },
        "attempts": bag.tally.attempts,
        "parts": _parts(bag),
        "waste": bag.tally.waste,
        "submitted_s": bag.submitted_t,
        "finished_s": bag.finished_t,
        "changed_s": changed_t(bag),
        "elapsed_s": max(0.0, end - bag.submitted_t),
        "down_s": within(known.downtimes, bag.submitted_t, end),
        "mean_run_s": bag.tally.run_s / counts[DONE] if counts[DONE] else None,
        "peak_memory_bytes": max((peak for _, peak in bag.tally.peaks.values()), default=None),
        "priority": bag.rules.priority,
        "tail": bag.tail,
        "stopped": bag.stopped,
        "causes": {CAUSES[code]: n for code, n in sorted(bag.tally.causes.items())},
        "deadline_s": None if bag.rules.deadline_s is None else bag.submitted_t + bag.rules.deadline_s,
        "hosts": len(known.state.hosts.live),
        "slots": known.state.hosts.live_slots,
        "version": known.versions.get(bag.number, 0),
        "workflow": _workflow(known, bag),
        "money": money,
        "plan": plan,
    }


def _parts(bag: Bag) -> int:
    """Attempts beside the first of each try: a task of several hosts has one on every host."""
    if not any(rules.nodes > 1 for rules in bag.classes):
        return 0
    tried = ((bag.columns.attempts[task], bag.classes[bag.class_of(task)].nodes) for task in range(bag.total))
    return sum(attempts - attempts // nodes for attempts, nodes in tried if nodes > 1)


def changed_t(bag: Bag) -> float:
    """When a task of it was last handed out or reported, or else when it was submitted."""
    live = next(reversed(bag.attempts.live.values()), None)
    return max(bag.submitted_t, bag.tally.last_result_t or 0.0, live[-1].sent if live else 0.0)


def _workflow(known: Known, bag: Bag) -> JobWorkflow | None:
    """The part of a job's status that only a workflow has."""
    if bag.shape is None:
        return None
    return {
        "class": bag.rules.workflow_class,
        "edges": bag.shape.edges,
        "held": bag.queues.held,
        "blocked": len(known.blocked(bag)),
    }


def _renting(state: State, bag: Bag, now: float) -> tuple[JobMoney | None, JobPlan | None]:
    """The parts that only a job that rents machines has: `money` and `plan`."""
    if state.fleet.plan_of(bag.number) is None:
        return None, None
    from windfall.core.explain.plan import money_of, plan_of

    return money_of(state, bag, now), plan_of(state, bag)
