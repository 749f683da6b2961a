"""Bags over workers that are jobs of a real Slurm of one node, through everything that Slurm does to jobs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.pools.slurm import cluster
from windfall.client import Client
from windfall.pools.config import read_pools
from windfall.server import embedded

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def slurm(tmp_path_factory) -> Iterator[Any]:
    with cluster(tmp_path_factory.mktemp("slurm")) as made:
        yield made


@pytest.fixture(autouse=True)
def nothing_stays_behind(slurm) -> Iterator[None]:
    yield
    left = jobs(slurm)
    slurm.said("scancel", "--user", "root", "--full", "--signal", "KILL")
    slurm.said("scancel", "--user", "root")
    until(lambda: not jobs(slurm))
    assert left == []


def jobs(slurm: Any) -> list[list[str]]:
    """Id, state and name of every job that waits or runs."""
    return [line.split("|") for line in slurm.said("squeue", "-h", "-o", "%i|%T|%j").splitlines()]


def until(condition: Callable[[], object], seconds: float = 60.0, seen: Callable[[], object] = str) -> None:
    """Wait for a condition; `seen` says what there is instead when the time is over."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"it did not come: {seen()}"
        time.sleep(0.1)


@contextmanager
def served(tmp_path: Path, *more: dict[str, Any], **fields: Any) -> Iterator[Client]:
    """A server with a pool `cluster` of kind slurm, and `more` pools."""
    common = {"name": "cluster", "kind": "slurm", "limit": 2, "slots": 2, "walltime": "10m", "interval": "0.5s"}
    lines = []
    for pool in (fields, *more):
        settings = common | {"python": sys.executable} | pool
        lines += ["[[pool]]", *(f"{key} = {_toml(value)}" for key, value in settings.items())]
    file = tmp_path / "pools.toml"
    file.write_text("\n".join(lines))
    with (
        embedded.start(tmp_path / "state", pools=read_pools(file)) as server,
        Client(server.url, server.token) as client,
    ):
        yield client


def _toml(value: Any) -> str:
    return str(value) if isinstance(value, int | list) else f'"{value}"'


def noting(tmp_path: Path, seconds: float) -> list[str]:
    """A task that notes its number when it has done its work; one whose `sleep` is killed has not."""
    return ["sh", "-c", f"sleep {seconds} && echo {{}} >> {tmp_path}/done"]


def gated(tmp_path: Path, seconds: float = 0.1) -> list[str]:
    """The same, but no task does its work before there is a file `go`: what the test does in between comes in time."""
    wait = f"while [ ! -e {tmp_path}/go ]; do sleep 0.1 || exit 1; done"
    return ["sh", "-c", f"{wait}; sleep {seconds} && echo {{}} >> {tmp_path}/done"]


def let_go(tmp_path: Path) -> None:
    (tmp_path / "go").touch()


def noted(tmp_path: Path) -> list[int]:
    path = tmp_path / "done"
    return sorted(int(line) for line in path.read_text().split()) if path.exists() else []


def begun(client: Client) -> list[str]:
    """Hosts that hold tasks."""
    return [row["host"] for row in client.hosts() if row["state"] == "live" and row["held"]]


def hosts(client: Client) -> dict[str, dict[str, Any]]:
    return {row["host"]: row for row in client.hosts()}


# --- a bag to its end -----------------------------------------------------------------------------------------------


def test_a_bag_over_slurm_workers_comes_to_its_end_and_leaves_nothing_behind(tmp_path, slurm):
    with served(tmp_path, constraint="fast", account="physics", native=["--nice=5"]) as client:
        policies = {"JobRequirements": "Host.RemainingLifetime > 400 && Host.RemainingLifetime <= 540"}
        job = client.submit(["sh", "-c", "sleep 0.05; echo {}"], range(60), name="bag", policies=policies)
        assert job.wait(120)["tasks"]["done"] == 60
        assert {task.stdout.strip() for task in job.results()} == {str(n) for n in range(60)}
        assert {row["pool"] for row in client.hosts()} == {"cluster"}
        assert all(name.startswith("windfall+") and "+cluster+" in name for _, _, name in jobs(slurm))


