"""A rolling upgrade with real processes: servers and workers of earlier versions beside those of this one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.support.server import postgres, released
from tests.support.server.cluster import WINDFALL, Cluster, cluster
from tests.support.server.pair import eventually, pair
from windfall.wire import VERSION

pytestmark = pytest.mark.slow
TASKS, MORE = 60, 24
OLDER = f"the server is older; going on with version {VERSION - 1} of the protocol"


def shipped_by(url: str, target: Path) -> Path:
    """The worker that a server ships, as a rented machine fetches it."""
    with urllib.request.urlopen(f"{url}/worker.pyz", timeout=60) as answer:
        target.write_bytes(answer.read())
    return target


def protocol_of(source: str) -> int:
    """The version of the protocol that a version of Windfall speaks."""
    told = subprocess.run(
        [sys.executable, "-c", "from windfall.wire import VERSION; print(VERSION)"],
        env=os.environ | {"PYTHONPATH": source}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return int(told.stdout)


def test_a_standby_of_this_version_takes_over_from_the_last_one_and_serves_its_workers(tmp_path):
    postgres.require()
    last = released.source(released.last(), tmp_path)
    (tmp_path / "pair").mkdir()
    with pair(tmp_path / "pair", source=last) as made:
        made.start_workers(1, source=last)
        made.start_workers(1)
        made.start_workers(1, archive=shipped_by(made.active.url, tmp_path / "last.pyz"))
        client = made.client()
        job = client.submit(["sh", "-c", "sleep 0.3; echo $1", "sh", "{}"], list(range(TASKS)))
        eventually(lambda: job.status()["tasks"]["done"] >= 5, what="some tasks are done by the last version")
        made.active.tell(signal.SIGTERM)
        made.taken_over()
        assert made.other.process.wait(30) == 0, made.other.log.read_text()[-2000:]
        assert sorted(int(task.stdout) for task in job.results(timeout=120)) == list(range(TASKS))
        # The workers of the last version go on with the server of this one, beside those that it ships.
        made.start_workers(1, archive=shipped_by(made.active.url, tmp_path / "this.pyz"))
        eventually(lambda: len(client.hosts()) == 4, what="the new worker is there")
        hosts = {task.host for task in client.submit(["sleep", "0.3"], params=range(MORE)).results(timeout=120)}
        assert {name.split("-")[0] for name in hosts} >= {"w0", "w1", "w2", "w3"}, hosts
        spoken = [OLDER in (made.directory / f"w{number}.log").read_text() for number in range(4)]
        # Only a worker of this version that has met the last server knows both, and went back to the older one.
        assert spoken == [False, protocol_of(last) < VERSION, False, False]
        database = made.active.state
        made.active.tell(signal.SIGTERM)
        made.active.process.wait(30)
        accepted, _, lost = made.recount()
        assert set(accepted.values()) == {1} and accepted.total() == TASKS + MORE
        assert lost == 0
        checked = subprocess.run(
            [*WINDFALL, "state", "check", database, "--json"], capture_output=True, text=True, check=False
        )
        assert json.loads(checked.stdout)["whole"], checked.stdout


def done_by(made: Cluster, name: str, tmp_path: Path) -> None:
    """A job with files and a task that fails, before and after a kill of the server, by one worker."""
    client = made.client()
    data = tmp_path / "data.txt"
    data.write_text("an input\n")
    command = ["sh", "-c", "cat data.txt > out.txt; echo $1; test $1 != 3", "sh", "{}"]
    ended = client.submit(command, list(range(6)), inputs=[str(data)], outputs=["out.txt"], max_failures=2).results(
        timeout=120
    )
    states = [task.state for task in sorted(ended, key=lambda task: task.task)]
    assert states == ["done"] * 3 + ["failed"] + ["done"] * 2, (made.directory / f"{name}.log").read_text()
    made.kill_server()
    made.start_server()
    again = client.submit(["echo", "{}"], ["again"]).results(timeout=120)
    assert [(task.state, task.stdout.strip()) for task in again] == [("done", "again")]


@pytest.mark.parametrize("version", [released.last(), released.BEFORE_LAST])
def test_a_worker_of_an_earlier_version_is_served(tmp_path, version):
    earlier = released.source(version, tmp_path)
    (tmp_path / "cluster").mkdir()
    with cluster(tmp_path / "cluster") as made:
        made.start_server()
        made.start_worker("old", env={"PYTHONPATH": earlier})
        done_by(made, "old", tmp_path)


def test_a_worker_of_this_version_works_for_a_server_of_the_last_one(tmp_path):
    last = released.source(released.last(), tmp_path)
    (tmp_path / "cluster").mkdir()
    with cluster(tmp_path / "cluster", server_env={"PYTHONPATH": last}) as made:
        made.start_server()
        made.start_worker("new")
        done_by(made, "new", tmp_path)
        assert (OLDER in (made.directory / "new.log").read_text()) == (protocol_of(last) < VERSION)
