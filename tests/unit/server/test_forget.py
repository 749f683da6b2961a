"""Forgetting a job over HTTP: the state and the store lose it together, and everything asked of it says so."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.support.server.asgi import InProcess
from windfall.core.events import FleetCreated
from windfall.core.state.renting.fleets import FleetRules
from windfall.server.hooks.follower import Follower, Told
from windfall.server.http.submission import let_go

ASKED = ["", "/tasks", "/results", "/explain", "/cost", "/spec", "/output/0", "/pools", "/pictures", "/completed"]


def delete(server: InProcess, job: int | str) -> tuple[int, dict]:
    status, answer = server.call("DELETE", f"/v1/jobs/{job}")
    return status, json.loads(answer)


def ended(server: InProcess, **spec) -> int:
    """A job with a task that is done and has written something, and others that were cancelled."""
    job = server.submit(**spec)
    task = server.exchange()[1]["tasks"][0]
    result = [*task[:3], "done", 0, 0.0, 1.0, 1.0, 0, 2, 0, 0, None]
    assert server.exchange(want=0, attachments=b"hi", results=[result])[0] == 200
    server.post(f"/v1/jobs/{job}/cancel", {})
    return job


def test_a_forgotten_job_is_gone_from_state_and_store_also_after_a_restart(tmp_path):
    with InProcess(tmp_path) as server:
        job, other = ended(server, name="old"), server.submit(name="other")
        assert server.store.job_spec(job) and server.store.outputs(job)
        assert server.get(f"/v1/jobs/{job}/spec")[0] == 200
        assert delete(server, job) == (200, {"forgotten": job, "name": "old", "tasks": 3})
        assert (server.store.job_spec(job), server.store.outputs(job)) == (None, [])
        assert [row["job"] for row in server.get("/v1/jobs")[1]["jobs"]] == [other]
        server.check()
    with InProcess(tmp_path) as server:
        for path in ASKED:
            status, answer = server.get(f"/v1/jobs/{job}{path}")
            assert (status, answer["code"], answer["detail"]) == (404, "job-forgotten", f"job {job} was forgotten")
        for action in ("cancel", "retry", "change", "seal", "tasks"):
            body = {} if action != "tasks" else {"chunks": []}
            assert server.post(f"/v1/jobs/{job}/{action}", body)[0] in (400, 404)
        assert server.get(f"/v1/events?job={job}")[0] == 404
        assert delete(server, job)[1]["code"] == "job-forgotten"
        kinds = [row["type"] for row in server.get("/v1/events")[1]["events"]]
        assert "JobForgotten" in kinds and "JobSubmitted" in kinds
        assert server.submit() == other + 1
        server.check()


@pytest.mark.parametrize("path", ["/results", "/completed", "/output/0", "/explain?task=0"])
def test_a_job_that_is_forgotten_while_its_results_are_read_is_not_found(tmp_path, monkeypatch, path):
    """They were shown as done, and as having left nothing behind."""
    with InProcess(tmp_path) as server:
        job, loop = ended(server), server._runner.get_loop()

        def once_it_is_gone(read):
            def reads(*given):
                if job in server.service.state.bags:
                    asyncio.run_coroutine_threadsafe(let_go(server.service, job), loop).result(20.0)
                return read(*given)

            return reads

        for name in ("outputs", "output"):
            monkeypatch.setattr(server.store, name, once_it_is_gone(getattr(server.store, name)))
        status, answer = server.call("GET", f"/v1/jobs/{job}{path}")
        assert (status, json.loads(answer)["code"]) == (404, "job-forgotten")


def test_a_job_that_runs_is_not_forgotten_and_keeps_its_rows(tmp_path):
    with InProcess(tmp_path) as server:
        job = server.submit()
        status, answer = delete(server, job)
        assert (status, answer["code"]) == (409, "job-needed")
        assert answer["detail"] == f"job {job} has not ended: it is running"
        assert answer["hint"] == f"cancel it first: windfall cancel {job}"
        assert server.store.job_spec(job) and server.get(f"/v1/jobs/{job}/spec")[0] == 200
        server.check()


def test_a_job_that_waits_for_news_is_told_that_it_was_forgotten(tmp_path):
    with InProcess(tmp_path) as server:
        job = ended(server)
        version = server.get(f"/v1/jobs/{job}")[1]["version"]

        async def both():
            waiting = asyncio.ensure_future(server.acall("GET", f"/v1/jobs/{job}?version={version}&wait_s=30"))
            await asyncio.sleep(0)
            assert (await server.acall("DELETE", f"/v1/jobs/{job}"))[0] == 200
            return await waiting

        assert server.run(both())[0] == 404


def test_a_body_that_arrives_while_its_job_is_forgotten_stops_nothing(tmp_path):
    """The job was there when the request began, and is not when its body has come."""
    with InProcess(tmp_path) as server:
        for action in ("cancel", "retry", "change"):
            job = ended(server)

            async def slow(job=job):
                yield b"{"
                assert (await server.acall("DELETE", f"/v1/jobs/{job}"))[0] == 200
                yield b"}"

            assert server.run(server.acall("POST", f"/v1/jobs/{job}/{action}", slow()))[0] == 404
            server.check()


def test_a_repeated_exchange_leaves_out_the_tasks_of_a_forgotten_job(tmp_path):
    with InProcess(tmp_path) as server:
        job = server.submit()
        assert server.exchange()[1]["tasks"]
        server.post(f"/v1/jobs/{job}/cancel", {})
        assert delete(server, job)[0] == 200
        server.n["h"] -= 1
        status, answer = server.exchange()
        assert (status, answer["tasks"]) == (200, [])
        server.check()


def test_classes_are_found_beside_fleets_and_forgotten_jobs(tmp_path):
    with InProcess(tmp_path) as server:
        server.run(_submitted(server, FleetCreated(server.service.now(), FleetRules("f", ["cloud"]))))
        assert delete(server, ended(server))[0] == 200
        assert server.get("/v1/classes") == (200, {"classes": []})


async def _submitted(server: InProcess, event) -> None:
    await server.driver.submit([event])


def test_hooks_pass_over_numbers_without_a_job(tmp_path):
    with InProcess(tmp_path) as server:
        follower = Follower.__new__(Follower)
        job = ended(server)
        follower._service, follower._told = server.service, Told(job, {str(job): "running"})
        assert delete(server, job)[0] == 200
        server.run(follower._tell(job))
        assert follower._told.open == {}
