"""A bag with a deadline on preemptible servers of a real Nova, while normal requests of others evict some of them."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from tests.support.clouds.cloud_server import machines, submit
from tests.support.commands.reader import Reader
from tests.support.openstack import NovaCloud, cloud_on, nova_process, until
from tests.support.server.cluster import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.nova]
DEADLINE_S = 400.0
TASKS = 16


def _pools(cloud: NovaCloud, server: str) -> str:
    lines = [f"{key} = {_toml(value)}" for key, value in cloud.settings(server=server).items()]
    return "\n".join(["[[pool]]", 'name = "cloud"', 'kind = "openstack"', "limit = 2", *lines, ""])


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(each)}" for key, each in value.items()) + " }"
    return json.dumps(value)


def test_a_bag_is_done_once_each_although_servers_are_evicted(tmp_path: Path):
    pytest.importorskip("openstack", reason="openstacksdk is missing: pip install 'windfall[openstack]'")
    with nova_process(tmp_path, hosts=2, vcpus=2, grace=1.0) as url, cloud_on(url, tmp_path / "cloud") as cloud:
        cloud.test("flavor", name="spare", vcpu=2, ram_mb=4000, preemptible=True)
        normal = cloud.test("flavor", name="normal", vcpu=2, ram_mb=4000)
        made = Cluster(tmp_path, server_env=cloud.environment())
        (tmp_path / "pools.toml").write_text(_pools(cloud, made.url))
        made.start_server("--pools", str(tmp_path / "pools.toml"))
        with contextlib.closing(made):
            job = submit(made, TASKS, 2.0, gate=tmp_path / "go", deadline=DEADLINE_S)
            until(lambda: sum(row["running"] for row in machines(made, there=True)) >= 2)
            theirs = [cloud.boot(f"bob's {number}", normal) for number in range(2)]
            until(lambda: any(row["id"] in theirs and row["status"] == "ACTIVE" for row in cloud.servers()))
            until(lambda: any(row["cause"] == "taken" for row in machines(made)))
            for id in theirs:
                cloud.call("DELETE", f"/servers/{id}")
            (tmp_path / "go").touch()
            status = job.wait(timeout=DEADLINE_S + 60)
            assert status["tasks"]["done"] == TASKS, status
            taken = [row for row in machines(made) if row["cause"] == "taken"]
            assert taken and {row["market"] for row in taken} == {"spot"}, taken
            until(lambda: not machines(made, there=True))
            made.stop_server()
            accepted = made.accepted()
            assert len(accepted) == TASKS and set(accepted.values()) == {1}


def test_the_howto_can_be_typed_along(tmp_path: Path):
    pytest.importorskip("openstack", reason="openstacksdk is missing: pip install 'windfall[openstack]'")
    (tmp_path / "reader").mkdir()
    with nova_process(tmp_path, hosts=2, vcpus=2) as url, cloud_on(url, tmp_path / "cloud") as cloud:
        cloud.test("flavor", name="m1.spare", vcpu=2, ram_mb=4000, preemptible=True)
        # Nova's own fixtures have a flavor m1.small.
        reader = Reader(tmp_path / "reader", "openstack", {"--estimate 5m": "--estimate 5s"})
        reader.instead["https://windfall.example.org:7272"] = f"http://127.0.0.1:{reader.port}"
        own = {key: value for key, value in cloud.settings().items() if key not in ("prices", "preemptible_prices")}
        reader.instead['image = "155d900f-4e14-4e4c-a73d-069cbf4541e6"\n'] = ""
        own.pop("server", None)
        reader.file("pools.toml", more="".join(f"{key} = {_toml(value)}\n" for key, value in own.items()))
        reader.env |= cloud.environment()
        (reader.folder / "tasks.txt").write_text("1\n2\n3\n")
        program = reader.folder / "simulate"
        program.write_text("#!/bin/sh\necho $1\n")
        program.chmod(0o755)
        token, serve, doctor, plan, submit = (command for command, _ in reader.block(1))
        try:
            reader.types(token)
            reader.types(serve)
            assert "pool cloud works" in reader.types(doctor)
            assert "m1.spare" in reader.types(plan)
            reader.types(f"{submit} && windfall wait last")
        finally:
            reader.leaves()
