"""One `windfall run --deadline` over four kinds of pools at once, with a fault in each: nothing is lost or left behind.

The pools: processes here, jobs of a real Slurm, workers behind a real sshd, and machines of EC2 (moto and a hypervisor
that runs their user data). What is left behind is asked of each system itself, not of Windfall.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.ec2.world import priced_cloud
from tests.support.pools.slurm import cluster
from tests.support.pools.sshd import Sshd, sshd
from tests.support.server.cluster import WINDFALL
from windfall.client import Client
from windfall.client.local.server import running_server

pytestmark = pytest.mark.slow
TASKS, SECONDS = 120, 3
ESTIMATE, DEADLINE = "12s", "400s"
"""Machines have to be rented for these, and Slurm, sshd and EC2 have minutes to bring workers on a busy machine."""
POOLS = """
[[pool]]
name = "here"
limit = 1

[[pool]]
name = "cluster"
kind = "slurm"
limit = 1
walltime = "10m"
interval = "0.5s"
python = "{python}"

[[pool]]
name = "lab"
kind = "ssh"
hosts = ["node1"]
config = "{config}"
folder = "{home}"
python = "{python}"
interval = "0.5s"

"""


class Run:
    """The systems, and a run over all of them."""

    def __init__(self, directory: Path, slurm: Any, hosts: Sshd, cloud: Any) -> None:
        self.directory, self.slurm, self.hosts, self.cloud = directory, slurm, hosts, cloud
        text = POOLS.format(python=sys.executable, config=hosts.config, home=hosts.home)
        (directory / "pools.toml").write_text(text + cloud.pool("cloud", limit=4))
        self.state = directory / ".windfall"

    def start(self) -> None:
        command = [*WINDFALL, "run", "--pools", "pools.toml", "--pool", "cloud", "--deadline", DEADLINE]
        command += ["--estimate", ESTIMATE, "--range", f"0-{TASKS - 1}", "--json", "--cwd", "/", "--"]
        # No task ends before the faults: whatever is hit holds some.
        command += ["sh", "-c", f"while [ ! -e {self.directory}/go ]; do sleep 0.2; done; sleep {SECONDS}; echo {{}}"]
        with open(self.directory / "out", "wb") as out, open(self.directory / "err", "wb") as err:
            self.process = subprocess.Popen(
                command, cwd=self.directory, stdout=out, stderr=err, env={**os.environ, **self.cloud.environment}
            )

    @contextlib.contextmanager
    def client(self) -> Iterator[Client]:
        until(lambda: running_server(self.state), self)
        found = running_server(self.state)
        assert found is not None
        with Client(*found) as client:
            yield client

    def ended(self) -> dict[str, Any]:
        assert self.process.wait(600) in (0, 4), (self.directory / "err").read_text()[-3000:]
        told: dict[str, Any] = json.loads((self.directory / "out").read_text())
        return told

    def said(self, *words: str) -> str:
        """What a command prints after the run."""
        command = [*WINDFALL, *words]
        return subprocess.run(command, cwd=self.directory, capture_output=True, text=True, check=True).stdout

    # --- asked of each system itself ---

    def left(self) -> dict[str, list[str]]:
        lines = _processes()
        return {
            "here": [line for line in lines if str(self.state) in line],
            "cluster": self.slurm.said("squeue", "-h", "-o", "%i|%T|%j").splitlines(),
            "lab": [line for line in lines if str(self.hosts.home) in line],
            "cloud": [*self.cloud.proxy.running(), *self.cloud.hypervisor.alive()],
        }


def _processes() -> list[str]:
    """Process ids and command lines; of the worker and what belongs to it."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if "worker" in words:
                found.append(f"{path.name} {words}")
    return found


def until(condition: Callable[[], object], run: Run, seconds: float = 300.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert run.process.poll() is None, (run.directory / "err").read_text()[-3000:]
        assert time.monotonic() < end, f"it did not come: {run.left()}"
        time.sleep(0.1)


@pytest.fixture
def run(tmp_path) -> Iterator[Run]:
    with (
        cluster(tmp_path / "slurm") as slurm,
        sshd(tmp_path / "sshd") as hosts,
        priced_cloud(tmp_path / "ec2") as cloud,
    ):
        made = Run(tmp_path, slurm, hosts, cloud)
        made.start()
        try:
            yield made
        finally:
            if made.process.poll() is None:
                made.process.kill()
                made.process.wait()
            for line in [*made.left()["here"], *made.left()["lab"]]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(line.split()[0]), signal.SIGKILL)
            slurm.said("scancel", "--user", "root")


def busy(client: Client, pool: str) -> list[str]:
    return [row["host"] for row in client.hosts() if row["pool"] == pool and row["state"] == "live" and row["held"]]


def test_a_run_with_a_deadline_uses_all_pools_at_once_through_a_fault_in_each(run):
    with run.client() as client:
        until(lambda: all(busy(client, pool) for pool in ("here", "cluster", "lab", "cloud")), run)
        faults(run, client)
        (run.directory / "go").touch()
    told = run.ended()
    assert told["state"] == "done" and told["tasks"]["done"] == TASKS, told
    outputs = sorted(int(json.loads(line)["stdout"]) for line in run.said("results", "last", "--json").splitlines())
    assert outputs == [*range(TASKS)], "each task has its result, once"
    by_pool = {row["pool"]: row for row in told["pools"]}
    print(json.dumps({"elapsed_s": told["elapsed_s"], "missed_by_s": told["missed_by_s"], "pools": told["pools"]}))
    assert {name for name, row in by_pool.items() if row["tasks_done"]} == {"here", "cluster", "lab", "cloud"}
    assert sum(row["tasks_done"] for row in by_pool.values()) == TASKS
    came = Counter(row["pool"] for row in json.loads(run.said("host", "list", "--json"))["hosts"])
    assert all(came[pool] >= 2 for pool in ("here", "cluster", "lab", "cloud")), "what vanished was replaced"
    # What a cancelled job ran may still be handed back; what was killed outright cannot.
    assert {"here", "lab", "cloud"} <= {name for name, row in by_pool.items() if row["attempts_lost"]}
    assert by_pool["cloud"]["cost_usd"] == pytest.approx(told["money"]["cost_usd"], rel=0.05)
    assert all(row["tasks_per_s"] > 0 and (row["pool"] == "cloud" or not row["cost_usd"]) for row in told["pools"])
    assert run.left() == {"here": [], "cluster": [], "lab": [], "cloud": []}


def faults(run: Run, client: Client) -> None:
    """A worker here and one behind ssh are killed, a job is cancelled, an instance is reclaimed without notice."""
    for pool, folder in (("here", run.state), ("lab", run.hosts.home)):
        until(lambda pool=pool: busy(client, pool), run)
        host = busy(client, pool)[0]
        mine = [line for line in _processes() if f"--name {host} " in line and str(folder) in line]
        for line in mine:  # a shell waits for the one behind ssh: a host that vanishes takes both
            os.kill(int(line.split()[0]), signal.SIGKILL)
    job = run.slurm.said("squeue", "-h", "-o", "%i").split()[0]
    run.slurm.said("scancel", "--signal", "KILL", "--full", job)
    until(lambda: busy(client, "cloud"), run)
    machine = next(row for row in client.machines(pool="cloud", there=True)["machines"] if row["running"])
    run.cloud.proxy.interrupt(machine["id"])
