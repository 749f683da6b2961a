"""A site, live: three agents on this machine, filled with workers that run a bag, and normal requests that evict them.

Real processes. Who had to make way is recomputed from the log: by the library, and by trying every set of victims.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest

from tests.support.server.site_cluster import SiteCluster, site_cluster
from windfall.core.decisions import SiteSettled
from windfall.core.engine import Engine
from windfall.core.events import InstanceRequested
from windfall.core.records import Record
from windfall.core.sites.instances import HOLDING, SiteState
from windfall.core.sites.scratch import Scratch
from windfall.core.sites.view import SiteViews
from windfall.core.state.state import State
from windfall.placement import Request

GRACE_S = 20.0
HOSTS = ("a", "b", "c")
TASKS = 72


@pytest.fixture
def made(tmp_path: Path) -> Iterator[SiteCluster]:
    with site_cluster(tmp_path) as site:
        yield site


def test_requests_start_within_the_grace_of_the_cheapest_victims_and_the_bag_loses_nothing(made: SiteCluster):
    made.create(GRACE_S)
    for name in HOSTS:
        made.start_agent(name, as_file=name == "c")
    job = made.client.submit("sh -c 'sleep 0.5; echo {}'", params=range(TASKS), name="bag")
    made.until(lambda: job.status()["tasks"]["done"] >= 12)
    made.until_full(6)

    asked = [made.ask(vcpu, "sh", "-c", "echo here; sleep 2") for vcpu in (2, 1, 1)]
    assert made.typed("request", "--vcpu", "3", "--refuse", "--", "true", code=1)["state"] == "refused"
    ended = made.until_ended(*asked)
    job.wait(90)

    for row in ended:
        assert row["cause"] == "done" and row["victims"], row
        assert row["started_s"] - row["placed_s"] <= GRACE_S, row
    assert made.typed("output", asked[0])["stdout"] == "here\n"
    tasks = made.client.transport.get(f"/v1/jobs/{job.id}/tasks")["tasks"]
    assert all(task["state"] == "done" and task["failures"] == 0 for task in tasks)
    assert sum(task["losses"] for task in tasks) > 0, "somebody was evicted at work"

    made.stop()
    assert made.accepted() == {(job.id, task): 1 for task in range(TASKS)}
    evictions = check_victims(made.records())
    assert evictions == [len(row["victims"]) for row in ended]


def check_victims(records: list[Record]) -> list[int]:
    """Decide again on every request from the logged state; how many had to make way for each that was placed."""
    engine, state, found = Engine(), State(), []
    for record in records:
        event, decided = record.event, record.decided
        if isinstance(event, InstanceRequested):
            assert isinstance(decided, SiteSettled)
            assert engine.decide(state, event).decided == decided
            site = state.sites[event.site]
            scratch = Scratch(state, site, SiteViews(), event.t, site.hosts)
            named = scratch.scheduler.decide(Request(False, event.wish.resources), event.t)
            least = cheapest(scratch, site, event)
            assert (named.host is None) == (not decided.placed) == (least is None)
            for placed in decided.placed:
                assert (placed.cost, len(placed.victims)) == (named.cost, len(named.victims)) == least
                assert all(site.instances[victim].preemptible for victim in placed.victims)
                found.append(len(placed.victims))
        engine.apply(state, record)
    return found


def cheapest(scratch: Scratch, site: SiteState, event: InstanceRequested) -> tuple[int, int] | None:
    """(cost, victims) of the best host, by trying every set; what evicting costs is told by the library's columns."""
    library, needs = scratch.library, event.wish.resources
    now_us, found = round(event.t * 1e6), []
    for h, name in enumerate(library.names):
        held = [one for one in site.on(name) if one.state in HOLDING]
        free = {key: site.hosts[name].capacity.get(key, 0) for key in needs}
        for one in held:
            free = {key: amount - one.resources.get(key, 0) for key, amount in free.items()}
        costs = {
            identity: int(scratch.scheduler.cost(library.preemptibles(slice(h, h + 1)), now_us)[0, slot])
            for slot, identity in enumerate(library.slot_ids[h])
            if identity
        }
        workers = [one for one in held if one.preemptible]
        for count in range(len(workers) + 1):
            for chosen in combinations(workers, count):
                gain = {key: sum(one.resources.get(key, 0) for one in chosen) for key in needs}
                if all(free[key] + gain[key] >= needs[key] for key in needs):
                    found.append((sum(costs[site.name_of(one.number)] for one in chosen), count))
    return min(found, default=None)


