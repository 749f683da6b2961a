"""What can happen to a directory: a killed server, a torn log, a full disk, a write that fails, two servers."""

import hashlib
import os
import random
import resource
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing, contextmanager

import pytest

from windfall.errors import BadInput
from windfall.store import pacing
from windfall.store.contract import Batch, OutputRow, Record, StoreCorrupt, StoreError, StoreFull
from windfall.store.sqlite.store import SqliteStore

OUTPUTS = 5


def batch(seq, size=100):
    """A record with a few outputs: they belong together, whatever happens."""
    outputs = [OutputRow(1, seq, attempt, b"o" * size) for attempt in range(OUTPUTS)]
    return Batch(records=[Record(seq, 0.0, 1, "event", b"r" * size)], outputs=outputs)


def whole_batches(store):
    """How many batches the store holds; each must be there whole."""
    numbers = [seq for seq, _ in store.load().records]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(store.outputs(1, limit=10**6)) == OUTPUTS * len(numbers)
    return len(numbers)


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "state"


@contextmanager
def opened(directory):
    store = SqliteStore(directory)
    try:
        yield store
    finally:
        store.close()


WRITER = """
import sys
from pathlib import Path
from tests.unit.store.test_sqlite import batch
from windfall.store.sqlite.store import SqliteStore
store = SqliteStore(Path(sys.argv[1]))
seq = store.last_seq()
while True:
    seq += 1
    store.append(batch(seq))
    if seq % 7 == 0:
        store.save_snapshot(seq, b"state %d" % seq * 1000)
    print(seq, flush=True)
"""


def test_a_server_killed_at_any_moment_has_lost_nothing_that_it_acknowledged(directory):
    chance = random.Random(1)
    acknowledged = 0
    for _ in range(6):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, directory], stdout=subprocess.PIPE, text=True)
        for _ in range(chance.randint(1, 40)):
            acknowledged = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        acknowledged = int((writer.stdout.read().split() or [acknowledged])[-1])
        writer.wait()
        writer.stdout.close()
        with opened(directory) as store:
            loaded = store.load()
            behind = [seq for seq, _ in loaded.records]
            start = loaded.snapshot.seq if loaded.snapshot else 0
            assert behind == list(range(start + 1, start + 1 + len(behind)))
            assert acknowledged <= store.last_seq() <= acknowledged + 1
            assert len(store.outputs(1, limit=10**6)) == OUTPUTS * store.last_seq()
            assert loaded.warnings == []
            acknowledged = store.last_seq()


def test_a_torn_log_ends_with_a_whole_batch(directory, tmp_path):
    chance = random.Random(2)
    with opened(directory) as store:
        for seq in range(1, 30):
            store.append(batch(seq))
        log = (directory / "windfall.db-wal").stat().st_size
        counts = set()
        for number in range(12):
            copy = tmp_path / f"copy-{number}"
            copy.mkdir()
            for name in ("windfall.db", "windfall.db-wal"):
                shutil.copy(directory / name, copy / name)
            os.truncate(copy / "windfall.db-wal", chance.randint(log // 2, log))
            with opened(copy) as torn:
                kept = whole_batches(torn)
                counts.add(kept)
                torn.append(batch(kept + 1))
            with opened(copy) as again:
                assert whole_batches(again) == kept + 1
        assert len(counts) > 1
        assert max(counts) <= 29


def test_a_database_that_is_none_is_refused_with_what_to_try(directory):
    directory.mkdir()
    (directory / "windfall.db").write_bytes(b"this is no database, whatever it is" * 100)
    with pytest.raises(StoreCorrupt, match=r"windfall\.db is damaged") as error:
        SqliteStore(directory)
    assert "windfall state repair" in error.value.hint


@contextmanager
def small_disk(path, size_bytes):
    """A file system of a few megabytes. Only root may make one."""
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", path], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a small file system needs the right to mount: {mounted.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", path], check=True)