def test_allocations_are_as_large_as_the_work_and_no_more_wait_than_the_backlog(tmp_path, slurm):
    with served(tmp_path, limit=20, slots=6, backlog=2, per_minute=600) as client:
        job = client.submit(noting(tmp_path, 1), range(3), name="small")
        until(lambda: jobs(slurm))
        assert slurm.said("squeue", "-h", "-o", "%C") == "3"
        job.wait(60)
        # The node has 8 cores: of workers with 6 one runs, and the others wait.
        large = client.submit(noting(tmp_path, 0.5), range(100, 160), name="large")
        most = 0
        while client.job(large.id).status()["tasks"]["done"] < 60:
            most = max(most, sum(state == "PENDING" for _, state, _ in jobs(slurm)))
            time.sleep(0.1)
        assert most <= 2
        until(lambda: not [state for _, state, _ in jobs(slurm) if state == "PENDING"])
        assert noted(tmp_path) == [*range(3), *range(100, 160)]


def test_workers_asked_for_together_are_one_array_and_each_element_is_ended_and_replaced_singly(tmp_path, slurm):
    with served(tmp_path, limit=3, slots=1) as client:
        job = client.submit(gated(tmp_path), range(6), name="bag", max_failures=1)
        until(lambda: len(begun(client)) == 3)
        first = {id: name for id, _, name in jobs(slurm)}
        assert {id.partition("_")[2] for id in first} == {"1", "2", "3"} and len(set(first.values())) == 1
        assert len({id.partition("_")[0] for id in first}) == 1, "they are elements of one array"
        slurm.said("scancel", next(id for id in first if id.endswith("_2")))
        until(lambda: hosts(client)["cluster-1-2"]["state"] == "gone" and len(begun(client)) == 3)
        assert {hosts(client)[name]["state"] for name in ("cluster-1-1", "cluster-1-3")} == {"live"}
        assert [id for id in first if id in {id for id, _, _ in jobs(slurm)}] == [id for id in first if id[-2:] != "_2"]
        let_go(tmp_path)
        assert job.wait(60)["tasks"]["done"] == 6
    assert noted(tmp_path) == [*range(6)]


# --- what Slurm does to jobs ----------------------------------------------------------------------------------------


def test_a_worker_whose_job_is_cancelled_is_replaced_and_its_tasks_have_not_failed(tmp_path, slurm):
    with served(tmp_path, limit=1) as client:
        job = client.submit(gated(tmp_path), range(4), name="bag", max_failures=1)
        until(lambda: begun(client))
        slurm.said("scancel", jobs(slurm)[0][0])
        until(lambda: hosts(client)["cluster-1-1"]["state"] == "gone")
        let_go(tmp_path)
        assert job.wait(60)["tasks"]["done"] == 4
        seen = hosts(client)
        assert (seen["cluster-1-1"]["left"], seen["cluster-1-1"]["failed"]) == ("signal", 0)
        assert noted(tmp_path) == [0, 1, 2, 3] and len(seen) == 2


def test_a_worker_whose_job_is_requeued_comes_again_under_its_name(tmp_path, slurm):
    with served(tmp_path, limit=1, native=["--requeue"]) as client:
        job = client.submit(gated(tmp_path), range(6), name="bag", max_failures=1)
        until(lambda: begun(client))
        id = jobs(slurm)[0][0]
        slurm.said("scontrol", "requeue", id)
        again = lambda: list((tmp_path / "state").rglob(f"started.{id}.1"))  # noqa: E731
        # Slurm would let it wait for two minutes; within the same second it refuses to start it again.
        time.sleep(2)
        until(lambda: again() or slurm.said("scontrol", "update", f"JobId={id}", "StartTime=now"))
        until(lambda: hosts(client)["cluster-1-1"]["state"] == "live")
        let_go(tmp_path)
        assert job.wait(60)["tasks"]["done"] == 6
        assert noted(tmp_path) == list(range(6))


