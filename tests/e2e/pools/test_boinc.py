"""Debian's real BOINC clients as hosts: attach, fetch, run, upload, report; byte for byte what the tasks wrote."""

from __future__ import annotations

import contextlib
import hashlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.pools import boinc
from tests.support.pools.boinc import BoincClient
from tests.support.pools.lying_proxy import LyingProxy
from tests.support.pools.slurm import cluster as slurm_cluster
from tests.support.server.cluster import Cluster

pytestmark = pytest.mark.slow
PATIENCE_S = 240.0


def until(condition: Callable[[], Any], what: str, seconds: float = PATIENCE_S) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.25)
    raise AssertionError(f"not within {seconds:g} s: {what}")


class World:
    """A server with a front, and volunteers."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.cluster = Cluster(directory, lease_s=20.0)
        self.cluster.start_server()
        self.url = f"{self.cluster.url}/grid/"
        self.client = self.cluster.client()
        self.volunteers: list[BoincClient] = []
        entry = {
            "name": "boinc", "kind": "boinc", "limit": 1000, "url": self.url, "project": f"Test {self.cluster.port}",
            "ask_again": "1s", "deadline": "25s", "least_deadline": "20s",
        }  # fmt: skip
        self.client.add_pools([entry])

    def volunteer(self, name: str, proxy: str = "") -> BoincClient:
        key = self.client.tell_front("boinc", "add-account", name=name)["key"]
        made = BoincClient(self.directory / name, self.url, key, proxy)
        self.volunteers.append(made)
        made.start()
        return made

    def logs(self) -> str:
        parts = [volunteer.log()[-3000:] for volunteer in self.volunteers]
        return "\n".join([*parts, (self.directory / "server.log").read_text()[-3000:]])

    def close(self) -> None:
        for volunteer in self.volunteers:
            volunteer.close()
        self.cluster.close()


@pytest.fixture
def world(tmp_path) -> Iterator[World]:
    boinc.require()
    made = World(tmp_path)
    try:
        yield made
    finally:
        made.close()


PROGRAM = """#!/bin/sh
echo "line $1 of $(basename "$0")"
echo "told $1" >&2
i=0; while [ $i -lt 300 ]; do echo "$1 $i"; i=$((i + 1)); done > "table-$1.txt"
if [ "$1" = 7 ]; then head -c 3000000 /dev/zero >> table-7.txt; fi
"""


def table(task: int) -> bytes:
    """The client asks for the stored size of a file above 8 KiB, and for leave to send one above 1 MiB."""
    return b"".join(b"%d %d\n" % (task, number) for number in range(300)) + (bytes(3_000_000) if task == 7 else b"")


def test_fifty_tasks_come_back_byte_for_byte_whatever_happens_to_clients_and_server(world, tmp_path):
    """Beside them a task is cancelled at a client, one is suspended past its deadline; client and server are killed."""
    program = tmp_path / "program.sh"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    volunteers = [world.volunteer("ada"), world.volunteer("bob")]
    script = 'touch "$1.began"; while [ ! -e "$1.go" ]; do sleep 0.2; done; echo went on'
    command = ["sh", "-c", script, "sh", f"{tmp_path}/{{}}"]
    held, endless = (world.client.submit(command, [name], quorum=1) for name in ("held", "endless"))
    job = world.client.submit(
        ["./program.sh", "{}"], range(50), inputs=[f"program.sh={program}"], outputs=["table-{}.txt"], max_losses=100,
        quorum=1,
    )  # fmt: skip
    until(lambda: (tmp_path / "held.began").exists() and (tmp_path / "endless.began").exists(), "both tasks have begun")
    assert running(f"{tmp_path}/held") and running(f"{tmp_path}/endless")
    name = f"w{held.id}_0_1_1"
    holder = next(one for one in volunteers if f"Starting task {name}" in one.log())
    other = next(one for one in volunteers if one is not holder)
    holder.tell("--task", world.url, name, "suspend")
    endless.cancel()
    # By their preferences clients stop a suspended program, or end it and begin anew later.
    until(lambda: set(running(f"{tmp_path}/held")) <= {"T"}, "the suspended task stands still")
    (tmp_path / "held.go").touch()
    until(lambda: job.status()["tasks"]["done"] >= 2, "two tasks are done")
    world.cluster.kill_server()
    other.kill()
    world.cluster.start_server()
    other.start()
    held.wait(PATIENCE_S)
    (result,) = held.results()
    assert (result.stdout, result.attempt) == ("went on\n", 2), world.logs()
    holder.tell("--task", world.url, name, "resume")
    job.wait(PATIENCE_S)
    results = list(job.results())
    assert [task.stdout for task in results] == [f"line {n} of program.sh\n" for n in range(50)], world.logs()
    for number, task in enumerate(results):
        files = {file[0]: file for file in task.outputs}
        _, sha, size, _ = files[f"table-{number}.txt"]
        assert (sha, size) == (hashlib.sha256(table(number)).hexdigest(), len(table(number)))
    until(lambda: not running(f"{tmp_path}/endless"), "the cancelled task has ended at its client")
    assert endless.status()["state"] == "cancelled"


def running(words: str) -> list[str]:
    """States of the processes with these words in their command lines."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if words.encode() in (path / "cmdline").read_bytes():
                found.append((path / "stat").read_text().rpartition(")")[2].split()[0])
    return found


