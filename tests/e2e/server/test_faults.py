"""Whatever is killed, cut off or filled up: every task's result is accepted once, and no acknowledged one is missing.

Real processes, fixed seeds for when to strike. The recount reads the log and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.server.cluster import WINDFALL, Cluster, cluster
from tests.support.server.proxy import Proxy
from windfall.client import Client

pytestmark = pytest.mark.slow

TASKS = 2000


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Cluster]:
    with cluster(tmp_path) as running:
        running.start_server()
        yield running


def submit(client: Client, count: int = TASKS, command: str | list[str] = "echo {}", **settings: object):
    return client.submit(command, params=range(count), name="bag", max_losses=1000, **settings)


def await_done(job, count: int) -> None:
    """Wait until this many tasks are done, so that faults come in the middle of the work on machines of any speed."""
    end = time.monotonic() + 120
    while job.status()["tasks"]["done"] < count:
        assert time.monotonic() < end, job.status()
        time.sleep(0.02)


class Follower(threading.Thread):
    """Remembers every result that the server has told of."""

    def __init__(self, client: Client, job) -> None:
        super().__init__(daemon=True)
        self.client, self.job = client, job
        self.seen: dict[int, tuple[int, bytes]] = {}
        self.start()

    def run(self) -> None:
        for task in self.job.as_completed():
            self.seen[task.task] = (task.attempt, task.stdout)


def check(made: Cluster, job, follower: Follower | None = None, count: int = TASKS) -> None:
    """All done, each with its own output, each accepted once, and what was told before is still so."""
    status = job.wait(timeout=240)
    assert status["tasks"]["done"] == count, status
    results = {task.task: task for task in job.results()}
    assert len(results) == count
    for index, task in results.items():
        assert task.stdout.split() == [str(index).encode()] or task.stdout.split() == [str(index)]
    if follower is not None:
        follower.join(60)
        assert len(follower.seen) == count
        assert all(results[task].attempt == attempt for task, (attempt, _) in follower.seen.items())
    made.stop_server()
    accepted = made.accepted()
    assert set(accepted.values()) == {1}
    assert len(accepted) == count


def test_a_server_killed_twenty_times_loses_and_repeats_nothing(made: Cluster):
    chance = random.Random(1)
    made.start_worker("w1")
    client = made.client()
    job = submit(client, command="sh -c 'sleep 0.01; echo {}'")
    follower = Follower(made.client(), job)
    for _ in range(20):
        time.sleep(chance.uniform(0.05, 0.6))
        made.kill_server()
        made.start_server()
    check(made, job, follower)


def test_killed_workers_cost_time_and_no_results(made: Cluster):
    chance = random.Random(2)
    names = ["w1", "w2", "w3"]
    for name in names:
        made.start_worker(name)
    job = submit(made.client(), command="sh -c 'sleep 0.01; echo {}'")
    follower = Follower(made.client(), job)
    for _ in range(9):
        time.sleep(chance.uniform(0.2, 0.8))
        victim = chance.choice(names)
        made.kill_worker(victim)
        made.start_worker(victim)
    check(made, job, follower)


def test_server_and_workers_killed_in_turn(made: Cluster):
    chance = random.Random(3)
    for name in ("w1", "w2"):
        made.start_worker(name)
    job = submit(made.client(), command="sh -c 'sleep 0.01; echo {}'")
    follower = Follower(made.client(), job)
    for round_ in range(8):
        time.sleep(chance.uniform(0.1, 0.7))
        if round_ % 2:
            victim = chance.choice(["w1", "w2"])
            made.kill_worker(victim)
            made.start_worker(victim)
        else:
            made.kill_server()
            made.start_server()
    check(made, job, follower)


def test_a_partition_longer_than_the_lease_ends_with_every_result_once(made: Cluster):
    proxy = Proxy(made.port)
    try:
        made.start_worker("cut-off", url=proxy.url)
        made.start_worker("near")
        job = submit(made.client(), count=600, command="sh -c 'sleep 0.02; echo {}'")
        await_done(job, 50)
        proxy.cut()
        time.sleep(3 * made.lease_s)
        proxy.heal()
        check(made, job, count=600)
    finally:
        proxy.close()


def test_a_worker_behind_a_partition_delivers_what_it_finished_meanwhile(made: Cluster):
    """No other host: what the cut-off worker did during the outage is all there is, and it counts."""
    proxy = Proxy(made.port)
    try:
        made.start_worker("cut-off", url=proxy.url, slots=4)
        job = submit(made.client(), count=4, command="sh -c 'sleep 2; echo {}'")
        end = time.monotonic() + 60
        while job.status()["tasks"]["running"] < 4:
            assert time.monotonic() < end, job.status()
            time.sleep(0.05)
        proxy.cut()
        time.sleep(1.4 * made.lease_s)
        proxy.heal()
        check(made, job, count=4)
    finally:
        proxy.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk_stops_the_server_from_promising_and_nothing_is_lost(tmp_path: Path):
    small = tmp_path / "state"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(small)], check=True)
    try:
        with cluster(tmp_path) as made:
            made.start_server()
            made.start_worker("w1")
            job = submit(
                made.client(), count=400, command=["sh", "-c", "head -c 1000 /dev/zero >&2; echo $1", "sh", "{}"]
            )
            await_done(job, 20)
            fill = small / "fill"
            # Without a buffer: closing would write what did not fit once more, and fail.
            with open(fill, "wb", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * 65536)
            time.sleep(3)
            fill.unlink()
            check(made, job, count=400)
    finally:
        subprocess.run(["umount", "-l", str(small)], check=False)


def test_a_torn_last_record_is_dropped_and_its_result_comes_again(made: Cluster):
    made.start_worker("w1")
    job = submit(made.client(), count=300, command="sh -c 'sleep 0.02; echo {}'")
    await_done(job, 30)
    made.kill_server()
    with sqlite3.connect(made.state / "windfall.db") as database:
        (last,) = database.execute("select max(seq) from records").fetchone()
        database.execute("update records set data = substr(data, 1, length(data) / 2) where seq = ?", (last,))
    database.close()
    made.start_server()
    status = job.wait(timeout=120)
    assert status["tasks"]["done"] == 300


def test_a_torn_write_ahead_log_goes_back_to_the_last_whole_transaction(made: Cluster):
    made.start_worker("w1")
    job = submit(made.client(), count=300, command="sh -c 'sleep 0.02; echo {}'")
    await_done(job, 30)
    made.kill_server()
    log = made.state / "windfall.db-wal"
    size = log.stat().st_size
    with open(log, "r+b") as file:
        file.truncate(size - 700)
    made.start_server()
    status = job.wait(timeout=120)
    assert status["tasks"]["done"] == 300


@pytest.mark.parametrize("step_s", [3600, -3600])
def test_a_clock_that_steps_an_hour_loses_no_host_and_no_result(tmp_path: Path, step_s: int):
    faketime = shutil.which("faketime")
    library = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
    if faketime is None or library is None:
        if os.environ.get("CI"):
            pytest.fail("libfaketime is absent: apt-get install faketime")
        pytest.skip("libfaketime is absent: apt-get install faketime")
    offset = tmp_path / "clock"
    offset.write_text("+0")
    env = {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    with cluster(tmp_path, server_env=env) as made:
        made.start_server()
        made.start_worker("w1")
        job = submit(made.client(), count=600, command="sh -c 'sleep 0.01; echo {}'")
        await_done(job, 50)
        offset.write_text(f"{step_s:+d}")
        time.sleep(0.7)
        made.kill_server()
        made.start_server()
        check(made, job, count=600)
        log = (tmp_path / "server.log").read_text()
        assert "Traceback" not in log


def test_a_second_server_on_the_same_state_is_refused_and_told_who_holds_it(made: Cluster):
    command = [*WINDFALL, "server", "--listen", "127.0.0.1:0", "--state", str(made.state)]
    second = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert second.returncode == 2
    assert str(made.server.pid) in second.stderr
    assert "Traceback" not in second.stderr
