"""What a worker makes of an answer that is no success: end with the server's words, or try again."""

from __future__ import annotations

import json
from unittest.mock import Mock

import pytest

from windfall.wire import OLDEST, VERSION
from windfall.worker.agent import Agent
from windfall.worker.transport.link import Expired, OtherVersion, Refused, TooLarge, Unavailable, check


def answer(code: str, message: str = "m", hint: str = "do this") -> bytes:
    return json.dumps({"error": {"code": code, "message": message, "hint": hint}}).encode()


@pytest.mark.parametrize(
    ("status", "code", "kind", "exit_code"),
    [
        (426, "wrong-version", OtherVersion, 2),
        (409, "used-id", Refused, 2),
        (403, "ticket-used", Refused, 3),
        (401, "bad-token", Refused, 3),
        (401, "expired-token", Expired, 3),
    ],
)
def test_a_worker_that_is_refused_says_why_and_what_to_do(status, code, kind, exit_code):
    with pytest.raises(kind) as caught:
        check(status, answer(code, "this server speaks version 1"), {})
    assert (caught.value.exit_code, type(caught.value)) == (exit_code, kind)
    assert "this server speaks version 1" in str(caught.value) and "do this" in str(caught.value)


@pytest.mark.parametrize(
    ("status", "kind"), [(503, Unavailable), (429, Unavailable), (500, Unavailable), (413, TooLarge)]
)
def test_what_may_pass_is_tried_again(status, kind):
    with pytest.raises(kind):
        check(status, answer("host-in-use"), {"Retry-After": "1e9"})


def test_a_worker_speaks_the_version_that_the_server_takes_after_each_of_its_upgrades(monkeypatch):
    """An older server, then one that takes the newest version alone; and one that takes none."""
    agent, outcomes = Agent.__new__(Agent), []
    agent._link, agent._outbox = Mock(answer=lambda: outcomes.pop()), Mock()
    agent._version, agent._refused, agent._n, agent._exit_code = VERSION, set(), 1, None
    monkeypatch.setattr(Agent, "_say", lambda *_, **__: None)
    monkeypatch.setattr(Agent, "_take", lambda *_: None)
    for refused, spoken in [
        (True, OLDEST), (False, OLDEST), (True, VERSION), (False, VERSION), (True, OLDEST), (True, OLDEST),
    ]:  # fmt: skip
        assert agent._exit_code is None
        outcomes.append(OtherVersion("this server speaks another one", 2) if refused else b"an answer")
        agent._on_answer()
        assert agent._version == spoken
    assert agent._exit_code == 2
