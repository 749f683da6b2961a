"""Faults against real processes: `python -m tests.e2e.server.chaos NUMBER --seeds N` (`make chaos`: 1,000).

A server on SQLite and two workers, one behind a proxy, jobs all the time: server and workers killed and stopped, the
network cut, the disk full, the state read-only when the server starts again (the last two need root). At the end every
acknowledged result is recounted from the log. Servers on PostgreSQL: takeovers.py, failovers.py, double_faults.py.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.e2e.server.takeovers import Load, recounted
from tests.support.server.campaigns import Row, run_seeds
from tests.support.server.cluster import WINDFALL, Cluster, cluster
from tests.support.server.proxy import Proxy
from windfall.store.location import StateLocation

WORKERS = ("near", "far")
FILL = "filling"


class Bed:
    """The server on SQLite, its workers, and what can happen to them."""

    def __init__(self, made: Cluster, chance: random.Random, mounted: bool) -> None:
        self.made, self.chance, self.mounted = made, chance, mounted
        self.proxy = Proxy(made.port)
        made.patience_s = 300.0
        made.start_server()
        for name in WORKERS:
            self.start_worker(name)

    def start_worker(self, name: str) -> None:
        self.made.start_worker(name, url=self.proxy.url if name == "far" else "")

    def faults(self) -> dict[str, Callable[[], None]]:
        found = {
            "kill server": self.kill_server, "stop server": self.stop_server, "kill worker": self.kill_worker,
            "stop worker": self.stop_worker, "partition": self.partition, "kill all": self.kill_all,
        }  # fmt: skip
        return found | ({"full disk": self.fill_disk, "read-only": self.read_only} if self.mounted else {})

    def pause(self, least_s: float, most_s: float) -> None:
        time.sleep(self.chance.uniform(least_s, most_s))

    def kill_server(self) -> None:
        self.made.kill_server()
        self.pause(0.0, 0.5)
        self.made.start_server()

    def stop_server(self) -> None:
        assert self.made.server is not None
        self.made.server.send_signal(signal.SIGSTOP)
        self.pause(0.1, 3.0)
        self.made.server.send_signal(signal.SIGCONT)

    def kill_worker(self) -> None:
        victim = self.chance.choice(WORKERS)
        self.made.kill_worker(victim)
        self.start_worker(victim)

    def stop_worker(self) -> None:
        victim = self.made.workers[self.chance.choice(WORKERS)]
        victim.send_signal(signal.SIGSTOP)
        self.pause(0.1, 3 * self.made.lease_s)
        victim.send_signal(signal.SIGCONT)

    def partition(self) -> None:
        self.proxy.cut()
        self.pause(0.1, 2 * self.made.lease_s)
        self.proxy.heal()

    def kill_all(self) -> None:
        """As when the power fails."""
        self.made.kill_server()
        for name in WORKERS:
            self.made.kill_worker(name)
        self.made.start_server()
        for name in WORKERS:
            self.start_worker(name)

    def fill_disk(self) -> None:
        path = self.made.state / FILL
        with contextlib.suppress(OSError), open(path, "wb", buffering=0) as file:
            while True:
                file.write(b"\0" * 65536)
        self.pause(0.3, 2.0)
        if self.chance.random() < 0.3:
            self.made.kill_server()
            path.unlink()
            self.made.start_server()
        else:
            path.unlink()

    def read_only(self) -> None:
        """The mount is read-only when the server comes back: it says so, and ends; nothing is called empty."""
        self.made.kill_server()
        remount(self.made.state, "ro")
        try:
            command = [*WINDFALL, "server", "--listen", "127.0.0.1:0", "--state", str(self.made.state)]
            ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
            assert ended.returncode == 2 and "must be writable" in ended.stderr, ended
        finally:
            remount(self.made.state, "rw")
        self.made.start_server()


def remount(path: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(path)], check=True)


@contextlib.contextmanager
def small_disk(path: Path) -> Iterator[bool]:
    """A file system of its own, if this user may make one."""
    path.mkdir()
    mounted = False
    if os.geteuid() == 0:
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", str(path)], check=False)
        mounted = done.returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(path)], check=False)


def campaign(directory: Path, number: int, seed: int) -> Row:
    """Faults against one server and its workers. AssertionError if anything acknowledged is lost or counted twice."""
    chance = random.Random(seed)
    tried: Counter[str] = Counter()
    with small_disk(directory / "state") as mounted, cluster(directory) as made:
        bed = Bed(made, chance, mounted)
        load = Load(made.client())
        load.start()
        faults = bed.faults()
        names = sorted(faults)
        for index in range(number):
            name = names[index % len(names)] if index < len(names) else chance.choice(names)
            faults[name]()
            tried[name] += 1
            bed.pause(0.0, 0.5)
        load.finish(made.client())
        made.stop_server()
        counts = recounted(load, made.accepted(), StateLocation(made.state))
        bed.proxy.close()
    return Row("chaos", seed, seed, counts | tried)


if __name__ == "__main__":
    sys.exit(run_seeds("Faults against a server on SQLite and its workers.", 50, campaign))
