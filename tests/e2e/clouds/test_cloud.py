"""Bags on machines of the emulated cloud, which sleep, wake and are killed: real servers, workers and processes.

Every run is judged by what it promises: the deadline, each task's result once, and a bill that another count of the log
confirms. Deadlines are generous for a busy host: the work of a run takes some ten seconds, its deadline is two minutes,
and a machine on demand boots within about three.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.support.clouds.bills import bills, records_of
from tests.support.clouds.cloud_server import DEADLINE_S, busy, machines, pool, served, submit, until
from tests.support.clouds.providers import sweep
from tests.support.commands.command import windfall
from tests.support.server.cluster import WINDFALL, Cluster
from windfall.client import Job
from windfall.errors import BadInput
from windfall.lab import data
from windfall.pools.emulated.cloud import Machine

pytestmark = pytest.mark.slow


# A run of ten real seconds is a third of an hour there: about one interruption of each machine.
LAW = "hibernations_per_h = 4, resumes_per_h = 10, terminations_per_h = 1.5, capacity_errors = 0.1"


def judge(made: Cluster, jobs: list[Job]) -> list[dict]:
    """Wait for the end, and hold the run against its promises. Returns the rows of all machines."""
    tasks = 0
    for job in jobs:
        status = job.wait(timeout=DEADLINE_S + 60)
        total = status["tasks"]["total"]
        assert status["tasks"]["done"] == total, status
        assert status["finished_s"] <= status["deadline_s"], "the deadline was missed"
        assert [int(job.output(task)["stdout"]) for task in range(total)] == list(range(total))
        tasks += total
    until(lambda: not machines(made, there=True))
    rows = machines(made)
    made.stop_server()
    assert sweep(made.state) == 0, "machines were left running"
    accepted = made.accepted()
    assert len(accepted) == tasks and set(accepted.values()) == {1}
    counted = {number: bill.microusd() for number, bill in bills(records_of(made.state)).items()}
    assert {row["machine"]: round(row["cost_usd"] * 1e6) for row in rows} == counted
    return rows


def phase(made: Cluster, machine: str) -> str:
    return next(row["phase"] for row in machines(made) if str(row["machine"]) == machine)


def test_a_machine_is_hibernated_resumed_and_killed_by_hand_and_the_bag_is_done(tmp_path, monkeypatch, capsys):
    with served(tmp_path, pool()) as made:
        job = submit(made, 10, 2.0)
        machine = busy(made)

        def command(*words: str) -> str:
            ended = windfall(monkeypatch, capsys, *words, "--server", made.url, "--token", made.token)
            assert ended.code == 0, ended
            return ended.out

        command("pool", "poke", "cloud", f"m{machine}", "hibernate")
        until(lambda: phase(made, machine) == "hibernated")
        assert "hibernated" in command("pool", "machines") and "steady" in command("pool", "list")
        made.client().poke("cloud", machine, "resume")
        until(lambda: phase(made, machine) == "running")
        made.client().poke("cloud", machine, "terminate")
        rows = judge(made, [job])
    (poked,) = [row for row in rows if str(row["machine"]) == machine]
    assert (poked["hibernations"], poked["cause"]) == (1, "taken")


def test_machines_that_are_not_ours_and_those_that_we_forgot_are_found(tmp_path, monkeypatch, capsys):
    with served(tmp_path, pool()) as made:
        account = made.state / "cloud" / "cloud"
        for owner, number in (("another server", 7), ((made.state / "id").read_text().strip(), 99)):
            machine = Machine(f"x-{number}", number, owner, "spot", 2, None, f"x{number}", "", "running", 0.0)
            (account / machine.id).mkdir()
            (account / machine.id / "machine.json").write_bytes(msgspec.json.encode(machine))
        made.kill_server()
        made.start_server("--pools", str(tmp_path / "pools.toml"))
        shown = made.client().machines
        until(lambda: [row["id"] for row in shown()["strangers"]] == ["x-7"])
        said = windfall(monkeypatch, capsys, "pool", "machines", "--server", made.url, "--token", made.token)
        assert "x-7" in said.err and "another server" in said.err
        kept = {path.parent.name: json.loads(path.read_text())["phase"] for path in account.glob("*/machine.json")}
        assert kept == {"x-7": "running", "x-99": "ended"}


def test_a_task_goes_on_where_it_was_when_its_machine_resumes(tmp_path):
    with served(tmp_path, pool()) as made:
        job = submit(made, 1, 4.0, planner="windfall")
        machine = busy(made)
        made.client().poke("cloud", machine, "hibernate")
        until(lambda: phase(made, machine) == "hibernated")
        made.client().poke("cloud", machine, "resume")
        judge(made, [job])
        attempts = [record for record in records_of(made.state) if type(record.event).__name__ == "ResultsReported"]
    assert [result.attempt for record in attempts for result in record.event.results] == [1]


def test_a_hibernation_counts_once_however_long_the_open_request_of_its_worker_is_waited_for(tmp_path):
    with served(tmp_path, pool()) as made:
        job = submit(made, 1, 4.0, planner="windfall")  # the second core of its machine asks for work all the time
        machine = busy(made)
        made.client().poke("cloud", machine, "hibernate")
        until(lambda: phase(made, machine) == "hibernated")
        time.sleep(2 * made.lease_s)
        assert phase(made, machine) == "hibernated"
        made.client().poke("cloud", machine, "resume")
        judge(made, [job])
        said = [type(record.event).__name__ for record in records_of(made.state)]
    assert (said.count("MachineHibernated"), said.count("MachineResumed")) == (1, 1)


def test_a_notice_is_heard_and_the_machine_is_gone_when_its_time_has_come(tmp_path):
    with served(tmp_path, pool(notice="2m").replace('when_taken = "hibernate"', 'when_taken = "terminate"')) as made:
        job = submit(made, 8, 1.0)
        machine = busy(made)
        made.client().poke("cloud", machine, "notice")
        rows = judge(made, [job])
    assert next(row["cause"] for row in rows if str(row["machine"]) == machine) in ("taken", "released")


def test_when_all_spot_is_gone_for_good_the_deadline_is_met_on_demand(tmp_path):
    """The deadline is a minute and a half, for work that all spot machines cannot do before they vanish."""
    # Twelve real seconds of two machines, then none for ever; the first server's start is part of it.
    series = {"metadata": {"gap_seconds": 60}, "data": [2] * 24 + [0] * 10_000}
    (tmp_path / "gone.json").write_text(json.dumps(series))
    with served(tmp_path, pool(law="trace = 'gone.json'")) as made:
        rows = judge(made, [submit(made, 40, 2.0, deadline=90)])
    assert any(row["offer"] == "steady" for row in rows) and any(row["offer"] == "spot" for row in rows)


SERIES = "spot/skypilot-spot-traces"
RECORDED = {
    "east2a": f"{SERIES}/preemption/4-node/aws-08-03-2023/us-east-2a_v100_1.json",
    "east1f": f"{SERIES}/preemption/4-node/aws-08-03-2023/us-east-1f_v100_1.json",
    "east2b": f"{SERIES}/availability/16-node/aws-08-27-2023/us-east-2b_v100_1.json",
}


def test_recorded_availability_is_lived_through_in_half_a_second_a_tick(tmp_path):
    try:
        traces = {name: data.find(path) for name, path in RECORDED.items()}
    except BadInput as error:
        pytest.skip(str(error))
    pools = [pool(name, law=f"trace = '{path}'", scale=600) for name, path in traces.items()]
    with served(tmp_path, *pools) as made:
        judge(made, [submit(made, 12, 1.5, name) for name in traces])


def test_machines_outlive_a_server_that_is_killed_and_the_next_one_finds_them(tmp_path):
    with served(tmp_path, pool(), pool("other", seed=1)) as made:
        job, other = submit(made, 10, 2.0), submit(made, 4, 1.0, "other")
        machine = busy(made)
        made.client().poke("cloud", machine, "hibernate")
        made.kill_server()
        made.start_server("--pools", str(tmp_path / "pools.toml"))
        until(lambda: phase(made, machine) == "hibernated")
        made.client().poke("cloud", machine, "resume")
        judge(made, [job, other])


def test_a_server_killed_again_and_again_orders_nothing_twice_and_forgets_nothing(tmp_path):
    with served(tmp_path, pool(law=LAW, seed=3)) as made:
        job = submit(made, 12, 1.5)
        for pause_s in (0.3, 1.0, 1.7):
            time.sleep(pause_s)
            made.kill_server()
            made.start_server("--pools", str(tmp_path / "pools.toml"))
        judge(made, [job])


@contextlib.contextmanager
def running(directory: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """`windfall run` on a pool, of ten tasks; afterwards neither it nor a machine is left."""
    command = [*WINDFALL, "run", "--range", "1-10", "--deadline", f"{DEADLINE_S}s", "--estimate", "1s"]
    command += ["--pools", "pools.toml", "--pool", "cloud", "--json", *words, "--", "sh", "-c", "sleep 1; echo {}"]
    env = os.environ | {"TMPDIR": str(directory)}
    process = subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, env=env)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        sweep(directory / ".windfall")


def kept(directory: Path) -> list[str]:
    """The phases of the machines, as the cloud has written them down."""
    files = (directory / ".windfall").glob("cloud/*/*/machine.json")
    return [json.loads(file.read_text())["phase"] for file in files]


def test_windfall_run_rents_what_it_needs_and_leaves_nothing_behind(tmp_path):
    (tmp_path / "pools.toml").write_text(pool())
    with running(tmp_path) as process:
        said = json.loads(process.communicate(timeout=DEADLINE_S + 60)[0])
        assert process.returncode == 0 and said["tasks"]["done"] == 10
        assert set(kept(tmp_path)) == {"ended"} and sweep(tmp_path / ".windfall") == 0


def test_a_run_that_is_stopped_gives_its_machines_back_and_one_that_is_killed_finds_them_again(tmp_path):
    (tmp_path / "pools.toml").write_text(pool())
    with running(tmp_path) as process:
        until(lambda: "running" in kept(tmp_path))
        process.terminate()
        process.wait(60)
        assert set(kept(tmp_path)) == {"ended"} and sweep(tmp_path / ".windfall") == 0
    with running(tmp_path) as process:
        until(lambda: "running" in kept(tmp_path))
        process.kill()
        process.wait()
        assert "running" in kept(tmp_path)
        with running(tmp_path) as again:
            said = json.loads(again.communicate(timeout=DEADLINE_S + 60)[0])
            assert again.returncode == 0 and (said["job"], said["tasks"]["done"]) == (1, 10)
            assert set(kept(tmp_path)) == {"ended"} and sweep(tmp_path / ".windfall") == 0


PLANNERS = ("hads", "windfall")


@pytest.mark.parametrize("batch", range(4))
def test_seeded_clouds_keep_every_promise(tmp_path, batch):
    """Twenty seeds, five at a time on one server, ten with each planner."""
    seeds = range(5 * batch, 5 * batch + 5)
    with served(tmp_path, *(pool(f"cloud{seed}", seed, LAW, "2m") for seed in seeds)) as made:
        jobs = [submit(made, 10, 1.0, f"cloud{seed}", planner=PLANNERS[seed % 2]) for seed in seeds]
        rows = judge(made, jobs)
    assert any(row["hibernations"] or row["cause"] == "taken" for row in rows), "nothing was interrupted"


def test_nothing_is_rented_while_a_host_that_costs_nothing_will_be_in_time(tmp_path):
    with served(tmp_path, pool()) as made:
        made.start_worker("own", slots=2)
        until(lambda: made.client().hosts())
        assert judge(made, [submit(made, 20, seconds=0.5)]) == []
