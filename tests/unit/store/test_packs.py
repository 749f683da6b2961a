"""Old records of a SQLite store take less space, and are read as before."""

import sqlite3
from math import inf

import pytest

from windfall.store.contract import SCHEMA_VERSION, Batch, Record, StoreConflict, StoreCorrupt, StoreNewer
from windfall.store.location import StateLocation
from windfall.store.sqlite import packs
from windfall.store.sqlite.following import SqliteFollower
from windfall.store.sqlite.looking import LookingStore
from windfall.store.sqlite.store import SqliteStore
from windfall.store.sqlite.view import SalvageView, SqliteView
from windfall.upkeep.copying import copy

IN_ONE = 10
LAST, OLDEST = 100, 55
"""Records of the log, and those up to the older of its two snapshots."""
JOBS = (None, -1, 3, 0, -2)


def record(seq):
    return Record(seq, 1000.0 + seq, JOBS[seq % 5], ("asked", "reported")[seq % 2], b"record %d, as all of them" % seq)


LOG = [record(seq) for seq in range(1, LAST + 1)]
ABOUT_A_JOB = [r.seq for r in LOG if r.job == 3]
OTHERS = [r.seq for r in LOG if r.job != 3]
PACKS = [OTHERS[at : at + IN_ONE] for at in range(0, 4 * IN_ONE, IN_ONE)]
"""A fifth one would reach behind the older snapshot."""


@pytest.fixture(autouse=True)
def small_packs(monkeypatch):
    monkeypatch.setattr(packs, "RECORDS", IN_ONE)


@pytest.fixture
def store(tmp_path):
    store = SqliteStore(tmp_path / "state")
    store.append(Batch(records=LOG))
    store.save_snapshot(OLDEST, b"older")
    store.save_snapshot(80, b"newer")
    yield store
    store.close()


def pack_all(store, until=LAST):
    sizes = []
    while size := store.pack(until):
        sizes.append(size)
    return sizes


def execute(store, sql, *values):
    with sqlite3.connect(store.directory / "windfall.db") as connection:
        found = connection.execute(sql, values).fetchall()
    connection.close()
    return found


def test_records_up_to_the_older_snapshot_are_packed_but_those_about_a_job(store):
    assert pack_all(store) == [IN_ONE] * 4
    left = [seq for (seq,) in execute(store, "SELECT seq FROM records")]
    assert left == sorted({*ABOUT_A_JOB, *OTHERS[4 * IN_ONE :]})
    assert [(first, last) for first, last in execute(store, "SELECT first, last FROM packs")] == [
        (pack[0], pack[-1]) for pack in PACKS
    ]
    assert store.last_seq() == LAST


def test_nothing_is_packed_before_there_are_two_snapshots(tmp_path):
    store = SqliteStore(tmp_path / "other")
    store.append(Batch(records=LOG))
    store.save_snapshot(80, b"only")
    assert pack_all(store) == []
    store.close()


def test_packing_stops_where_it_is_told(store):
    assert pack_all(store, until=30) == [IN_ONE] * 2
    assert pack_all(store, until=30) == []
    assert pack_all(store) == [IN_ONE] * 2


QUESTIONS = {
    "all": lambda s: s.records(limit=1000),
    "in pages": lambda s: [r for after in range(0, LAST, 7) for r in s.records(after, 7, until_seq=after + 7)],
    "a page of seven": lambda s: s.records(17, 7),
    "one": lambda s: s.records(0, 1),
    "none": lambda s: s.records(0, 0),
    "until": lambda s: s.records(5, 100, until_seq=33),
    "of kinds": lambda s: s.records(0, 20, kinds=["asked"]),
    "of a job": lambda s: s.records(0, 20, job=3),
    "about job 1": lambda s: s.records_about(1, 3, 90, ["asked"], 12),
    "about job 3": lambda s: s.records_about(3, 0, LAST, ["asked", "reported"], 1000),
    "behind the packs": lambda s: s.records(90, 100),
}


@pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS)
def test_packed_records_are_found_as_before(store, ask):
    before = ask(store)
    pack_all(store, until=40)
    assert ask(store) == before
    pack_all(store)
    assert ask(store) == before


