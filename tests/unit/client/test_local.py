"""Finding the server of a state directory, and an executor whose server goes away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from tests.support.server.stub_server import StubServer, as_json, error
from windfall.client.executor import Executor
from windfall.client.local.server import running_server, state_location
from windfall.client.submitting.calls import Calls
from windfall.client.transport import Transport
from windfall.errors import Unreachable


def announce(directory, url, pid=None, token="wf_a_b"):
    (directory / "server.json").write_text(json.dumps({"url": url, "pid": pid or os.getpid()}))
    (directory / "token").write_text(token + "\n")


def test_a_server_that_answers_is_found_with_its_token(tmp_path):
    with StubServer(lambda *_: as_json(200, {"ok": True})) as server:
        announce(tmp_path, server.url)
        assert running_server(tmp_path) == (server.url, "wf_a_b")


def test_what_a_dead_server_left_behind_is_no_server(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with StubServer(lambda *_: as_json(200, {"ok": True})) as server:
        announce(tmp_path, server.url, ended.pid)
        assert running_server(tmp_path) is None


def test_a_process_that_does_not_answer_is_no_server(tmp_path):
    announce(tmp_path, "http://127.0.0.1:1")
    assert running_server(tmp_path) is None


@pytest.mark.parametrize("text", ["", "not json", "{}", '{"url": "x", "pid": "y"}', "[]"])
def test_a_broken_note_is_no_server(tmp_path, text):
    (tmp_path / "server.json").write_text(text)
    assert running_server(tmp_path) is None


def test_the_state_directory_is_the_named_one_else_the_environments_else_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WINDFALL_STATE", raising=False)
    assert state_location().directory == tmp_path / ".windfall"
    monkeypatch.setenv("WINDFALL_STATE", "/elsewhere")
    assert str(state_location()) == "/elsewhere"
    assert state_location("mine").directory == tmp_path / "mine"


def test_when_the_server_refuses_every_future_says_so():
    def answer(method, path, body):
        if path == "/v1/jobs":
            return as_json(201, {"job": 1, "known": False, "total": 0})
        return error(503, "store-full", "no space left")

    with StubServer(answer) as server:
        transport = Transport(server.url)
        executor = Executor(transport, Calls(lambda *_: None), "calls", {}, lambda: None)
        future = executor.submit(time.time)
        with pytest.raises(Unreachable, match="no space left"):
            future.result(timeout=30)
        executor.shutdown()
        with pytest.raises(Unreachable, match="no space left"):
            executor.submit(time.time)
        transport.close()