def test_a_full_disk_is_said_and_the_same_batch_is_taken_when_there_is_space_again(tmp_path):
    with small_disk(tmp_path / "disk", 4 << 20) as disk:
        ballast = disk / "ballast"
        with opened(disk / "state") as store:
            ballast.write_bytes(bytes(2 << 20))
            seq = 0
            with pytest.raises(StoreFull, match="no space left at") as error:
                while True:
                    store.append(batch(seq + 1, size=20_000))
                    seq += 1
            assert error.value.retryable
            assert seq > 0
            assert whole_batches(store) == seq
            with pytest.raises(StoreFull):
                store.append(batch(seq + 1, size=20_000))
            content = os.urandom(3 << 20)
            sha256 = hashlib.sha256(content).hexdigest()
            with pytest.raises(StoreFull):
                store.put_blob(sha256, content)
            with pytest.raises(StoreFull):
                store.save_snapshot(seq, content)
            assert store.blob_size(sha256) is None
            ballast.unlink()
            store.append(batch(seq + 1, size=20_000))
            store.save_snapshot(seq, b"state")
        with opened(disk / "state") as store:
            assert store.load().snapshot == (seq, b"state")
            assert store.last_seq() == seq + 1
            assert len(store.outputs(1, limit=10**6)) == OUTPUTS * (seq + 1)


