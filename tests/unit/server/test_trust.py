"""What a worker may do to other hosts, to files and to the people who look at results: nothing."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator

import pytest

from tests.support.server.asgi import InProcess
from tests.unit.server.test_bounds import result
from windfall.client.results import TaskFailed, tasks_of
from windfall.client.transport import Frame


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
