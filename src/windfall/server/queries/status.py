"""What people ask about jobs, tasks and hosts, worded from the state. Touches nothing; shapes are a public contract."""

from __future__ import annotations

from typing import Any

from windfall.core.explain.plan import money_of, plan_of
from windfall.core.state.hosts.hosts import GONE, Host
from windfall.core.state.hosts.pools import OPEN
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.jobs.columns import CANCELLED, DONE, FAILED, HELD, NO_EXIT, STATE_NAMES, WAITING
from windfall.core.supply.overlay import remark
from windfall.core.supply.pools import look, supply_of
from windfall.numeric import np
from windfall.server.http import workflows
from windfall.server.queries.downtime import within
from windfall.server.service import Service
from windfall.wire.messages import CAUSES

Json = dict[str, Any]


def job_status(service: Service, bag: Bag) -> Json:
    """One job, in one look."""
    counts = bag.counts
    now = service.driver.clock()
    end = bag.tally.last_result_t if bag.finished_t is not None and bag.tally.last_result_t else bag.finished_t or now
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
        "waste": bag.tally.waste,
        "submitted_s": bag.submitted_t,
        "finished_s": bag.finished_t,
        "changed_s": changed_t(bag),
        "elapsed_s": max(0.0, end - bag.submitted_t),
        "down_s": within(service.downtimes, bag.submitted_t, end),
        "mean_run_s": bag.tally.run_s / counts[DONE] if counts[DONE] else None,
        "priority": bag.rules.priority,
        "tail": bag.tail,
        "stopped": bag.stopped,
        "causes": {CAUSES[code]: n for code, n in sorted(bag.tally.causes.items())},
        "deadline_s": None if bag.rules.deadline_s is None else bag.submitted_t + bag.rules.deadline_s,
        "hosts": len(service.state.hosts.live),
        "slots": service.state.hosts.live_slots,
        "version": service.versions.get(bag.number, 0),
        "workflow": workflows.summary(service, bag),
        "money": money_of(service.state, bag, now),
        "plan": plan_of(service.state, bag),
    }


def changed_t(bag: Bag) -> float:
    """When a task of it was last handed out or reported, or else when it was submitted."""
    live = next(reversed(bag.attempts.live.values()), None)
    return max(bag.submitted_t, bag.tally.last_result_t or 0.0, live[-1].sent if live else 0.0)


def task_row(service: Service, bag: Bag, task: int) -> Json:
    """One task as `windfall tasks` shows it."""
    columns = bag.columns
    state = columns.state[task]
    ended = columns.attempt[task] > 0
    host = service.state.hosts.get(columns.host[task])
    row: Json = {
        "task": task,
        "state": STATE_NAMES[state],
        "attempts": columns.attempts[task],
        "attempt": columns.attempt[task] or None,
        "failures": columns.failures[task],
        "losses": columns.losses[task],
        "host": host.name if host and ended else None,
        "start_s": columns.start[task] if ended else None,
        "end_s": columns.end[task] if ended else None,
        "exit_code": exit_code(bag, task),
        "cause": CAUSES[columns.cause[task]] if ended else None,
    }
    if bag.shape is not None:
        row["name"] = workflows.name_of(service, bag, task)
        row["parents_left"] = bag.queues.parents_left[task]
        row["blocked"] = task in service.blocked(bag)
    if state == HELD:
        attempts = bag.attempts.live.get(task, [])
        row["hosts"] = [service.state.hosts[attempt.host].name for attempt in attempts]
        row["sent_s"] = min(attempt.sent for attempt in attempts)
    return row


def exit_code(bag: Bag, task: int) -> int | None:
    code = bag.columns.exit[task]
    return None if code == NO_EXIT or not bag.columns.attempt[task] else code


def tasks_in(bag: Bag, states: frozenset[int], after: int, limit: int) -> tuple[list[int], int | None]:
    """Up to `limit` tasks in these states from index `after` on, and where to go on."""
    # A copy: an array that numpy looks into cannot grow.
    column = np.frombuffer(bag.columns.state.tobytes(), dtype=np.uint8)[max(0, after) :]
    found = (np.flatnonzero(np.isin(column, list(states))) + max(0, after))[: limit + 1].tolist()
    return found[:limit], found[limit] if len(found) > limit else None


def recovered(bag: Bag, limit: int) -> list[int]:
    """Tasks that failed at first and are done now."""
    failures = np.frombuffer(bag.columns.failures.tobytes(), dtype=bag.columns.failures.typecode)
    states = np.frombuffer(bag.columns.state.tobytes(), dtype=np.uint8)
    found: list[int] = np.flatnonzero((failures > 0) & (states == DONE))[:limit].tolist()
    return found


def pool_rows(service: Service) -> list[Json]:
    """The pools: what they may give, what they give, and what is missing, by the code that asks for it."""
    state, now = service.state, service.driver.clock()
    supply = supply_of(state, now)
    matching, asks = look(state, service.driver.engine.policies, now)
    held_back = {ask.pool: ask.held_back for ask in asks}
    return [
        {
            "pool": name,
            "kind": pool.rules.kind,
            "limit": None if pool.rules.joins_itself else pool.rules.limit,
            "slots": pool.rules.slots,
            "price_usd": pool.rules.price_usd,
            "per_minute": None if pool.rules.joins_itself else pool.rules.per_minute,
            "running": supply[name].workers,
            "busy_slots": supply[name].busy_slots,
            "free_slots": supply[name].free_slots,
            "pending": pool.queued,
            "wanted_slots": matching.of_pool(name),
            "held_back": held_back.get(name) or remark(pool, now),
            "errors": pool.errors,
            "last_error": pool.last_error,
            "closed_until": pool.closed_until,
            **mode_fields(service, name),
            "never_came": [{"at_s": at, "host": host, "said": said} for at, host, said in pool.never_came],
        }
        for name, pool in state.supply.pools.items()
    ]


def mode_fields(service: Service, pool: str) -> Json:
    """What an operator has said about a pool."""
    found = service.state.supply.modes.get(pool)
    return {
        "mode": OPEN if found is None else found.mode,
        "mode_since_s": None if found is None else found.since_t,
        "reason": "" if found is None else found.reason,
        "added": pool in service.state.supply.added,
    }


def host_row(service: Service, host: Host) -> Json:
    record = host.record
    return {
        "host": host.name,
        "state": host.state,
        "pool": host.pool,
        "slots": host.slots,
        "held": len(host.held) if host.state != GONE else 0,
        "joined_s": host.times.joined_t,
        "seen_s_ago": max(0.0, service.driver.clock() - host.times.seen_t),
        "left": host.left,
        "done": record.done,
        "failed": record.failed,
        "lost": record.lost,
        "error_rate": record.error_rate,
        "loss_rate": record.loss_rate,
        "turnaround_s": record.turnaround_s if record.done else None,
        "suspicion": record.suspicion,
        "probation_until": record.probation_until,
        "blocked": host.access.blocked,
        "blocked_until": host.access.blocked_until,
        "draining": host.access.draining,
        "ad": host.ad,
    }
