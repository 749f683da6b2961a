"""Copy, check and repair of whole states, SQLite and PostgreSQL: what is found, what is kept, what is dropped."""

import contextlib
import re
import shutil
import sqlite3
import threading
from itertools import count

import pytest

from tests.support.engine.kept_states import BLOB, BLOB_NAME, keep
from tests.support.engine.rich_logs import rented
from tests.support.server import postgres
from tests.support.server.asgi import InProcess
from tests.support.stores.s3 import s3
from windfall.core.engine import Engine
from windfall.core.state.snapshot import save
from windfall.core.state.state import State
from windfall.drivers.log_rows import HEARTBEAT, log_row
from windfall.errors import BadInput
from windfall.store import open_store
from windfall.store.contract import Batch, StoreCorrupt, StoreInUse
from windfall.store.location import StateLocation, locate
from windfall.store.sqlite.view import SqliteView
from windfall.store.view import open_view
from windfall.upkeep.checking import check
from windfall.upkeep.copying import copy, move
from windfall.upkeep.repairing import repair

_names = count(1)


@pytest.fixture(scope="module")
def records():
    return rented()


@pytest.fixture(scope="module")
def server():
    with postgres.server() as url:
        yield url


@pytest.fixture
def database(server, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    return locate(postgres.new_database(server, f"upkeep_{next(_names)}"))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory, records):
    directory = tmp_path_factory.mktemp("kept") / "state"
    store = open_store(directory)
    keep(store, records)
    store.close()
    return directory


@pytest.fixture
def state(prepared, tmp_path):
    shutil.copytree(prepared, tmp_path / "state")
    return StateLocation(tmp_path / "state")


def look(location, files=False):
    view = open_view(location)
    try:
        return check(view, files)
    finally:
        view.close()


def execute(location, sql, *values):
    with sqlite3.connect(location.directory / "windfall.db") as connection:
        connection.execute(sql, values)
    connection.close()


def everything(location):
    view = open_view(location)
    try:
        tables = {table: list(view.rows(table)) for table in ("records", "jobs", "chunks", "outputs", "tokens", "meta")}
        return tables, view.snapshots(), list(view.blobs())
    finally:
        view.close()


def test_a_whole_state_is_replayed_from_its_beginning_and_leads_to_both_snapshots(state, records):
    found = look(state, files=True)
    assert found.problems == found.notes == []
    assert found.records == found.replayed == found.last_seq == len(records)
    assert found.compared == [seq for seq, _ in everything(state)[1]] and len(found.compared) == 2
    assert (found.blobs, found.blob_bytes) == (1, len(BLOB))
    assert found.jobs >= 1


def test_a_log_without_old_heartbeats_is_replayed_from_one_snapshot_to_the_next(tmp_path, records):
    store = open_store(tmp_path / "state")
    keep(store, records, prune=True)
    store.close()
    found = look(StateLocation(tmp_path / "state"))
    assert found.problems == []
    assert found.records < len(records), "nothing was dropped: the test shows nothing"
    assert len(found.compared) == 1 and "old records" in found.notes[0]


def test_a_copy_to_a_database_and_back_is_the_same_state(state, database, tmp_path, records):
    there = copy(state, database)
    assert there.findings.problems == [] and there.rows["records"] == len(records)
    back = StateLocation(tmp_path / "back")
    assert copy(database, back).findings.problems == []
    assert everything(back) == everything(state) == everything(database)
    with open_store(back).open_blob(BLOB_NAME) as content:
        assert content.read() == BLOB


def test_files_go_to_an_object_store_and_come_back_with_a_copy(state, database, tmp_path):
    with s3("kept") as bucket:
        assert copy(state, database, "s3://kept/jobs").findings.problems == []
        assert everything(database) == everything(state)
        body = bucket.get_object(Bucket="kept", Key=f"jobs/{BLOB_NAME[:2]}/{BLOB_NAME}")["Body"].read()
        assert body == BLOB and look(database, files=True).problems == []
        back = StateLocation(tmp_path / "back")
        assert copy(database, back).findings.problems == []
        with pytest.raises(BadInput, match="is not empty"):
            copy(state, StateLocation(tmp_path / "other"), "s3://kept/jobs")
        assert not (tmp_path / "other").exists()
    # The copy needs no object store.
    assert everything(back) == everything(state) and look(back, files=True).problems == []


def test_a_copy_that_fails_leaves_no_object(state, tmp_path):
    (path,) = (state.directory / "blobs").glob("??/*")
    path.write_bytes(b"damaged")
    with s3("fresh") as bucket:
        with pytest.raises(BadInput, match="another hash"):
            copy(state, StateLocation(tmp_path / "other"), "s3://fresh/jobs")
        assert "Contents" not in bucket.list_objects_v2(Bucket="fresh")


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_state_in_use_is_backed_up_but_not_moved(kind, state, database, tmp_path, records):
    place = state
    if kind == "postgres":
        copy(state, database)
        place = database
    store = open_store(place)
    try:
        with pytest.raises(StoreInUse, match="in use by"):
            move(place, StateLocation(tmp_path / "moved"))
        assert not (tmp_path / "moved").exists()
        assert copy(place, StateLocation(tmp_path / "backup")).findings.problems == []
    finally:
        store.close()
    assert move(place, StateLocation(tmp_path / "moved")).findings.problems == []
    assert everything(StateLocation(tmp_path / "moved")) == everything(StateLocation(tmp_path / "backup"))


