"""The status of jobs without a server is what a server would say, and writes nothing."""

from __future__ import annotations

import shutil
import threading
import time

import pytest

from windfall.client import Client
from windfall.client.local.server import LocalServer, jobs_at_rest
from windfall.errors import WindfallError
from windfall.server import embedded
from windfall.server.queries.at_rest import at_rest
from windfall.store.location import StateLocation
from windfall.store.sqlite.looking import LookingStore
from windfall.store.sqlite.store import SqliteStore

CLOCK = ("elapsed_s", "down_s", "version")
"""What goes on with the clock, and what only a server that runs counts."""


def asking(directory):
    return Client(local=LocalServer(StateLocation(directory), worker=False))


@pytest.fixture
def directory(tmp_path):
    """A bag, one that is paused, and a workflow with a cancelled step."""
    with asking(tmp_path / "state") as client:
        client.submit("true {}", range(5), name="bag")
        client.submit("true {}", range(3), name="held").change(paused=True)
        flow = client.workflow(name="flow")
        first = flow.task("true", name="first")
        flow.task("true", name="second", after=first)
        job = flow.submit()
        job.cancel(["first"])
        shutil.copytree(tmp_path / "state", tmp_path / "killed")
    return tmp_path / "state"


def comparable(status):
    return {name: value for name, value in status.items() if name not in CLOCK}


@pytest.mark.parametrize("name", ["state", "killed"])
def test_jobs_are_told_as_a_server_tells_them(directory, name):
    """`killed`: copied while its server ran, so that the log goes on behind the snapshots."""
    found = at_rest(directory.parent / name)
    assert found is not None
    with asking(directory.parent / name) as client:
        assert [comparable(row) for row in found.jobs()] == [comparable(row) for row in client.jobs()]
        assert comparable(found.job("flow")) == comparable(client.job("flow").status())
        for before, now in zip(found.jobs(), client.jobs(), strict=True):
            # The time since the log was last written counts as time without a server.
            worked_s = [row["elapsed_s"] - row["down_s"] for row in (before, now)]
            assert 0 <= worked_s[0] <= worked_s[1] + 1e-6


def test_an_unknown_job_is_refused_in_the_words_of_a_server(directory):
    found = at_rest(directory)
    assert found is not None
    with pytest.raises(WindfallError) as here:
        found.job("nope")
    with asking(directory) as client, pytest.raises(WindfallError) as there:
        client.job("nope")
    assert (here.value.code, str(here.value)) == (there.value.code, str(there.value))


def test_nothing_is_read_while_a_server_runs_or_where_there_is_no_state(directory, tmp_path):
    assert jobs_at_rest(StateLocation(tmp_path / "nowhere")) is None
    with embedded.start(directory):
        assert at_rest(directory) is None and jobs_at_rest(StateLocation(directory)) is None
    assert jobs_at_rest(StateLocation(directory)) is not None


@pytest.mark.parametrize("damage", [b"", b"no database" * 1000], ids=["emptied", "garbage"])
def test_a_damaged_state_is_left_to_a_server(directory, damage):
    (directory / "windfall.db").write_bytes(damage)
    assert at_rest(directory) is None


def test_a_server_waits_for_a_command_that_looks(directory):
    looking = LookingStore(directory)
    ended = []
    threading.Thread(target=lambda: (time.sleep(0.2), ended.append(True), looking.close())).start()
    store = SqliteStore(directory)
    assert ended, "it held the directory while another process read it"
    store.close()
