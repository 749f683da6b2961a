"""Files that no job names are removed after a while; those that anybody needs stay. The database shrinks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from hashlib import sha256

import pytest

from tests.support.server.asgi import InProcess
from tests.unit.server.test_bounds import result
from windfall.server.http import uploads
from windfall.server.sweeping import Sweeper
from windfall.store.contract import Batch, OutputRow
from windfall.wire import ATTEMPT, HOST_SECRET


@pytest.fixture
def server(tmp_path) -> Iterator[InProcess]:
    with InProcess(tmp_path / "state") as server:
        yield server
        server.check()


def put(server: InProcess, content: bytes) -> str:
    name = sha256(content).hexdigest()
    assert server.call("PUT", f"/v1/blobs/{name}", content)[0] in (200, 201)
    return name


def kept(server: InProcess) -> set[str]:
    return {blob for blob, _ in server.store.blobs()}


def job_with(server: InProcess, taken: str, made: str) -> int:
    """A job that has ended, with an input and an output."""
    job = server.submit(1, inputs=[{"name": "in", "sha256": taken, "size": 1}], outputs=["out"])
    host = f"h{job}"
    server.exchange(host)
    done = result()
    done[0], done[-1] = job, {"outputs": [["out", made, 1, 0o644]]}
    assert server.exchange(host, results=[done], want=0)[0] == 200
    return job


def test_files_of_a_forgotten_job_go_and_those_of_others_stay(server):
    shared, own, made, other, lone = (put(server, text) for text in (b"shared", b"own", b"made", b"other", b"lone"))
    first, second = job_with(server, own, made), job_with(server, shared, other)
    sweeper = Sweeper(server.service)
    assert server.run(sweeper.look()) == 0
    assert server.run(sweeper.look()) == 1 and kept(server) == {shared, own, made, other}  # the lone one is gone
    assert lone not in kept(server)
    assert server.call("DELETE", f"/v1/jobs/{first}")[0] == 200
    assert server.run(sweeper.look()) == 0 and own in kept(server)
    assert server.run(sweeper.look()) == 2
    assert kept(server) == {shared, other}
    assert server.call("GET", f"/v1/blobs/{own}")[0] == 404
    assert server.get(f"/v1/jobs/{second}")[0] == 200


def put_for(server: InProcess, attempt: str, content: bytes) -> str:
    name, token = sha256(content).hexdigest(), server.service.tokens.create("worker", "", 0.0)
    headers = {"authorization": f"Bearer {token}", HOST_SECRET.lower(): "mine", ATTEMPT.lower(): attempt}
    assert server.run(server.full("PUT", f"/v1/blobs/{name}", content, headers))[0] == 201
    return name


def test_a_task_may_send_its_files_for_hours_before_it_names_them(server, monkeypatch):
    mine = {HOST_SECRET: "mine"}
    server.submit(1, outputs=["out"])
    server.exchange("h", headers=mine)
    first, late = put_for(server, "1.0.1", b"the first file"), put_for(server, "1.0.1", b"what is never named")
    sweeper = Sweeper(server.service)
    for _ in range(5):
        assert server.run(sweeper.look()) == 0
    done = result()
    done[-1] = {"outputs": [["out", first, 1, 0o644]]}
    assert server.exchange("h", headers=mine, results=[done], want=0)[0] == 200
    assert server.get("/v1/jobs/1")[1]["tasks"]["done"] == 1 and kept(server) == {first, late}
    monkeypatch.setattr(uploads, "AWAITED_S", 0.0)
    server.run(sweeper.look())
    assert kept(server) == {first}, "a day later nobody waits for the other one"


def test_what_is_kept_in_mind_of_files_is_bounded(server, monkeypatch):
    monkeypatch.setattr(uploads, "MOST_AWAITED", 3)
    server.submit(1, outputs=["out"])
    server.exchange("h", headers={HOST_SECRET: "mine"})
    sweeper = Sweeper(server.service)
    server.run(sweeper.look())
    names = [put_for(server, "1.0.1", b"%d" % number) for number in range(9)]
    assert server.service.uploads.awaited() == {*names[-3:]} and server.service.uploads.touched == {*names}
    server.run(sweeper.look())
    assert server.service.uploads.touched == set(), "there is nothing to remove"


@pytest.mark.parametrize("how", ["HEAD", "PUT", "submit"])
def test_a_file_that_somebody_comes_for_stays(server, how):
    name = put(server, b"wanted")
    sweeper = Sweeper(server.service)
    server.run(sweeper.look())
    if how == "submit":
        server.service.uploads.touched.clear()
        server.submit(1, inputs=[{"name": "in", "sha256": name, "size": 6}])
    else:
        assert server.call(how, f"/v1/blobs/{name}", b"wanted" if how == "PUT" else b"")[0] == 200
    assert server.run(sweeper.look()) == 0 and kept(server) == {name}


def test_a_file_that_is_being_removed_is_neither_promised_nor_lost(server):
    name = put(server, b"on its way out")
    server.service.uploads.removing = {name}
    for method in ("HEAD", "GET", "PUT"):
        assert server.call(method, f"/v1/blobs/{name}", b"on its way out" * (method == "PUT"))[0] == 429
    server.service.uploads.removing = set()
    assert server.call("HEAD", f"/v1/blobs/{name}")[0] == 200


def test_the_database_shrinks_when_jobs_are_forgotten(server, tmp_path):
    job = server.submit(200)
    rows = [OutputRow(job, task, 1, os.urandom(20_000)) for task in range(200)]
    server.store.append(Batch(outputs=rows))
    server.post(f"/v1/jobs/{job}/cancel", {})
    assert server.call("DELETE", f"/v1/jobs/{job}")[0] == 200

    def pages() -> int:
        return server.store._read("PRAGMA page_count")[0][0]

    before = pages()
    server.run(Sweeper(server.service).look())
    assert before > 900 and pages() < before / 4
