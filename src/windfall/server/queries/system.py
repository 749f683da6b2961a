"""The server about itself: how long its parts take, what queues, what it holds. Reads only; `/metrics` has the same."""

from __future__ import annotations

import sys
from pathlib import Path

from starlette.requests import Request

from windfall import __version__
from windfall.api.about import System, Times
from windfall.drivers.following import Following
from windfall.drivers.timings import BOUNDS_S, Timings
from windfall.figures.charts import histogram_of_cells
from windfall.server.service import Service
from windfall.wire import VERSION

PAGE_BYTES = 4096


async def system(service: Service, request: Request) -> tuple[int, System]:
    """Times of the event loop, of commits and of exchanges, lengths of queues, and sizes."""
    driver, state = service.driver, service.state
    times = {
        "loop": ("The event loop answers a call", service.loop_times),
        "commit": ("Writing one transaction", driver.commit_times),
        "exchange": ("Answering a worker", service.exchange_times),
    }
    return 200, {
        "version": __version__,
        "protocol": VERSION,
        "python": sys.version.split()[0],
        "began_s": service.began_s,
        "now_s": driver.clock(),
        "standby_of": driver.leader.url if isinstance(driver, Following) else None,
        "illness": driver.illness(),
        "snapshot_error": driver.snapshots.error,
        "times": {name: told(what, each) for name, (what, each) in times.items()},
        "queues": {
            "records_to_commit": driver.uncommitted,
            "hosts_waiting_for_work": service.hosts_waiting,
            "requests_waiting_for_change": service.watchers,
            "pages_open": service.listeners,
        },
        "log_records": state.seq,
        "records_behind_snapshot": driver.snapshots.behind.records,
        "takes_snapshot": driver.snapshots.is_under_way,
        "jobs": len(state.bags),
        "tasks": sum(bag.total for bag in state.bags.values()),
        "hosts": len(state.hosts),
        "machines": len(state.fleet.there),
        "memory_bytes": _resident_bytes(),
        "pictures": [
            {"name": what, "html": histogram_of_cells(BOUNDS_S, each.counts, what), "says": _says(each)}
            for what, each in times.values()
            if sum(each.counts)
        ],
    }


def told(what: str, times: Timings) -> Times:
    """How many there were, their mean, and upper bounds of the middle and of 99 of 100; null beyond the last cell."""
    count = sum(times.counts)
    return {
        "what": what,
        "count": count,
        "mean_s": times.sum_s / count if count else None,
        "half_s": _bound(times, 0.5),
        "most_s": _bound(times, 0.99),
    }


def _bound(times: Timings, share: float) -> float | None:
    wanted, seen = share * sum(times.counts), 0
    for bound_s, count in zip(BOUNDS_S, times.counts, strict=False):
        seen += count
        if seen and seen >= wanted:
            return bound_s
    return None


def _says(times: Timings) -> str:
    most_s = _bound(times, 0.99)
    within = f"within {1000 * most_s:g} ms" if most_s is not None else f"in more than {BOUNDS_S[-1]:g} s"
    return f"99 of 100 {within}, of {sum(times.counts):,}."


def _resident_bytes() -> int | None:
    """Memory of this process; None where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return None
