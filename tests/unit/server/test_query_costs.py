"""Questions cost what they answer, however much else has happened."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.support.server.asgi import InProcess
from windfall.server.outputs import PAGE
from windfall.server.queries import jobs as queries
from windfall.wire import frames


@pytest.fixture
def server() -> Iterator[InProcess]:
    with InProcess("memory:") as server:
        yield server


def work_off(server: InProcess, job: int, tasks: int) -> None:
    reported: list = []
    for _ in range(tasks + 1):
        status, answer = server.exchange(results=reported)
        assert status == 200
        reported = [[*row[:3], "done", 0, 0.0, 1.0, 1.0, 0, 0, 0, 0, None] for row in answer["tasks"]]
    assert server.get(f"/v1/jobs/{job}")[1]["state"] == "done"


@pytest.fixture
def read(monkeypatch) -> list[bytes]:
    """The records that queries decode."""
    found: list[bytes] = []
    real = queries.decode_record

    def counted(data: bytes):
        found.append(data)
        return real(data)

    monkeypatch.setattr(queries, "decode_record", counted)
    return found


def test_the_story_of_a_task_reads_no_record_from_before_its_job(server, read):
    work_off(server, server.submit(100), 100)
    job = server.submit(1)
    work_off(server, job, 1)
    story = server.get(f"/v1/jobs/{job}/explain?task=0")[1]["story"]
    assert [row["what"] for row in story] == ["sent", "accepted"]
    assert len(read) < 10
    first = server.get("/v1/jobs/1/explain?task=99")[1]["story"]
    assert [row["what"] for row in first] == ["sent", "accepted"]


def finish(server: InProcess, rows: list, host: str = "h") -> None:
    results = [[*row[:3], "done", 0, 0.0, 1.0, 1.0, 0, 0, 0, 0, None] for row in rows]
    assert server.exchange(host, results=results, want=0)[0] == 200


def test_the_story_of_a_task_reads_no_record_of_jobs_that_ran_beside_it(server, read):
    mine = server.submit(1)
    held = server.exchange()[1]["tasks"]
    other = server.submit(100)
    for _ in range(100):
        finish(server, server.exchange("i")[1]["tasks"], "i")
    finish(server, held)
    story = server.get(f"/v1/jobs/{mine}/explain?task=0")[1]["story"]
    assert [row["what"] for row in story] == ["sent", "accepted"]
    assert len(read) < 10
    assert [row["what"] for row in server.get(f"/v1/jobs/{other}/explain?task=99")[1]["story"]] == ["sent", "accepted"]


def test_the_stories_of_two_jobs_that_shared_an_exchange_are_both_told(server):
    jobs = [server.submit(1), server.submit(1)]
    rows = server.exchange(want=2, slots=2)[1]["tasks"]
    assert sorted(row[0] for row in rows) == jobs
    finish(server, rows)
    for job in jobs:
        story = server.get(f"/v1/jobs/{job}/explain?task=0")[1]["story"]
        assert [row["what"] for row in story] == ["sent", "accepted"]
        listed = server.get(f"/v1/events?job={job}")[1]["events"]
        assert [row["type"] for row in listed if row["type"] in ("HostAsked", "ResultsReported")] == [
            "HostAsked",
            "ResultsReported",
        ]
        assert {row["job"] for row in listed} == {job, None}, "what concerns both names neither"


def test_jobs_in_another_state_are_not_described(server, monkeypatch):
    for _ in range(5):
        server.submit(1)
    server.post("/v1/jobs/3/cancel", {})
    described: list[int] = []
    real = queries.job_status

    def noted(service, bag):
        described.append(bag.number)
        return real(service, bag)

    monkeypatch.setattr(queries, "job_status", noted)
    assert [row["job"] for row in server.get("/v1/jobs?state=cancelled")[1]["jobs"]] == [3]
    assert described == [3]


def test_results_read_no_more_outputs_than_fit_into_their_answer(server, monkeypatch):
    """A page of 1,000 tasks that wrote 1 MB each took 2 GB of the server's memory, to answer with 16 MB."""
    monkeypatch.setattr(queries, "MAX_FRAME_BYTES", 1000)
    job = server.submit(200)
    tasks = server.exchange(want=200, slots=200)[1]["tasks"]
    said = [b"%100d" % row[1] for row in tasks]
    rows = [[*row[:3], "done", 0, 0.0, 1.0, 1.0, 0, 100, 0, 0, None] for row in tasks]
    assert server.exchange(results=rows, attachments=b"".join(said), want=0)[0] == 200
    read: list[int] = []
    real = server.store.outputs

    def counted(*given):
        found = real(*given)
        read.append(len(found))
        return found

    monkeypatch.setattr(server.store, "outputs", counted)
    for path in ("results", "completed"):
        at, seen = 0, []
        while at is not None and len(seen) < 200:
            read.clear()
            head, rest = frames.split(server.call("GET", f"/v1/jobs/{job}/{path}?after={at}&limit=5000")[1])
            header = json.loads(bytes(head))
            assert sum(read) <= PAGE
            seen += [(row[0], int(bytes(rest[100 * n : 100 * (n + 1)]))) for n, row in enumerate(header["rows"])]
            at = header["next"] if path == "results" else header["position"]
        assert seen == [(task, task) for task in range(200)]
    read.clear()
    named = ",".join(["7"] * 10 * PAGE)
    assert server.call("GET", f"/v1/jobs/{job}/results?tasks={named}")[0] == 200
    assert sum(read) == 1, "what is asked for many times is read once"


def test_the_story_of_a_task_keeps_the_end_of_what_its_attempts_wrote(server, monkeypatch):
    monkeypatch.setattr(queries, "MOST_LAST_BYTES", 10)
    job = server.submit(1)
    row = server.exchange()[1]["tasks"][0]
    failed = [*row[:3], "exit", 1, 0.0, 1.0, 1.0, 0, 0, 1006, 0, None]
    assert server.exchange(results=[failed], attachments=b"x" * 1000 + b"\nlast\n", want=0)[0] == 200
    story = server.get(f"/v1/jobs/{job}/explain?task=0")[1]["story"]
    assert [step["last_line"] for step in story if "cause" in step] == ["last"]
