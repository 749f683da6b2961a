"""A stream of small workflows and bags that share a fleet, through servers that are killed. As a program, full size:

    python -m tests.e2e.clouds.stream [JOBS SECONDS [ec2]]

Every job that the fleet promised to finish in time is in time, each task has one result, and the bill of the fleet is
that which the log gives when it is counted again by other code, split among the jobs to the micro-dollar.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.e2e.clouds.test_ec2 import running
from tests.support.clouds.bills import bills, records_of
from tests.support.clouds.cloud_server import machines, pool, served, until
from tests.support.server.cluster import Cluster
from windfall.client import Job, LateJob

KILLS = 2
FLEET = "stream"


def stream(made: Cluster, pools: Path, jobs: int, over_s: float, deadline_s: float = 60.0) -> list[Job]:
    """Submit the jobs evenly over this time, kill the server twice meanwhile, and wait for all of them."""
    client = made.client()
    client.create_fleet(FLEET, ["cloud"])
    killed_before = {jobs * (place + 1) // (KILLS + 1) for place in range(KILLS)}
    began, found = time.monotonic(), []
    for number in range(jobs):
        if number in killed_before:
            made.kill_server()
            made.start_server("--pools", str(pools))
        time.sleep(max(0.0, began + number * over_s / jobs - time.monotonic()))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LateJob)
            found.append(_submitted(client, number, deadline_s))
    return found


def _submitted(client: Any, number: int, deadline_s: float) -> Job:
    """By turns a bag of 2 to 5 tasks and a workflow of 4, of less than a second each; some have longer."""
    said = {"fleet": FLEET, "deadline": deadline_s * (1 + number % 3 / 2), "estimate": 0.8, "name": f"j{number}"}
    seconds = 0.2 + number % 4 * 0.2
    if number % 2 == 0:
        return client.submit(["sh", "-c", f"sleep {seconds}; echo {{}}"], range(2 + number % 4), **said)
    flow = client.workflow(**said)
    first = flow.task(f"sleep {seconds}", name="first")
    middle = [flow.task(f"sleep {seconds}", name=f"middle{side}", after=[first]) for side in range(2)]
    flow.task("echo done", name="last", after=middle)
    return flow.submit()


def judged(made: Cluster, jobs: list[Job], at_end: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Wait, drain, look, stop; hold the run against its promises."""
    client = made.client()
    promised = kept = late = tasks = 0
    for job in jobs:
        status = job.wait(300)
        assert status["state"] == "done", status
        tasks += status["tasks"]["total"]
        in_time = status["finished_s"] <= status["deadline_s"]
        late += not in_time
        if job.admission is not None and job.admission["holds"]:
            promised += 1
            kept += in_time
    assert promised == kept, f"{promised - kept} of {promised} jobs that were promised are late"
    client.tell_fleet(FLEET, "drain")
    until(lambda: not machines(made, there=True), 120.0)
    bill = client.fleet_cost(FLEET)
    at_end()
    made.stop_server()
    accepted = made.accepted()
    assert len(accepted) == tasks and set(accepted.values()) == {1}
    parts = sum(row["cost_microusd"] for row in bill["jobs"]) + bill["idle_microusd"]
    assert parts == bill["spent_microusd"]
    return {
        "jobs": len(jobs), "promised": promised, "kept": kept, "late": late, "tasks": tasks, "kills": KILLS,
        "machines": len(bill["machines"]), "spent_usd": bill["spent_microusd"] / 1e6,
        "idle_usd": bill["idle_microusd"] / 1e6, "bill": bill,
    }  # fmt: skip


def emulated(folder: Path, jobs: int, over_s: float, deadline_s: float = 60.0) -> dict[str, Any]:
    """In the emulated cloud at 120 times its speed. The bill is counted again from the log."""
    with served(folder, pool()) as made:
        told = judged(made, stream(made, folder / "pools.toml", jobs, over_s, deadline_s))
        counted = sum(bill.microusd() for bill in bills(records_of(made.state)).values())
    bill = told.pop("bill")
    assert counted == bill["spent_microusd"] > 0, (counted, bill["spent_microusd"])
    return told


def on_ec2(folder: Path, jobs: int, over_s: float, deadline_s: float = 60.0) -> dict[str, Any]:
    """Through EC2's API, answered by moto. The bill is counted again from the calls that were made."""
    with running(folder, cloud={"markets": ["on-demand"]}) as run:
        rows: list[dict[str, Any]] = []
        sent = stream(run.made, folder / "pools.toml", jobs, over_s, deadline_s)
        told = judged(run.made, sent, lambda: rows.extend(machines(run.made)))
        run.check_bill(rows)
    told.pop("bill")
    return told


if __name__ == "__main__":
    count, seconds = (int(sys.argv[1]), float(sys.argv[2])) if len(sys.argv) > 2 else (200, 600.0)
    run_in = on_ec2 if sys.argv[3:] == ["ec2"] else emulated
    with tempfile.TemporaryDirectory(prefix="wf-") as made_in:
        print(json.dumps(run_in(Path(made_in), count, seconds)))