def test_a_backup_while_a_server_appends_and_prunes_is_whole(tmp_path, records):
    """The writer goes on, with snapshots and pruning in between: each backup is some moment of it."""
    place = StateLocation(tmp_path / "state")
    ready, problems = threading.Event(), []

    def write():
        store, engine, written = open_store(place), Engine(), State()
        ready.set()
        try:
            for first in range(0, len(records), 40):
                for record in records[first : first + 40]:
                    engine.apply(written, record)
                store.append(Batch([log_row(record) for record in records[first : first + 40]]))
                store.save_snapshot(written.seq, save(written))
                store.prune(written.seq, (HEARTBEAT,))
        except Exception as error:
            problems.append(error)
        finally:
            store.close()

    thread = threading.Thread(target=write)
    thread.start()
    ready.wait()
    reached = []
    for number in count():
        found = copy(place, StateLocation(tmp_path / f"backup{number}")).findings
        reached.append(found.last_seq)
        # Jobs and chunks are not written here.
        assert [line for line in found.problems if not line.startswith("job ")] == []
        if not thread.is_alive():
            break
    thread.join()
    assert problems == []
    assert reached[-1] >= reached[0]


def test_a_backup_begins_anew_if_two_snapshots_and_a_pruning_come_between_its_steps(tmp_path, records, monkeypatch):
    """The record behind the snapshot that was read may be there, and one further on be gone."""
    place = StateLocation(tmp_path / "state")
    store, engine, written = open_store(place), Engine(), State()
    steps = iter(range(0, len(records), 40))

    def go_on() -> None:
        for first in (next(steps), next(steps)):
            for record in records[first : first + 40]:
                engine.apply(written, record)
            store.append(Batch([log_row(record) for record in records[first : first + 40]]))
            store.save_snapshot(written.seq, save(written))
            store.prune(written.seq, (HEARTBEAT,))

    go_on()
    begin, begun = SqliteView._begin, []

    def late(view):
        if len(begun) < 3:
            go_on()
        begun.append(1)
        begin(view)

    monkeypatch.setattr(SqliteView, "_begin", late)
    view = open_view(place)
    found = check(view)
    view.close()
    store.close()
    assert len(begun) == 4 and found.last_seq == written.seq
    assert [line for line in found.problems if not line.startswith("job ")] == []


def test_nothing_is_copied_onto_a_state_or_from_nothing(state, database, tmp_path):
    with pytest.raises(BadInput, match="does not exist"):
        copy(StateLocation(tmp_path / "nosuch"), StateLocation(tmp_path / "b"))
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadInput, match="is a file"):
        copy(StateLocation(tmp_path / "file"), StateLocation(tmp_path / "b"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="holds no state"):
        copy(StateLocation(tmp_path / "empty"), StateLocation(tmp_path / "b"))
    with pytest.raises(BadInput, match="holds no state"):
        copy(database, StateLocation(tmp_path / "b"))
    with pytest.raises(BadInput, match="holds a state already"):
        copy(state, state)
    with pytest.raises(BadInput, match="is there already"):
        copy(state, StateLocation(tmp_path / "file"))
    copy(state, database)
    with pytest.raises(BadInput, match="holds a state already"):
        copy(state, database)
    assert not (tmp_path / "b").exists()
    copy(state, StateLocation(tmp_path / "empty"))


def test_a_copy_that_fails_leaves_nothing_behind(state, database, tmp_path):
    execute(state, "UPDATE chunks SET codec = ?", b"\xff\xfe")  # a text that is none
    with pytest.raises(StoreCorrupt, match="other kinds than were written"):
        copy(state, database)
    with pytest.raises(BadInput, match="holds no state"):
        open_view(database)


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("UPDATE records SET data = x'00' WHERE seq = 50", "record 50 .* is damaged"),
        ("DELETE FROM records WHERE seq = 50", "lacks record 50|not complete"),
        ("DELETE FROM jobs", "lacks its specification"),
        ("DELETE FROM chunks", "the store holds 0 of them"),
        ("DELETE FROM records WHERE seq > 60", "ahead of the log"),
    ],
)
def test_damage_is_found(state, sql, says):
    execute(state, sql)
    found = look(state)
    assert any(re.search(says, line) for line in found.problems + found.notes), found


def test_a_snapshot_of_another_state_is_found(state):
    pairs = everything(state)[1]
    store = open_store(state)
    store.save_snapshot(pairs[1][0], save_of_nothing(pairs[1][0]))
    store.close()
    assert "tells another state" in look(state).problems[0]


def save_of_nothing(seq):
    from windfall.core.state.state import State

    state = State()
    state.seq = seq
    return save(state)