def test_one_bag_runs_on_volunteers_local_workers_and_slurm_at_once(tmp_path):
    boinc.require()
    with slurm_cluster(tmp_path / "slurm"):
        world = World(tmp_path)
        try:
            cluster = {"name": "cluster", "kind": "slurm", "walltime": "10m", "interval": "0.5s"}
            here = {"name": "here", "kind": "local", "limit": 1}
            world.client.add_pools([here, {**cluster, "limit": 1, "python": sys.executable}])
            world.volunteer("ada")
            gate = f"while [ ! -e {tmp_path}/go ]; do sleep 0.2; done; echo task {{}}"
            # More than one round of the slots, so that no pool is left out; and no replicas, or quick hosts would take
            # over what the volunteer holds before it reports.
            job = world.client.submit(
                ["sh", "-c", gate], range(12), quorum=1, policies={"ReplicationRequirements": "False"}
            )
            until(lambda: {"boinc", "cluster", "here"} <= pools_of(world), "a host of each pool runs a task")
            (tmp_path / "go").touch()
            job.wait(PATIENCE_S)
            assert [task.stdout for task in job.results()] == [f"task {n}\n" for n in range(12)], world.logs()
            rows = {row["host"]: row["pool"] for row in world.client.hosts()}
            assert {rows[task.host] for task in job.results()} == {"boinc", "cluster", "here"}
        finally:
            world.close()


def pools_of(world: World) -> set[str]:
    """Pools whose hosts hold a task."""
    return {row["pool"] for row in world.client.hosts() if row["held"]}


def test_a_real_client_whose_uploads_are_changed_is_outvoted(world):
    """Three owners. What the second one's client sends passes a proxy that changes it.

    Changed bytes with the MD5 of the honest ones are refused; with an MD5 of their own, and a report that says so, they
    are a vote that the others contradict.
    """
    proxy = LyingProxy(lambda data: data.replace(b"truth", b"false"))
    try:
        ada = world.volunteer("ada")
        world.volunteer("eve", proxy.url)
        job = world.client.submit(["echo", "truth", "{}"], range(2), quorum=2, estimate="1h")
        until(lambda: proxy.reported and "Finished upload" in ada.log(), "both owners have reported results")
        world.volunteer("bob")
        assert job.wait(120)["tasks"]["done"] == 2, world.logs()
        assert [task.stdout for task in job.results()] == [f"truth {task}\n" for task in range(2)]
        statuses = [
            {b"<status>1<" in answer for answer in proxy.clumsy},
            {b"<status>0<" in said for said in proxy.skilled},
        ]
        assert statuses == [{True}, {True}], (proxy.clumsy, proxy.skilled, world.logs())
    finally:
        proxy.close()
    shown = {row["name"]: row for row in world.client.tell_front("boinc", "show")["accounts"]}
    assert shown["eve"]["credit"] == 0 and shown["eve"]["done"] == 0 < shown["ada"]["done"], shown
