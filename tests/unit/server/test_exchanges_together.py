"""Exchanges that come in the same turn of the loop are decided together, each as if the others had come before it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

from tests.support.server.asgi import InProcess
from windfall.core.records import decode_record
from windfall.server.limits import Limits
from windfall.wire import HOST_SECRET, VERSION, frames


@pytest.fixture
def server(tmp_path) -> Iterator[InProcess]:
    with InProcess(tmp_path / "state") as server:
        yield server
        server.check()


def body_of(host: str, n: int = 1, **changes: object) -> bytes:
    header = {"v": VERSION, "host": host, "boot": "b", "n": n, "want": 1, "slots": 1, "ad": {} if n == 1 else None}
    return frames.join(json.dumps({**header, **changes}).encode(), [])


def together(server: InProcess, *asked: tuple[bytes, str]) -> list[dict]:
    """What is answered to exchanges (body, secret) that are all there before one of them is decided."""

    async def ask(body: bytes, secret: str) -> dict:
        headers = {b"authorization": f"Bearer {server.token}".encode(), HOST_SECRET.lower().encode(): secret.encode()}
        answer = await server.application.exchange(body, headers)
        return json.loads(bytes(frames.split(answer)[0]) if isinstance(answer, bytes) else answer.body)

    async def ask_all() -> list[dict]:
        return await asyncio.gather(*(ask(*each) for each in asked))

    return server.run(ask_all())


def done(answer: dict) -> list[list[object]]:
    return [[job, task, attempt, "done", 0, 0, 1, 1, 0, 0, 0, 0, None] for job, task, attempt, *_ in answer["tasks"]]


def test_of_two_workers_that_come_at_once_under_a_new_name_the_first_has_it(server):
    first, second = together(server, (body_of("h"), "s1"), (body_of("h", boot="c"), "s2"))
    assert "tasks" in first
    assert second["error"]["code"] == "host-in-use"


def test_an_exchange_that_is_sent_twice_at_once_is_answered_once_more_and_not_done_again(server):
    server.submit(3)
    (joined,) = together(server, (body_of("h"), "s"))
    again = body_of("h", 2, results=done(joined))
    first, second = together(server, (again, "s"), (again, "s"))
    assert first["tasks"] == second["tasks"] != joined["tasks"]
    kinds = [type(decode_record(row.data).event).__name__ for row in server.store.records()]
    assert kinds.count("ResultsReported") == 1


def test_a_repeated_exchange_that_was_overtaken_is_not_told_what_the_next_one_was(server):
    """Its task may be one of a job that is not durable yet: it could not be rendered, and failed for good."""
    server.submit(3)
    (joined,) = together(server, (body_of("h"), "s"))
    next_one = body_of("h", 2, results=done(joined))
    overtaken, told = together(server, (body_of("h"), "s"), (next_one, "s"))
    assert overtaken["error"]["code"] == "used-id"
    assert told["tasks"] and told["tasks"] != joined["tasks"]


def test_hosts_that_come_at_once_are_not_more_than_the_operator_allows(server):
    server.service.intake.limits = Limits(hosts=2)
    answers = together(server, *((body_of(f"h{number}"), "s") for number in range(5)))
    assert ["error" in answer for answer in answers] == [False, False, True, True, True]


def test_of_exchanges_that_come_at_once_all_reports_stand_in_the_log_before_all_requests(server):
    server.submit(20)
    joined = together(server, *((body_of(f"h{number}"), "s") for number in range(5)))
    last = server.driver.state.seq
    together(server, *((body_of(f"h{number}", 2, results=done(joined[number])), "s") for number in range(5)))
    events = [decode_record(row.data).event for row in server.store.records(last)]
    kinds = ["ResultsReported"] * 5 + ["HostAsked"] * 5
    assert [type(event).__name__ for event in events] == kinds
    assert [event.host for event in events] == [f"h{number}" for number in range(5)] * 2
