"""What a worker may do to other hosts, to files and to the people who look at results: nothing."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Iterator
from hashlib import sha256

import pytest
from msgspec.structs import replace

from tests.support.server.asgi import InProcess
from tests.unit.server.test_bounds import result
from windfall.client.results import TaskFailed, tasks_of
from windfall.client.transport import Frame
from windfall.core.events import PoolsConfigured
from windfall.core.state.hosts.pools import PoolRules
from windfall.pools.starting.secrets import ticket
from windfall.server.http.workers import senders
from windfall.server.pool_tokens import PoolTokens
from windfall.wire import HOST_SECRET, OLDEST, VERSION, frames


@pytest.fixture
def server(tmp_path) -> Iterator[InProcess]:
    with InProcess(tmp_path / "state") as server:
        yield server
        server.check()


class Trap:
    """Runs a command when it is unpickled."""

    def __reduce__(self):
        return (os.mkdir, ("sprung",))


@pytest.mark.parametrize("cause", ["done", "python"])
def test_a_value_that_a_worker_adds_to_a_command_is_never_unpickled(server, tmp_path, monkeypatch, cause):
    monkeypatch.chdir(tmp_path)
    server.submit(1, max_failures=1)
    server.exchange()
    trap = pickle.dumps((True, Trap()))
    server.exchange(results=[result(cause=cause, value=len(trap))], attachments=trap)
    status, body = server.call("GET", "/v1/jobs/1/results")
    assert status == 200
    (task,) = tasks_of(Frame(body))
    assert not task.is_call
    assert task.result() == "" if task.ok else type(task.error) is TaskFailed
    assert not (tmp_path / "sprung").exists()


def test_live_output_of_an_attempt_is_taken_from_its_holder_alone(server):
    server.submit(1)
    server.exchange("holder")
    server.service.live.follow((1, 0, 1))
    forged, true = b"forged", b"true"
    server.exchange("other", live=[[1, 0, 1, 0, len(forged), 0, 0]], attachments=forged)
    server.exchange("holder", live=[[1, 0, 1, 0, len(true), 0, 0]], attachments=true)
    assert server.service.live.read((1, 0, 1), 0, 0)[1] == true


def ask(server: InProcess, host: str, secret: str, boot: str = "boot", **changes) -> tuple[int, dict]:
    """An exchange of a host that shows a secret."""
    return server.exchange(host, boot=boot, headers={HOST_SECRET: secret} if secret else {}, **changes)


def test_no_worker_speaks_for_a_host_that_showed_another_secret(server):
    server.submit(2)
    assert ask(server, "victim", "mine")[0] == 200
    for other in ("theirs", ""):
        for boot in ("boot", "new"):
            status, body = ask(server, "victim", other, boot, n=7, leaving="idle", results=[result(cause="exit")])
            assert status == 503 and body["error"]["code"] == "host-in-use"
    assert server.get("/v1/jobs/1")[1]["tasks"]["running"] == 1
    server.n["victim"] = 1
    assert ask(server, "victim", "mine", results=[result()])[0] == 200
    assert server.get("/v1/jobs/1")[1]["tasks"]["done"] == 1


def tried_without_secret(server: InProcess, once: str) -> set[int]:
    """What the holder of a ticket is answered, at every route that its role reaches, under this and another name."""
    found = set()
    blob = f"/v1/blobs/{sha256(b'x').hexdigest()}"
    for secret in ({}, {HOST_SECRET.lower(): "theirs"}):
        headers = {"authorization": f"Bearer {once}", **secret}
        found |= {server.run(server.full(method, blob, b"x", headers))[0] for method in ("HEAD", "GET", "PUT")}
        for host in ("p-1-1", "p-1-2"):
            found.add(server.exchange(host, boot="new", n=1, ad={"pool": "p"}, headers=headers)[0])
    return found


def test_what_a_task_reads_from_user_data_is_worth_nothing_once_its_host_has_enrolled(server):
    now = server.service.driver.clock()

    async def configure() -> None:
        await server.driver.submit([PoolsConfigured(now, [PoolRules("p", limit=4)])])

    server.run(configure())
    tokens = server.service.tokens.pools = PoolTokens(b"k" * 32)
    once = ticket(tokens.make("p", 3600.0, now), "p-1-1")
    server.submit(2)
    mine = {"authorization": f"Bearer {once}", HOST_SECRET: "mine"}
    assert server.exchange("p-1-1", ad={"pool": "p"}, headers=mine)[0] == 200
    assert tried_without_secret(server, once) == {403, 503}, "its name is in use"
    blob = f"/v1/blobs/{sha256(b'x').hexdigest()}"
    assert server.run(server.full("PUT", blob, b"x", {name.lower(): text for name, text in mine.items()}))[0] == 201
    server.n["p-1-1"] = 1
    assert server.exchange("p-1-1", results=[result()], leaving="idle", headers=mine)[0] == 200
    assert tried_without_secret(server, once) == {403}, "its name is not free, either"
    assert server.get("/v1/jobs/1")[1]["tasks"]["done"] == 1


def agent(server: InProcess, secret: str, attachments: bytes = b"", **changes) -> tuple[int, bytes]:
    """An exchange of the agent of a site's host that shows a secret."""
    header = {
        "v": VERSION if secret else OLDEST,
        "site": "",
        "host": "h",
        "boot": "b",
        "n": 1,
        "capacity": {"vcpu": 2},
        "tags": [],
    }
    body = frames.join(json.dumps(header | changes).encode(), [attachments])
    shown = {"authorization": f"Bearer {server.token}"} | ({HOST_SECRET.lower(): secret} if secret else {})
    status, _, answer = server.run(server.full("POST", "/v1/site/exchange", body, shown))
    return status, answer


