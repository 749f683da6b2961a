"""What people ask about jobs, tasks and hosts, worded from the state. Touches nothing; shapes are a public contract."""

from __future__ import annotations

from typing import Any

from windfall.api.answers import HostRow, PoolMode, PoolRow, TaskRow, VolunteerRecord
from windfall.core.state.hosts.hosts import GONE, Host
from windfall.core.state.hosts.pools import OPEN
from windfall.core.state.hosts.reliability import Reliability
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.jobs.columns import DONE, HELD, NO_EXIT, STATE_NAMES
from windfall.core.state.saving import Numbers
from windfall.core.supply.overlay import remark
from windfall.core.supply.pools import look, supply_of
from windfall.numeric import np
from windfall.server.http import workflows
from windfall.server.service import Service
from windfall.wire.messages import CAUSES

Json = dict[str, Any]


def task_row(service: Service, bag: Bag, task: int) -> TaskRow:
    """One task as `windfall tasks` shows it."""
    columns = bag.columns
    state = columns.state[task]
    ended = columns.attempt[task] > 0
    host = service.state.hosts.get(columns.host[task])
    row: TaskRow = {
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
        attempts = bag.attempts.live.get(task, ())
        row["hosts"] = [service.state.hosts[attempt.host].name for attempt in attempts]
        row["sent_s"] = min(attempt.sent for attempt in attempts)
    return row


def exit_code(bag: Bag, task: int) -> int | None:
    code = bag.columns.exit[task]
    return None if code == NO_EXIT or not bag.columns.attempt[task] else code


def tasks_in(
    bag: Bag, states: frozenset[int], after: int, limit: int, cause: int | None = None, host: Host | None = None
) -> tuple[list[int], int | None]:
    """Up to `limit` tasks in these states from index `after` on, and where to go on.

    With a cause or a host: tasks whose last ended attempt ended so, or ended there or has another attempt there now.
    """
    columns, after = bag.columns, max(0, after)
    chosen = np.isin(_column(columns.state, after), list(states))
    if cause is not None or host is not None:
        ended = _column(columns.attempt, after) > 0
    if cause is not None:
        chosen &= ended & (_column(columns.cause, after) == cause)
    if host is not None:
        there = ended & (_column(columns.host, after) == host.number)
        live = ((task, attempts) for task, attempts in bag.attempts.live.items() if task >= after)
        there[[task - after for task, attempts in live if any(each.host == host.number for each in attempts)]] = True
        chosen &= there
    found = (np.flatnonzero(chosen) + after)[: limit + 1].tolist()
    return found[:limit], found[limit] if len(found) > limit else None


def _column(column: Numbers, after: int = 0) -> Any:
    """A copy as numpy sees it, from this task on: an array that numpy looks into cannot grow."""
    return np.frombuffer(column.tobytes(), dtype=column.typecode)[after:]


def recovered(bag: Bag, limit: int) -> list[int]:
    """Tasks that failed at first, or had too little memory, and are done now."""
    failed = _column(bag.columns.failures) > 0
    failed[bag.progress.grown] = True
    found: list[int] = np.flatnonzero(failed & (_column(bag.columns.state) == DONE))[:limit].tolist()
    return found


def pool_rows(service: Service) -> list[PoolRow]:
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


def mode_fields(service: Service, pool: str) -> PoolMode:
    """What an operator has said about a pool."""
    found = service.state.supply.modes.get(pool)
    return {
        "mode": OPEN if found is None else found.mode,
        "mode_since_s": None if found is None else found.since_t,
        "reason": "" if found is None else found.reason,
        "added": pool in service.state.supply.added,
    }


def host_row(service: Service, host: Host) -> HostRow:
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
        "volunteer": _volunteer(record) if host.owner else None,
        "ad": host.ad,
    }


def _volunteer(record: Reliability) -> VolunteerRecord:
    """What a host of a volunteer has earned, and what others' results have said of its own."""
    return {"credit": record.credit, "confirmed_in_a_row": record.valid, "contradicted": record.invalid}
