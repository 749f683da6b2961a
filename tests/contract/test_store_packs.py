"""Old records of a database take less space, and are read as before."""

from math import inf

import pytest

from tests.contract.conftest import made
from tests.support.server.stores import PostgresKit
from windfall.store import packs
from windfall.store.contract import SCHEMA_VERSION, Batch, Record, StoreConflict, StoreCorrupt, StoreNewer
from windfall.store.location import StateLocation
from windfall.store.postgres.following import PostgresFollower
from windfall.store.postgres.view import PostgresView
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


@pytest.fixture(params=["sqlite", "postgres"])
def kit(request, tmp_path):
    kit = made(request.param, request, tmp_path)
    kit.store.append(Batch(records=LOG))
    yield kit
    kit.close()


@pytest.fixture
def store(kit):
    kit.store.save_snapshot(OLDEST, b"older")
    kit.store.save_snapshot(80, b"newer")
    return kit.store


def pack_all(store, until=LAST):
    sizes = []
    while size := store.pack(until):
        sizes.append(size)
    return sizes


def table(kit, name):
    return f"windfall.{name}" if isinstance(kit, PostgresKit) else name


def found(kit, sql):
    """Rows of a table, in which `{name}` stands for its name in this database."""
    return kit.store._read(sql.format(records=table(kit, "records"), packs=table(kit, "packs")))


def followed(kit):
    return PostgresFollower(kit.where) if isinstance(kit, PostgresKit) else SqliteFollower(kit.directory)


def viewed(kit):
    return PostgresView(kit.where) if isinstance(kit, PostgresKit) else SqliteView(kit.directory)


def test_records_up_to_the_older_snapshot_are_packed_but_those_about_a_job(kit, store):
    assert pack_all(store) == [IN_ONE] * 4
    left = [seq for (seq,) in found(kit, "SELECT seq FROM {records} ORDER BY seq")]
    assert left == sorted({*ABOUT_A_JOB, *OTHERS[4 * IN_ONE :]})
    assert [(first, last) for first, last in found(kit, "SELECT first, last FROM {packs} ORDER BY last")] == [
        (pack[0], pack[-1]) for pack in PACKS
    ]
    assert store.last_seq() == LAST


def test_nothing_is_packed_before_there_are_two_snapshots(kit):
    kit.store.save_snapshot(80, b"only")
    assert pack_all(kit.store) == []


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


def test_every_way_of_opening_a_store_reads_its_packs(kit, store, tmp_path):
    pack_all(store)
    follower = followed(kit)
    assert follower.records(limit=1000) == LOG
    follower.close()
    view = viewed(kit)
    assert [Record(*row[:4], row[5]) for row in view.rows("records")] == LOG
    at_once = [view.rows("records") for _ in range(5)]
    assert {Record(*row[:4], row[5]) for row in map(next, at_once)} == {LOG[0]}
    view.close()
    source = StateLocation(tmp_path / "state", kit.where if isinstance(kit, PostgresKit) else "")
    copied = tmp_path / "copied"
    copy(source, StateLocation(copied))
    other = SqliteStore(copied)
    assert other.records(limit=1000) == LOG
    assert pack_all(other) == [IN_ONE] * 4 and other.records(limit=1000) == LOG
    other.close()
    looking = LookingStore(copied)
    assert looking.records(limit=1000) == LOG
    looking.close()


def test_a_store_that_is_opened_again_packs_where_it_stopped(kit, store):
    assert pack_all(store, until=30) == [IN_ONE] * 2
    again = kit.reopen()
    assert pack_all(again) == [IN_ONE] * 2 and again.records(limit=1000) == LOG


def test_a_restart_without_a_usable_snapshot_reads_the_packs(kit, store, monkeypatch):
    pack_all(store)
    for seq in (OLDEST, 80):
        kit.damage_snapshot(seq)
    monkeypatch.setattr("windfall.store.packs.PAGE", 13)
    monkeypatch.setattr("windfall.store.sqlite.store.PAGE", 13)
    monkeypatch.setattr("windfall.store.postgres.store.PAGE", 13)
    assert list(store.load().records) == [(r.seq, r.data) for r in LOG]


def test_a_record_that_is_packed_is_not_appended_again(store):
    pack_all(store)
    store.append(Batch(records=LOG[20:30]))
    assert store.records(limit=1000) == LOG
    with pytest.raises(StoreConflict, match="record 22"):
        store.append(Batch(records=[record(21), record(22)._replace(data=b"another")]))
    assert store.records(limit=1000) == LOG


def test_a_damaged_record_is_not_packed(kit, store):
    kit.damage_record(15)
    assert pack_all(store) == [IN_ONE]


def damage_pack(kit, first):
    mark = "%b" if isinstance(kit, PostgresKit) else "?"
    kit.execute(f"UPDATE {table(kit, 'packs')} SET data = {mark} WHERE first = {first}", b"damaged")


def test_a_damaged_pack_is_named_and_what_is_behind_it_is_read(kit, store):
    pack_all(store)
    lost = PACKS[1]
    damage_pack(kit, lost[0])
    with pytest.raises(StoreCorrupt, match=f"records {lost[0]} to {lost[-1]} of the log are damaged"):
        store.records(limit=1000)
    assert store.records(lost[-1], 1000) == LOG[lost[-1] :]


@pytest.mark.parametrize("kit", ["sqlite"], indirect=True)
def test_a_pack_that_is_no_bytes_is_damaged(kit, store):
    pack_all(store)
    kit.execute("UPDATE packs SET data = 'text' WHERE first = ?", PACKS[1][0])
    with pytest.raises(StoreCorrupt, match="of the log are damaged"):
        store.records(limit=1000)


@pytest.mark.parametrize("kit", ["sqlite"], indirect=True)
def test_all_but_a_damaged_pack_can_be_saved(kit, store):
    pack_all(store)
    lost = PACKS[1]
    damage_pack(kit, lost[0])
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


def test_a_store_of_the_schema_before_gets_packs_and_is_then_refused_by_older_versions(kit, store, monkeypatch):
    kit.execute(f"DROP TABLE {table(kit, 'packs')}")
    kit.set_version(1)
    store.close()
    for opened in (followed(kit), *([] if isinstance(kit, PostgresKit) else [LookingStore(kit.directory)])):
        assert opened.records(limit=1000) == LOG  # nothing is written by looking
        opened.close()
    view = viewed(kit)
    assert [row[0] for row in view.rows("records")] == list(range(1, LAST + 1))
    view.close()
    again = kit.reopen()
    assert pack_all(again) == [IN_ONE] * 4 and again.records(limit=1000) == LOG
    again.close()
    monkeypatch.setattr("windfall.store.checks.SCHEMA_VERSION", 1)
    with pytest.raises(StoreNewer, match=f"schema {SCHEMA_VERSION}"):
        kit.reopen()
