"""Server and database fail at once: `python -m tests.e2e.server.double_faults NUMBER --seeds N` (`make double-faults`).

A server and its standby on PostgreSQL with a synchronous standby, workers and a client that know both, jobs all the
time. Each round the primary of the database is killed as a whole and the server is killed or stopped, in either order
or at once; the database's standby is promoted, the server's takes over, and the old primary comes back as it was. At
the end everything that was acknowledged is recounted from the log.
"""

from __future__ import annotations

import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from tests.e2e.server.takeovers import Load, recounted
from tests.support.server.campaigns import Row, run_seeds
from tests.support.server.pair import Pair, eventually, pair
from tests.support.server.replicated import Replicated
from windfall.store.location import locate

FAULTS = ("both killed", "server stopped", "database first", "server first")
BETWEEN_S = 3.0
"""At most, between the two faults: the standby has not taken over yet, is taking over, or has done so."""


def one_round(made: Pair, database: Replicated, load: Load, fault: str, chance: random.Random) -> float:
    """Both fail. Returns the seconds without service."""
    time.sleep(chance.uniform(0.0, 1.0))
    old, began = made.active, time.monotonic()
    between_s = chance.uniform(0.0, BETWEEN_S) if fault.endswith("first") else 0.0
    if fault == "database first":
        database.kill_primary()
        time.sleep(between_s)
    old.tell(signal.SIGSTOP if fault == "server stopped" else signal.SIGKILL)
    if fault != "database first":
        time.sleep(between_s)
        database.kill_primary()
    database.promote()
    made.taken_over(120)
    gap = load.gap_s(began)
    database.revive()  # and it would take what the old server writes
    if fault == "server stopped":
        old.tell(signal.SIGCONT)
        eventually(old.ended, 90, "the fenced server ends")
        assert old.process is not None and old.process.returncode == 1, old.log.read_text()[-2000:]
    else:
        old.stop()
    database.stop_other()
    database.add_standby()
    made.start_standby()
    return gap


def campaign(directory: Path, number: int, seed: int, faults: tuple[str, ...] = FAULTS) -> Row:
    """Run double faults and recount. AssertionError if anything acknowledged is lost or counted twice."""
    chance = random.Random(seed)
    row = Row("double faults", seed, seed, {})
    tried: Counter[str] = Counter()
    database = Replicated()
    try:
        with pair(directory, replicated=database.url) as made:
            made.start_workers(2)
            load = Load(made.client(180.0))
            load.start()
            eventually(lambda: load.jobs, what="a first job is taken")
            for index in range(number):
                fault = faults[(seed + index) % len(faults)]
                row.times.setdefault(fault, []).append(round(one_round(made, database, load, fault, chance), 2))
                tried[fault] += 1
            load.finish(made.client())
            for seat in made.seats:
                seat.stop()
            accepted, _, lost = made.recount()
            row.counts = recounted(load, accepted, locate(made.database)) | tried | {"attempts lost": lost}
    finally:
        database.close()
    return row


if __name__ == "__main__":
    sys.exit(run_seeds("Server and database fail at once.", 4, campaign))
