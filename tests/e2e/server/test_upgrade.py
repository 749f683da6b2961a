"""A rolling upgrade with real processes: servers and workers of earlier versions beside those of this one."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest

from tests.support.server import postgres, released
from tests.support.server.cluster import WINDFALL, cluster
from tests.support.server.pair import eventually, pair

pytestmark = pytest.mark.slow
TASKS = 60


def test_a_standby_of_this_version_takes_over_from_the_last_one_and_serves_its_workers(tmp_path):
    postgres.require()
    last = released.source(released.last(), tmp_path)
    (tmp_path / "pair").mkdir()
    with pair(tmp_path / "pair", source=last) as made:
        made.start_workers(1, source=last)
        made.start_workers(1)
        client = made.client()
        job = client.submit(["sh", "-c", "sleep 0.3; echo $1", "sh", "{}"], list(range(TASKS)))
        eventually(lambda: job.status()["tasks"]["done"] >= 5, what="some tasks are done by the last version")
        made.active.tell(signal.SIGTERM)
        made.taken_over()
        assert made.other.process.wait(30) == 0, made.other.log.read_text()[-2000:]
        assert sorted(int(task.stdout) for task in job.results(timeout=120)) == list(range(TASKS))
        # The worker of the last version goes on with the server of this one.
        hosts = {task.host for task in client.submit(["sleep", "0.2"], params=range(8)).results(timeout=120)}
        assert {name.split("-")[0] for name in hosts} >= {"w0", "w1"}, hosts
        database = made.active.state
        made.active.tell(signal.SIGTERM)
        made.active.process.wait(30)
        accepted, _, lost = made.recount()
        assert set(accepted.values()) == {1} and accepted.total() == TASKS + 8
        assert lost == 0
        checked = subprocess.run(
            [*WINDFALL, "state", "check", database, "--json"], capture_output=True, text=True, check=False
        )
        assert json.loads(checked.stdout)["whole"], checked.stdout


@pytest.mark.parametrize("version", [released.last(), released.BEFORE_LAST])
def test_a_worker_of_an_earlier_version_is_served(tmp_path, version):
    earlier = released.source(version, tmp_path)
    (tmp_path / "cluster").mkdir()
    with cluster(tmp_path / "cluster") as made:
        made.start_server()
        made.start_worker("old", env={"PYTHONPATH": earlier})
        client = made.client()
        data = tmp_path / "data.txt"
        data.write_text("an input\n")
        command = ["sh", "-c", "cat data.txt > out.txt; echo $1; test $1 != 3", "sh", "{}"]
        ended = client.submit(
            command, list(range(6)), inputs=[str(data)], outputs=["out.txt"], max_failures=2
        ).results(timeout=120)  # fmt: skip
        assert [task.state for task in sorted(ended, key=lambda task: task.task)] == ["done"] * 3 + ["failed"] + [
            "done"
        ] * 2, (tmp_path / "cluster/old.log").read_text()
        made.kill_server()
        made.start_server()
        again = client.submit(["echo", "{}"], ["again"]).results(timeout=120)
        assert [(task.state, task.stdout.strip()) for task in again] == [("done", "again")]
