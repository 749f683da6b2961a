"""Bundles live: a worker behind a slow link holds `Concurrency` tasks, works through an outage, and gives back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.server.cluster import Cluster, cluster
from tests.support.server.proxy import Proxy

ROUND_TRIP_S = 0.3


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Cluster]:
    # A lease longer than any outage of these tests: an outage is no reason to run a task twice.
    with cluster(tmp_path, lease_s=120.0) as running:
        running.start_server()
        yield running


def until(what: str, holds: Callable[[], object], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"never came: {what}"
        time.sleep(0.05)


class Noted:
    """A command that says that it has begun and then waits for a gate."""

    def __init__(self, folder: Path) -> None:
        self.file, self.gate = folder / "begun", folder / "gate"
        self.command = [
            "sh", "-c", f'echo "$WINDFALL_HOST" >> {self.file}; while [ ! -e {self.gate} ]; do sleep 0.1; done',
        ]  # fmt: skip

    def begun(self) -> list[str]:
        return self.file.read_text().split() if self.file.exists() else []

    def open(self) -> None:
        self.gate.touch()


def test_a_worker_that_holds_five_tasks_runs_them_all_while_the_server_is_out_of_reach(made: Cluster, tmp_path: Path):
    proxy, noted = Proxy(made.port, ROUND_TRIP_S), Noted(tmp_path)
    try:
        made.start_worker("far", slots=1, url=proxy.url)
        job = made.client().submit([*noted.command], params=range(8), policies={"Concurrency": "5"})
        until("the worker holds five", lambda: job.status()["tasks"]["running"] == 5)
        until("the first has begun", lambda: len(noted.begun()) == 1)
        proxy.cut()
        noted.open()
        until("all five have begun during the outage", lambda: len(noted.begun()) == 5)
        assert job.status()["tasks"]["done"] == 0, "the server has not heard of any of them"
        proxy.heal()
        assert job.wait(120)["state"] == "done"
        assert job.status()["attempts"] == 8, "no task ran twice"
    finally:
        noted.open()
        proxy.close()


def test_an_idle_worker_gets_what_another_has_not_begun(made: Cluster, tmp_path: Path):
    noted = Noted(tmp_path)
    try:
        made.start_worker("full", slots=1)
        job = made.client().submit([*noted.command], params=range(4), policies={"Concurrency": "4"})
        until("the worker holds all", lambda: job.status()["tasks"]["running"] == 4)
        made.start_worker("idle", slots=2)
        until("both work", lambda: sorted(noted.begun()) == ["full", "idle", "idle"])
        noted.open()
        assert job.wait(120)["state"] == "done"
        assert all(row["losses"] == 0 for row in job.tasks()), "what had not begun costs no loss"
    finally:
        noted.open()