def test_no_agent_speaks_for_a_host_that_showed_another_secret(server):
    assert server.post("/v1/sites", {"name": "lab", "instance": {"vcpu": 1}})[0] == 201
    assert agent(server, "mine")[0] == 200
    server.post("/v1/site/requests", {"resources": {"vcpu": 1}, "command": ["true"]})
    assert agent(server, "mine", n=2, capacity=None)[0] == 200
    ended = [[1, "done", 0, 0, 1, 0, 6, 0, ""]]
    for secret in ("theirs", ""):
        for forged in (
            {"n": 3, "capacity": None, "ended": ended}, {"boot": "new", "ended": ended}, {"n": 3, "leaving": "bye"}
        ):  # fmt: skip
            status, answer = agent(server, secret, b"forged" if "ended" in forged else b"", **forged)
            assert status == 503 and b"host-in-use" in answer
    assert b"forged" not in server.call("GET", "/v1/site/requests/lab-1/output")[1]
    assert agent(server, "mine", b"true..", n=3, capacity=None, ended=ended)[0] == 200
    assert server.call("GET", "/v1/site/requests/lab-1/output")[1].endswith(b"true..")
    # Its own host may start again; after a goodbye the name is free.
    assert agent(server, "mine", boot="again")[0] == 200
    assert agent(server, "mine", boot="again", n=2, capacity=None, leaving="bye")[0] == 200
    assert agent(server, "theirs", boot="other")[0] == 200
    assert agent(server, "mine", boot="late")[0] == 503


def test_no_worker_speaks_for_a_host_that_shows_no_secret(server):
    server.submit(2)
    assert ask(server, "old", "", "mine")[0] == 200
    for secret in ("theirs", ""):
        status, body = ask(server, "old", secret, "other", n=1, ad={}, leaving="idle", results=[result(cause="exit")])
        assert status == 503 and body["error"]["code"] == "host-in-use"
    assert server.get("/v1/jobs/1")[1]["tasks"]["running"] == 1
    server.n["old"] = 1
    assert ask(server, "old", "", "mine", results=[result()])[0] == 200
    assert server.get("/v1/jobs/1")[1]["tasks"]["done"] == 1
    # After its goodbye it may start again, also as a newer version that shows a secret.
    assert ask(server, "old", "", "mine", leaving="idle", want=0)[0] == 200
    server.n["old"] = 0
    assert ask(server, "old", "secret", "again")[0] == 200
    assert ask(server, "old", "", "again", n=2)[0] == 503


def test_a_host_of_a_log_without_secrets_is_held_to_its_boot(server):
    assert ask(server, "old", "", "mine")[0] == 200
    host = server.service.state.host("old")
    host.access = replace(host.access, secret="")  # as an older server left it
    for secret in ("theirs", ""):
        assert ask(server, "old", secret, "other", n=1)[0] == 503
    server.n["old"] = 1
    assert ask(server, "old", "", "mine")[0] == 200


