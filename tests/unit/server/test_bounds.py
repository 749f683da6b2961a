"""Whatever a message says, the server lives on, answers in words, and its log gives the same state again."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from hashlib import sha256

import pytest

from tests.support.server.asgi import InProcess
from windfall.store.contract import Batch, JobRow
from windfall.wire import OLDEST, frames

HUGE = 2**64
SHA = "0" * 64


@pytest.fixture
def server(tmp_path) -> Iterator[InProcess]:
    with InProcess(tmp_path / "state") as server:
        yield server
        server.check()


def result(job: int = 1, task: int = 0, attempt: int = 1, **changes) -> list:
    row = {
        "job": job, "task": task, "attempt": attempt, "cause": "done", "exit": 0, "ago": 0.0, "run": 1.0, "cpu": 1.0,
        "rss": 0, "out": 0, "err": 0, "value": 0, "more": None,
    }  # fmt: skip
    return list((row | changes).values())


def refused(answer: tuple[int, dict]) -> str:
    status, body = answer
    assert status == 400, body
    assert body["error"]["kind"] == "user"
    return body["error"]["message"]


@pytest.mark.parametrize(
    "ad",
    [
        {"memory_mb": "4 GB"},
        {"memory_mb": 2**53},
        {"memory_mb": -1},
        {"lifetime_s": "soon"},
        {"lifetime_s": 1e300},
        {"cpus": HUGE},
        {"speed": -1.0},
        {"speed": "fast"},
        {"machine": 2**63},
        {"machine": True},
        {"pool": 7},
        {"tags": ["a"]},
        {"tags": {"a": [1]}},
        {"tags": {"a": HUGE}},
        {"anything": HUGE},
        {"anything": "x" * 10_001},
        {"x" * 201: 1},
        {f"a{number}": number for number in range(257)},
        {"anything": list(range(257))},
        {"anything": {"deeper": {"and": "deeper"}}},
        {"owner": [1]},
        {"owner": 5},
        {"owner": "1"},
    ],
)
def test_an_ad_that_is_not_one_is_refused_and_the_results_beside_it_are_not_taken(server, ad):
    server.submit(policies={"Rank": "Host.RemainingLifetime + Host.Memory"})
    assert len(server.exchange()[1]["tasks"]) == 1
    refused(server.exchange(ad=ad, results=[result()]))
    server.n["h"] -= 1
    assert server.exchange(results=[result()])[0] == 200
    assert server.get("/v1/jobs/1")[1]["tasks"]["done"] == 1


def test_an_ad_nested_976_deep_is_refused(server):
    nested = '{"a":' * 976 + "1" + "}" * 976
    header = f'{{"v":{OLDEST},"host":"h","boot":"b","n":1,"want":1,"slots":1,"ad":{nested}}}'
    status, _ = server.call("POST", "/v1/exchange", frames.join(header.encode(), []))
    assert status == 413


@pytest.mark.parametrize("depth", [976, 100_000])
def test_a_field_that_nobody_knows_is_nested_no_deeper_than_others(server, depth):
    header = f'{{"v":{OLDEST},"host":"h","boot":"b","n":1,"want":1,"slots":1,"odd":{"[" * depth + "]" * depth}}}'
    status, _ = server.call("POST", "/v1/exchange", frames.join(header.encode(), []))
    assert status == 413


@pytest.mark.parametrize(
    "changes",
    [
        {"n": HUGE},
        {"n": 0},
        {"n": True},
        {"want": HUGE},
        {"want": -1},
        {"slots": HUGE},
        {"slots": 10**6},
        {"wait_s": 1e300},
        {"holds": [[1, 0, HUGE]]},
        {"holds": [[1, 0]]},
        {"started": [[HUGE, 0, 1, 0.0]]},
        {"live": [[1, 0, 1, HUGE, 0, 0, 0]]},
        {"live": [[1, 0, 1, -1, 0, 0, 0]]},
        {"checkpoints": [[2**63, 0, 1, SHA, 1, 1.0]]},
        {"checkpoints": [[1, 0, 1, "no hash", 1, 1.0]]},
        {"checkpoints": [[1, 0, 1, SHA, 1, 1e300]]},
        {"leaving": "x" * 10_001},
        {"boot": "b" * 201},
        {"host": ""},
        {"host": "a\nb"},
        {"results": [result(job=HUGE)]},
        {"results": [result(job=True)]},
        {"results": [result(task=-1)]},
        {"results": [result(attempt=2**63)]},
        {"results": [result(cause="bored")]},
        {"results": [result(exit=HUGE)]},
        {"results": [result(ago=1e300)]},
        {"results": [result(run=1e300)]},
        {"results": [result(cpu=1e300)]},
        {"results": [result(rss=HUGE)]},
        {"results": [result(out=-1)]},
        {"results": [result(more={"outputs": [1]})]},
        {"results": [result(more={"outputs": [["a", "b", 1, 2]]})]},
        {"results": [result(more={"outputs": [["a", SHA, HUGE, 0o644]]})]},
        {"results": [result(more={"dropped": 1})]},
        {"results": [result(more={"text": 1})]},
    ],
)
def test_an_exchange_out_of_bounds_is_refused_and_leaves_no_trace(server, changes):
    server.submit()
    server.exchange()
    before = server.driver.state.seq
    refused(server.exchange(**changes))
    assert server.driver.state.seq == before


def test_what_a_result_says_that_nobody_knows_is_not_kept(server):
    server.submit(1)
    server.exchange()
    more = {"text": "all well", "odd": {"a": [1, {"b": 2**70}]}}
    assert server.exchange(results=[result(more=more)])[0] == 200
    assert b"odd" not in server.call("GET", "/v1/jobs/1/results")[1]


def test_a_worker_that_wants_everything_gets_ten_thousand_tasks(server):
    server.submit(30_000)
    assert len(server.exchange(want=10**9, slots=1)[1]["tasks"]) == 10_000


def test_a_late_success_with_the_longest_times_is_taken(server):
    server.submit(1)
    server.exchange()
    row = result(ago=1e9, run=1e9, cpu=1e9, rss=2**53, exit=-(2**31))
    assert server.exchange(results=[row])[0] == 200
    assert server.get("/v1/jobs/1")[1]["state"] == "done"


def test_a_checkpoint_of_an_attempt_that_was_never_given_out_is_not_kept(server):
    server.submit(1)
    server.exchange()
    rows = [[job, task, attempt, SHA, 1, 1.0] for job, task, attempt in ((9, 0, 1), (1, 7, 1), (1, 0, 2), (1, 0, 0))]
    assert server.exchange(checkpoints=rows)[0] == 200
    assert not server.driver.state.bags[1].progress.saved
    assert server.exchange(checkpoints=[[1, 0, 1, SHA, 1, 1.0]])[0] == 200
    assert not server.driver.state.bags[1].progress.saved, "its file has not come"
    saved = sha256(b"saved").hexdigest()
    assert server.call("PUT", f"/v1/blobs/{saved}", b"saved")[0] == 201
    assert server.exchange("other", checkpoints=[[1, 0, 1, saved, 5, 1.0]])[0] == 200
    assert not server.driver.state.bags[1].progress.saved, "another host has that attempt"
    assert server.exchange(checkpoints=[[1, 0, 1, saved, 5, 1.0]])[0] == 200
    assert server.driver.state.bags[1].progress.checkpoints == {0: saved}


def test_live_output_that_nobody_follows_is_not_kept(server):
    server.submit(1)
    server.exchange()
    assert server.exchange(live=[[1, 0, 1, 0, 4, 0, 0]], attachments=b"text")[0] == 200
    assert server.service.live.read((1, 0, 1), 0, 0)[1] == b""


# --- jobs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"memory": {"bytes": 2**64}},
        {"memory": {"bytes": 2**47}},
        {"max_losses": 1e300},
        {"max_losses": 2**64},
        {"max_failures": 10**7},
        {"budget_microusd": 9223372036854775807},
        {"cpus": 1e300},
        {"cpus": -1},
        {"priority": 1e300},
        {"wall_s": 1e300},
        {"deadline_s": 1e300},
        {"estimate_s": 1e300},
        {"checkpoint_s": 1e300},
        {"checkpoint_mb": -1.0},
        {"grace_s": 1e300},
        {"output_cap_bytes": 2**64},
        {"max_failed_tasks": 2**64},
        {"like": 2**64},
        {"like": 7},
        {"policies": {"Rank": 1}},
        {"policies": {"Rank": "(" * 5000 + "1" + ")" * 5000}},
        {"policies": {"Rank": "1" + "+1" * 10_000}},
        {"attributes": {"x": [1]}},
        {"attributes": {"x": 1e300}},
        {"attributes": {f"a{number}": 1 for number in range(300)}},
        {"tags": {"x": "y" * 10_001}},
        {"tags": {"": "y"}},
        {"source": {"kind": "range", "first": 2**64, "last": 2**64 + 2}},
        {"source": {"kind": "range", "first": True, "last": 3}},
        {"classes": [{"max_losses": 2**40}]},
        {"owner": "x" * 300},
        {"inputs": [{"name": "a", "sha256": SHA, "size": 2**64}]},
        {"outputs": [1]},
        {"command": ["a\0b"]},
    ],
)
def test_a_job_out_of_bounds_is_refused(server, changes):
    source = {"kind": "range", "first": 1, "last": 3}
    spec = {"name": "bag", "command": ["echo", "{}"], "source": source, **changes}
    refused(server.post("/v1/jobs", {"spec": spec, "count": 3, "seal": True}))
    assert not server.driver.state.bags


@pytest.mark.parametrize(
    "body",
    [
        b'{"spec": {"name": "a"}, "count": "x"}',
        b'{"spec": {"name": "a"}, "count": true}',
        b'{"spec": {"name": "a"}, "seal": 1}',
        b'{"spec": {"name": "a"}, "shape": [1, 2]}',
        b'{"spec": 7}',
        b'{"spec": {"name": "\xff"}}',
        b"\xff\xfe",
        b"[]",
        b'{"a": ' + b"1" * 5000 + b"}",
    ],
)
def test_a_body_that_is_no_submission_is_refused(server, body):
    assert server.call("POST", "/v1/jobs", body)[0] == 400


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"memory": "99999999P"}, "memory"),
        ({"memory": 2**64}, "memory"),
        ({"memory": True}, "memory"),
        ({"memory": "9" * 100 + "P"}, "memory"),
        ({"max_losses": 1e300}, "max_losses"),
        ({"max_failures": True}, "max_failures"),
        ({"max_failures": 0}, "max_failures"),
        ({"max_failures": 2**64}, "max_failures"),
        ({"budget_usd": 9223372036854775807}, "budget_usd"),
        ({"budget_usd": "9" * 150}, "budget"),
        ({"priority": "nan"}, "priority"),
        ({"priority": None}, "priority"),
        ({"priority": 1e300}, "priority"),
        ({"wall_s": 1e300}, "wall_s"),
        ({"deadline_s": "inf"}, "deadline_s"),
        ({"max_failed_tasks": 2**64}, "max_failed_tasks"),
        ({"paused": "yes"}, "paused"),
        ({"policies": {"Rank": 1}}, "policies"),
        ({"policies": ["Rank"]}, "policies"),
        ({"policies": {"Rink": "1"}}, "Rink"),
        ({"attributes": {"x": [1]}}, "attributes"),
        ({"attributes": {"x": HUGE * 10**300}}, "attributes"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_change_out_of_bounds_is_refused_by_name_and_the_job_stays_as_it_was(server, changes, field):
    server.submit()
    before = server.driver.state.seq
    assert field in refused(server.post("/v1/jobs/1/change", changes))
    assert server.driver.state.seq == before
    assert server.exchange()[1]["tasks"]


@pytest.mark.parametrize("verb", ["cancel", "retry"])
@pytest.mark.parametrize("tasks", [[True, 3], [-1], ["1"], [1.5], [2**64], "all", [[1]]])
def test_tasks_that_are_no_numbers_are_refused(server, verb, tasks):
    server.submit(5)
    refused(server.post(f"/v1/jobs/1/{verb}", {"tasks": tasks}))


def test_a_task_beyond_the_last_one_is_not_there(server):
    server.submit(5)
    assert server.post("/v1/jobs/1/cancel", {"tasks": [5]})[0] == 404


def test_a_task_that_is_named_three_times_is_retried_once(server):
    server.submit(1)
    server.post("/v1/jobs/1/cancel", {"tasks": [0, 0, 0]})
    assert server.post("/v1/jobs/1/retry", {"tasks": [0, 0, 0], "cancelled": True})[1]["retried"] == 1
    tasks = server.get("/v1/jobs/1")[1]["tasks"]
    assert tasks == {"total": 1, "waiting": 1, "running": 0, "done": 0, "failed": 0, "cancelled": 0}


@pytest.mark.parametrize(
    "path",
    [
        "/v1/events?after=inf",
        "/v1/events?after=nan",
        "/v1/events?limit=1e300",
        "/v1/jobs/1?wait_s=inf&version=1",
        "/v1/jobs/1/tasks?after=x",
        "/v1/jobs/1/completed?after=-inf",
        "/v1/machines?limit=18446744073709551616",
    ],
)
def test_a_query_that_is_no_number_is_refused(server, path):
    server.submit()
    assert server.get(path)[0] == 400


@pytest.mark.parametrize("path", ["/v1/jobs/{}", "/v1/jobs/1/output/{}", "/v1/site/requests/{}", "/v1/hosts/{}"])
def test_a_number_of_five_thousand_digits_names_nothing(server, path):
    server.submit()
    assert server.get(path.format("9" * 5000))[0] == 404


@pytest.mark.parametrize("after", [-5, 2**53])
def test_a_position_beyond_the_end_gives_nothing_or_everything(server, after):
    server.submit()
    for what in ("tasks", "results", "completed"):
        assert server.call("GET", f"/v1/jobs/1/{what}?after={after}&limit=-3")[0] == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/tokens", {"role": "read", "name": "a\0b"}),
        ("/v1/tokens", {"role": "read", "name": "x" * 300}),
        ("/v1/tokens", {"role": 7}),
        ("/v1/tokens", {}),
        ("/v1/hosts/h/block", {"for_s": 1e300}),
        ("/v1/hosts/h/block", {"for_s": "long"}),
        ("/v1/hosts/h/block", {"reason": 7}),
        ("/v1/sites", {"name": "lab", "instance": {"vcpu": 1e300}}),
        ("/v1/sites", {"name": "lab", "instance": {"vcpu": 1}, "limit": 2**64}),
        ("/v1/sites", {"name": "lab", "instance": {"vcpu": 1}, "grace": "9" * 190}),
    ],
)
def test_other_bodies_out_of_bounds_are_refused(server, path, body):
    server.exchange()
    refused(server.post(path, body))


# --- what cannot be rendered ------------------------------------------------------------------------------------------


def poison(server: InProcess, job: int) -> None:
    """As an older server may have kept it."""
    spec = json.loads(server.store.job_spec(job))
    server.store.append(Batch(jobs=[JobRow(job, json.dumps(spec | {"attributes": {"x": [1]}}).encode())]))
    server.service._specs.pop(job, None)
    server.service._renderers.pop(job, None)


def test_a_job_that_cannot_be_rendered_fails_alone_and_says_why(server):
    bad, good = server.submit(2), server.submit(1)
    poison(server, bad)
    tasks = server.exchange(want=3, slots=3)[1]["tasks"]
    assert [row[0] for row in tasks] == [good]
    assert server.get(f"/v1/jobs/{bad}")[1]["causes"] == {"bad-task": 2}
    answered = server.get(f"/v1/jobs/{bad}/groups")
    assert answered[0] == 200, answered
    groups = answered[1]["groups"]
    assert "attributes" in groups[0]["text"] and groups[0]["count"] == 2
    assert server.get("/v1/hosts/h")[1]["failed"] == 0
    assert server.exchange(results=[result(good)])[0] == 200
    assert server.get(f"/v1/jobs/{good}")[1]["state"] == "done"


def test_an_exchange_that_is_repeated_after_a_task_failed_to_render_changes_nothing(server):
    bad, good = server.submit(1), server.submit(1)
    poison(server, bad)
    first = server.exchange(want=2, slots=2)
    server.n["h"] -= 1
    assert server.exchange(want=2, slots=2, ad=None) == first
    tasks = server.get(f"/v1/jobs/{bad}")[1]["tasks"]
    assert tasks["failed"] == 1 and server.get(f"/v1/jobs/{good}")[1]["tasks"]["running"] == 1


def test_a_worker_cannot_say_that_the_server_could_not_render(server):
    server.submit(1)
    server.exchange()
    refused(server.exchange(results=[result(cause="bad-task")]))


@pytest.mark.parametrize(
    "task",
    [
        {"argv": ["a\0b"]},
        {"argv": [1]},
        {"argv": ["a"], "env": {"A": "b\0"}},
        {"argv": ["a"], "outputs": ["../out"]},
        {"argv": ["a"], "outputs": [1]},
        {"argv": ["a"], "inputs": [{"name": "/etc/passwd", "sha256": SHA, "size": 1}]},
        {"argv": ["a"], "inputs": [{"name": "a", "sha256": SHA, "size": HUGE}]},
    ],
)
def test_a_whole_task_that_could_not_be_sent_out_is_refused(server, task):
    server.post("/v1/jobs", {"spec": {"name": "whole", "source": {"kind": "tasks"}}})
    data = zlib.compress(json.dumps([task]).encode())
    header = {"chunks": [{"first": 0, "count": 1, "codec": "tasks", "bytes": len(data)}], "seal": True}
    assert server.call("POST", "/v1/jobs/1/tasks", frames.join(json.dumps(header).encode(), [data]))[0] == 400


# --- sites ------------------------------------------------------------------------------------------------------------


def site_exchange(server: InProcess, attachments: bytes = b"", **changes) -> tuple[int, dict]:
    header = {"v": OLDEST, "site": "", "host": "h", "boot": "b", "n": 1, "capacity": {"vcpu": 2}, "tags": []}
    body = frames.join(json.dumps(header | changes).encode(), [attachments])
    status, answer = server.call("POST", "/v1/site/exchange", body)
    return status, json.loads(bytes(frames.split(answer)[0]) if status == 200 else answer)


@pytest.mark.parametrize(
    "changes",
    [
        {"n": 2**64},
        {"started": [[2**63, 0.0]]},
        {"started": [[1, 1e300]]},
        {"ended": [[2**63, "done", 0, 0, 0, 0, 1, 0, ""]]},
        {"ended": [[1, "done", 2**64, 0, 0, 0, 0, 0, ""]]},
        {"ended": [[1, "done", 0, 1e300, 0, 0, 0, 0, ""]]},
        {"ended": [[1, "done", 0, 0, 0, 2**64, 0, 0, ""]]},
        {"ended": [[1, "done", 0, 0, 0, 0, -1, 0, ""]]},
        {"tags": ["x" * 300]},
        {"boot": 7},
    ],
)
def test_an_agent_out_of_bounds_is_refused(server, changes):
    assert server.post("/v1/sites", {"name": "lab", "instance": {"vcpu": 1}})[0] == 201
    refused(site_exchange(server, **changes))


def test_an_agent_cannot_write_the_output_of_an_instance_that_is_not_on_its_host(server):
    server.post("/v1/sites", {"name": "lab", "instance": {"vcpu": 1}})
    site_exchange(server)
    server.post("/v1/site/requests", {"resources": {"vcpu": 1}, "command": ["true"]})
    site_exchange(server, n=2, capacity=None)
    forged = {"host": "other", "ended": [[1, "done", 0, 0, 1, 0, 6, 0, ""]]}
    assert site_exchange(server, b"forged", **forged)[0] == 200
    assert b"forged" not in server.call("GET", "/v1/site/requests/lab-1/output")[1]
    ended = [[1, "done", 0, 0, 1, 0, 4, 0, ""]]
    assert site_exchange(server, b"true", n=3, capacity=None, ended=ended)[0] == 200
    assert server.call("GET", "/v1/site/requests/lab-1/output")[1].endswith(b"true")
