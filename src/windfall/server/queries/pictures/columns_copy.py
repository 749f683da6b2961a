"""The columns of a job, copied on the event loop in a few milliseconds: a thread counts in them. Reads only."""

from __future__ import annotations

from msgspec import Struct

from windfall.core.state.jobs.bags import Bag
from windfall.server.service import Service


class Copied(Struct):
    """The columns of a job at one moment, and what else the counting needs; a thread works on it."""

    total: int
    submitted_t: float
    end_t: float
    running: bool
    state: bytes
    start: bytes
    end: bytes
    host: bytes
    cause: bytes
    attempt: bytes
    failures: bytes
    losses: bytes
    waste: int
    pools: dict[int, str]
    names: dict[int, str]


def copied(service: Service, bag: Bag) -> Copied:
    columns, hosts = bag.columns, service.state.hosts.values()
    over = bag.finished_t is not None
    end_t = (bag.tally.last_result_t or bag.finished_t) if over else service.driver.clock()
    return Copied(
        total=bag.total,
        submitted_t=bag.submitted_t,
        end_t=end_t or service.driver.clock(),
        running=not over,
        state=columns.state.tobytes(),
        start=columns.start.tobytes(),
        end=columns.end.tobytes(),
        host=columns.host.tobytes(),
        cause=columns.cause.tobytes(),
        attempt=columns.attempt.tobytes(),
        failures=columns.failures.tobytes(),
        losses=columns.losses.tobytes(),
        waste=bag.tally.waste,
        pools={host.number: host.pool for host in hosts},
        names={host.number: host.name for host in hosts},
    )