def test_workers_without_a_secret_read_the_files_of_such_workers_alone(server):
    contents = [b"of an old one", b"of one with a secret"]
    for content in contents:
        sha = sha256(content).hexdigest()
        assert server.call("PUT", f"/v1/blobs/{sha}", content)[0] == 201
        server.submit(1, inputs=[{"name": "in", "sha256": sha, "size": len(content)}])
    assert ask(server, "old", "", "a")[0] == ask(server, "new", "secret", "b")[0] == 200
    token = server.service.tokens.create("worker", "w", 0.0)
    for secret, expected in (("", [200, 404]), ("secret", [404, 200]), ("none", [404, 404])):
        headers = {"authorization": f"Bearer {token}"} | ({HOST_SECRET.lower(): secret} if secret else {})
        paths = [f"/v1/blobs/{sha256(content).hexdigest()}" for content in contents]
        assert [server.run(server.full("GET", path, headers=headers))[0] for path in paths] == expected


def test_no_agent_speaks_for_a_host_that_shows_no_secret(server):
    assert server.post("/v1/sites", {"name": "lab", "instance": {"vcpu": 1}})[0] == 201
    assert agent(server, "")[0] == 200
    for secret in ("theirs", ""):
        status, answer = agent(server, secret, boot="new")
        assert status == 503 and b"host-in-use" in answer
    assert agent(server, "", n=2, capacity=None)[0] == 200


def test_a_host_may_start_again_with_its_secret_and_with_another_once_it_has_left(server):
    assert ask(server, "host", "mine")[0] == 200
    server.n["host"] = 0
    assert ask(server, "host", "mine", "second")[0] == 200
    assert ask(server, "host", "mine", "second", leaving="idle", want=0)[0] == 200
    server.n["host"] = 0
    assert ask(server, "host", "wiped", "third")[0] == 200
    assert ask(server, "host", "mine", "third", n=5)[0] == 503


def test_what_hosts_showed_is_remembered_after_a_restart_as_a_hash(tmp_path):
    with InProcess(tmp_path / "state") as server:
        ask(server, "host", "mine")
        assert "mine" not in repr(server.service.state.host("host").access)
    with InProcess(tmp_path / "state") as server:
        assert ask(server, "host", "theirs", n=2)[0] == 503
        assert ask(server, "host", "mine", n=2)[0] == 200


@pytest.mark.parametrize("cause", ["done", "exit"])
def test_a_result_counts_only_from_the_host_that_holds_the_attempt(server, cause):
    server.submit(1, max_failures=1)
    server.exchange("holder")
    server.exchange("other", results=[result(cause=cause)])
    tasks = server.get("/v1/jobs/1")[1]["tasks"]
    assert (tasks["done"], tasks["failed"], tasks["running"]) == (0, 0, 1)
    server.exchange("holder", results=[result()])
    assert server.get("/v1/jobs/1")[1]["tasks"]["done"] == 1


@pytest.mark.parametrize("headers", [{HOST_SECRET: "mine"}, {}], ids=["secret", "none"])
@pytest.mark.parametrize("as_", ["checkpoint", "output"])
def test_a_worker_cannot_read_a_file_of_others_by_naming_it(server, as_, headers):
    """Who knows a hash does not have the file: naming it must not make it readable."""
    theirs, client = sha256(b"a secret of another job").hexdigest(), {"authorization": f"Bearer {server.token}"}
    assert server.run(server.full("PUT", f"/v1/blobs/{theirs}", b"a secret of another job", client))[0] == 201
    server.submit(1, outputs=["out"], max_failures=3)
    server.exchange("thief", headers=headers)
    if as_ == "checkpoint":
        changes = {"checkpoints": [[1, 0, 1, theirs, 23, 1.0]]}
    else:
        done = result()
        done[-1] = {"outputs": [["out", theirs, 23, 0o644]]}
        changes = {"results": [done]}
    assert server.exchange("thief", headers=headers, want=1, **changes)[0] == 200
    token = server.service.tokens.create("worker", "", 0.0)
    lower = {name.lower(): text for name, text in headers.items()} | {"authorization": f"Bearer {token}"}
    assert server.run(server.full("GET", f"/v1/blobs/{theirs}", b"", lower))[0] == 404
    told = server.get("/v1/jobs/1")[1]
    assert told["tasks"]["done"] == 0 and server.driver.state.bags[1].progress.checkpoints == {}


