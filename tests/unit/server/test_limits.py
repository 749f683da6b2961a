"""Limits that an operator sets: what is over them is refused with what to do, and memory stays bounded."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from hashlib import sha256

import pytest

from tests.support.server.asgi import InProcess
from windfall.errors import BadInput
from windfall.server.http.uploads import Uploads
from windfall.server.limits import NAMES, Intake, Limits, read_limits


@pytest.fixture
def server(tmp_path) -> Iterator[InProcess]:
    with InProcess(tmp_path / "state") as server:
        yield server
        server.service.intake = Intake(Limits())
        server.check()


def test_every_limit_has_a_name_and_is_read_in_its_unit():
    assert len(NAMES) == len(Limits.__struct_fields__)
    read = read_limits(["body=1M", "head-time=3s", "requests=7"], Limits(blob_bytes=5))
    assert (read.body_bytes, read.head_time_s, read.requests, read.blob_bytes) == (1 << 20, 3.0, 7, 5)


@pytest.mark.parametrize("pair", ["body", "nothing=3", "requests=-1", "requests=x", "uploads=0", "bodies=1k", "pause="])
def test_a_limit_that_cannot_be_is_refused(pair):
    with pytest.raises(BadInput):
        read_limits([pair])


def test_a_body_over_the_limit_of_the_operator_is_413_also_without_a_length(server):
    server.service.intake = Intake(Limits(body_bytes=1000))
    for path in ("/v1/jobs", "/v1/exchange"):
        status, body = server.call("POST", path, [b"x" * 600] * 2)
        assert status == 413 and json.loads(body)["error"]["limit"] == 1000


def test_one_request_too_many_is_429_and_the_next_one_is_served_again(server):
    server.service.intake = Intake(Limits(requests=1))

    async def two() -> list[int]:
        first = asyncio.create_task(server.full("POST", "/v1/jobs", waiting()))
        while not server.service.intake.open:
            await asyncio.sleep(0)
        status, headers, body = await server.full("POST", "/v1/exchange", b"")
        assert int(headers["retry-after"]) >= 1 and json.loads(body)["error"]["hint"]
        go.set()
        return [(await first)[0], status]

    async def waiting() -> AsyncIterator[bytes]:
        await go.wait()
        yield b"{}"

    go = asyncio.Event()
    assert server.run(two()) == [400, 429]
    assert server.get("/v1/jobs")[0] == 200
    assert server.service.intake.open == 0 == server.service.intake.held_bytes


def test_bodies_of_all_requests_together_are_bounded(server):
    intake = server.service.intake = Intake(Limits(body_bytes=1000, bodies_bytes=2500))
    most = 0

    async def slow() -> AsyncIterator[bytes]:
        nonlocal most
        for _ in range(9):
            yield b" " * 100
            most = max(most, intake.held_bytes)
            await asyncio.sleep(0)

    async def many() -> list[int]:
        return [
            status
            for status, _, _ in await asyncio.gather(*(server.full("POST", "/v1/jobs", slow()) for _ in range(20)))
        ]

    statuses = server.run(many())
    assert 429 in statuses and 400 in statuses and set(statuses) <= {400, 429}
    assert 900 <= most <= 2500 and intake.held_bytes == 0


def put(server: InProcess, content: bytes) -> int:
    return server.call("PUT", f"/v1/blobs/{sha256(content).hexdigest()}", content)[0]


def test_files_over_the_quota_are_refused_until_some_are_removed(server):
    assert put(server, b"a" * 600) == 201
    server.service.uploads = Uploads(server.store, quota_bytes=1000)
    assert put(server, b"b" * 400) == 201
    status, body = server.call("PUT", f"/v1/blobs/{sha256(b'c').hexdigest()}", b"c")
    assert status == 413 and "windfall forget" in json.loads(body)["error"]["hint"]
    server.service.uploads.removed(600)
    assert put(server, b"c") == 201


def test_a_job_with_more_files_than_a_job_may_have_is_refused(server):
    server.service.intake = Intake(Limits(job_blobs_bytes=10))
    files = [{"name": name, "sha256": sha256(b"x" * 6).hexdigest(), "size": 6} for name in ("a", "b")]
    spec = {"name": "n", "command": ["true"], "source": {"kind": "range", "first": 1, "last": 1}}
    assert server.post("/v1/jobs", {"spec": {**spec, "inputs": files}})[0] == 413
    assert server.post("/v1/jobs", {"spec": {**spec, "inputs": files[:1]}})[0] == 201


def test_an_exchange_hands_out_no_more_tasks_than_the_operator_allows(server):
    server.service.intake = Intake(Limits(tasks=3))
    server.submit(10)
    assert len(server.exchange(want=8, slots=8)[1]["tasks"]) == 3
