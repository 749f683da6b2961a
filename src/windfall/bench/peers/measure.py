"""`python -m windfall.bench.peers.measure SYSTEM N_CALLS N_PROCESSES SLOTS`: one system, measured once, as JSON.

A process of its own for each: signal handlers, environment and threads of one system stay away from the next.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable

from windfall.bench.peers.systems import SYSTEMS, Caller, System

WARM_UP = 100
"""Tasks before the clock runs: workers have started and loaded what they need."""


def rate(work: Callable[[int], None], n: int) -> float:
    """Tasks a second."""
    work(min(n, WARM_UP))
    began = time.perf_counter()
    work(n)
    return n / (time.perf_counter() - began)


def measure(system: System, calls: int, processes: int) -> dict[str, float | None]:
    try:
        system.start()
        made = rate(system.call, max(1, calls // system.slow_calls)) if isinstance(system, Caller) else None
        return {"calls_per_s": made, "processes_per_s": rate(system.spawn, processes)}
    finally:
        system.close()


def main(words: list[str]) -> None:
    # Told to end, it ends what it has started: servers and workers have process groups of their own.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    name, calls, processes, slots = words[0], *(int(word) for word in words[1:4])
    measured = measure(SYSTEMS[name](slots), calls, processes)
    # On a line of its own at the end: some systems write to standard output.
    print("\n" + json.dumps(measured))


if __name__ == "__main__":
    main(sys.argv[1:])