def test_the_files_that_are_known_of_senders_are_bounded_and_the_newest_stay(server, monkeypatch):
    monkeypatch.setattr(senders, "MOST_SENT", 10)
    known = senders.Senders(server.service.state)
    names = [sha256(b"%d" % number).hexdigest() for number in range(50)]
    server.exchange("h", headers={HOST_SECRET: "mine"})
    host = server.service.state.host("h")
    known.add("mine", names[0])
    for name in names:
        known.add("flood", name)
    assert known.has_sent(host, names[0]), "a flood of one host drops its own"
    assert sum(map(len, known._sent.values())) <= 10


def test_who_makes_up_secrets_cannot_crowd_out_what_hosts_have_sent(server, monkeypatch):
    monkeypatch.setattr(senders, "MOST_SENT", 10)
    server.exchange("h", headers={HOST_SECRET: "mine"})
    token = server.service.tokens.create("worker", "", 0.0)
    names = [sha256(b"%d" % number).hexdigest() for number in range(40)]
    for number, name in enumerate(names):
        secret = "mine" if number < 4 else f"made up {number}"
        headers = {"authorization": f"Bearer {token}", HOST_SECRET.lower(): secret}
        assert server.run(server.full("PUT", f"/v1/blobs/{name}", b"%d" % number, headers))[0] == 201
    host = server.service.state.host("h")
    assert all(server.service.senders.has_sent(host, name) for name in names[:4])


@pytest.mark.parametrize("now", [True, False], ids=["with its first exchange", "later"])
def test_an_agent_that_takes_the_name_of_one_that_has_left_cannot_write_its_output(server, now):
    assert server.post("/v1/sites", {"name": "lab", "instance": {"vcpu": 1}})[0] == 201
    assert agent(server, "mine")[0] == 200
    server.post("/v1/site/requests", {"resources": {"vcpu": 1}, "command": ["true"]})
    agent(server, "mine", n=2, capacity=None, started=[[1, 0.0]])
    agent(server, "mine", n=3, capacity=None, leaving="bye")
    forged = {"ended": [[1, "done", 0, 0, 1, 0, 6, 0, ""]]}
    assert agent(server, "theirs", b"forged" if now else b"", boot="new", **(forged if now else {}))[0] == 200
    if not now:
        assert agent(server, "theirs", b"forged", boot="new", n=2, capacity=None, **forged)[0] == 200
    assert b"forged" not in server.call("GET", "/v1/site/requests/lab-1/output")[1]
    assert server.get("/v1/site/requests/lab-1")[1]["cause"] == "lost"


@pytest.mark.parametrize("now", [True, False], ids=["with its first exchange", "later"])
@pytest.mark.parametrize("secret", ["theirs", ""])
def test_who_takes_the_name_of_a_host_that_has_left_cannot_end_its_attempts(server, secret, now):
    mine, theirs = {HOST_SECRET: "mine"}, {HOST_SECRET: secret} if secret else {}
    server.submit(1, outputs=["out"])
    server.exchange("h", headers=mine)
    server.exchange("h", headers=mine, leaving="bye", want=0)
    assert server.service.state.bags[1].attempts.released, "a late success would count"
    forged = {"results": [result()], "want": 0}
    first = server.exchange("h", headers=theirs, boot="new", n=1, ad={}, **(forged if now else {"want": 0}))
    assert first[0] == 200
    if not now:
        assert server.exchange("h", headers=theirs, boot="new", n=2, **forged)[0] == 200
    assert server.get("/v1/jobs/1")[1]["tasks"]["waiting"] == 1
    server.check()


def test_a_result_that_comes_twice_in_one_exchange_counts_once_and_keeps_what_it_left(server):
    job = server.submit(1)
    key = server.exchange()[1]["tasks"][0][:3]
    row = [*key, "done", 0, 0.0, 1.0, 1.0, 0, 5, 0, 0, None]
    assert server.exchange(results=[row, row], attachments=b"firstagain", want=0)[0] == 200
    assert server.get(f"/v1/jobs/{job}")[1]["tasks"]["done"] == 1
    assert server.call("GET", f"/v1/jobs/{job}/output/0")[1].endswith(b"first")
    server.check()
