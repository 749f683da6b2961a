"""Ended jobs go by age, number and size, and the log loses its beginning; what is unfinished stays whole."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.support.server.asgi import InProcess
from tests.unit.server.test_bounds import result
from tests.unit.server.test_sweeping import job_with, put
from windfall.core.events import AnyEvent, ServerStarted, Settings, TimerFired
from windfall.errors import BadInput
from windfall.server.retention import Retainer, Retention, read_retention
from windfall.server.sweeping import Sweeper
from windfall.sim.studies.replay import fit
from windfall.store.contract import Batch, OutputRow
from windfall.store.location import StateLocation
from windfall.store.view import open_view
from windfall.upkeep.checking import check
from windfall.upkeep.copying import copy


@pytest.fixture
def server(tmp_path) -> Iterator[InProcess]:
    with InProcess(tmp_path / "state") as server:
        yield server
        server.check()


def ended(server: InProcess, output_bytes: int = 0) -> int:
    job = server.submit(1)
    server.exchange(f"h{job}")
    done = result()
    done[0] = job
    assert server.exchange(f"h{job}", results=[done], want=0)[0] == 200
    if output_bytes:
        server.store.append(Batch(outputs=[OutputRow(job, 0, 9, os.urandom(output_bytes))]))
    return job


async def submit(server: InProcess, events: list[AnyEvent]) -> None:
    await server.driver.submit(events)


def look(server: InProcess, **rules) -> list[int]:
    return server.run(Retainer(server.service, Retention(**rules)).look())[0]


def test_jobs_go_by_age_and_number_the_oldest_first_and_unfinished_ones_never(server):
    first, second, third = ended(server), ended(server), ended(server)
    waiting = server.submit(1)
    assert look(server, age_s=3600.0) == look(server, jobs=3) == []
    assert look(server, jobs=2) == [first]
    assert look(server, age_s=0.0) == [second, third]
    assert list(server.service.state.bags) == [waiting]
    assert look(server, age_s=0.0, jobs=0, size_bytes=0) == []
    assert server.store.job_spec(waiting) is not None and server.store.job_spec(first) is None


def test_jobs_go_by_size_until_the_rest_fits(server):
    jobs = [ended(server, 100_000) for _ in range(4)]
    waiting = server.submit(1)
    assert look(server, size_bytes=500_000) == []
    assert look(server, size_bytes=250_000) == jobs[:2]
    assert sum(server.store.job_bytes().values()) < 250_000
    assert look(server, size_bytes=0) == jobs[2:] and list(server.service.state.bags) == [waiting]


def test_files_count_once_and_go_with_the_last_job_that_names_them(server):
    large, small, other = put(server, os.urandom(300_000)), put(server, b"small"), put(server, b"other")
    first, second, third = (
        job_with(server, large, small),
        job_with(server, large, other),
        job_with(server, other, small),
    )
    # Without the second job, the large file would stay with the first: both go, the third stays.
    assert look(server, size_bytes=100_000) == [first, second]
    sweeper = Sweeper(server.service)
    server.run(sweeper.look())
    assert server.run(sweeper.look()) == 1
    assert {blob for blob, _ in server.store.blobs()} == {small, other} and list(server.service.state.bags) == [third]


def busy_log(server: InProcess, number: int = 10) -> None:
    for _ in range(number):
        ended(server)


def snapshots(server: InProcess) -> None:
    """Two of them, as after some thousand records: only what is in both may go."""
    from windfall.core.state.snapshot import save

    for _ in range(2):
        ended(server)
        server.store.save_snapshot(server.service.state.seq, save(server.service.state))


def test_the_log_loses_its_beginning_and_the_state_stays_whole(server, tmp_path):
    busy_log(server)
    snapshots(server)
    open_job = server.submit(1)
    snapshots(server)
    last, first_of_open = server.store.last_seq(), server.store.records(0, 1, job=open_job)[0].seq
    kept_bytes = sum(len(record.data) for record in server.store.records(0, 10_000)) // 2
    _, dropped = server.run(Retainer(server.service, Retention(log_bytes=kept_bytes)).look())
    records = server.store.records(0, 10_000)
    assert dropped > 0 and records[0].seq == dropped + 1 and records[-1].seq == last
    assert sum(len(record.data) for record in records) <= kept_bytes
    # What belongs to a job that has not ended stays, whatever the rule says.
    server.run(Retainer(server.service, Retention(log_age_s=0.0, log_bytes=0)).look())
    assert server.store.records(0, 1)[0].seq == first_of_open
    assert server.get(f"/v1/events?job={open_job}")[0] == 200
    location = StateLocation(tmp_path / "state")
    view = open_view(location)
    found = check(view)
    view.close()
    assert found.problems == [] and "the replay begins there" in found.notes[0]
    copy(location, StateLocation(tmp_path / "copy"))
    with InProcess(tmp_path / "copy") as again:
        assert again.get(f"/v1/jobs/{open_job}")[1]["tasks"]["total"] == 1
    with pytest.raises(BadInput, match="the beginning of the log was forgotten"):
        fit(tmp_path / "copy")


def test_the_database_shrinks_when_outputs_are_forgotten(server, tmp_path):
    for _ in range(5):
        ended(server, 2_000_000)
    database = tmp_path / "state" / "windfall.db"
    server.store._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = database.stat().st_size
    assert len(look(server, size_bytes=3_000_000)) == 4
    server.store._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert database.stat().st_size < before / 3


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        ("age", "no such rule"), ("years=3", "no such rule"), ("age=old", "--retain age"),
        ("size=much", "--retain size"),
        ("jobs=-1", "not a whole number"), ("jobs=1.5", "not a whole number"),
    ],
)  # fmt: skip
def test_a_rule_that_cannot_be_is_named(pair, words):
    with pytest.raises(BadInput, match=words):
        read_retention([pair])


def test_rules_are_read_with_their_units():
    rules = read_retention(["age=30d", "jobs=1000", "size=2G", "log-age=1h", "log-size=1M"])
    assert rules == Retention(age_s=30 * 86400.0, jobs=1000, size_bytes=2 << 30, log_age_s=3600.0, log_bytes=1 << 20)
    rules = read_retention(["hosts=5", "host-age=1h"])
    assert (rules.hosts, rules.host_age_s, rules.chooses_jobs) == (5, 3600.0, False)
    rules = read_retention(["hosts=all", "host-age=all"])
    assert (rules.hosts, rules.host_age_s) == (None, None)


def test_hosts_that_left_are_forgotten_and_their_work_is_told_as_a_sum(server):
    for _ in range(3):
        server.exchange(f"h{ended(server)}", leaving="signal")
    now = server.driver.clock()
    events = [ServerStarted(now, Settings(hosts_kept=1)), TimerFired(now + 1000.0)]
    server.run(submit(server, events))
    told = server.get("/v1/hosts")[1]
    assert [row["host"] for row in told["hosts"]] == ["h3"]
    assert told["forgotten"] == [{"pool": "default", "hosts": 2, "done": 2, "failed": 0, "lost": 0}]
