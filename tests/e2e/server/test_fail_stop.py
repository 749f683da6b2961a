"""A real server that cannot go on: it says why, ends with an exit code that is not 0, and starts again."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.support.server.cluster import Cluster, cluster
from windfall.client import Client
from windfall.drivers.failures import ServerFailed
from windfall.errors import WindfallError

# The command line with one bug in it: what the last argument of `python -c` says.
BUG = "import sys; import windfall.core.engine as engine; {bug}; from windfall.cli import main; main()"
APPLY = """exec('''
from windfall.core.events import HostDrained
def fails(state, event, decided):
    state.t += 1
    raise KeyError("a bug in apply")
engine.HANDLERS[HostDrained] = (engine.HANDLERS[HostDrained][0], fails)
''')"""
DECIDE = """exec('''
from windfall.core.events import HostDrained
def fails(state, event, policies):
    raise KeyError("a bug in decide")
engine.HANDLERS[HostDrained] = (fails, engine.HANDLERS[HostDrained][1])
''')"""
SNAPSHOT = """exec('''
import windfall.drivers.realtime as realtime
import windfall.drivers.snapshots as snapshots
def fails(state):
    raise OverflowError("a bug in the snapshot")
snapshots.pieces = fails
realtime.Realtime.__init__.__defaults__ = (None, 3, 1 << 20)
''')"""
COMMIT = """exec('''
import windfall.server.service as service
touched = service.jobs_touched
def fails(state, record):
    if type(record.event).__name__ == "HostDrained":
        raise KeyError("a bug in a listener")
    return touched(state, record)
service.jobs_touched = fails
''')"""


HANG = """exec('''
import time
import windfall.server.watchdog as watchdog
from windfall.core.events import HostDrained
watchdog.Watchdog.__init__.__defaults__ = (0.5, 0.1, None)
def fails(state, event, policies):
    time.sleep(3600)
engine.HANDLERS[HostDrained] = (fails, engine.HANDLERS[HostDrained][1])
''')"""


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Cluster]:
    with cluster(tmp_path) as running:
        yield running


def start_with(made: Cluster, bug: str) -> None:
    command = [sys.executable, "-c", BUG.format(bug=bug), "server", "--listen", f"127.0.0.1:{made.port}"]
    made.server = made._spawn([*command, "--state", str(made.state)], "server.log", {})
    made.await_server()


def known_host(made: Cluster) -> Client:
    """A server that a worker has been at, and a client with little patience."""
    made.start_server()
    made.start_worker("w1")
    job = made.client().submit(["true"], params=range(3), name="bag")
    assert job.wait(timeout=60)["tasks"]["done"] == 3
    made.kill_worker("w1")
    # While the server runs: a client notices at once where none does.
    client = Client(made.url, made.token, patience_s=0.0)
    made.clients.append(client)
    made.stop_server()
    return client


def health(made: Cluster) -> tuple[int, dict]:
    with closing(http.client.HTTPConnection("127.0.0.1", made.port, timeout=20)) as connection:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def ended(made: Cluster) -> tuple[int, str]:
    assert made.server is not None
    code = made.server.wait(60)
    return code, (made.directory / "server.log").read_text()


def test_a_record_that_cannot_be_applied_ends_the_server_and_a_restart_goes_on(made: Cluster):
    client = known_host(made)
    start_with(made, APPLY)
    with pytest.raises(WindfallError):
        client.transport.post("/v1/hosts/w1/drain")
    code, said = ended(made)
    assert code == 1
    assert "windfall: record" in said and "could not be applied: KeyError('a bug in apply')" in said
    assert "everything is kept" not in said.split("windfall: record")[-1]
    (kept,) = made.state.glob("crash-*.json")
    assert str(kept) in said and json.loads(kept.read_text())["event"]["type"] == "HostDrained"
    made.start_server()
    assert client.job("bag").status()["tasks"]["done"] == 3
    client.transport.post("/v1/hosts/w1/drain")
    assert client.transport.get("/v1/hosts/w1")["draining"]


def test_an_event_that_cannot_be_decided_ends_the_server_and_a_restart_goes_on(made: Cluster):
    client = known_host(made)
    start_with(made, DECIDE)
    with pytest.raises(WindfallError):
        client.transport.post("/v1/hosts/w1/drain")
    code, said = ended(made)
    assert code == 1
    assert "windfall: nothing could be decided on HostDrained: KeyError('a bug in decide')" in said
    (kept,) = made.state.glob("crash-*.json")
    assert str(kept) in said and json.loads(kept.read_text())["event"]["host"] == "w1"
    made.start_server()
    client.transport.post("/v1/hosts/w1/drain")
    assert client.transport.get("/v1/hosts/w1")["draining"]


def test_a_snapshot_that_cannot_be_made_hangs_nothing(made: Cluster):
    start_with(made, SNAPSHOT)
    made.start_worker("w1")
    job = made.client().submit(["true"], params=range(20), name="bag")
    assert job.wait(timeout=60)["tasks"]["done"] == 20
    status, said = health(made)
    assert status == 200 and "a bug in the snapshot" in said["snapshot_error"]
    made.stop_server()
    assert ended(made)[0] == 0
    made.start_server()
    assert made.client().job("bag").status()["tasks"]["done"] == 20


def test_a_background_task_that_dies_ends_the_server(made: Cluster):
    client = known_host(made)
    start_with(made, COMMIT)
    with pytest.raises(WindfallError):
        for _ in range(100):
            client.transport.post("/v1/hosts/w1/drain")
    code, said = ended(made)
    assert code == 1
    assert "windfall: the commit loop died: KeyError('a bug in a listener')" in said


def test_a_loop_that_stands_still_ends_the_server(made: Cluster):
    client = known_host(made)
    start_with(made, HANG)
    with pytest.raises(WindfallError):
        client.transport.post("/v1/hosts/w1/drain")
    code, said = ended(made)
    assert code == 1
    assert "the server hangs and is ended" in said and "in fails" in said
    made.start_server()
    assert client.job("bag").status()["tasks"]["done"] == 3


def test_a_server_inside_this_process_that_fails_is_told_of_in_its_own_words(tmp_path: Path):
    with Client(state=tmp_path / "state", patience_s=60.0) as client:
        client.jobs()
        running = client._local._server._server
        running._loop.call_soon_threadsafe(running._driver.fail, "a bug in this test")
        with pytest.raises(ServerFailed, match="a bug in this test"):
            while True:
                client.jobs()


@contextmanager
def full_disk(made: Cluster) -> Iterator[Path]:
    """A server on a small file system that is full, and the file that fills it."""
    made.start_server()
    made.client().submit(["true"], params=range(3), name="bag")
    fill = made.state / "fill"
    with open(fill, "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            pass
    yield fill


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    state = tmp_path / "state"
    state.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(state)], check=True)
    yield tmp_path
    subprocess.run(["umount", "-l", str(state)], check=False)


def refused(client: Client) -> str:
    """Why the server takes on nothing more."""
    for number in range(10_000):
        try:
            client.submit(["true", "x" * 1000], params=range(3), name=f"more-{number}")
        except WindfallError as error:
            return error.code
    raise AssertionError("the disk is not full")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_while_the_disk_is_full_nobody_hangs_and_the_server_says_that_it_is_not_well(small: Path):
    with cluster(small) as made, full_disk(made) as fill:
        client = Client(made.url, made.token, patience_s=0.0)
        made.clients.append(client)
        assert refused(client) in ("store-full", "uncommitted")
        status, said = health(made)
        assert status == 503 and said["ok"] is False and "space" in said["error"]["message"]
        with pytest.raises(WindfallError) as raised:
            client.job("bag").status()
        assert raised.value.retryable
        fill.unlink()
        job = made.client().submit(["true"], params=range(2), name="after")
        made.start_worker("w1")
        assert job.wait(timeout=120)["tasks"]["done"] == 2
        assert health(made)[0] == 200


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_server_on_a_full_disk_ends_when_it_is_told_to(small: Path):
    with cluster(small) as made, full_disk(made) as fill:
        client = Client(made.url, made.token, patience_s=0.0)
        made.clients.append(client)
        refused(client)
        assert made.server is not None
        made.server.send_signal(signal.SIGTERM)
        code, said = ended(made)
        assert code == 0
        assert "not written and not acknowledged" in said
        fill.unlink()
        made.start_server()
        assert made.client().job("bag").status()["tasks"]["total"] == 3
