"""Tokens that end, are rotated or are of one user; blobs that workers may read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256

import pytest

from tests.support.server.asgi import InProcess
from tests.unit.server.test_bounds import result
from windfall.errors import BadCredentials, BadInput
from windfall.server.auth import Tokens
from windfall.store.memory import MemoryStore
from windfall.wire import HOST_SECRET

T = 1000.0


class Clock:
    def __init__(self) -> None:
        self.t = T

    def __call__(self) -> float:
        return self.t


def test_a_token_ends_when_its_time_has_come_also_after_a_restart():
    clock, store = Clock(), MemoryStore()
    tokens = Tokens(store, clock)
    header = f"Bearer {tokens.create('submit', 'w', T, life_s=60.0)}"
    again = Tokens(store, clock)
    for each in (tokens, again):
        assert each.require(header, "submit").role == "submit"
    clock.t += 60
    for each in (tokens, again):
        with pytest.raises(BadCredentials, match="has ended"):
            each.require(header, "submit")
    assert tokens.listing()[0]["expires_s"] == T + 60


def test_a_rotated_token_is_good_for_its_grace_and_its_successor_as_long_as_it_was():
    clock = Clock()
    tokens = Tokens(MemoryStore(), clock)
    old = tokens.create("submit", "laptop", T, life_s=3600.0, user="ann")
    clock.t += 100
    new = tokens.rotate(old.split("_")[1], clock.t, grace_s=60.0)
    assert new is not None
    for each in (old, new):
        assert tokens.require(f"Bearer {each}", "submit").user == "ann"
    clock.t += 60
    with pytest.raises(BadCredentials):
        tokens.require(f"Bearer {old}", "submit")
    assert tokens.require(f"Bearer {new}", "submit").expires_s == T + 3700
    last = tokens.rotate(new.split("_")[1], clock.t)
    with pytest.raises(BadCredentials):
        tokens.require(f"Bearer {new}", "submit")
    assert tokens.require(f"Bearer {last}", "submit").role == "submit"
    assert tokens.rotate("unknown", clock.t) is None
    with pytest.raises(BadInput):
        tokens.create("worker", "", T, user="ann")


def test_a_standby_hears_of_the_end_of_a_token():
    clock, store = Clock(), MemoryStore()
    tokens, standby = Tokens(store, clock), Tokens(store, clock)
    made = tokens.create("read", "", T)
    standby.reload()
    assert standby.require(f"Bearer {made}", "read")
    tokens.rotate(made.split("_")[1], T, grace_s=5.0)
    standby.reload()
    clock.t += 5
    with pytest.raises(BadCredentials):
        standby.require(f"Bearer {made}", "read")


@pytest.fixture
def server(tmp_path) -> Iterator[InProcess]:
    with InProcess(tmp_path / "state") as server:
        yield server
        server.check()


def call(server: InProcess, token: str, method: str, path: str, body: object = None, **headers: str):
    sent = {"authorization": f"Bearer {token}", **headers}
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    status, _, answer = server.run(server.full(method, path, data, sent))
    return status, answer


def submit(server: InProcess, token: str, **spec: object) -> tuple[int, dict]:
    whole = {"name": "bag", "command": ["echo", "{}"], "source": {"kind": "range", "first": 1, "last": 1}, **spec}
    status, answer = call(server, token, "POST", "/v1/jobs", {"spec": whole, "count": 1, "seal": True})
    return status, json.loads(answer)


def test_a_user_sees_and_changes_own_jobs_alone(server):
    tokens = server.service.tokens
    ann, bob = (tokens.create("submit", "", 0.0, user=user) for user in ("ann", "bob"))
    assert submit(server, ann)[1]["job"] == 1
    assert submit(server, bob, name="secret")[1]["job"] == 2
    assert server.submit(1) == 3
    assert [job["job"] for job in json.loads(call(server, ann, "GET", "/v1/jobs")[1])["jobs"]] == [1]
    assert json.loads(call(server, ann, "GET", "/v1/jobs/last")[1])["job"] == 1
    assert json.loads(call(server, ann, "GET", "/v1/jobs/1")[1])["owner"] == "ann"
    for reference in ("2", "3", "secret"):
        for method, rest in (("GET", ""), ("GET", "/results"), ("POST", "/cancel"), ("DELETE", "")):
            assert call(server, ann, method, f"/v1/jobs/{reference}{rest}")[0] == 404, (reference, rest)
        assert call(server, ann, "GET", f"/v1/events?job={reference}")[0] == 404
    assert call(server, ann, "GET", "/v1/events?job=1")[0] == 200
    assert [job["job"] for job in server.get("/v1/jobs")[1]["jobs"]] == [3, 2, 1]


def test_a_user_reaches_no_route_that_shows_jobs_of_others(server):
    from windfall.server.http.routes import ROUTES

    ann = server.service.tokens.create("submit", "", 0.0, user="ann")
    server.submit(1)
    open_ = {"/v1/jobs", "/v1/hosts", "/v1/pools", "/v1/stream", "/v1/console/session", "/v1/console/links"}
    for path, method, _, role, _ in ROUTES:
        if role and path not in open_ and "{sha}" not in path:
            asked = path.replace("{job}", "1").replace("{", "").replace("}", "")
            assert call(server, ann, method, asked, {})[0] in (403, 404), (method, path)


def test_a_user_submits_for_nobody_else(server):
    ann, bob = (server.service.tokens.create("submit", "", 0.0, user=user) for user in ("ann", "bob"))
    # The command line sends the login of its machine along.
    status, body = submit(server, ann, owner="bob")
    assert status == 201
    assert json.loads(call(server, ann, "GET", f"/v1/jobs/{body['job']}")[1])["owner"] == "ann"
    assert submit(server, ann, key="k")[0] == 201
    assert submit(server, ann, key="k")[1]["known"] is True
    assert submit(server, bob, key="k")[0] == 400


def blob(server: InProcess, data: bytes) -> str:
    name = sha256(data).hexdigest()
    assert server.call("PUT", f"/v1/blobs/{name}", data)[0] == 201
    return name


def test_a_worker_reads_the_blobs_of_tasks_that_its_host_holds_alone(server):
    worker = server.service.tokens.create("worker", "", 0.0)
    mine, other = blob(server, b"input"), blob(server, b"other")
    server.submit(1, inputs=[{"name": "a.txt", "sha256": mine, "size": 5}])
    key = {HOST_SECRET.lower(): "of holder"}
    assert call(server, worker, "GET", f"/v1/blobs/{mine}", **key)[0] == 404
    server.exchange("holder", headers=key)
    assert call(server, worker, "GET", f"/v1/blobs/{mine}", **key) == (200, b"input")
    for sha, headers in ((mine, {HOST_SECRET.lower(): "another"}), (mine, {}), (other, key)):
        for method in ("GET", "HEAD"):
            assert call(server, worker, method, f"/v1/blobs/{sha}", **headers)[0] == 404
    server.exchange("holder", headers=key, results=[result()])
    assert call(server, worker, "GET", f"/v1/blobs/{mine}", **key)[0] == 404


def test_a_worker_has_to_send_what_it_says_it_has(server):
    worker = server.service.tokens.create("worker", "", 0.0)
    known = blob(server, b"known to others")
    assert call(server, worker, "PUT", f"/v1/blobs/{known}", b"guess")[0] == 400
    assert call(server, worker, "PUT", f"/v1/blobs/{known}", b"known to others")[0] == 201
