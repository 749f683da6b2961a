"""Bags with deadlines on EC2: a real server and real workers, moto's API, and a hypervisor that interrupts machines.

Every run is judged by the deadline, each task's result once, no instance left, and a bill recomputed from the calls.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cloud_server import machines, submit, until
from tests.support.cluster import Cluster
from tests.support.ec2 import Cloud
from tests.support.ec2.bills import bill_usd
from tests.support.ec2.world import priced_cloud
from windfall.client import Job

DEADLINE_S = 120.0
TYPE = "c5.large"


class Run:
    """A cloud, and a server that rents from it."""

    def __init__(self, cloud: Cloud, made: Cluster) -> None:
        self.cloud, self.proxy, self.made = cloud, cloud.proxy, made

    def busy(self, market: str = "") -> str:
        """An instance on which tasks run, once there is one."""
        found: list[str] = []

        def look() -> list[str]:
            rows = [row for row in machines(self.made, there=True) if row["running"] and market in row["market"]]
            found.extend(row["id"] for row in rows if row["phase"] == "running")
            return found

        until(look)
        return found[0]

    def phase(self, id: str) -> str:
        return next(row["phase"] for row in machines(self.made) if row["id"] == id)

    def judge(self, job: Job) -> list[dict]:
        """Wait for the end, and hold the run against its promises. Returns the rows of all machines."""
        status = job.wait(timeout=DEADLINE_S + 60)
        total = status["tasks"]["total"]
        assert status["tasks"]["done"] == total, status
        assert status["finished_s"] <= status["deadline_s"], "the deadline was missed"
        until(lambda: not machines(self.made, there=True))
        assert self.proxy.running() == [] and self.cloud.hypervisor.alive() == []
        assert not [each.id for each in self.proxy.requests.values() if each.persistent and each.state != "cancelled"]
        rows = machines(self.made)
        self.made.stop_server()
        accepted = self.made.accepted()
        assert len(accepted) == total and set(accepted.values()) == {1}
        self.check_bill(rows)
        return rows

    def check_bill(self, rows: list[dict]) -> None:
        """Each bill is that of the calls, but for two seconds: times of both sides are told in whole seconds."""
        for row in rows:
            if row["id"]:
                usd, second_usd = bill_usd(self.proxy, row["id"])
                assert row["cost_usd"] == pytest.approx(usd, abs=2.01 * second_usd + 1e-6), (row, usd)
        assert {row["id"] for row in rows if row["id"]} == set(self.proxy.instances), "machines nobody knows of"


@contextlib.contextmanager
def running(directory: Path, **settings: object) -> Iterator[Run]:
    """A server with one pool of this cloud."""
    with priced_cloud(directory / "ec2") as cloud:
        made = Cluster(directory, server_env=cloud.environment)
        (directory / "pools.toml").write_text(cloud.pool(**settings))
        with contextlib.closing(made):
            made.start_server("--pools", str(directory / "pools.toml"))
            yield Run(cloud, made)


def test_a_bag_with_a_deadline_runs_on_demand_to_its_end(tmp_path):
    with running(tmp_path, markets=["on-demand"]) as run:
        rows = run.judge(submit(run.made, 12, 1.0))
        assert {row["market"] for row in rows} == {"on-demand"}
        assert len(run.proxy.calls_of("RunInstances")) == len(rows)
