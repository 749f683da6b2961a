"""A worker with `Concurrency 5` behind a link of 300 ms through an outage: `python -m tests.e2e.worker.outage SECONDS`.

Prints for how long each slot was idle during the outage, and ends with exit code 1 if it was longer than 1 % of it.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tests.support.server.cluster import cluster
from tests.support.server.proxy import Proxy

SLOTS, HELD_PER_SLOT = 2, 5


def idle_s(busy: list[tuple[float, float]], slots: int, start: float, end: float) -> float:
    """Seconds of all slots between two times in which no task ran."""
    worked = sum(max(0.0, min(end, b) - max(start, a)) for a, b in busy)
    return slots * (end - start) - worked


def main(outage_s: float) -> int:
    run_s = outage_s / (HELD_PER_SLOT - 2)
    with tempfile.TemporaryDirectory() as folder, cluster(Path(folder), lease_s=4 * outage_s) as made:
        made.start_server()
        proxy = Proxy(made.port, 0.3)
        try:
            made.start_worker("far", slots=SLOTS, url=proxy.url)
            held = str(SLOTS * HELD_PER_SLOT)
            job = made.client().submit(["sleep", f"{run_s}"], params=range(SLOTS * 8), policies={"Concurrency": held})
            while job.status()["tasks"]["running"] < SLOTS * HELD_PER_SLOT:
                time.sleep(0.1)
            time.sleep(2.0)
            proxy.cut()
            start = time.time()
            time.sleep(outage_s)
            end = time.time()
            proxy.heal()
            status = job.wait(20 * outage_s + 120)
            busy = [(row["start_s"], row["end_s"]) for row in job.tasks() if row["start_s"] is not None]
            lost = idle_s(busy, SLOTS, start, end)
            print(
                f"{status['state']}: {status['tasks']['done']} tasks of {run_s:g} s in {status['attempts']} attempts; "
                f"an outage of {end - start:.1f} s cost {lost:.2f} s of {SLOTS} slots ({lost / SLOTS / outage_s:.2%})"
            )
            return int(lost > 0.01 * SLOTS * outage_s)
        finally:
            proxy.close()


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 120.0))
