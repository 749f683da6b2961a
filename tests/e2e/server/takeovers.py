"""Seeded take-overs of real servers: `python -m tests.e2e.server.takeovers NUMBER --seeds N` (`make takeovers`).

A server and its standby on PostgreSQL, workers and a client that know both, jobs all the time. Each round one fault
hits the server: kill -9, SIGSTOP and later SIGCONT, a partition from the database, kill -9 while the clock of the next
one jumps. The standby takes over, and the old server comes back as the next standby. At the end everything that was
acknowledged is recounted from the log.
"""

from __future__ import annotations

import random
import signal
import sys
import threading
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

from tests.support.server.campaigns import Row, run_seeds
from tests.support.server.pair import Pair, eventually, pair
from windfall.client import Client
from windfall.store.location import StateLocation, locate
from windfall.store.view import open_view
from windfall.upkeep.checking import check

FAULTS = ("kill", "stop", "partition", "clock")
TASKS = 3
EVERY_S = 0.3
"""Between two jobs of the load: its tasks take less than what two workers with two slots have."""


class Load(threading.Thread):
    """Submits small jobs one after the other and remembers which were acknowledged, and when."""

    def __init__(self, client: Client) -> None:
        super().__init__(daemon=True)
        self.client = client
        self.jobs: list[int] = []
        self.acknowledged_s: list[float] = []
        self.error: BaseException | None = None
        self._over = threading.Event()

    def run(self) -> None:
        try:
            while not self._over.wait(EVERY_S):
                job = self.client.submit(["sh", "-c", "sleep 0.3; echo $0", "{}"], params=range(TASKS), name="load")
                self.acknowledged_s.append(time.monotonic())
                self.jobs.append(job.id)
        except BaseException as error:
            self.error = error

    def finish(self, client: Client) -> None:
        """No more jobs; those that were acknowledged end, each with its results."""
        self._over.set()
        self.join(180)
        if self.error is not None:
            raise self.error
        for job in self.jobs:
            status = client.job(job).wait(240)
            assert status["state"] == "done", status
            assert [task.stdout for task in client.job(job).results()] == [f"{n}\n" for n in range(TASKS)]

    def gap_s(self, since_s: float) -> float:
        """The longest time between two acknowledgements, from the last one before a time to the first one from now."""
        now_s = time.monotonic()
        eventually(lambda: self.error is not None or self.acknowledged_s[-1] > now_s, 120, "jobs are taken again")
        if self.error is not None:
            raise self.error
        seen = list(self.acknowledged_s)
        first = max(index for index, t in enumerate(seen) if t <= since_s)
        return max(after - before for before, after in pairwise(seen[first:]))


def recounted(load: Load, accepted: Counter[tuple[int, int]], state: StateLocation) -> dict[str, int]:
    """What was acknowledged against what the log tells. AssertionError if a result is lost or counted twice."""
    view = open_view(state)
    try:
        problems = check(view).problems
    finally:
        view.close()
    tasks = [(job, task) for job in load.jobs for task in range(TASKS)]
    counts = {
        "jobs": len(load.jobs), "results": len(tasks), "results lost": sum(accepted[task] == 0 for task in tasks),
        "results twice": sum(count > 1 for count in accepted.values()),
    }  # fmt: skip
    assert len(set(load.jobs)) == len(load.jobs)
    assert counts["results lost"] == counts["results twice"] == 0 and problems == [], (counts, problems)
    return counts


def one_round(made: Pair, load: Load, fault: str, chance: random.Random) -> float:
    """One fault. Returns the seconds without service that it cost."""
    time.sleep(chance.uniform(0.0, 1.0))
    old, began = made.active, time.monotonic()
    if fault in ("kill", "clock"):
        if fault == "clock":
            made.other.jump(chance.choice((-86400.0, -3600.0, 3600.0, 86400.0)))
        old.tell(signal.SIGKILL)
    elif fault == "stop":
        old.tell(signal.SIGSTOP)
    else:
        old.proxy.cut()
    made.taken_over(120)
    gap = load.gap_s(began)
    if fault == "stop":
        old.tell(signal.SIGCONT)
    if fault == "partition":
        old.proxy.heal()
    if fault in ("stop", "partition"):
        eventually(old.ended, 90, f"the fenced server ends after {fault}")
        assert old.process is not None
        code = old.process.returncode
        assert code == 1, f"a fenced server ended with {code}: {old.log.read_text()[-2000:]}"
        assert "taken this state over" in old.log.read_text()
    else:
        old.stop()
    made.start_standby()
    return gap


def campaign(directory: Path, number: int, seed: int, faults: tuple[str, ...] = FAULTS) -> Row:
    """Run take-overs and recount. AssertionError if anything acknowledged is lost or counted twice."""
    chance = random.Random(seed)
    row = Row("takeovers", seed, seed, {})
    tried: Counter[str] = Counter()
    with pair(directory) as made:
        made.start_workers(2)
        load = Load(made.client())
        load.start()
        eventually(lambda: load.jobs, what="a first job is taken")
        for index in range(number):
            fault = faults[(seed + index) % len(faults)] if index < len(faults) else chance.choice(faults)
            row.times.setdefault(fault, []).append(round(one_round(made, load, fault, chance), 2))
            tried[fault] += 1
        load.finish(made.client())
        for seat in made.seats:
            seat.stop()
        accepted, handed, lost = made.recount()
        row.counts = recounted(load, accepted, locate(made.database)) | tried
    row.counts |= {"attempts lost": lost, "replicas": sum(count - 1 for count in handed.values()) - lost}
    return row


if __name__ == "__main__":
    sys.exit(run_seeds("Take-overs of a server by its standby.", 10, campaign))
