"""The pool of kind `command` against programs of a few lines: what is ours and was not written down."""

from __future__ import annotations

import json
from pathlib import Path

from windfall.pools.command import CommandPool, CommandSettings
from windfall.pools.contract import RUNNING
from windfall.pools.kinds import Place, PoolConfig


def opened(tmp_path: Path, rows: list[dict[str, str]]) -> CommandPool:
    """A pool whose `list` prints these rows and whose `stop` writes down what it was told."""
    (tmp_path / "token").write_text("wf_x")
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    words = {
        "start": ["echo", '{"id": "1"}'],
        "list": ["cat", "rows.json"],
        "stop": ["sh", "-c", 'echo "$WINDFALL_ID $WINDFALL_HOST" >> stopped; echo "{}"'],
    }
    place = Place("http://127.0.0.1:1", tmp_path / "token", tmp_path / "pool", owner="me")
    return CommandPool(PoolConfig("c", "command", base=tmp_path, settings=CommandSettings(**words)), place)


def test_a_worker_of_ours_that_was_not_written_down_is_shown_and_can_be_stopped(tmp_path):
    pool = opened(tmp_path, [{"id": "8", "state": "running", "host": "c-1-1", "owner": "me"}])
    (seen,) = pool.list()
    assert (seen.id, seen.phase, seen.host) == ("8", RUNNING, "c-1-1")
    assert pool.stop("8") is None
    assert (tmp_path / "stopped").read_text() == "8 c-1-1\n"


def test_what_is_not_ours_is_shown_as_such_and_never_stopped(tmp_path):
    pool = opened(tmp_path, [{"id": "9", "state": "running", "host": "c-1-1", "owner": "somebody"}])
    (seen,) = pool.list()
    assert seen.host is None and "somebody" in seen.about
    assert pool.stop("9") is None
    assert not (tmp_path / "stopped").exists()
