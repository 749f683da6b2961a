"""Bags with deadlines on EC2: a real server and real workers, moto's API, and a hypervisor that interrupts machines.

Every run is judged by the deadline, each task's result once, no instance left, and a bill recomputed from the calls.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clouds.bills import records_of
from tests.support.clouds.cloud_server import machines, submit, until
from tests.support.ec2 import IMAGE, ZONE_A, ZONE_B, Cloud
from tests.support.ec2.bills import bill_usd
from tests.support.ec2.world import priced_cloud
from tests.support.server.cluster import Cluster
from windfall.client import Job

pytestmark = pytest.mark.slow
DEADLINE_S = 120.0
TYPE = "c5.large"


class Run:
    """A cloud, and a server that rents from it."""

    def __init__(self, cloud: Cloud, made: Cluster) -> None:
        self.cloud, self.proxy, self.made = cloud, cloud.proxy, made
        self.others: set[str] = set()
        """Instances that no plan has ordered."""

    def rows(self, pool: str = "", **wanted: object) -> list[dict]:
        """Machines that are there."""
        rows = machines(self.made, there=True, pool=pool)
        return [row for row in rows if all(row[key] == value for key, value in wanted.items())]

    def busy(self, market: str = "spot", pool: str = "cloud") -> str:
        """An instance on which tasks run, once there is one."""
        found: list[str] = []
        until(
            lambda: (
                found.extend(r["id"] for r in self.rows(pool, market=market, phase="running") if r["running"]) or found
            )
        )
        return found[0]

    def row(self, id: str) -> dict:
        return next(row for row in machines(self.made) if row["id"] == id)

    def phase(self, id: str) -> str:
        return self.row(id)["phase"]

    def judge(self, *jobs: Job) -> list[dict]:
        """Wait for the end, and hold the run against its promises. Returns the rows of all machines."""
        total = 0
        for job in jobs:
            status = job.wait(timeout=DEADLINE_S + 60)
            total += status["tasks"]["total"]
            assert status["tasks"]["done"] == status["tasks"]["total"], status
            assert status["finished_s"] <= status["deadline_s"], "the deadline was missed"
        until(lambda: not machines(self.made, there=True))
        assert set(self.proxy.running()) <= self.others and self.cloud.hypervisor.alive() == []
        assert not [each.id for each in self.proxy.requests.values() if each.persistent and each.state != "cancelled"]
        rows = machines(self.made)
        self.made.stop_server()
        accepted = self.made.accepted()
        assert len(accepted) == total and set(accepted.values()) == {1}
        self.check_bill(rows)
        return rows

    def start_others(self) -> tuple[str, str, str]:
        """An instance of ours that the engine does not know, one without tags, one of another state."""
        import boto3

        client = boto3.client("ec2", region_name="us-east-1", endpoint_url=self.proxy.url)
        state = (self.made.state / "id").read_text().strip()
        ids = []
        for tags in (
            {"windfall:state": state, "windfall:pool": "cloud", "windfall:host": "cloud-m999"},
            {},
            {"windfall:state": "another", "windfall:pool": "cloud", "windfall:host": "cloud-m1"},
        ):
            listed = [{"Key": key, "Value": value} for key, value in tags.items()]
            marked = {"TagSpecifications": [{"ResourceType": "instance", "Tags": listed}]} if tags else {}
            answer = client.run_instances(ImageId=IMAGE, InstanceType=TYPE, MinCount=1, MaxCount=1, **marked)
            ids.append(answer["Instances"][0]["InstanceId"])
        self.others.update(ids)
        return ids[0], ids[1], ids[2]

    def check_bill(self, rows: list[dict]) -> None:
        """Each bill is that of the calls, to the second: the API tells the ends of spells in whole ones."""
        second_usd = 1e-5
        for row in rows:
            if row["id"]:
                usd = bill_usd(self.proxy, row["id"], minimum_s=0.0)
                assert row["cost_usd"] == pytest.approx(usd, abs=second_usd), (row, usd)
        assert {row["id"] for row in rows if row["id"]} == self.proxy.instances.keys() - self.others


@contextlib.contextmanager
def running(directory: Path, **pools: dict[str, object]) -> Iterator[Run]:
    """A server with these pools of one cloud, by name; one called `cloud` if none is named."""
    with priced_cloud(directory / "ec2") as cloud:
        made = Cluster(directory, server_env=cloud.environment)
        text = "".join(
            cloud.pool(name, server=made.url, **settings) for name, settings in (pools or {"cloud": {}}).items()
        )
        (directory / "pools.toml").write_text(text)
        with contextlib.closing(made):
            made.start_server("--pools", str(directory / "pools.toml"))
            yield Run(cloud, made)


def test_a_bag_with_a_deadline_runs_on_demand_to_its_end(tmp_path):
    with running(tmp_path, cloud={"markets": ["on-demand"]}) as run:
        found = run.made.client().doctor("cloud", wait_s=60.0)
        assert found["ok"] and "starts and reaches the server" in found["checks"][-1]["what"], found
        run.others.update(run.proxy.instances)
        assert run.proxy.running() == []
        rows = run.judge(submit(run.made, 12, 1.0))
        assert {row["market"] for row in rows} == {"on-demand"}
        started = [call for call in run.proxy.calls_of("RunInstances") if call.status == 200]
        assert len(started) == len(rows) + len(run.others)


def test_a_bag_comes_to_its_end_whatever_becomes_of_its_spot_machines(tmp_path):
    ways = {"terminated": "terminate", "stopped": "stop", "hibernated": "hibernate", "advised": "terminate"}
    with running(tmp_path, **{name: {"interruption": way} for name, way in ways.items()}) as run:
        # One task keeps its planner waiting for a machine that comes back; of several, others take over.
        counts = {"terminated": 8, "stopped": 1, "hibernated": 1, "advised": 8}
        go = tmp_path / "go"  # no task ends before all of it has happened
        jobs = {name: submit(run.made, counts[name], 4.0, name, go, deadline=300.0) for name in ways}
        ids = {name: run.busy("spot", name) for name in ways}
        run.cloud.hypervisor.recommend_rebalance(ids["advised"])
        for name in ("stopped", "hibernated"):
            run.proxy.interrupt(ids[name])
        run.proxy.interrupt(ids["terminated"], notice_s=6.0)
        until(lambda: run.phase(ids["terminated"]) == "ended")
        until(lambda: {run.phase(ids[name]) for name in ("stopped", "hibernated")} == {"hibernated"})
        for name in ("stopped", "hibernated"):
            run.proxy.resume(ids[name])
        go.touch()
        rows = {row["id"]: row for row in run.judge(*jobs.values())}
        assert [rows[ids[name]]["cause"] for name in ways] == ["taken", "released", "released", "released"]
        assert [rows[ids[name]]["hibernations"] for name in ways] == [0, 1, 1, 0]
        assert rows[ids["terminated"]]["cost_usd"] == 0.0, "EC2 took it in its first hour"
        assert attempts(run.made, jobs["hibernated"]) == {1}, "what was frozen went on"
        assert run.cloud.hypervisor.unsigned == 0
        assert "leaving: reclaimed" in run.cloud.hypervisor.console(ids["terminated"])
        assert "leaving: rebalance" in run.cloud.hypervisor.console(ids["advised"])


def attempts(made: Cluster, job: Job) -> set[int]:
    """Numbers of the attempts that reported results. The server must be stopped."""
    reported = [record.event for record in records_of(made.state) if type(record.event).__name__ == "ResultsReported"]
    return {result.attempt for event in reported for result in event.results if result.job == job.id}


def test_a_bag_comes_to_its_end_through_errors_of_the_api_and_a_server_that_is_killed(tmp_path):
    with running(tmp_path) as run:
        proxy = run.proxy
        proxy.full.add((TYPE, ZONE_A, "spot"))
        proxy.throttle("RunInstances", 2)
        job = submit(run.made, 24, 2.0)
        leaked, other, stranger = run.start_others()
        first = run.busy()
        assert proxy.instances[first].zone == ZONE_B, "there is no capacity in the other zone"
        proxy.set_price(TYPE, ZONE_B, 0.06)
        proxy.throttle("DescribeInstances", 3)
        until(lambda: leaked not in proxy.running())
        proxy.bad_keys.add("AKIAFIRST")
        until(lambda: sum(call.code == "AuthFailure" for call in proxy.calls) >= 2)
        run.made.kill_server()
        run.cloud.use_key("AKIASECOND")
        run.made.start_server("--pools", str(tmp_path / "pools.toml"))
        rows = run.judge(job)
        refused = [call for call in proxy.calls if call.code == "InsufficientInstanceCapacity"]
        assert 1 <= len(refused) <= 15, "it backs off by type and zone"
        assert {other, stranger} <= set(proxy.running()), "what is not ours was touched"
        without = {row["offer"] for row in rows if "InsufficientInstanceCapacity" in row["error"]}
        assert without == {f"{TYPE}:{ZONE_A}:spot"}