def test_tasks_that_ignore_the_notice_are_killed_and_run_again(made: SiteCluster):
    made.create(2.0)
    made.start_agent("a")
    job = made.client.submit("sh -c 'trap \"\" TERM; sleep 6; echo {}'", params=range(2), name="stubborn")
    made.until_full(2)
    asked = made.typed("request", "--vcpu", "2", "--ram", "500", "--wait", "--", "echo", "at last")
    assert (asked["stdout"], asked["cause"], len(asked["victims"])) == ("at last\n", "done", 2)
    job.wait(60)
    rows = made.client.transport.get(f"/v1/jobs/{job.id}/tasks")["tasks"]
    assert [(row["state"], row["failures"], row["losses"]) for row in rows] == [("done", 0, 1)] * 2


def test_a_request_is_kept_to_its_memory_its_time_and_its_place_in_the_queue_though_the_server_is_killed(
    made: SiteCluster,
):
    made.create(2.0)
    made.start_agent("a")
    hog = "b = bytearray(400 << 20); print(len(b))"
    over = made.typed("request", "--ram", "100", "--wait", "--", "python3", "-c", hog, code=1)
    assert over["cause"] == "oom" and over["stdout"] == ""
    first = made.typed("request", "--vcpu", "2", "--", "sleep", "600")["name"]
    short = made.typed("request", "--vcpu", "2", "--for", "2s", "--", "sleep", "600")["name"]
    third = made.typed("request", "--vcpu", "2", "--", "sh", "-c", "sleep 600 & sleep 600")["name"]
    assert made.typed("why", short)["state"] == "waiting"
    made.kill_server()
    made.start_server()
    made.typed("cancel", first)
    made.until(lambda: made.request(short)["state"] != "waiting")
    made.kill_server()
    made.start_server()
    assert made.until_ended(short)[0]["cause"] == "time"
    made.until(lambda: made.request(third)["state"] == "running")
    made.typed("cancel", third)
    assert made.until_ended(third)[0]["cause"] == "cancelled"
    assert processes(["sleep", "600"], made.directory) == []


def test_an_agent_that_is_killed_leaves_nothing_behind_and_its_tasks_run_again(made: SiteCluster):
    made.create(2.0)
    made.start_agent("a")
    job = made.client.submit("sh -c 'sleep 1; echo {}'", params=range(6), name="bag")
    made.until_full(2)
    asked = made.typed("request", "--vcpu", "1", "--ram", "500", "--", "sleep", "600")["name"]
    made.until(lambda: made.request(asked)["state"] == "running")
    made.kill_worker("a")
    made.until(lambda: not processes([], made.directory))
    made.start_agent("a")
    assert made.until_ended(asked)[0]["cause"] == "lost"
    job.wait(60)
    made.stop()
    assert made.accepted() == {(job.id, task): 1 for task in range(6)}


def processes(words: list[str], directory: Path) -> list[int]:
    """Processes of the site's instances that still run: those in its directory, with these words in their command."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            cwd = (entry / "cwd").readlink() if entry.name.isdigit() else None
            line = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0") if cwd else []
        except OSError:
            continue
        if cwd is not None and "site-" in str(cwd) and cwd.is_relative_to(directory) and line[: len(words)] == words:
            found.append(int(entry.name))
    return found


def test_in_a_market_a_command_that_bids_more_takes_the_place_of_a_worker_and_the_site_says_why(made: SiteCluster):
    made.create(5.0, "--market", "--bid", "0.01", "--review", "2s", "--idle-exit", "1s")
    made.start_agent("a")
    job = made.client.submit("sh -c 'sleep 4; echo {}'", params=range(4), name="sold")
    made.until_full(2)
    low = made.typed("request", "--ram", "500", "--bid", "0.001", "--", "echo", "late")
    assert low["state"] == "waiting" and low["why"][0].startswith("it bids $0.001 an hour")
    high = made.typed("request", "--ram", "500", "--bid", "0.05", "--wait", "--", "echo", "sold")
    assert (high["stdout"], high["cause"]) == ("sold\n", "done")
    job.wait(60)
    assert made.until_ended(low["name"])[0]["cause"] == "done", "it runs when the workers have gone"
    said = [note["text"] for note in made.typed("explain", "lab")["notes"]]
    assert any("ends: it bids $0.01 an hour for 1 vCPU; an hour of one vCPU costs $0.01" in text for text in said)
