"""What a live site does beside making way: it empties hosts, ends instances that do not pay, and says why.

Real processes; every end of an instance is seen on its host and in what `explain` says.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.server.cluster import WINDFALL
from tests.support.server.site_cluster import SiteCluster, site_cluster


@pytest.fixture
def made(tmp_path: Path) -> Iterator[SiteCluster]:
    with site_cluster(tmp_path) as site:
        yield site


def on_hosts(made: SiteCluster) -> dict[str, list[str]]:
    """The names of the instances that hold room on each host."""
    return {
        host["host"]: [one["name"] for one in host["instances"] if one["state"] in ("placed", "running")]
        for host in made.site()["hosts"]
    }


def said(made: SiteCluster) -> list[str]:
    """What `windfall site explain` shows, line by line."""
    command = [*WINDFALL, "site", "explain", "lab", "--server", made.url, "--token", made.token]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()


def explained(made: SiteCluster, what: str) -> str:
    command = [*WINDFALL, "explain", what, "--server", made.url, "--token", made.token]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def held_back(made: SiteCluster, host: str) -> str:
    """A normal request that takes half of one host; its name."""
    words = ("request", "--vcpu", "1", "--ram", "500", "--tag", f"at={host}", "--", "sleep", "600")
    return made.typed(*words)["name"]


def test_two_half_empty_hosts_become_a_full_one_and_an_empty_one_and_the_task_that_moved_is_done(made: SiteCluster):
    made.create(2.0, "--consolidate", "1h", "--review", "1s", "--idle-exit", "1m")
    for name in ("a", "b"):
        made.start_agent(name, "--tag", f"at={name}")
    made.until(lambda: made.site()["hosts_live"] == 2)
    requests = [held_back(made, name) for name in ("a", "b")]
    made.until(lambda: made.site()["normal"] == 2)
    go = made.directory / "go"
    waits = f"sh -c 'while [ ! -e {go} ]; do sleep 0.1; done; echo {{}}'"
    job = made.client.submit(waits, params=range(2), name="spread")
    made.until_full(2)
    assert [len(names) for names in on_hosts(made).values()] == [2, 2], "one worker beside each request"

    for name in requests:
        made.typed("cancel", name)
    made.until(lambda: sorted(len(names) for names in on_hosts(made).values()) == [0, 2])
    made.until_full(2)
    emptied, full = sorted(on_hosts(made).items(), key=lambda row: len(row[1]))
    notes = [note["text"] for note in made.site()["notes"]]
    assert any(f"on {full[0]} follows: {emptied[0]} is emptied" in text for text in notes), notes
    lines = said(made)
    assert any("hosts are emptied where the moves from one lose at most 1h00m of work" in line for line in lines), lines
    assert any(f"{emptied[0]} is emptied" in line for line in lines), lines

    go.touch()
    job.wait(60)
    tasks = made.client.transport.get(f"/v1/jobs/{job.id}/tasks")["tasks"]
    assert [(task["state"], task["failures"]) for task in tasks] == [("done", 0)] * 2
    assert sorted(task["losses"] for task in tasks) == [0, 1], "only the one that moved began again"


def test_workers_that_stop_paying_end_with_their_billing_cycle_and_none_starts_until_one_would_pay(made: SiteCluster):
    made.create(2.0, "--price", "0.02", "--power", "0.03", "--cycle", "8s", "--review", "1s")
    made.start_agent("a")
    go = made.directory / "go"
    waits = f"sh -c 'while [ ! -e {go} ]; do sleep 0.1; done; echo {{}}'"
    job = made.client.submit(waits, params=range(2), name="dear")
    made.until_full(2)
    assert not made.site()["notes"], "an hour earns $0.02 and costs $0.015"

    made.typed("change", "lab", "--power", "0.10")
    made.until(lambda: made.site()["preemptible"] == 0)
    ends = [note["text"] for note in made.site()["notes"] if "earns $0.02" in note["text"]]
    assert len(ends) == 2 and all("its share of the host costs $0.05" in text for text in ends), ends
    lines = said(made)
    assert any("end with their billing cycle of 8.00 s; an hour of a host costs $0.1" in line for line in lines), lines
    made.until(lambda: "its share of the host costs $0.05" in explained(made, "dear"))

    go.touch()
    made.typed("change", "lab", "--power", "0.03")
    job.wait(60)
    tasks = made.client.transport.get(f"/v1/jobs/{job.id}/tasks")["tasks"]
    assert [(task["state"], task["failures"], task["losses"]) for task in tasks] == [("done", 0, 1)] * 2


def test_tasks_of_evicted_workers_go_where_their_bags_policies_let_them(made: SiteCluster):
    made.create(2.0)
    made.start_agent("a")
    go = made.directory / "go"
    waits = f"sh -c 'while [ ! -e {go} ]; do sleep 0.1; done; echo {{}}'"
    bound = made.client.submit(waits, params=range(1), name="bound", policies={"JobRequirements": 'Host.Pool == "lab"'})
    free = made.client.submit(waits, params=range(1), name="free")
    made.until_full(2)
    made.start_worker("own", slots=2)
    asked = made.typed("request", "--vcpu", "2", "--ram", "500", "--", "sleep", "600")["name"]
    made.until(lambda: made.request(asked)["state"] == "running")
    made.until(lambda: [host["held"] for host in made.client.hosts() if host["host"] == "own"] == [1])
    assert bound.status()["tasks"]["running"] == 0, "the other host has a free slot, and may not have it"
    why = explained(made, "bound")
    assert 'Host.Pool == "lab"' in why, why

    made.typed("cancel", asked)
    go.touch()
    for job in (bound, free):
        job.wait(60)
