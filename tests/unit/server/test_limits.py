"""Limits that an operator sets: what is over them is refused with what to do, and memory stays bounded."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import AsyncIterator, Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from tests.support.server.asgi import InProcess
from windfall.errors import BadInput
from windfall.server.http.uploads import Uploads
from windfall.server.http.workers.live import MOST_FOLLOWED, LiveOutput
from windfall.server.json_limits import has_above, is_deeper
from windfall.server.limits import NAMES, Intake, Limits, read_limits
from windfall.server.service import REMEMBERED_JOBS
from windfall.wire import OLDEST, frames


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


def test_every_limit_stands_in_the_reference():
    page = (Path(__file__).parents[3] / "docs/reference/http-api.md").read_text()
    assert [name for name in NAMES if f"`{name}`" not in page] == []


@pytest.mark.parametrize(
    "pair",
    [
        "body",
        "nothing=3",
        "requests=-1",
        "requests=x",
        "uploads=0",
        "bodies=1k",
        "pause=",
        "depth=7",
        "depth=501",
        "number=1000",
        "number=99999999999999999",
        "tasks=10001",
        "results=10001",
        "answer=64M",
        "decompressed=1G",
    ],
)
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
    server.service.uploads.removed([], 600)
    assert put(server, b"c") == 201


def test_a_job_with_more_files_than_a_job_may_have_is_refused(server):
    server.service.intake = Intake(Limits(job_blobs_bytes=10))
    first, second, same = (
        {"name": name, "sha256": sha256(content * 6).hexdigest(), "size": 6}
        for name, content in (("a", b"x"), ("b", b"y"), ("c", b"x"))
    )
    spec = {"name": "n", "command": ["true"], "source": {"kind": "range", "first": 1, "last": 1}}
    status, answer = server.post("/v1/jobs", {"spec": {**spec, "inputs": [first, second]}})
    assert status == 413 and answer["error"]["code"] == "job-quota" and "job-blobs" in answer["error"]["hint"]
    assert server.post("/v1/jobs", {"spec": {**spec, "inputs": [first, same]}})[0] == 201, "one file, however named"


def test_an_exchange_hands_out_no_more_tasks_than_the_operator_allows(server):
    server.service.intake = Intake(Limits(tasks=3))
    server.submit(10)
    assert len(server.exchange(want=8, slots=8)[1]["tasks"]) == 3


def answer_of(server: InProcess, **changes: object) -> dict:
    status, answer = server.exchange(**changes)
    assert status == 200, answer
    return answer


def test_an_answer_is_bounded_in_bytes_and_the_rest_follows_at_no_cost(server):
    server.service.intake = Intake(Limits(answer_bytes=10_000))
    for _ in range(5):
        server.submit(2, env={"LARGE": "x" * 4000})
    seen, held = [], []
    for _ in range(10):
        answer = answer_of(server, want=10 - len(held), slots=10)
        assert len(json.dumps(answer)) < 11_000
        if not answer["tasks"]:
            break
        held += [row[:3] for row in answer["tasks"]]
        seen.append(len(answer["tasks"]))
    # A job's specification is sent once an answer: its two tasks take little more than one.
    assert sum(seen) == 10 and len(seen) == 3 and len({(job, task) for job, task, _ in held}) == 10
    for job in range(1, 6):
        told = server.get(f"/v1/jobs/{job}")[1]
        assert told["tasks"]["running"] == 2 and not told.get("lost_attempts")
    rows = [[*key, "done", 0, 0.0, 1.0, 0.5, 0, 0, 0, 0, None] for key in held]
    answer_of(server, results=rows, want=0)
    assert all(server.get(f"/v1/jobs/{job}")[1]["tasks"]["done"] == 2 for job in range(1, 6))


def test_a_task_that_is_larger_than_an_answer_may_be_is_handed_out_alone(server):
    server.service.intake = Intake(Limits(answer_bytes=1000))
    server.submit(3, env={"LARGE": "x" * 4000})
    assert [len(answer_of(server, want=3, slots=3)["tasks"]) for _ in range(4)] == [1, 1, 1, 0]


def test_a_repeated_exchange_gets_the_same_part_again(server):
    server.service.intake = Intake(Limits(answer_bytes=1000))
    for _ in range(3):
        server.submit(1, env={"LARGE": "x" * 4000})
    first = answer_of(server, want=3, slots=3)
    server.n["h"] -= 1
    again = answer_of(server, want=3, slots=3)
    assert len(first["tasks"]) == 1 and first["tasks"] == again["tasks"]
    others = [answer_of(server, want=3, slots=3)["tasks"] for _ in range(2)]
    assert sorted(row[0] for rows in [first["tasks"], *others] for row in rows) == [1, 2, 3]


def test_depth_is_counted_outside_texts_alone():
    for text, depth in (
        (b"[[1], [2, {}]]", 3),
        (b'{"a": "[[[[", "b": [1]}', 2),
        (b'["\\"[[[[", "\\\\", []]', 2),
        (b"7", 0),
    ):
        assert not is_deeper(text, depth) and (not depth or is_deeper(text, depth - 1)), text


@pytest.mark.parametrize("opened", [b"[", b'{"a":', b'{"x":[', b'["\\"]",'])
def test_what_is_never_closed_is_too_deep_all_the_same(opened):
    assert is_deeper(opened * 1000, 32)


def test_numbers_are_looked_for_outside_texts_alone():
    assert not has_above(b'{"99999999999": ["88888888888", "\\"77777777777", 12, -3.5e2, 1e-99]}', 1 << 31)
    for number in (b"3000000000", b"-3e9", b"1e300", b"0.3e11", b"9" * 400):
        assert has_above(b'{"a": [1, ' + number + b"]}", 1 << 31), number


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


def test_the_depth_of_bodies_is_a_setting_and_what_is_deeper_is_413_with_what_to_do(server):
    server.submit()
    server.service.intake = Intake(Limits(depth=10))
    body = b'{"spec": {"name": "a", "odd": %b}}'
    assert server.call("POST", "/v1/jobs", body % nested(8))[0] == 400  # it has no command
    for path, text in (
        ("/v1/jobs", body % nested(9)),
        ("/v1/jobs", b"[" * 100_000),
        ("/v1/jobs/1/change", nested(5000)),
    ):
        status, said = server.call("POST", path, text)
        assert status == 413 and "--limit depth" in json.loads(said)["error"]["hint"]
    assert server.exchange(odd=json.loads(nested(12)))[0] == 413


def test_the_largest_number_is_a_setting_and_what_is_above_is_413_with_what_to_do(server):
    server.service.intake = Intake(Limits(number=1 << 40))
    assert server.exchange(ad={"disk": 1 << 40})[0] == 200
    status, said = server.exchange(ad={"disk": (1 << 40) + 1})
    assert status == 413 and "--limit number" in said["error"]["hint"]


def test_results_of_an_exchange_and_tasks_of_a_job_are_settings(server):
    row = [1, 0, 1, "done", 0, 0.0, 1.0, 0.5, 0, 0, 0, 0, None]
    assert server.exchange(results=[row] * 10_001)[0] == 413
    server.service.intake = Intake(Limits(results=1, job_tasks=5))
    server.submit(5)
    assert server.exchange(results=[row, row])[0] == 413
    spec = {"name": "n", "command": ["echo", "{}"], "source": {"kind": "range", "first": 1, "last": 6}}
    status, said = server.post("/v1/jobs", {"spec": spec, "count": 6, "seal": True})
    assert status == 413 and "in parts" in said["error"]["hint"]


def test_what_becomes_of_a_packed_chunk_is_a_setting(server):
    server.service.intake = Intake(Limits(decompressed_bytes=1 << 20))
    source = {"kind": "lines"}
    spec = {"name": "n", "command": ["echo", "{}"], "source": source}
    assert server.post("/v1/jobs", {"spec": spec})[0] == 201
    for count, expected in ((1, 413), (0, 200)):
        data = zlib.compress(b"x" * (1 << 20) * count + b"x")
        header = {"chunks": [{"first": 0, "count": 1, "klass": 0, "codec": "lines", "bytes": len(data)}], "seal": True}
        status, said = server.call("POST", "/v1/jobs/1/tasks", frames.join(json.dumps(header).encode(), [data]))
        assert status == expected, said


def test_one_host_too_many_is_told_to_come_back_and_those_that_are_there_go_on(server):
    server.service.intake = Intake(Limits(hosts=2))
    assert [server.exchange(name)[0] for name in ("a", "b", "c")] == [200, 200, 429]
    assert server.exchange("a")[0] == 200
    assert server.exchange("b", leaving="idle", want=0)[0] == 200
    assert server.post("/v1/sites", {"name": "lab", "instance": {"vcpu": 1}})[0] == 201
    header = {"v": OLDEST, "site": "lab", "boot": "b", "n": 1, "capacity": {"vcpu": 2}, "tags": []}
    for host, expected in (("s", 200), ("t", 429), ("s", 200)):
        body = frames.join(json.dumps(header | {"host": host}).encode(), [])
        assert server.call("POST", "/v1/site/exchange", body)[0] == expected
    assert server.exchange("d")[0] == 429 and server.exchange("a", leaving="idle", want=0)[0] == 200
    assert server.exchange("d")[0] == 200 and "c" not in server.service.state.hosts.by_name


def test_what_a_host_says_of_itself_is_bounded_in_all(server):
    large = {f"a{n}": "x" * 1000 for n in range(40)}
    status, said = server.exchange("h", ad=large)
    assert status == 400 and "--limit ad" in said["error"]["hint"]
    server.service.intake = Intake(Limits(ad_bytes=100_000))
    server.n["h"] = 0
    assert server.exchange("h", ad=large)[0] == 200


def test_command_and_environment_of_an_instance_are_bounded(server):
    assert server.post("/v1/sites", {"name": "lab", "instance": {"vcpu": 1}})[0] == 201
    body = {"resources": {"vcpu": 1}, "command": ["true"]}
    for size, expected in ((300_000, 413), (200_000, 201)):
        assert server.post("/v1/site/requests", body | {"env": {"E": "x" * size}})[0] == expected


def test_why_a_host_leaves_is_kept_in_short(server):
    server.exchange("h")
    assert server.exchange("h", leaving="x" * 9000, want=0)[0] == 200
    assert len(server.service.state.host("h").left) == 500


def test_little_is_kept_in_mind_of_jobs_that_have_ended(server):
    for _ in range(300):
        job = server.submit(1)
        server.service.renderer(job)
        server.post(f"/v1/jobs/{job}/cancel", {})
    open_ = server.submit(1)
    server.service.renderer(open_)
    assert max(len(server.service._renderers), len(server.service._specs)) <= 3 * REMEMBERED_JOBS
    # What was dropped is read again from the store.
    assert server.service.renderer(1).task(0, 1).argv == ["echo", "1"]
    assert server.exchange(want=1)[1]["tasks"][0][0] == open_


def test_only_so_many_attempts_are_followed_at_a_time():
    live = LiveOutput()
    for task in range(MOST_FOLLOWED + 10):
        live.follow((1, task, 1))
        live.add((1, task, 1), 0, b"x", 0, b"")
    assert len(live._wanted) == len(live._streams) == MOST_FOLLOWED
    assert live.read((1, MOST_FOLLOWED + 9, 1), 0, 0)[1] == b"x" and live.read((1, 0, 1), 0, 0)[1] == b""
