"""Notices of a cloud: a worker reads them from the metadata service of EC2 and passes them on to its tasks."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.ec2.hypervisor import Hypervisor
from tests.support.server.fake_server import FakeServer
from tests.support.server.worker_process import until_written, worker
from windfall.worker.metadata import ENDPOINT_VARIABLE, RECLAIMED, Watch


@pytest.fixture
def cloud(tmp_path, monkeypatch):
    with Hypervisor(tmp_path / "cloud") as hypervisor:
        hypervisor.boot("i-1")
        monkeypatch.setenv(ENDPOINT_VARIABLE, f"http://127.0.0.1:{hypervisor._server.server_port}/i-1")
        yield hypervisor


def sleeper(file: Path, trap: str = "", seconds: int = 600) -> list[str]:
    """A task that writes its process id and then stays for a while."""
    wait = f"i=0; while [ $i -lt {20 * seconds} ]; do sleep 0.05; i=$((i+1)); done"
    return ["sh", "-c", f"{trap} echo $$ > {file}.tmp; mv {file}.tmp {file}; {wait}"]


def options(*more: str) -> list[str]:
    return ["--slots", "1", "--notices", "ec2", "--notices-every", "0.2s", *more]


@pytest.mark.parametrize("action", ["terminate", "stop"])
def test_a_notice_reaches_the_task_with_grace_and_the_worker_says_that_it_is_reclaimed(tmp_path, cloud, action):
    with FakeServer() as server, worker(server.url, tmp_path, *options()) as started:
        file = tmp_path / "pid"
        job = server.job(env={"WINDFALL_NOTICE_SIGNAL": "USR1"})
        key = server.add(job, sleeper(file, trap="trap 'sleep 1; echo saved; exit 0' USR1;"))
        until_written(file)
        cloud.announce("i-1", action, time.time() + 60)
        assert started.ended()[0] == RECLAIMED
        assert (server.result(key)["cause"], server.results[key][0]["stdout"]) == ("preempted", b"saved\n")
        assert server.requests[-1]["leaving"] == "reclaimed" and cloud.unsigned == 0


def test_the_grace_of_a_task_is_cut_to_what_is_left_of_the_notice(tmp_path, cloud):
    with FakeServer() as server, worker(server.url, tmp_path, *options()) as started:
        file = tmp_path / "pid"
        key = server.add(server.job(grace_s=3600.0), sleeper(file, trap="trap '' TERM;"))
        until_written(file)
        cloud.announce("i-1", "terminate", time.time() + 6)
        assert started.ended()[0] == RECLAIMED
        assert server.result(key)["cause"] == "preempted"


def test_a_machine_that_will_be_hibernated_goes_on(tmp_path, cloud):
    with FakeServer() as server, worker(server.url, tmp_path, *options("--idle-exit", "3s")) as started:
        file = tmp_path / "pid"
        server.wait_for(lambda: bool(server.requests))
        cloud.announce("i-1", "hibernate", time.time())
        key = server.add(server.job(), sleeper(file, seconds=1))
        assert server.result(key)["cause"] == "done"
        assert started.ended()[0] == 0


@pytest.mark.parametrize(("choice", "cause"), [("drain", "done"), ("leave", "preempted")])
def test_on_a_rebalance_recommendation_tasks_are_finished_or_told(tmp_path, cloud, choice, cause):
    with FakeServer() as server, worker(server.url, tmp_path, *options("--rebalance", choice)) as started:
        file = tmp_path / "pid"
        key = server.add(server.job(), sleeper(file, seconds=3))
        until_written(file)
        cloud.recommend_rebalance("i-1")
        assert started.ended()[0] == 0, "the machine may end itself"
        assert server.result(key)["cause"] == cause
        assert server.requests[-1]["leaving"] == "rebalance recommendation"


def test_a_service_that_fails_is_asked_again_and_tokens_are_renewed(cloud):
    watch = Watch()
    watch.look()
    assert (watch.action, watch.rebalance) == ("", False)
    cloud._tokens.clear()
    cloud.announce("i-1", "terminate", 1_800_000_000.0)
    watch.look()  # the old token is refused
    watch.look()
    assert (watch.action, watch.at_t, cloud.unsigned > 0) == ("terminate", 1_800_000_000.0, True)


def test_without_a_metadata_service_a_worker_works(tmp_path: Path, monkeypatch):
    monkeypatch.setenv(ENDPOINT_VARIABLE, "http://127.0.0.1:9")
    with FakeServer() as server, worker(server.url, tmp_path, *options("--idle-exit", "2s")) as started:
        key = server.add(server.job(), ["echo", "x"])
        assert server.result(key)["stdout"] == b"x\n" and started.ended()[0] == 0