@contextmanager
def no_file_larger_than(size_bytes):
    """Every write beyond this fails, as on a disk with a fault."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_write_that_fails_keeps_nothing_and_may_be_repeated(directory):
    with opened(directory) as store:
        store.append(batch(1))
        limit = (directory / "windfall.db-wal").stat().st_size + 50_000
        with no_file_larger_than(limit):
            for _ in range(3):
                with pytest.raises(StoreError, match=r"windfall\.db"):
                    store.append(batch(2, size=200_000))
            assert whole_batches(store) == 1
            with pytest.raises(StoreError):
                store.put_blob(hashlib.sha256(bytes(10**6)).hexdigest(), bytes(10**6))
        store.append(batch(2, size=200_000))
        assert whole_batches(store) == 2
    assert list((directory / "blobs").glob("tmp-*")) == []
    with opened(directory) as store:
        assert whole_batches(store) == 2


def test_a_large_batch_is_one_transaction(directory):
    with opened(directory) as store:
        statements = []
        store._writer.set_trace_callback(statements.append)
        store.append(Batch(outputs=[OutputRow(1, task, 1, b"o") for task in range(10_000)]))
        assert [s for s in statements if s in ("COMMIT", "BEGIN IMMEDIATE")] == ["BEGIN IMMEDIATE", "COMMIT"]


def test_every_commit_waits_for_the_disk(directory):
    with opened(directory) as store:
        assert store._writer.execute("PRAGMA synchronous").fetchone() == (2,)
        assert store._writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_the_state_is_for_its_owner_alone(directory):
    with opened(directory):
        assert directory.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("left_open", [False, True], ids=["new", "readable before"])
def test_in_a_folder_made_beforehand_too_everything_is_for_its_owner_alone(directory, left_open):
    directory.mkdir(mode=0o755)
    if left_open:
        with opened(directory) as store:
            store.append(batch(1))
        (directory / "windfall.db").chmod(0o644)
    before = os.umask(0o022)
    try:
        with opened(directory) as store:
            store.append(batch(2 if left_open else 1))
            store.save_snapshot(1, b"state")
            store.put_blob(hashlib.sha256(b"").hexdigest(), b"")
            found = {str(path.relative_to(directory)): path.stat().st_mode & 0o077 for path in directory.rglob("*")}
    finally:
        os.umask(before)
    assert {"windfall.db", "windfall.db-wal", "windfall.db-shm", "lock", "snapshots", "blobs"} <= found.keys()
    assert {name for name, mode in found.items() if mode} == set()


DAMAGE = {
    "other content": lambda path: path.write_bytes(b"this is no database" * 100),
    "emptied": lambda path: path.write_bytes(b""),
    "removed": lambda path: path.unlink(),
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:5000]),
    "without its tables": lambda path: _drop_tables(path),
    "overwritten with zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
}


def _drop_tables(path):
    with sqlite3.connect(path) as connection:
        for name in ("meta", "records", "packs", "jobs", "chunks", "outputs", "tokens"):
            connection.execute(f"DROP TABLE {name}")
    connection.close()


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize("snapshot", [False, True], ids=["log only", "with a snapshot"])
def test_a_damaged_database_is_never_an_empty_one(directory, damage, snapshot):
    with opened(directory) as store:
        for seq in range(1, 50):
            store.append(batch(seq))
        if snapshot:
            store.save_snapshot(40, b"state")
    damage(directory / "windfall.db")
    for _ in range(2):
        with pytest.raises(StoreCorrupt, match="is damaged") as error, opened(directory) as store:
            list(store.load().records)
        assert not error.value.retryable
        assert "restore a backup" in error.value.hint


def test_a_crash_before_the_tables_were_made_leaves_a_state_that_can_be_used(directory):
    directory.mkdir()
    (directory / "windfall.db").touch()
    (directory / "lock").write_text("process 1 on host\n")
    with opened(directory) as store:
        store.append(batch(1))
        assert whole_batches(store) == 1


def test_a_second_server_in_another_process_is_refused_by_the_number_of_the_first(directory):
    with opened(directory):
        code = "import sys, pathlib; from windfall.store import open_store; open_store(sys.argv[1])"
        second = subprocess.run([sys.executable, "-c", code, directory], capture_output=True, text=True, check=False)
        assert second.returncode == 1
        assert f"{directory} is in use by process {os.getpid()} on " in second.stderr


def test_the_lock_is_not_inherited_by_programs_that_the_server_starts(directory):
    with opened(directory):
        sleeper = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        with opened(directory):
            pass
    finally:
        sleeper.kill()
        sleeper.wait()


def test_what_a_crash_left_half_written_is_cleared_away(directory):
    with opened(directory) as store:
        store.append(batch(1))
        store.save_snapshot(1, b"state")
    for folder in ("blobs", "snapshots"):
        (directory / folder / "tmp-left").write_bytes(b"half")
    with opened(directory) as store:
        assert store.load().snapshot == (1, b"state")
    assert not list(directory.glob("*/tmp-*"))


def test_a_state_that_cannot_be_a_directory_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="is a file; the state needs a directory"):
        SqliteStore(tmp_path / "file")
    with pytest.raises(BadInput, match="the state cannot be kept there"):
        SqliteStore(tmp_path / "file" / "below")


def test_the_command_in_the_error_about_a_damaged_record_repairs_the_log(directory):
    with opened(directory) as store:
        for seq in range(1, 6):
            store.append(batch(seq))
    with sqlite3.connect(directory / "windfall.db") as connection:
        connection.execute("UPDATE records SET data = x'00' WHERE seq = 3")
    connection.close()
    with opened(directory) as store, pytest.raises(StoreCorrupt) as error:
        list(store.load().records)
    command = shlex.split(error.value.hint.partition(":  ")[2])
    assert command[:2] == ["sqlite3", str(directory / "windfall.db")]
    with sqlite3.connect(command[1]) as connection:
        connection.execute(command[2])
    connection.close()
    with opened(directory) as store:
        assert [seq for seq, _ in store.load().records] == [1, 2]
        store.append(batch(3))


class Waiting:
    """Stands for an event: remembers how long it was waited for, and when it is set waits no more."""

    def __init__(self, clock: list[float]) -> None:
        self.waits: list[float] = []
        self._clock = clock

    def wait(self, timeout_s: float) -> bool:
        self.waits.append(timeout_s)
        self._clock[0] += timeout_s
        return False


def test_a_snapshot_beside_commits_is_written_no_faster_than_its_pace():
    clock = [100.0]
    hurry = Waiting(clock)
    slices = [memoryview(bytes(int(pacing.PACE_BYTES_S / 4)))] * 4
    found = []
    for at, piece in enumerate(pacing.paced(slices, hurry, lambda: clock[0])):
        found.append((clock[0], len(piece)))
        clock[0] += 0.5 if at == 1 else 0.0  # the disk was slow: time that it took is not waited for again
    assert [t - 100.0 for t, _ in found] == [0.0, 0.25, 0.75, 0.75]
    assert hurry.waits == [0.0, 0.25, 0.0, 0.0]


def test_a_snapshot_in_a_hurry_waits_for_nothing_and_is_the_same(tmp_path):
    hurry = threading.Event()
    hurry.set()
    with closing(SqliteStore(tmp_path / "state")) as store:
        store.append(batch(1))
        store.save_snapshot(1, bytes(int(pacing.PACE_BYTES_S)), hurry)
        loaded = store.load()
        assert loaded.snapshot is not None and len(loaded.snapshot.data) == int(pacing.PACE_BYTES_S)