def test_a_preempted_worker_hands_its_tasks_back_and_another_waits_its_turn(tmp_path, slurm):
    with served(tmp_path, limit=1, slots=8, least_slots=8, partition="spare") as client:
        job = client.submit(gated(tmp_path), range(12), name="bag", max_failures=1)
        until(lambda: begun(client))
        slurm.said("sbatch", "-p", "main", "-n", "4", "-o", "/dev/null", "--wrap", "sleep 1")
        until(lambda: hosts(client)["cluster-1-1"]["state"] == "gone")
        let_go(tmp_path)
        assert job.wait(60)["tasks"]["done"] == 12
        seen = hosts(client)["cluster-1-1"]
        assert (seen["left"], seen["failed"]) == ("signal", 0) and noted(tmp_path) == list(range(12))


COUNT = """\
import os, pathlib, signal, sys, time

def goodbye(*_):
    saved.write_text(str(n))
    sys.exit(1)

home, saved, me = pathlib.Path(sys.argv[1]), pathlib.Path(os.environ["WINDFALL_CHECKPOINT"]), sys.argv[2]
n = int(saved.read_text()) if saved.exists() else 0
signal.signal(signal.SIGTERM, goodbye)
(home / f"began-{me}-{os.environ['WINDFALL_ATTEMPT']}").write_text(str(n))
while not (home / "go").exists():
    time.sleep(0.1)
    n += 1
print(n)
"""


def test_checkpoints_are_written_on_the_warning_signal_and_at_the_walltime(tmp_path, slurm):
    """Slurm looks at the limits of its jobs every thirty seconds: both are waited for at once."""
    (tmp_path / "count.py").write_text(COUNT)
    cut = {"name": "cut", "limit": 1, "slots": 1, "notice": "0s"}
    with served(tmp_path, cut, name="warned", limit=1, slots=1, notice="10s") as client:
        command = [sys.executable, str(tmp_path / "count.py"), str(tmp_path), "{}"]
        job = client.submit(command, range(2), name="bag", checkpoint="60s", max_failures=1)
        until(lambda: len(begun(client)) == 2)
        until(lambda: len(list(tmp_path.glob("began-*-1"))) == 2)
        by_pool = {name.split("+")[2]: id for id, _, name in jobs(slurm)}
        soon = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + 40))
        slurm.said("scontrol", "update", f"JobId={by_pool['warned']}", f"EndTime={soon}")
        slurm.said("scontrol", "update", f"JobId={by_pool['cut']}", "EndTime=now")
        gone = lambda: {hosts(client)[name]["state"] for name in ("warned-1-1", "cut-2-1")} == {"gone"}  # noqa: E731
        until(gone, 150, lambda: (hosts(client), jobs(slurm), (slurm.folder / "slurmctld.log").read_text()[-3000:]))
        left = {name: hosts(client)[name]["left"] for name in ("warned-1-1", "cut-2-1")}
        assert left == {"warned-1-1": "notice", "cut-2-1": "signal"}
        until(lambda: len(list(tmp_path.glob("began-*-2"))) == 2)
        let_go(tmp_path)
        assert job.wait(60)["tasks"]["done"] == 2
    assert all(int(path.read_text()) > 0 for path in tmp_path.glob("began-*-2")), "they began where they had saved"
    assert "DUE TO TIME LIMIT" in next((tmp_path / "state").rglob("cut-2-1/batch.log")).read_text()


# --- a controller that is killed ------------------------------------------------------------------------------------


