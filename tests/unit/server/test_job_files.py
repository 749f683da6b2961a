"""The quota of a job counts all its files: inputs, outputs, checkpoints, and what is on its way."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from hashlib import sha256
from typing import Any

import pytest

from tests.support.server.asgi import InProcess
from windfall.bags.chunks import encode_tasks
from windfall.bags.spec import InputFile, TaskRow
from windfall.server import job_files
from windfall.server.limits import Intake, Limits
from windfall.server.sweeping import Sweeper
from windfall.wire import ATTEMPT, HOST_SECRET, frames

QUOTA = 1000


@pytest.fixture
def server(tmp_path) -> Iterator[InProcess]:
    with InProcess(tmp_path / "state") as server:
        server.service.intake = Intake(Limits(job_blobs_bytes=QUOTA))
        yield server
        server.check()


def name_of(content: bytes) -> str:
    return sha256(content).hexdigest()


def secret_of(host: str) -> dict[str, str]:
    return {HOST_SECRET.lower(): sha256(host.encode()).hexdigest()}


def ask(server: InProcess, host: str = "h", **changes: Any) -> dict[str, Any]:
    status, answer = server.exchange(host, headers=secret_of(host), **changes)
    assert status == 200, answer
    return answer


def worker_headers(server: InProcess, host: str, attempt: str = "") -> dict[str, str]:
    token = server.service.tokens.create("worker", host, 0.0)
    return {"authorization": f"Bearer {token}", **secret_of(host)} | ({ATTEMPT.lower(): attempt} if attempt else {})


def put(server: InProcess, content: bytes, attempt: str = "", host: str = "h") -> tuple[int, dict[str, Any]]:
    headers = worker_headers(server, host, attempt)
    status, _, answer = server.run(server.full("PUT", f"/v1/blobs/{name_of(content)}", content, headers))
    return status, json.loads(answer)


def done(task: int, *contents: bytes, attempt: int = 1, cause: str = "done", job: int = 1) -> list[Any]:
    """A result with one output for each content; workers may say any size."""
    outputs = [[f"out{place}", name_of(content), 1, 0o644] for place, content in enumerate(contents)]
    more = {"outputs": outputs} if outputs else {"text": "why"}
    return [job, task, attempt, cause, 0, 0.0, 1.0, 0.5, 0, 0, 0, 0, more]


def counted(server: InProcess, job: int = 1) -> int:
    files = server.run(server.service.job_files.of(job))
    files.tidy(server.service.state.bags.get(job))
    return files.total


def recounted(server: InProcess, job: int = 1) -> int:
    """As another server would count that begins now."""
    server.service.job_files.forget(job)
    return counted(server, job)


def story_of(server: InProcess, task: int) -> list[dict[str, Any]]:
    """What `windfall explain` tells of the attempts of a task."""
    return server.get(f"/v1/jobs/1/explain?task={task}")[1]["story"]


def test_outputs_over_the_quota_are_refused_while_they_are_sent_and_the_task_says_so(server):
    server.submit(3, outputs=["out0"], max_failures=5)
    ask(server, want=3, slots=3)
    assert put(server, b"a" * 600, "1.0.1")[0] == 201
    ask(server, results=[done(0, b"a" * 600)], want=0)
    status, answer = put(server, b"b" * 600, "1.1.1")
    assert status == 413 and answer["error"]["code"] == "job-quota" and answer["error"]["limit"] == QUOTA
    assert "job-blobs" in answer["error"]["hint"] and "job 1" in answer["error"]["message"]
    assert {blob for blob, _ in server.store.blobs()} == {name_of(b"a" * 600)}, "nothing of it is kept"
    ask(server, results=[done(1, cause="quota")], want=0)
    assert put(server, b"c" * 300, "1.2.1")[0] == 201, "an honest task goes on"
    ask(server, results=[done(2, b"c" * 300)], want=0)
    told = server.get("/v1/jobs/1")[1]
    assert told["tasks"]["done"] == 2 and told["tasks"]["failed"] == 1 and told["causes"] == {"quota": 1}
    failed = story_of(server, 1)[-1]
    assert (failed["attempt"], failed["cause"]) == (1, "quota"), "another attempt would end the same way"
    assert "job-blobs" in failed["text"] and "1,200 bytes" in failed["text"]
    assert counted(server) == recounted(server) == 900


def test_a_worker_that_does_not_say_what_it_sends_is_held_to_the_quota_by_its_result(server):
    server.submit(2, outputs=["out0"], max_failures=5)
    status, answer = server.exchange(want=2, slots=2)
    assert status == 200 and len(answer["tasks"]) == 2
    for content in (b"a" * 600, b"b" * 600):
        assert server.call("PUT", f"/v1/blobs/{name_of(content)}", content)[0] == 201
    for task, content in enumerate((b"a" * 600, b"b" * 600)):
        server.exchange(results=[done(task, content)], want=0)
    assert server.get("/v1/jobs/1")[1]["causes"] == {"quota": 1} and counted(server) == recounted(server) == 600
    sweeper = Sweeper(server.service)
    server.run(sweeper.look())
    assert server.run(sweeper.look()) == 1
    assert {blob for blob, _ in server.store.blobs()} == {name_of(b"a" * 600)}


def test_a_host_that_fills_the_quota_of_a_job_with_what_no_result_names_fails_no_task_for_good(server):
    server.submit(2, outputs=["out0"], max_failures=2)
    ask(server, "hostile")
    ask(server)
    assert put(server, b"junk" * 200, "1.0.1", "hostile")[0] == 201
    assert put(server, b"b" * 600, "1.1.1")[0] == 413
    ask(server, results=[done(1, cause="quota")], want=0)
    assert server.get("/v1/jobs/1")[1]["tasks"]["failed"] == 0, "another attempt may fit"
    assert story_of(server, 1)[-1]["cause"] == "outputs"
    ask(server, "hostile", leaving="bye", want=0)
    answer = ask(server, want=2, slots=2)
    keys = [tuple(row[:3]) for row in answer["tasks"]]
    assert (1, 1, 2) in keys and put(server, b"b" * 600, "1.1.2")[0] == 201
    ask(server, results=[done(1, b"b" * 600, attempt=2)], want=0)
    assert server.get("/v1/jobs/1")[1]["tasks"]["done"] == 1


@pytest.mark.parametrize("more", [{"text": "why"}, None])
def test_a_host_cannot_fail_a_task_for_good_by_saying_quota(server, more):
    server.submit(1, outputs=["out0"], max_failures=2)
    for attempt in (1, 2):
        assert server.get("/v1/jobs/1")[1]["tasks"]["failed"] == 0
        assert ask(server)["tasks"]
        ask(server, results=[[*done(0, cause="quota", attempt=attempt)[:-1], more]], want=0)
    assert server.get("/v1/jobs/1")[1]["causes"] == {"outputs": 1}


def test_a_success_whose_files_have_not_come_is_none(server):
    server.submit(1, outputs=["out0"], max_failures=1, max_losses=2)
    for attempt in (1, 2):
        assert ask(server)["tasks"]
        ask(server, results=[done(0, b"never sent", attempt=attempt)], want=0)
    told = server.get("/v1/jobs/1")[1]
    assert told["tasks"]["done"] == 0 and told["causes"] == {"lost": 1}, "it is the host's doing, and has an end"
    assert story_of(server, 0)[-1]["text"] == "its output 'out0' has not reached this server"


@pytest.mark.parametrize("parting", [{"leaving": "bye"}, {"boot": "new", "n": 1, "ad": {}}], ids=["left", "restarted"])
def test_a_late_success_counts_whose_files_went_to_the_server_before(tmp_path, parting):
    """The server restarts between upload and report, and the host has let its attempt go: nobody knows its sender."""
    with InProcess(tmp_path / "state") as server:
        server.submit(2, outputs=["out0"])
        assert ask(server)["tasks"] and put(server, b"made", "1.0.1")[0] == 201
    with InProcess(tmp_path / "state") as server:
        server.n["h"] = 5
        ask(server, want=0, **parting)
        assert server.service.state.bags[1].attempts.released, "a late success would count"
        server.n["h"] = 9
        ask(server, want=0, results=[done(0, b"made")], boot=parting.get("boot", "b"), ad={})
        assert server.get("/v1/jobs/1")[1]["tasks"]["done"] == 1
        # What this server handed out was sent to it, or not at all.
        assert ask(server, want=1, boot=parting.get("boot", "b"))["tasks"]
        ask(server, want=0, results=[done(1, b"made elsewhere")], boot=parting.get("boot", "b"))
        assert server.get("/v1/jobs/1")[1]["tasks"]["done"] == 1
        server.check()


def test_what_is_sent_for_an_attempt_of_another_host_is_not_counted_for_its_job(server):
    server.submit(1, outputs=["out0"])
    ask(server)
    ask(server, "thief", want=0)
    assert put(server, b"x" * 5000, "1.0.1", "thief")[0] == 201
    for odd in ("1.0.1.1", "1.0", "a.b.c", "9.0.1", "1.9.1", "1.0.9", "1.0.-1", "1.0.²", "9" * 30 + ".0.1", ".."):
        headers = worker_headers(server, "h") | {ATTEMPT.lower(): odd.encode().decode("latin-1")}
        path = f"/v1/blobs/{name_of(odd.encode())}"
        assert server.run(server.full("PUT", path, odd.encode(), headers))[0] == 201, odd
    assert put(server, b"y" * 900, "1.0.1")[0] == 201 and counted(server) == 900
    ask(server, "thief", results=[done(0, b"x" * 5000)], want=0)
    assert server.get("/v1/jobs/1")[1]["tasks"]["running"] == 1 and counted(server) == 900


def test_equal_files_count_once_in_a_job_and_in_each_job_that_names_them(server):
    for job in (1, 2):
        server.submit(2, outputs=["out0"])
        ask(server, want=2, slots=2)
        for task in (0, 1):
            assert put(server, b"same" * 200, f"{job}.{task}.1")[0] in (200, 201)
            ask(server, results=[done(task, b"same" * 200, job=job)], want=0)
        assert counted(server, job) == recounted(server, job) == 800
    assert server.get("/v1/jobs/2")[1]["state"] == "done"
    assert server.call("DELETE", "/v1/jobs/1")[0] == 200
    assert counted(server, 2) == recounted(server, 2) == 800 and counted(server, 1) == 0


def test_what_a_lost_attempt_has_sent_is_not_counted_when_its_task_runs_again(server):
    server.submit(1, outputs=["out0"])
    ask(server)
    assert put(server, b"a" * 700, "1.0.1")[0] == 201 and counted(server) == 700
    ask(server, boot="new", n=1, ad={}, want=1)
    assert [row[:3] for row in ask(server, boot="new", n=2)["tasks"]] == [[1, 0, 2]]
    assert put(server, b"b" * 700, "1.0.2")[0] == 201, "the first attempt was lost with its boot"
    ask(server, boot="new", n=3, results=[done(0, b"b" * 700, attempt=2)], want=0)
    assert server.get("/v1/jobs/1")[1]["state"] == "done" and counted(server) == recounted(server) == 700


def test_of_checkpoints_the_newest_of_a_task_counts_and_one_too_large_is_left_out(server):
    server.submit(1, checkpoint_mb=1.0, checkpoint_s=1.0)
    ask(server)
    for content in (b"1" * 300, b"2" * 400, b"3" * 500):
        assert put(server, content, "1.0.1")[0] == 201
        ask(server, checkpoints=[[1, 0, 1, name_of(content), len(content), 1.0]], want=0)
    kept = {0: name_of(b"3" * 500)}
    assert server.driver.state.bags[1].progress.checkpoints == kept
    assert counted(server) == recounted(server) == 500
    assert put(server, b"4" * 1001, "1.0.1")[0] == 413
    assert server.call("PUT", f"/v1/blobs/{name_of(b'5' * 2000)}", b"5" * 2000)[0] == 201
    ask(server, checkpoints=[[1, 0, 1, name_of(b"5" * 2000), 1, 2.0]], want=0)
    assert server.driver.state.bags[1].progress.checkpoints == kept and counted(server) == 500
    sweeper = Sweeper(server.service)
    server.run(sweeper.look())
    assert server.run(sweeper.look()) == 3, "the checkpoints before it, and the one that was not taken, are removed"
    ask(server, results=[[1, 0, 1, "done", 0, 0.0, 1.0, 0.5, 0, 0, 0, 0, None]], want=0)
    assert counted(server) == recounted(server) == 0


def test_a_checkpoint_is_in_the_way_of_other_tasks_and_not_of_what_replaces_it(server):
    server.submit(2, checkpoint_mb=1.0, checkpoint_s=1.0, outputs=["out0"])
    ask(server, want=2, slots=2)
    for content in (b"1" * 600, b"2" * 700):
        assert put(server, content, "1.0.1")[0] == 201
        ask(server, checkpoints=[[1, 0, 1, name_of(content), len(content), 1.0]], want=0)
    assert server.driver.state.bags[1].progress.checkpoints == {0: name_of(b"2" * 700)} and counted(server) == 700
    assert put(server, b"other" * 100, "1.1.1")[0] == 413
    assert put(server, b"r" * 800, "1.0.1")[0] == 201
    ask(server, results=[done(0, b"r" * 800)], want=0)
    assert server.get("/v1/jobs/1")[1]["tasks"]["done"] == 1 and counted(server) == recounted(server) == 800


def test_no_host_waits_for_long_until_its_job_is_counted(server, monkeypatch):
    counted_in, read = threading.Event(), job_files._read_files

    def slowly(*args: Any) -> job_files.Files:
        counted_in.wait(30.0)
        return read(*args)

    monkeypatch.setattr(job_files, "_read_files", slowly)
    monkeypatch.setattr(job_files, "COUNTING_S", 0.01)
    server.submit(2, outputs=["out0"])
    ask(server, want=2, slots=2)
    assert put(server, b"a" * 600, "1.0.1")[0] == 201
    ask(server, results=[done(0, b"a" * 600)], want=0)
    assert server.get("/v1/jobs/1")[1]["tasks"]["done"] == 1
    counted_in.set()
    assert counted(server) == 600 and put(server, b"b" * 600, "1.1.1")[0] == 413


def test_files_that_tasks_of_a_workflow_take_are_counted(server):
    assert server.post("/v1/jobs", {"spec": {"name": "wf", "source": {"kind": "tasks"}}})[0] == 201

    def add(first: int, *contents: bytes) -> tuple[int, bytes]:
        files = [InputFile("in", name_of(content), 1) for content in contents]
        data = encode_tasks([TaskRow(name=f"t{first + place}", argv=["a"], inputs=[file])
                             for place, file in enumerate(files)])  # fmt: skip
        header = {"chunks": [{"first": first, "count": len(contents), "codec": "tasks", "bytes": len(data)}]}
        return server.call("POST", "/v1/jobs/1/tasks", frames.join(json.dumps(header).encode(), [data]))

    for content in (b"a" * 600, b"b" * 600):
        assert server.call("PUT", f"/v1/blobs/{name_of(content)}", content)[0] == 201
    assert add(0, b"a" * 600, b"a" * 600)[0] == 200 and counted(server) == recounted(server) == 600
    status, answer = add(2, b"a" * 600, b"b" * 600)
    assert status == 413 and json.loads(answer)["error"]["code"] == "job-quota", "a size that is not true does not help"
    assert add(2, b"a" * 600)[0] == 200 and counted(server) == recounted(server) == 600


def test_uploads_at_the_same_time_do_not_pass_the_quota_together(server):
    server.submit(6, outputs=["out0"])
    ask(server, want=6, slots=6)
    most = 0

    async def slowly(content: bytes) -> AsyncIterator[bytes]:
        nonlocal most
        for at in range(0, len(content), 50):
            yield content[at : at + 50]
            most = max(most, (await server.service.job_files.of(1)).total)
            await asyncio.sleep(0)

    async def all_of_them() -> list[int]:
        calls = []
        for task in range(6):
            content = b"%d" % task * 400
            headers = worker_headers(server, "h", f"1.{task}.1")
            calls.append(server.full("PUT", f"/v1/blobs/{name_of(content)}", slowly(content), headers))
        return sorted(status for status, _, _ in await asyncio.gather(*calls))

    statuses = server.run(all_of_them())
    assert set(statuses) == {201, 413} and statuses.count(201) <= 2
    assert most <= QUOTA + 6 * 50 and counted(server) == 400 * statuses.count(201)


def test_one_file_that_two_hosts_send_at_the_same_time_counts_once(server):
    server.submit(2, outputs=["out0"])
    ask(server, want=2, slots=2)
    content, second_is_through = b"x" * 600, asyncio.Event()

    async def stalled() -> AsyncIterator[bytes]:
        yield content[:300]
        await second_is_through.wait()
        yield content[300:]

    async def both() -> list[int]:
        headers = [worker_headers(server, "h", f"1.{task}.1") | {"content-length": "600"} for task in (0, 1)]
        path = f"/v1/blobs/{name_of(content)}"
        first = asyncio.create_task(server.full("PUT", path, stalled(), headers[0]))
        await asyncio.sleep(0.05)
        second = (await server.full("PUT", path, content, headers[1]))[0]
        second_is_through.set()
        return [(await first)[0], second]

    assert server.run(both()) == [201, 201] and counted(server) == 600


def test_jobs_that_have_ended_keep_no_room_from_others_for_digests(server, monkeypatch):
    monkeypatch.setattr(job_files, "MOST_DIGESTS", 4)
    for job in (1, 2):
        server.submit(4, outputs=["out0"])
        ask(server, want=4, slots=4)
        for task in range(4):
            content = b"%d" % (task if job == 1 else 0) * 200
            assert put(server, content, f"{job}.{task}.1")[0] in (200, 201)
            ask(server, results=[done(task, content, job=job)], want=0)
    assert counted(server, 2) == recounted(server, 2) == 200, "four times the same file is one"


def test_the_digests_in_memory_are_bounded_and_the_count_is_never_too_low(server, monkeypatch):
    monkeypatch.setattr(job_files, "MOST_DIGESTS", 2)
    server.submit(5, outputs=["out0"])
    ask(server, want=5, slots=5)
    for task in range(5):
        assert put(server, b"%d" % (task // 2) * 100, f"1.{task}.1")[0] in (200, 201)
        ask(server, results=[done(task, b"%d" % (task // 2) * 100)], want=0)
    assert len(server.run(server.service.job_files.of(1)).named) <= 2
    assert 300 <= counted(server) <= 500 and 300 <= recounted(server) <= 500


def test_version_1_is_refused_where_the_operator_says_so(server):
    server.service.intake = Intake(Limits(protocol=2))
    status, answer = server.exchange("old")
    assert status == 426 and "version 1" in answer["error"]["message"] and "2 alone" in answer["error"]["message"]
    headers = {name: text for name, text in worker_headers(server, "old").items() if name == "authorization"}
    assert server.run(server.full("PUT", f"/v1/blobs/{name_of(b'x')}", b"x", headers))[0] == 403
    assert server.exchange("new", headers=secret_of("new"))[0] == 200


def test_a_host_of_version_2_without_a_secret_is_told_to_show_one(server):
    status, answer = server.exchange("h", v=2)
    assert status == 400 and answer["error"]["code"] == "no-secret" and HOST_SECRET in answer["error"]["hint"]
