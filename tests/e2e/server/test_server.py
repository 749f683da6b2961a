"""The server's door: who may do what, what it refuses, and how it answers an exchange that is repeated."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from windfall.errors import BadInput
from windfall.pools.kinds import PoolConfig
from windfall.server.embedded import Options, Running, Server, start
from windfall.wire import OLDEST, frames


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with start(tmp_path / "state") as running:
        yield running


class Caller:
    """Bare HTTP, so that nothing but the server is tested."""

    def __init__(self, server: Running, token: str | None = None) -> None:
        self.address = server.url.split("//")[1]
        self.token = server.token if token is None else token

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        with contextlib.closing(http.client.HTTPConnection(self.address, timeout=30)) as connection:
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            content = answer.read()
        kind = answer.getheader("content-type") or ""
        return answer.status, json.loads(content) if kind.endswith("json") else content

    def submit(self, count: int = 5, **spec: Any) -> int:
        source = {"kind": "range", "first": 1, "last": count}
        spec = {"name": "bag", "command": ["echo", "{}"], "source": source, **spec}
        status, answer = self.call("POST", "/v1/jobs", {"spec": spec, "count": count, "seal": True})
        assert status == 201, answer
        return int(answer["job"])

    def exchange(self, n: int = 1, **fields: Any) -> tuple[int, Any]:
        header = {"v": OLDEST, "host": "h", "boot": "b", "n": n, "want": 2, "slots": 2, "results": [], **fields}
        status, content = self.call("POST", "/v1/exchange", frames.join(json.dumps(header).encode(), []))
        if status != 200:
            return status, content
        return status, json.loads(bytes(frames.split(content)[0]))


def test_without_a_token_nothing_but_health_and_the_worker_is_to_be_had(server: Running):
    stranger = Caller(server, token="")
    for path in ("/healthz", "/readyz", "/worker.pyz"):
        assert stranger.call("GET", path)[0] == 200
    for method, path in (
        ("GET", "/v1/jobs"),
        ("GET", "/metrics"),
        ("POST", "/v1/jobs"),
        ("GET", "/v1/hosts"),
        ("POST", "/v1/tokens"),
    ):
        status, answer = stranger.call(method, path)
        assert status == 401 and answer["error"]["hint"]
    assert stranger.exchange()[0] == 401


@pytest.mark.parametrize("token", ["wf_00000000_wrong", "nonsense", "wf__", "Bearer", "wf_0_" + "x" * 5000])
def test_a_wrong_token_is_refused_with_what_to_do(server: Running, token: str):
    status, answer = Caller(server, token).call("GET", "/v1/jobs")
    assert status == 401 and "windfall token create" in answer["error"]["hint"]


# role -> what it may do: read, submit, exchange, make tokens
ROLES = {
    "read": (200, 403, 403, 403),
    "submit": (200, 201, 403, 403),
    "worker": (403, 403, 200, 403),
    "admin": (200, 201, 200, 201),
}


@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_do_its_own_and_nothing_else(server: Running, role: str):
    token = Caller(server).call("POST", "/v1/tokens", {"role": role})[1]["token"]
    caller = Caller(server, token)
    spec = {"name": "bag", "command": ["echo", "{}"], "source": {"kind": "range", "first": 1, "last": 2}}
    seen = (
        caller.call("GET", "/v1/jobs")[0],
        caller.call("POST", "/v1/jobs", {"spec": spec, "count": 2, "seal": True})[0],
        caller.exchange()[0],
        caller.call("POST", "/v1/tokens", {"role": "read"})[0],
    )
    assert seen == ROLES[role]


def test_a_revoked_token_opens_nothing(server: Running):
    owner = Caller(server)
    made = owner.call("POST", "/v1/tokens", {"role": "read"})[1]
    assert owner.call("DELETE", f"/v1/tokens/{made['id']}")[0] == 200
    assert Caller(server, made["token"]).call("GET", "/v1/jobs")[0] == 401


def test_tokens_are_kept_hashed_and_the_owners_token_is_readable_by_its_owner_alone(server: Running, tmp_path: Path):
    state = tmp_path / "state"
    assert stat.S_IMODE((state / "token").stat().st_mode) == 0o600
    secret = server.token.encode()
    kept = [path for path in state.rglob("*") if path.is_file() and path.name != "token"]
    assert all(secret not in path.read_bytes() for path in kept)


def test_beyond_loopback_a_server_without_tokens_refuses_to_listen(tmp_path: Path):
    with pytest.raises(BadInput, match="while no token has been made"):
        start(tmp_path / "state", listen="0.0.0.0:0")
    with start(tmp_path / "state") as running:
        Caller(running).call("POST", "/v1/tokens", {"role": "worker"})
    with start(tmp_path / "state", listen="0.0.0.0:0") as running:
        assert running.url
    with start(tmp_path / "other", listen="0.0.0.0:0", pools=[PoolConfig("volunteers", "self")]) as running:
        assert running.url, "workers of pools have tokens of their own"


def test_a_repeated_exchange_gets_the_same_tasks_and_counts_its_results_once(server: Running):
    caller = Caller(server)
    job = caller.submit(5)
    first = caller.exchange(1)[1]
    assert first["tasks"] and caller.exchange(1)[1] == first
    done = [[job, row[1], row[2], "done", 0, 0.0, 0.1, 0.0, 0, 0, 0, 0, None] for row in first["tasks"]]
    second = caller.exchange(2, results=done)[1]
    assert caller.exchange(2, results=done)[1] == second
    status = caller.call("GET", f"/v1/jobs/{job}")[1]
    assert status["tasks"]["done"] == len(done) and status["waste"] == 0


def test_an_exchange_older_than_the_last_one_is_refused(server: Running):
    caller = Caller(server)
    caller.submit()
    caller.exchange(1)
    caller.exchange(2)
    assert caller.exchange(1)[0] == 409


def test_after_a_gap_in_the_numbers_the_worker_is_asked_what_it_holds(server: Running):
    caller = Caller(server)
    job = caller.submit(4)
    held = caller.exchange(1)[1]["tasks"]
    answer = caller.exchange(3)[1]
    assert answer["tell"] and not answer["tasks"]
    caller.exchange(4, holds=[held[0][:3]], want=0)
    tasks = caller.call("GET", f"/v1/jobs/{job}/tasks")[1]["tasks"]
    assert [task["state"] for task in tasks].count("running") == 1
    assert tasks[held[1][1]]["losses"] == 1


def test_an_older_worker_is_told_to_fetch_the_servers_own(server: Running):
    status, answer = Caller(server).exchange(1, v=OLDEST - 1)
    assert status == 426 and "worker.pyz" in answer["error"]["hint"]


BAD_EXCHANGES = [
    b"",
    b"\0\0",
    b"\0\0\0\x02{}",
    b"\xff\xff\xff\xff{}",
    frames.join(b'{"v": 1}', []),
    frames.join(b"[]", []),
]


@pytest.mark.parametrize("body", BAD_EXCHANGES)
def test_bytes_that_are_no_exchange_are_refused_in_words(server: Running, body: bytes):
    status, answer = Caller(server).call("POST", "/v1/exchange", body)
    assert status == 400 and answer["error"]["message"]


@pytest.mark.parametrize(
    "fields",
    [
        {"results": [[1, 0, 1, "no such cause", 0, 0, 0, 0, 0, 0, 0, 0, None]]},
        {"results": [[1, 0, 1, "done", 0, 0, 0, 0, 0, 99, 0, 0, None]]},
        {"host": ""},
        {"host": "x" * 300},
        {"want": -1},
        {"n": 0},
        {"results": "all of them"},
    ],
)
def test_an_exchange_that_does_not_add_up_is_refused_and_changes_nothing(server: Running, fields: dict[str, Any]):
    caller = Caller(server)
    job = caller.submit()
    assert caller.exchange(**{"n": 1, **fields})[0] == 400
    assert caller.call("GET", f"/v1/jobs/{job}")[1]["tasks"]["waiting"] == 5


def test_results_of_tasks_that_were_never_handed_out_change_nothing(server: Running):
    caller = Caller(server)
    job = caller.submit()
    rows = [[job, 0, 1, "done", 0, 0, 0, 0, 0, 0, 0, 0, None], [99, 0, 1, "done", 0, 0, 0, 0, 0, 0, 0, 0, None]]
    assert caller.exchange(1, results=rows, want=0)[0] == 200
    assert caller.call("GET", f"/v1/jobs/{job}")[1]["tasks"]["done"] == 0


def test_a_body_beyond_the_limit_is_refused_with_the_limit(server: Running):
    caller = Caller(server)
    with contextlib.closing(http.client.HTTPConnection(caller.address)) as connection:
        connection.putrequest("POST", "/v1/jobs")
        connection.putheader("Authorization", f"Bearer {caller.token}")
        connection.putheader("Content-Length", str(1 << 30))
        connection.endheaders()
        answer = connection.getresponse()
        assert answer.status == 413 and json.loads(answer.read())["error"]["limit"] == 64 << 20


def test_names_that_lead_out_of_a_directory_are_refused(server: Running):
    caller = Caller(server)
    source = {"kind": "range", "first": 1, "last": 2}
    for outputs in (["../x"], ["/etc/passwd"], ["a/../../b"]):
        spec = {"name": "bag", "command": ["echo", "{}"], "source": source, "outputs": outputs}
        assert caller.call("POST", "/v1/jobs", {"spec": spec, "count": 2})[0] == 400
    assert caller.call("GET", "/v1/blobs/..%2F..%2Ftoken")[0] in (400, 404)


def test_a_blob_with_another_content_than_its_name_is_refused(server: Running):
    assert Caller(server).call("PUT", "/v1/blobs/" + "0" * 64, b"something else")[0] == 400


def test_a_submission_key_submits_once(server: Running):
    caller = Caller(server)
    assert caller.submit(key="k") == caller.submit(key="k")


def test_requests_are_served_over_tls(tmp_path: Path):
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(certificate),
         "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    options = Options(tmp_path / "state", tls_cert=str(certificate), tls_key=str(key))
    with Running(Server(options)).begin() as running:
        assert running.url.startswith("https://")
        context = ssl.create_default_context(cafile=str(certificate))
        address = running.url.split("//")[1]
        with contextlib.closing(http.client.HTTPSConnection(address, context=context)) as connection:
            connection.request("GET", "/healthz")
            assert connection.getresponse().status == 200


def test_the_worker_file_runs_without_anything_installed(server: Running, tmp_path: Path):
    file = tmp_path / "worker.pyz"
    file.write_bytes(Caller(server).call("GET", "/worker.pyz")[1])
    isolated = [sys.executable, "-I", "-S", str(file), "--help"]
    ran = subprocess.run(isolated, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0 and "--server" in ran.stdout


def test_what_a_task_wrote_is_only_told_once_it_is_durable_and_follows_offsets(server: Running):
    caller = Caller(server)
    job = caller.submit(1)
    row = caller.exchange(1)[1]["tasks"][0]
    header = {
        "v": OLDEST, "host": "h", "boot": "b", "n": 2, "want": 0, "slots": 2,
        "results": [[job, row[1], row[2], "done", 0, 0.0, 0.1, 0.0, 0, 5, 3, 0, None]],
    }  # fmt: skip
    caller.call("POST", "/v1/exchange", frames.join(json.dumps(header).encode(), [b"hello", b"err"]))
    content = caller.call("GET", f"/v1/jobs/{job}/output/0?stdout_from=2")[1]
    told, attachments = frames.split(content)
    assert json.loads(bytes(told))["ended"] and bytes(attachments) == b"lloerr"


def test_a_server_that_is_interrupted_while_it_starts_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(Options(tmp_path / "state"))
    wait, asked = server.ready.wait, list[None]()

    def interrupted_once(timeout: float | None = None) -> bool:
        asked.append(None)
        if len(asked) == 1:
            raise KeyboardInterrupt
        return wait(timeout)

    monkeypatch.setattr(server.ready, "wait", interrupted_once)
    with pytest.raises(KeyboardInterrupt):
        Running(server).begin()
    assert not [thread for thread in threading.enumerate() if thread.name == "windfall-server"]
    with start(tmp_path / "state"):  # the directory is free
        pass
