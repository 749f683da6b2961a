"""Policies, replicas, black holes and pools, live: a real server, real workers of different kinds, typed commands."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.server.cluster import WINDFALL, Cluster


class Site(Cluster):
    """A cluster at which commands are typed."""

    def ended(self, *words: str) -> subprocess.CompletedProcess[str]:
        env = os.environ | {"WINDFALL_STATE": str(self.state)}
        return subprocess.run([*WINDFALL, *words], env=env, capture_output=True, text=True, timeout=60)

    def typed(self, *words: str) -> str:
        ended = self.ended(*words)
        assert ended.returncode == 0, ended
        return ended.stdout

    def hosts(self) -> dict[str, dict[str, Any]]:
        return {row["host"]: row for row in self.clients[0].hosts()}

    def name(self, place: str) -> str:
        """A worker's name: no other worker on this host may have it, not even one of another test."""
        return f"{place}-{self.port}"

    def start(self, place: str, slots: int = 1, **options: Any) -> None:
        """A worker whose site is told by a tag."""
        self.start_worker(self.name(place), slots, extra=("--tag", f"site={place}"), **options)

    def places(self, job) -> set[str]:
        """Where the tasks of a job ran."""
        return {row["host"].rpartition("-")[0] for row in job.tasks()}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.close()


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to be"
        time.sleep(0.05)


def start(site: Site, *places: str, slots: int = 1):
    """A server with a worker in each place; a client of it."""
    site.start_server()
    client = site.client()
    for place in places:
        site.start(place, slots)
    until(lambda: len(client.hosts()) == len(places))
    return client


def test_tasks_run_only_where_the_tags_allow_and_explain_says_which_clause_keeps_hosts_away(site: Site):
    client = start(site, "haifa", "rio")
    there = client.submit("true", params=range(6), policies={"JobRequirements": 'Host.site == "rio"'})
    assert there.wait(60)["state"] == "done" and site.places(there) == {"rio"}
    nowhere = client.submit(
        "true", params=range(2), name="lost", policies={"JobRequirements": 'Host.site == "oslo" && Host.Cpus >= 1'}
    )
    told = site.typed("explain", "lost")
    assert "job 2 'lost' waits." in told
    assert "none of the 2 connected hosts may run it" in told and '2  Host.site == "oslo"' in told
    assert nowhere.explain()["waiting"]["stuck"]
    assert "--require" in told and "windfall change" in told
    waited = site.ended("wait", "lost", "--max-wait", "3s")
    assert waited.returncode == 4
    assert "nothing of job 2 can run: none of the 2 connected hosts may run it" in waited.stderr


def test_a_policy_changed_on_a_running_bag_takes_effect_at_once_and_is_recorded(site: Site):
    client = start(site, "haifa")
    job = client.submit("true", params=range(3), name="moved", policies={"JobRequirements": 'Host.site == "rio"'})
    assert job.explain()["waiting"]["stuck"]
    site.typed("change", "moved", "--require", 'Host.site == "haifa"', "--concurrency", "1", "--replicate", "false")
    assert job.wait(60)["state"] == "done"
    (changed,) = [event for event in client.events(0, job.id) if event["type"] == "JobChanged"]
    assert changed["event"]["rules"]["policies"] == {
        "JobRequirements": 'Host.site == "haifa"', "Concurrency": "1", "ReplicationRequirements": "false",
    }  # fmt: skip


SIX = """
[job]
name = "six"
range = "1-4"
command = "true {}"
attributes = { quick = true }

[job.policies]
JobRequirements = 'Host.site == "haifa" && BOT.quick'
Rank = "10 * Host.Speed"
Concurrency = "2"
Deadline = "120 * Concurrency"
ReplicationRequirements = "BOT.Tail && Job.NumberOfReplicas < 2"
GridPolicy = 'Pool.Kind == "local"'
"""