def test_a_blob_of_another_content_is_found_and_dropped(state, tmp_path):
    path = next((state.directory / "blobs").glob("??/*"))
    path.write_bytes(b"other")
    assert look(state).problems == []
    assert "another content" in look(state, files=True).problems[0]
    repaired = repair(state, StateLocation(tmp_path / "sound"))
    assert [line for line in repaired.dropped if "file" in line]
    assert look(StateLocation(tmp_path / "sound"), files=True).problems == []


def test_a_repair_keeps_the_log_up_to_the_damage_and_says_what_it_dropped(state, tmp_path, records):
    last = everything(state)[1][1][0]
    execute(state, "UPDATE records SET data = x'00' WHERE seq = ?", last + 3)
    before = everything(state)
    repaired = repair(state, StateLocation(tmp_path / "sound"))
    assert everything(state) == before, "the damaged state was changed"
    assert repaired.last_seq == last + 2
    assert f"record {last + 3} " in repaired.dropped[0]
    assert f"{len(records) - last - 3} sound records behind record {last + 2}" in repaired.dropped[1]
    found = look(StateLocation(tmp_path / "sound"))
    assert found.problems == [] and found.last_seq == last + 2


def test_a_repair_goes_on_from_an_older_snapshot_if_the_newest_and_its_log_are_damaged(state, tmp_path):
    (old, _), (new, _) = everything(state)[1]
    path = state.directory / "snapshots" / f"{new:020d}"
    path.write_bytes(path.read_bytes()[:-1])
    execute(state, "DELETE FROM records WHERE seq = ?", old - 5)
    repaired = repair(state, StateLocation(tmp_path / "sound"))
    assert f"snapshot {new}: its sum is wrong" in repaired.dropped
    assert repaired.last_seq == look(state).last_seq
    assert repaired.findings.problems == []


def test_what_cannot_be_followed_from_anywhere_is_not_called_repaired(state, tmp_path):
    for path in (state.directory / "snapshots").iterdir():
        path.write_bytes(b"")
    execute(state, "DELETE FROM records WHERE seq = 1")
    with pytest.raises(StoreCorrupt, match="cannot be repaired"):
        repair(state, StateLocation(tmp_path / "sound"))
    assert not (tmp_path / "sound").exists()


def test_pages_that_cannot_be_read_cost_their_rows_only(state, tmp_path, records):
    """Overwrite pages of the database one after the other: what is left is whole, or it is said that nothing is."""
    path = state.directory / "windfall.db"
    sqlite3.connect(path).execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = path.read_bytes()
    pages = len(content) // 4096
    outcomes = set()
    for number, page in enumerate(range(1, pages, max(1, pages // 12))):
        path.write_bytes(content[: page * 4096] + b"\xa5" * 4096 + content[(page + 1) * 4096 :])
        for leftover in ("windfall.db-wal", "windfall.db-shm"):
            (state.directory / leftover).unlink(missing_ok=True)
        with contextlib.suppress(StoreCorrupt):
            assert look(state).problems, page
        try:
            repaired = repair(state, StateLocation(tmp_path / f"sound{number}"))
        except StoreCorrupt:
            outcomes.add("refused")
            continue
        found = look(StateLocation(tmp_path / f"sound{number}"))
        assert repaired.dropped or found.records == len(records), page  # an index is made anew
        assert [line for line in found.problems if not line.startswith("job ")] == [], page
        outcomes.add("repaired")
    assert "repaired" in outcomes


def test_a_backup_leaves_out_a_snapshot_that_the_log_no_longer_reaches(tmp_path, records, monkeypatch):
    place = StateLocation(tmp_path / "state")
    store, engine, written = open_store(place), Engine(), State()
    pieces = iter(range(0, len(records), 40))

    def write_more() -> None:
        first = next(pieces)
        for record in records[first : first + 40]:
            engine.apply(written, record)
        store.append(Batch([log_row(record) for record in records[first : first + 40]]))
        store.save_snapshot(written.seq, save(written))
        store.prune(written.seq, (HEARTBEAT,))

    for _ in range(3):
        write_more()
    begin, calls = SqliteView._begin, []

    def begin_late(view):
        # Between the snapshots and the database one more snapshot is taken, once.
        if not calls:
            write_more()
        calls.append(view)
        begin(view)

    monkeypatch.setattr(SqliteView, "_begin", begin_late)
    found = copy(place, StateLocation(tmp_path / "backup")).findings
    store.close()
    assert [line for line in found.problems if not line.startswith("job ")] == []


def test_a_state_is_whole_after_a_job_may_fail_less_often_than_it_has(tmp_path):
    with InProcess(tmp_path / "state") as server:
        job = server.submit(1, max_failures=1000)
        for _ in range(9):
            key = server.exchange()[1]["tasks"][0][:3]
            assert server.exchange(results=[[*key, "exit", 1, 0.0, 1.0, 1.0, 0, 0, 0, 0, None]], want=0)[0] == 200
        assert server.post(f"/v1/jobs/{job}/change", {"max_failures": 1})[0] == 200
    with contextlib.closing(open_view(locate(tmp_path / "state"))) as view:
        assert check(view).problems == []
