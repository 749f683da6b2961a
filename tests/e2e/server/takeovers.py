"""Seeded take-overs of real servers: `python -m tests.e2e.server.takeovers NUMBER [SEED]` (`make takeovers`).

A server and its standby on PostgreSQL, workers and a client that know both, jobs all the time. Each round one fault
hits the server: kill -9, SIGSTOP and later SIGCONT, a partition from the database, kill -9 while the clock of the next
one jumps. The standby takes over, and the old server comes back as the next standby. At the end everything that was
acknowledged is recounted from the log.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.support.server.pair import Pair, eventually, pair
from windfall.client import Client
from windfall.store.location import locate
from windfall.store.view import open_view
from windfall.upkeep.checking import check

FAULTS = ("kill", "stop", "partition", "clock")
TASKS = 3


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
            while not self._over.wait(0.1):
                job = self.client.submit(["sh", "-c", "sleep 0.3; echo $0", "{}"], params=range(TASKS), name="load")
                self.acknowledged_s.append(time.monotonic())
                self.jobs.append(job.id)
        except BaseException as error:
            self.error = error

    def finish(self) -> None:
        self._over.set()
        self.join(180)
        if self.error is not None:
            raise self.error

    def gap_s(self, since_s: float) -> float:
        """The longest time between two acknowledgements, from the last one before a time to the first one from now."""
        now_s = time.monotonic()
        eventually(lambda: self.error is not None or self.acknowledged_s[-1] > now_s, 120, "jobs are taken again")
        if self.error is not None:
            raise self.error
        seen = list(self.acknowledged_s)
        first = max(index for index, t in enumerate(seen) if t <= since_s)
        return max(after - before for before, after in pairwise(seen[first:]))


def one_round(made: Pair, load: Load, fault: str, chance: random.Random) -> dict[str, Any]:
    """One fault, and the time without service that it cost."""
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
    code: int | None = None
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
    return {"fault": fault, "without_service_s": round(gap, 2), "exit_code": code}


def campaign(directory: Path, number: int, seed: int, faults: tuple[str, ...] = FAULTS) -> dict[str, Any]:
    """Run take-overs and recount. AssertionError if anything acknowledged is lost or counted twice."""
    chance = random.Random(seed)
    with pair(directory) as made:
        made.start_workers(2)
        load = Load(made.client())
        load.start()
        eventually(lambda: load.jobs, what="a first job is taken")
        rounds = []
        for index in range(number):
            fault = faults[index % len(faults)] if index < len(faults) else chance.choice(faults)
            rounds.append(one_round(made, load, fault, chance))
            if number > 5:
                print(json.dumps({"round": index + 1, **rounds[-1], "jobs": len(load.jobs)}), flush=True)
        load.finish()
        client = made.client()
        for job in load.jobs:
            status = client.job(job).wait(120)
            assert status["state"] == "done", status
            assert [task.stdout for task in client.job(job).results()] == [f"{n}\n" for n in range(TASKS)]
        for seat in made.seats:
            seat.stop()
        accepted, handed, lost = made.recount()
        view = open_view(locate(made.database))
        try:
            problems = check(view).problems
        finally:
            view.close()
    tasks = [(job, task) for job in load.jobs for task in range(TASKS)]
    assert len(set(load.jobs)) == len(load.jobs)
    report = {
        "takeovers": number,
        "seed": seed,
        "faults": dict(Counter(row["fault"] for row in rounds)),
        "jobs_acknowledged": len(load.jobs),
        "results": len(tasks),
        "results_lost": sum(accepted[task] == 0 for task in tasks),
        "results_twice": sum(accepted[task] > 1 for task in accepted),
        "attempts_lost": lost,
        "replicas": sum(count - 1 for count in handed.values()) - lost,
        "log_problems": problems,
        "without_service_s": {fault: _spread(rounds, fault) for fault in faults},
    }
    assert report["results_lost"] == report["results_twice"] == 0, report
    assert problems == [], problems
    return report


def _spread(rounds: list[dict[str, Any]], fault: str) -> dict[str, float]:
    times = sorted(row["without_service_s"] for row in rounds if row["fault"] == fault)
    if not times:
        return {}
    return {"median": times[len(times) // 2], "longest": times[-1]}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="wf-") as folder:
        said = [int(word) for word in sys.argv[1:]]
        print(json.dumps(campaign(Path(folder), said[0] if said else 200, said[1] if len(said) > 1 else 1)))
