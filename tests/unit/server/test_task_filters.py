"""`GET /v1/jobs/JOB/tasks` by state, cause and host, in pages."""

from __future__ import annotations

import pytest

from tests.support.server.asgi import InProcess


@pytest.fixture
def server(tmp_path):
    with InProcess(tmp_path) as made:
        yield made


def ended(row, cause, code):
    """The result of a task as its host reports it."""
    return [*row, cause, code, 0.0, 1.0, 1.0, 0, 0, 0, 0, None]


def listed(server, job, query=""):
    status, told = server.get(f"/v1/jobs/{job}/tasks?{query}")
    assert status == 200, told
    return [row["task"] for row in told["tasks"]]


@pytest.fixture
def job(server):
    """Tasks 0 and 1 done on `desk`, 2 failed there, 3 and 4 run on `hall`, 5 waits."""
    job = server.submit(6, max_failures=1)
    tasks = server.exchange("desk", want=3, slots=3)[1]["tasks"]
    keys = [[row[0], row[1], row[2]] for row in tasks]
    causes = [("done", 0), ("done", 0), ("exit", 3)]
    rows = [ended(key, cause, code) for key, (cause, code) in zip(keys, causes, strict=True)]
    assert server.exchange("desk", want=0, slots=3, results=rows)[0] == 200
    assert len(server.exchange("hall", want=2, slots=2)[1]["tasks"]) == 2
    return job


def test_tasks_are_found_by_the_host_that_ended_or_runs_them(server, job):
    assert listed(server, job, "host=desk") == [0, 1, 2]
    assert listed(server, job, "host=hall") == [3, 4]


def test_tasks_are_found_by_the_cause_of_their_last_attempt(server, job):
    assert listed(server, job, "cause=done") == [0, 1]
    assert listed(server, job, "cause=exit") == [2]
    assert listed(server, job, "cause=oom") == []


def test_filters_narrow_one_another_and_go_on_in_pages(server, job):
    assert listed(server, job, "cause=done&host=desk&state=done") == [0, 1]
    assert listed(server, job, "host=desk&state=failed") == [2]
    assert listed(server, job, "cause=done&host=hall") == []
    _, first = server.get(f"/v1/jobs/{job}/tasks?host=desk&limit=2")
    assert [row["task"] for row in first["tasks"]] == [0, 1] and first["next"] == 2
    _, rest = server.get(f"/v1/jobs/{job}/tasks?host=desk&limit=2&after=2")
    assert [row["task"] for row in rest["tasks"]] == [2] and rest["next"] is None
    assert listed(server, job, "host=hall&after=4") == [4]
    assert listed(server, job, "host=hall&after=99") == []


def test_a_host_or_cause_that_does_not_exist_is_said(server, job):
    status, told = server.get(f"/v1/jobs/{job}/tasks?host=nowhere")
    assert status == 404 and told["code"] == "no-such-host"
    status, told = server.get(f"/v1/jobs/{job}/tasks?cause=bad-luck")
    assert status == 400 and "oom" in told["hint"]