def test_all_six_policies_work_from_a_file_and_from_options(site: Site, tmp_path: Path):
    client = start(site, "rio", "haifa")
    (tmp_path / "job.toml").write_text(SIX)
    site.typed("submit", "-f", str(tmp_path / "job.toml"))
    options = ["--require", 'Host.site == "rio"', "--rank", "3", "--concurrency", "1", "--attempt-deadline", "99"]
    options += ["--replicate", "false", "--grid", "false"]
    site.typed("submit", "--range", "1-3", "--name", "typed", *options, "--", "true", "{}")
    from_file, from_options = client.job("six"), client.job("typed")
    assert from_file.wait(60)["state"] == from_options.wait(60)["state"] == "done"
    assert site.places(from_file) == {"haifa"} and site.places(from_options) == {"rio"}
    assert len(from_file.explain()["policies"]) == len(from_options.explain()["policies"]) == 6
    sent = from_file.explain(0)["story"][0]
    assert sent["deadline"] - sent["t"] == pytest.approx(240)
    sent = from_options.explain(0)["story"][0]
    assert sent["deadline"] - sent["t"] == pytest.approx(99)


def test_a_black_hole_is_starved_with_a_reason_and_the_bag_is_done_without_it(site: Site):
    client = start(site, "good", slots=2)
    # With this path no task finds its program: everything fails here, at once.
    site.start("hole", env={"PATH": "/nonexistent"})
    hole = site.name("hole")
    until(lambda: len(client.hosts()) == 2)
    job = client.submit(["sh", "-c", "sleep 0.05"], params=range(80), max_failures=20)
    assert job.wait(60)["state"] == "done"
    until(lambda: site.hosts()[hole]["suspicion"])
    (line,) = [line for line in site.typed("host", "list").splitlines() if line.startswith(hole)]
    assert "probation" in line and "next test in" in line
    refused = client.submit("true", params=range(1), policies={"JobRequirements": f'Host.Name == "{hole}"'})
    (reason,) = [r for r in refused.explain()["waiting"]["reasons"] if r["what"] == "probation"]
    assert "black hole suspected" in reason["detail"]


def test_a_straggler_is_replicated_in_the_tail_and_the_first_result_wins(site: Site, tmp_path: Path):
    client = start(site, "a", "b")
    # The first attempt of task 0 takes longer than the test, the second is quick.
    slow = f"test {{}} != 0 || ! mkdir {tmp_path}/taken || sleep 300"
    job = client.submit(
        ["sh", "-c", slow], params=range(5), policies={"ReplicationRequirements": "Job.NumberOfReplicas < 2"}
    )
    assert job.wait(60)["state"] == "done"
    story = job.explain(0)["story"]
    assert [step.get("why") for step in story if step["what"] == "sent"] == ["first attempt", "replica in the tail"]
    assert story[-1]["what"] == "accepted"
    assert any(event["decided"].get("tails") == [[1, True]] for event in client.events(0, job.id))
    assert "job 1 enters its tail" in site.typed("events", "last")
    until(lambda: all(not row["held"] for row in client.hosts()))


def test_a_task_on_a_worker_that_vanishes_is_run_again_and_its_story_says_why(site: Site, tmp_path: Path):
    client = start(site, "doomed")
    job = client.submit(["sh", "-c", f"! mkdir {tmp_path}/taken || sleep 300"], params=range(1))
    until(lambda: (tmp_path / "taken").exists())
    site.kill_worker(site.name("doomed"))
    site.start("heir")
    assert job.wait(60)["state"] == "done"
    told = site.typed("explain", "last.0")
    assert f"sent to {site.name('doomed')}: first attempt" in told
    assert "given up: its host fell silent" in told
    assert f"sent to {site.name('heir')}" in told and "accepted" in told


def test_clients_are_started_when_tasks_wait_and_leave_when_none_do(site: Site, tmp_path: Path):
    (tmp_path / "pools.toml").write_text('[[pool]]\nname = "here"\nlimit = 2\nidle_exit = "1s"\n')
    site.start_server("--pools", str(tmp_path / "pools.toml"))
    client = site.client()
    barred = client.submit("true", params=range(2), policies={"GridPolicy": 'Pool.Name == "elsewhere"'})
    job = client.submit("true", params=range(20), policies={"GridPolicy": 'Pool.Kind == "local"'})
    assert job.wait(60)["state"] == "done"
    assert {site.hosts()[row["host"]]["pool"] for row in job.tasks()} == {"here"}
    assert barred.wait(60)["state"] == "done", "a client that is there may run it"
    asked = [ask for event in client.events() for ask in (event["decided"] or {}).get("asks", [])]
    assert asked and all(ask["pool"] == "here" for ask in asked)
    until(lambda: client.pools()[0]["running"] == 0)
    assert "here" in site.typed("pool", "list")
