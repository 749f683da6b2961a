"""What a pool says, as both drivers report it: the answer to a request, and the workers that it has. Touches nothing.

How a pool is asked is the driver's business: by a thread, or by a call.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

from windfall.core.decisions import SiteSettled
from windfall.core.events import AnyEvent, HostsEnded, PoolAnswered, PoolCounted
from windfall.core.sites.instances import ENDED, OPEN, SiteState
from windfall.core.state.hosts.hosts import GONE
from windfall.core.state.hosts.pools import NEVER_CAME_KEPT
from windfall.core.state.state import State
from windfall.core.wishes import AskWish
from windfall.wire.messages import EXIT, NO_COMMAND

LAST_WORDS_CHARS = 2000
EVERY_S = 2.0
"""Seconds between two counts of a pool that names no interval of its own."""


class PoolWorker(Struct, frozen=True):
    """A worker that was asked for. `host` is the name under which it asks the server for work."""

    host: str
    alive: bool = True
    error: str = ""
    """Why the worker failed; empty if it ended in good order."""
    released: bool = False
    """It has ended because we stopped it."""
    for_good: bool = False
    """It has ended, and nothing else will come under its name."""


class Started(Struct):
    """Answer to a request: the hosts that were started, and the error if there are fewer than asked for."""

    hosts: list[str] = field(default_factory=list)
    error: str = ""


def answered(ask: AskWish, started: Started, t: float) -> PoolAnswered:
    """What came of a request: the workers that were refused, or all of them if none was."""
    refused = ask.count - len(started.hosts)
    error = (started.error or "the pool gave no reason") if refused else ""
    return PoolAnswered(t, ask.pool, refused or ask.count, error, ask.number)


def unlisted(pool: str, error: str, t: float) -> PoolAnswered:
    """A pool cannot be listed: its workers count as they were last seen, because a failed list is not an empty one."""
    return PoolAnswered(t, pool, 0, f"it cannot be listed: {error}")


def stillborn(state: State, pool: str, workers: Sequence[PoolWorker], t: float) -> list[AnyEvent]:
    """Workers that ended before they reached the server.

    One that came before it ended was there to work: its record as a host says how well it did. One that we stopped has
    not failed; and an earlier server may have told of one already.
    """
    supply = state.supply.pools.get(pool)
    told = {host for _, host, _ in supply.never_came} if supply is not None else set()
    failed = [worker for worker in workers if not worker.alive and not worker.released and worker.host not in told]
    ended = [worker for worker in failed if not _has_come(state, worker)]
    if not ended:
        return []
    silent = "ended without having reached the server"
    said = [(worker.host, worker.error[:LAST_WORDS_CHARS] or silent) for worker in ended[-NEVER_CAME_KEPT:]]
    error = ended[-1].error or f"{ended[-1].host} {silent}"
    return [PoolAnswered(t, pool, len(ended), error, said=said)]


def ended(state: State, pool: str, workers: Sequence[PoolWorker], t: float) -> list[AnyEvent]:
    """Workers that came, and have ended without a goodbye: their leases need not run out."""
    gone = [worker for worker in workers if not worker.alive and worker.for_good]
    there = [worker for worker in gone if (host := state.host(worker.host)) is not None and host.state != GONE]
    hosts = [(worker.host, worker.error[:LAST_WORDS_CHARS]) for worker in there]
    return [HostsEnded(t, pool, hosts)] if hosts else []


def counted(state: State, pool: str, workers: Sequence[PoolWorker], t: float) -> list[AnyEvent]:
    """How many workers are on their way, if the engine believes otherwise."""
    pending = sum(worker.alive and not _has_come(state, worker) for worker in workers)
    supply, known = state.supply, state.supply.pools.get(pool)
    unanswered = sum(count for name, count in supply.asked.values() if name == pool)
    return [PoolCounted(t, pool, pending)] if known is not None and pending + unanswered != known.queued else []


def _has_come(state: State, worker: PoolWorker) -> bool:
    host = state.host(worker.host)
    return host is not None and (host.state != GONE or not worker.alive)


# --- the preemptible instances of a site, as a pool -------------------------------------------------------------------


def placed(site: SiteState, decided: SiteSettled) -> Started:
    """The answer of a site to the overlay: the instances that found a host, and why no more did."""
    refused = decided.denied[0][1] if decided.denied else []
    return Started([site.name_of(one.number) for one in decided.placed], "; ".join(refused))


def instances(site: SiteState, reported: set[int]) -> list[PoolWorker]:
    """The preemptible instances that are there, and, once, those that have ended (`reported` is kept up to date)."""
    workers = []
    for one in site.instances.values():
        if one.is_worker and one.state in OPEN:
            workers.append(PoolWorker(site.name_of(one.number)))
        elif one.is_worker and one.state == ENDED and one.number not in reported:
            reported.add(one.number)
            failed = one.cause in (EXIT, NO_COMMAND)
            workers.append(PoolWorker(site.name_of(one.number), False, one.text if failed else ""))
    reported &= site.instances.keys()
    return workers
