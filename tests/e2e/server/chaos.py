"""Faults against real processes: `python -m tests.e2e.server.chaos NUMBER --seeds N` (`make chaos`: 1,000).

A server and two workers, one behind a proxy, jobs all the time: server and workers killed and stopped, the network cut,
the disk full. Odd seeds are on SQLite, and the state is read-only when the server starts again; even seeds are on
PostgreSQL, which crashes, and from which the server is cut off. A full disk and a read-only one need root. At the end
every acknowledged result is recounted from the log. With a standby: takeovers.py, failovers.py, double_faults.py.
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
from tests.support.server.cluster import WINDFALL, Cluster, cluster, free_port
from tests.support.server.postgres import Database, new_database
from tests.support.server.proxy import Proxy

WORKERS = ("near", "far")
FILL = "filling"


class Bed:
    """The server, its workers, and what can happen to them. On SQLite."""

    options: tuple[str, ...] = ()

    def __init__(self, made: Cluster, chance: random.Random, mounted: bool) -> None:
        self.made, self.chance, self.mounted = made, chance, mounted
        self.proxy = Proxy(made.port)
        made.patience_s = 300.0
        self.start_server()
        for name in WORKERS:
            self.start_worker(name)

    def start_server(self) -> None:
        self.made.start_server(*self.options)

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
        self.start_server()

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
        self.start_server()
        for name in WORKERS:
            self.start_worker(name)

    def fill_disk(self) -> None:
        path = self.made.state / FILL
        fill(path)
        self.pause(0.3, 2.0)
        if self.chance.random() < 0.3:
            self.made.kill_server()
            path.unlink()
            self.start_server()
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
        self.start_server()


class DatabaseBed(Bed):
    """The same on PostgreSQL, with what can happen to a database. The server reaches it through a proxy."""

    options = ("--takeover-after", "2")

    def __init__(self, made: Cluster, chance: random.Random, mounted: bool, database: Database, way: Proxy) -> None:
        self.database, self.way = database, way
        super().__init__(made, chance, mounted)

    def faults(self) -> dict[str, Callable[[], None]]:
        found = super().faults() | {"crash database": self.crash_database, "cut database": self.cut_database}
        found.pop("read-only", None)
        return {f"{name}, PostgreSQL": fault for name, fault in found.items()}

    def crash_database(self) -> None:
        self.database.crash()
        self.pause(0.0, 2.0)
        self.database.start()

    def cut_database(self) -> None:
        self.way.cut()
        self.pause(0.1, 3.0)
        self.way.heal()

    def kill_all(self) -> None:
        """As when the power fails where all of them are."""
        self.database.crash()
        self.database.start()
        super().kill_all()

    def fill_disk(self) -> None:
        """That of the database. PostgreSQL ends where it cannot write its log, and an operator starts it again."""
        path = self.database.data / FILL
        fill(path)
        self.pause(0.3, 2.0)
        path.unlink()
        time.sleep(0.5)
        if not self.database.is_up():
            self.database.start()


def fill(path: Path) -> None:
    with contextlib.suppress(OSError), open(path, "wb", buffering=0) as file:
        while True:
            file.write(b"\0" * 65536)


def remount(path: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(path)], check=True)


@contextlib.contextmanager
def small_disk(path: Path, size: str = "256m") -> Iterator[bool]:
    """A file system of its own, if this user may make one."""
    path.mkdir(exist_ok=True)
    mounted = False
    if os.geteuid() == 0:
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)], check=False)
        mounted = done.returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(path)], check=False)


@contextlib.contextmanager
def on_sqlite(directory: Path, chance: random.Random) -> Iterator[Bed]:
    with small_disk(directory / "state") as mounted, cluster(directory) as made:
        yield Bed(made, chance, mounted)


@contextlib.contextmanager
def on_postgres(directory: Path, chance: random.Random) -> Iterator[Bed]:
    (directory / "state").mkdir()
    with contextlib.ExitStack() as stack:
        mounted: list[bool] = []
        database = Database(free_port(), lambda data: mounted.append(stack.enter_context(small_disk(data, "512m"))))
        stack.callback(database.close)
        new_database(database.url, "chaos")
        way = Proxy(database.port)
        stack.callback(way.close)
        url = f"postgresql://windfall@127.0.0.1:{way.port}/chaos"
        made = stack.enter_context(cluster(directory, database=url))
        yield DatabaseBed(made, chance, mounted == [True], database, way)


def campaign(directory: Path, number: int, seed: int) -> Row:
    """Faults against one server and its workers. AssertionError if anything acknowledged is lost or counted twice."""
    chance = random.Random(seed)
    tried: Counter[str] = Counter()
    begin = on_sqlite if seed % 2 else on_postgres
    with begin(directory, chance) as bed:
        made = bed.made
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
        counts = recounted(load, made.accepted(), made.location)
        bed.proxy.close()
    return Row("chaos", seed, seed, counts | tried)


if __name__ == "__main__":
    sys.exit(run_seeds("Faults against a server on SQLite or PostgreSQL, and its workers.", 50, campaign))
