"""Damaged databases, half copies and lost files: found, told in a sentence, and repaired as far as it goes."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

import pytest

from tests.support.server.asgi import InProcess
from windfall.errors import WindfallError
from windfall.store import open_store
from windfall.store.contract import StoreCorrupt
from windfall.store.location import StateLocation
from windfall.store.sqlite.files import BlobFiles
from windfall.store.view import View, open_view
from windfall.upkeep.checking import Findings, check
from windfall.upkeep.copying import copy
from windfall.upkeep.repairing import repair

OUTPUT = b"what task 0 has made"
OUTPUT_SHA = sha256(OUTPUT).hexdigest()
SEEDS = 12


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    """A job of one task, done, with a file that it made; and 300 records of jobs that wait."""
    directory = tmp_path_factory.mktemp("kept") / "state"
    with InProcess(directory) as server:
        server.submit(1, outputs=["made"])
        key = server.exchange()[1]["tasks"][0][:3]
        assert server.call("PUT", f"/v1/blobs/{OUTPUT_SHA}", OUTPUT)[0] == 201
        more = {"outputs": [["made", OUTPUT_SHA, len(OUTPUT), 0o644]]}
        row = [*key, "done", 0, 0.0, 1.0, 1.0, 0, 5, 0, 0, more]
        assert server.exchange(results=[row], attachments=b"hello", want=0)[0] == 200
        for _ in range(100):
            server.submit(5)
    with sqlite3.connect(directory / "windfall.db") as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return directory


@pytest.fixture
def state(prepared, tmp_path) -> StateLocation:
    shutil.copytree(prepared, tmp_path / "state")
    return StateLocation(tmp_path / "state")


@contextmanager
def viewed(state: StateLocation) -> Iterator[View]:
    view = open_view(state)
    try:
        yield view
    finally:
        view.close()


def look(state: StateLocation, files: bool = False) -> Findings:
    with viewed(state) as view:
        return check(view, files)


def execute(state: StateLocation, sql: str) -> None:
    with sqlite3.connect(state.directory / "windfall.db") as connection:
        connection.execute(sql)
    connection.close()


def opens(state: StateLocation) -> None:
    store = open_store(state)
    try:
        loaded = store.load()
        for _ in loaded.records:
            pass
    finally:
        store.close()


def test_a_lost_file_of_a_result_that_counts_is_found_and_a_repair_says_that_it_is_lost(state, tmp_path):
    assert look(state, files=True).problems == []
    (state.directory / "blobs" / OUTPUT_SHA[:2] / OUTPUT_SHA).unlink()
    said = f"task 0 of job 1 lacks its output 'made' (file {OUTPUT_SHA[:12]}…)"
    assert look(state).problems == [said]
    assert repair(state, StateLocation(tmp_path / "sound")).findings.problems == [said]


def test_what_an_attempt_left_behind_and_cannot_be_read_is_found(state):
    execute(state, "UPDATE outputs SET data = x'94c100'")
    assert look(state).problems == ["what attempt 1 of task 0 of job 1 left behind is damaged"]


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE records SET data = 'text' WHERE seq = 50",
        "INSERT INTO chunks VALUES (2, 0, 'many', 0, 'lines', x'00')",
        "UPDATE jobs SET spec = 'text' WHERE job = 3",
        "UPDATE outputs SET data = 3.5",
        "UPDATE tokens SET created_s = 'once'",
        "UPDATE meta SET value = x'ff'",
        "UPDATE meta SET value = 'odd'",
    ],
)
def test_values_of_other_kinds_than_were_written_are_found_and_end_in_a_sentence(state, tmp_path, sql):
    execute(state, sql)
    with suppress(WindfallError):
        assert look(state).problems or "tokens" in sql
    with suppress(WindfallError):
        opens(state)
    with suppress(WindfallError):
        copy(state, StateLocation(tmp_path / "copy"))
    repair(state, StateLocation(tmp_path / "sound"))
    opens(StateLocation(tmp_path / "sound"))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_bytes_are_changed_nothing_ends_in_a_traceback(state, tmp_path, seed):
    chance = random.Random(seed)
    path = state.directory / "windfall.db"
    content = bytearray(path.read_bytes())
    for _ in range(chance.choice([1, 5, 50])):
        content[chance.randrange(100, len(content))] = chance.randrange(256)
    path.write_bytes(content)
    for use in (look, opens, lambda damaged: copy(damaged, StateLocation(tmp_path / "copy"))):
        with suppress(WindfallError):
            use(state)
    with suppress(WindfallError):
        repair(state, StateLocation(tmp_path / "sound"))
        opens(StateLocation(tmp_path / "sound"))


def test_a_database_that_was_cut_short_is_repaired_as_far_as_it_goes(state, tmp_path):
    path = state.directory / "windfall.db"
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(StoreCorrupt):
        look(state)
    repaired = repair(state, StateLocation(tmp_path / "sound"))
    assert repaired.last_seq > 0 and repaired.dropped
    opens(StateLocation(tmp_path / "sound"))


def test_a_database_that_does_not_say_who_wrote_it_is_repaired(state, tmp_path):
    execute(state, "DELETE FROM meta")
    with pytest.raises(StoreCorrupt, match="which version"):
        look(state)
    repaired = repair(state, StateLocation(tmp_path / "sound"))
    assert repaired.findings.problems == []
    assert look(StateLocation(tmp_path / "sound")).records > 300


def test_what_is_no_database_at_all_is_not_called_repaired(state, tmp_path):
    path = state.directory / "windfall.db"
    path.write_bytes(b"\xa5" * path.stat().st_size)
    for snapshot in (state.directory / "snapshots").iterdir():
        snapshot.unlink()
    with pytest.raises(StoreCorrupt, match="cannot be repaired") as refused:
        repair(state, StateLocation(tmp_path / "sound"))
    assert refused.value.hint == "restore a backup"
    assert not (tmp_path / "sound").exists()


def test_a_file_that_a_server_removes_while_its_state_is_copied_is_left_out(state, tmp_path, monkeypatch):
    real = BlobFiles.all

    def with_one_that_goes(files: BlobFiles) -> Iterator[tuple[str, int]]:
        yield from real(files)
        if files.directory.is_relative_to(state.directory):
            yield "f" * 64, 1

    monkeypatch.setattr(BlobFiles, "all", with_one_that_goes)
    assert look(state, files=True).problems == []
    assert copy(state, StateLocation(tmp_path / "copy")).findings.problems == []
    with viewed(StateLocation(tmp_path / "copy")) as view:
        assert [name for name, _ in view.blobs()] == [OUTPUT_SHA]