def test_a_killed_controller_leads_to_no_flood_of_jobs_and_to_nothing_twice(tmp_path, slurm):
    with served(tmp_path, limit=3, slots=1) as client:
        job = client.submit(gated(tmp_path, 0.4), range(90), name="bag", max_failures=1)
        until(lambda: len(begun(client)) == 3)
        # It writes down what it knows every few seconds. What it forgets it kills later: leases are tested elsewhere.
        now = time.time()
        slurm.said("scontrol", "update", f"JobId={jobs(slurm)[0][0]}", "Comment=noted")
        until(lambda: (slurm.folder / "state" / "job_state").stat().st_mtime > now + 0.1)
        let_go(tmp_path)
        slurm.kill_controller()
        more = client.submit(noting(tmp_path, 0.3), range(90, 100), name="more", max_failures=1)
        until(lambda: client.pools()[0]["last_error"])
        assert "Unable to contact slurm controller" in client.pools()[0]["last_error"]
        slurm.start_controller()
        assert job.wait(120)["tasks"]["done"] == 90
        assert more.wait(120)["tasks"]["done"] == 10
        assert len(list((tmp_path / "state").rglob("order.json"))) == len(jobs(slurm)) == 3
        assert len(list((tmp_path / "state").rglob("started.*"))) == 3
    assert noted(tmp_path) == list(range(100)), "every task ran once"


# --- what Slurm refuses ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "words", "hint"),
    [
        ({"partition": "nowhere"}, "invalid partition specified: nowhere", "see the partitions: sinfo"),
        ({"partition": "physics", "account": "poets"}, "Invalid account or account/partition", "see your accounts"),
        ({"constraint": "slow"}, "Invalid feature specification", "features of the nodes"),
        ({"native": ["--no-such-option"]}, "unrecognized option", "read what Slurm says"),
        ({"slots": 50, "least_slots": 50}, "More processors requested", "read what Slurm says"),
    ],
)
def test_what_slurm_refuses_is_shown_in_its_own_words(tmp_path, slurm, fields, words, hint):
    with served(tmp_path, **fields) as client:
        client.submit(["true", "{}"], range(60), name="bag")
        until(lambda: client.pools()[0]["last_error"])
        assert words in client.pools()[0]["last_error"]
        found = client.doctor("cluster", True, 5.0)
        (wrong,) = [check for check in found["checks"] if check["error"]]
        assert words in wrong["error"] and hint in wrong["hint"], wrong
        assert list((tmp_path / "state" / "pools").rglob("order.json")) == []


def test_the_doctor_starts_a_job_sees_its_worker_come_and_ends_it(tmp_path, slurm):
    with served(tmp_path) as client:
        found = client.doctor("cluster", True, 20.0)
    assert found["ok"], found
    what = " / ".join(check["what"] for check in found["checks"])
    assert "Slurm is slurm-wlm" in what and "psij-python" in what and "reaches the server" in what


def test_the_last_words_of_jobs_whose_workers_never_came_are_shown(tmp_path, slurm):
    with served(tmp_path, python="/no/python") as client:
        client.submit(["true", "{}"], range(1), name="bag")
        until(lambda: client.pools()[0]["last_error"])
        row = client.pools()[0]
    assert "job " in row["last_error"] and "/no/python: not found" in row["last_error"]


# --- a worker that somebody starts inside a job of their own --------------------------------------------------------


def test_a_worker_started_by_hand_inside_a_job_tells_the_server_when_the_job_ends(tmp_path, slurm):
    with embedded.start(tmp_path / "state") as server, Client(server.url, server.token) as client:
        worker = f"exec {sys.executable} -m windfall worker --server {server.url} --name mine --dir {tmp_path}/worker"
        script = tmp_path / "mine.sh"
        script.write_text(f"#!/bin/sh\nexport WINDFALL_TOKEN={server.token}\nunset SLURM_JOB_END_TIME\n{worker}\n")
        id = slurm.said("sbatch", "--parsable", "--time=7", f"--output={tmp_path}/said", str(script)).strip()
        ad: dict[str, Any] = {}
        until(
            lambda: ad.update(hosts(client).get("mine", {}).get("ad", {})) or ad.get("lifetime_s") is not None,
            seen=lambda: (tmp_path / "said").read_text(),
        )
        assert 300 < ad["lifetime_s"] <= 420
        assert f"Slurm job {id} ends in" in (tmp_path / "said").read_text()
        slurm.said("scancel", "--full", "--signal", "TERM", id)
        until(lambda: not jobs(slurm))