def test_every_way_of_opening_a_store_reads_its_packs(store, tmp_path):
    pack_all(store)
    follower = SqliteFollower(store.directory)
    assert follower.records(limit=1000) == LOG
    follower.close()
    view = SqliteView(store.directory)
    assert [Record(*row[:4], row[5]) for row in view.rows("records")] == LOG
    view.close()
    store.close()
    looking = LookingStore(store.directory)
    assert looking.records(limit=1000) == LOG
    looking.close()
    copied = tmp_path / "copied"
    copy(StateLocation(store.directory), StateLocation(copied))
    other = SqliteStore(copied)
    assert other.records(limit=1000) == LOG
    assert pack_all(other) == [IN_ONE] * 4 and other.records(limit=1000) == LOG
    other.close()


def test_a_restart_without_a_usable_snapshot_reads_the_packs(store, monkeypatch):
    pack_all(store)
    for path in (store.directory / "snapshots").iterdir():
        path.write_bytes(b"damaged")
    monkeypatch.setattr("windfall.store.sqlite.store._PAGE", 13)
    assert list(store.load().records) == [(r.seq, r.data) for r in LOG]


def test_a_record_that_is_packed_is_not_appended_again(store):
    pack_all(store)
    store.append(Batch(records=LOG[20:30]))
    assert store.records(limit=1000) == LOG
    with pytest.raises(StoreConflict, match="record 22"):
        store.append(Batch(records=[record(21), record(22)._replace(data=b"another")]))
    assert store.records(limit=1000) == LOG


def test_a_damaged_record_is_not_packed(store):
    execute(store, "UPDATE records SET data = X'00' WHERE seq = 15")
    assert pack_all(store) == [IN_ONE]


def test_a_damaged_pack_is_named_and_the_others_can_be_saved(store):
    pack_all(store)
    lost = PACKS[1]
    execute(store, "UPDATE packs SET data = zeroblob(50) WHERE first = ?", lost[0])
    with pytest.raises(StoreCorrupt, match=f"records {lost[0]} to {lost[-1]} of the log are damaged"):
        store.records(limit=1000)
    assert store.records(lost[-1], 1000) == LOG[lost[-1] :]
    view = SalvageView(store.directory)
    saved = [row[0] for row in view.rows("records")]
    assert saved == [r.seq for r in LOG if r.seq not in lost]
    assert f"records {lost[0]} to {lost[-1]}" in view.lost["packs"]
    view.close()


def test_the_log_is_cut_by_age_and_size_with_its_packs(store):
    pack_all(store)
    assert store.log_before(record(PACKS[1][-1]).t, None) == max(s for s in ABOUT_A_JOB if s < PACKS[1][-1])
    assert store.log_before(record(PACKS[1][-1]).t + 0.5, None) == PACKS[1][-1]
    assert store.log_before(inf, None) == LAST
    assert store.log_before(None, 10**6) == 0
    assert store.log_before(None, len(LOG[-1].data)) == LAST - 1
    cut = sum(iter(lambda: store.cut_log(PACKS[2][0]), 0))
    left = [r for r in LOG if r.seq > PACKS[1][-1] and (r.seq > PACKS[2][0] or r.job != 3)]
    assert store.records(limit=1000) == left and cut == LAST - len(left)


def test_a_store_of_the_schema_before_gets_packs_and_is_then_refused_by_older_versions(store, monkeypatch):
    execute(store, "DROP TABLE packs")
    execute(store, "UPDATE meta SET value = '1' WHERE key = 'schema'")
    store.close()
    looking = LookingStore(store.directory)
    assert looking.records(limit=1000) == LOG  # nothing is written by looking
    looking.close()
    view = SqliteView(store.directory)
    assert [row[0] for row in view.rows("records")] == list(range(1, LAST + 1))
    view.close()
    again = SqliteStore(store.directory)
    assert pack_all(again) == [IN_ONE] * 4 and again.records(limit=1000) == LOG
    again.close()
    monkeypatch.setattr("windfall.store.checks.SCHEMA_VERSION", 1)
    with pytest.raises(StoreNewer, match=f"schema {SCHEMA_VERSION}"):
        SqliteStore(store.directory)
