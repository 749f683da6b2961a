"""`windfall pool add|pause|resume|drain|remove` against a running server, and on a state without one."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.support.commands.command import windfall
from tests.support.pools.pool_worlds import until
from windfall.client import Client
from windfall.errors import WindfallError
from windfall.pools.config import read_pools
from windfall.server import embedded

HERE = {"name": "here", "limit": 2, "idle_exit": "30s"}


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state"


def pool(client: Client, name: str = "here") -> dict:
    rows = [*client.pool_states()["pools"], *client.pool_states()["renting"]]
    return next((row for row in rows if row["pool"] == name), {})


def alive(client: Client) -> list[str]:
    return [row["host"] for row in client.hosts() if row["state"] == "live"]


def gated(state: Path) -> list[str]:
    """A task that ends when there is a file `go`."""
    return ["sh", "-c", f"while [ ! -e {state}/go ]; do sleep 0.1; done"]


def test_a_pool_that_was_added_works_at_once_and_on_the_next_server(state):
    for _ in range(2):
        with embedded.start(state) as server, Client(server.url, server.token) as client:
            if not pool(client):
                assert client.add_pools([HERE]) == ["here"]
            job = client.submit(["echo", "{}"], range(4))
            assert job.wait(60)["tasks"]["done"] == 4
            assert pool(client)["added"] and {row["pool"] for row in client.hosts()} == {"here"}


def test_a_paused_pool_starts_nothing_across_a_restart_and_goes_on_when_it_is_resumed(state):
    with embedded.start(state) as server, Client(server.url, server.token) as client:
        client.add_pools([HERE])
        assert client.tell_pool("here", "pause", "maintenance")["mode"] == "paused"
        job = client.submit(["true"], range(2)).id
    with embedded.start(state) as server, Client(server.url, server.token) as client:
        assert (pool(client)["mode"], pool(client)["reason"]) == ("paused", "maintenance")
        time.sleep(3.0)
        assert client.hosts() == [] and pool(client)["pending"] == 0
        told = client.transport.get(f"/v1/jobs/{job}/explain")["waiting"]
        assert "paused: maintenance" in json.dumps(told)
        client.tell_pool("here", "resume")
        assert client.job(job).wait(60)["tasks"]["done"] == 2


def test_a_drained_pool_finishes_what_it_runs_loses_nothing_and_its_workers_end(state):
    with embedded.start(state) as server, Client(server.url, server.token) as client:
        client.add_pools([HERE])
        job = client.submit(gated(state), range(4))
        until(lambda: job.status()["tasks"]["running"] == 2)
        client.tell_pool("here", "drain")
        (state / "go").touch()
        until(lambda: alive(client) == [])
        counts = job.status()["tasks"]
        assert (counts["done"], counts["waiting"], counts["failed"]) == (2, 2, 0)
        assert client.remove_pool("here")["removed"] and not pool(client)
        client.add_pools([{**HERE, "name": "other"}])
        assert job.wait(60)["tasks"]["done"] == 4


def test_a_pool_in_use_is_removed_only_with_now_and_its_tasks_run_elsewhere(state):
    with embedded.start(state) as server, Client(server.url, server.token) as client:
        client.add_pools([HERE])
        job = client.submit(gated(state), range(2))
        until(lambda: job.status()["tasks"]["running"] == 2)
        with pytest.raises(WindfallError) as refused:
            client.remove_pool("here")
        assert refused.value.code == "pool-busy" and "2 workers" in refused.value.message
        until(lambda: client.remove_pool("here", now=True)["removed"] if pool(client) else True)
        assert alive(client) == [] and not pool(client)
        (state / "go").touch()
        client.add_pools([HERE])
        assert job.wait(60)["tasks"]["done"] == 2


def test_a_pool_of_the_file_is_paused_but_not_removed(state, tmp_path):
    (tmp_path / "pools.toml").write_text('[[pool]]\nname = "filed"\nlimit = 1\n')
    pools = read_pools(tmp_path / "pools.toml")
    with embedded.start(state, pools=pools) as server, Client(server.url, server.token) as client:
        assert client.tell_pool("filed", "pause")["mode"] == "paused"
        for call, code in (
            (lambda: client.remove_pool("filed"), "pool-in-file"),
            (lambda: client.add_pools([{"name": "filed"}]), "pool-exists"),
            (lambda: client.tell_pool("nobody", "drain"), "no-such-pool"),
            (lambda: client.add_pools([{"name": "x", "kind": "nope"}]), "bad-input"),
            (lambda: client.add_pools([{"name": "ok"}, {"name": "x", "limit": "many"}]), "bad-input"),
        ):
            with pytest.raises(WindfallError) as refused:
                call()
            assert refused.value.code == code, refused.value
        assert not pool(client, "ok"), "one that is wrong keeps all of them out"


def test_machines_of_a_drained_cloud_end_and_a_paused_one_rents_nothing(state):
    offer = {"name": "vm", "price_usd": 0.1, "cores": 1, "lag_s": 1.0}
    cloud = {"name": "cloud", "kind": "emulated", "offer": [offer]}
    with embedded.start(state, release=True) as server, Client(server.url, server.token) as client:
        client.add_pools([cloud])
        job = client.submit(["sleep", "3"], range(4), pools=["cloud"], deadline="1h")
        until(lambda: job.status()["tasks"]["running"] > 0)
        assert client.tell_pool("cloud", "drain")["mode"] == "draining"
        until(lambda: client.machines("cloud", there=True)["machines"] == [])
        counts = job.status()["tasks"]
        assert counts["done"] >= 1 and counts["failed"] == 0 and counts["waiting"] + counts["done"] == 4
        client.tell_pool("cloud", "resume")
        assert job.wait(120)["tasks"]["done"] == 4
        until(lambda: client.machines("cloud", there=True)["machines"] == [])
        assert client.remove_pool("cloud")["removed"]


def test_commands_without_a_server_write_into_the_state_and_say_what_they_did(state, monkeypatch, capsys, tmp_path):
    here = ["--state", str(state)]
    (tmp_path / "p.toml").write_text('[[pool]]\nname = "a"\n\n[[pool]]\nname = "b"\nlimit = 3\n')
    steps = [
        (("add", str(tmp_path / "p.toml"), "b"), "pool b is added"),
        (("add", "c", "limit=4", 'kind="local"'), "pool c is added"),
        (("pause", "b", "--reason", "why not"), "starts nothing more"),
        (("list",), "paused for"),
        (("info", "b"), "why not"),
        (("resume", "b"), "is used again"),
        (("drain", "c"), "gets no more work"),
        (("remove", "c"), "is removed"),
    ]
    for words, said in steps:
        ended = windfall(monkeypatch, capsys, "pool", *words, *here)
        assert ended.code == 0 and said in ended.out, ended
    listed = json.loads(windfall(monkeypatch, capsys, "pool", "list", "--json", *here).out)
    assert [(row["pool"], row["mode"], row["limit"]) for row in listed["pools"]] == [("b", "open", 3)]
    for words in (("pause", "zzz"), ("add", "b"), ("add", "d", "limit"), ("add", "missing.toml"), ("remove", "zzz")):
        assert windfall(monkeypatch, capsys, "pool", *words, *here).is_short_error(2), words
