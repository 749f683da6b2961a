"""A submission is repeated under its key: what an earlier one left undone is done, and nothing is done twice."""

import asyncio
import json
from base64 import b64encode
from zlib import compress

import pytest

from tests.support.server.asgi import InProcess
from windfall.graph import from_edges


def body(count, seal):
    source = {"kind": "range", "first": 1, "last": 3}
    return {
        "spec": {"name": "b", "command": ["echo", "{}"], "source": source, "key": "k"},
        "count": count,
        "seal": seal,
    }


@pytest.mark.parametrize("left", [body(0, False), body(3, False), body(3, True)], ids=["submitted", "open", "sealed"])
def test_a_repeat_completes_a_job_whose_last_records_were_dropped(tmp_path, left):
    """As after a restart that dropped a damaged end of the log: the seed 1161 of `make faults` had met it."""
    with InProcess(tmp_path / "state") as server:
        first = server.post("/v1/jobs", left)[1]["job"]
        for _ in range(2):
            status, told = server.post("/v1/jobs", body(3, True))
            assert (status, told["job"], told["known"], told["total"]) == (201, first, True, 3)
        bag = server.driver.state.bags[first]
        assert bag.sealed and bag.total == 3 and len(server.driver.state.bags.values()) == 1
        server.check()


@pytest.mark.parametrize("source", [{"kind": "tasks"}, {"kind": "lines"}, {"kind": "range", "first": 1, "last": 9}])
def test_a_range_under_the_key_of_another_job_adds_nothing_to_it(tmp_path, source):
    """A workflow whose tasks had not come yet got those of the range, and the server stopped."""
    shape = from_edges(1, [])
    packed = [b64encode(compress(rows.tobytes())).decode() for rows in (shape.offsets, shape.children)]
    kinds = {"tasks": ([], {"shape": packed})}
    command, more = kinds.get(source["kind"], (["echo", "{}"], {}))
    spec = {"name": "b", "command": command, "source": source, "key": "k"}
    with InProcess(tmp_path / "state") as server:
        status, told = server.post("/v1/jobs", {"spec": spec, **more})
        assert status == 201, told
        status, again = server.post("/v1/jobs", body(3, True))
        assert (status, again["job"], again["known"], again["total"]) == (201, told["job"], True, 0)
        bag = server.driver.state.bags[told["job"]]
        assert not bag.total and not bag.sealed
        assert server.get(f"/v1/jobs/{told['job']}/pictures")[0] == 200  # also the graph of a workflow without tasks
        server.check()


def test_a_submission_that_comes_twice_at_once_is_one_job(tmp_path):
    with InProcess(tmp_path / "state") as server:

        async def both():
            sent = json.dumps(body(3, True)).encode()
            return await asyncio.gather(*(server.acall("POST", "/v1/jobs", sent) for _ in range(5)))

        answers = server.run(both())
        assert {(status, json.loads(told)["total"]) for status, told in answers} == {(201, 3)}
        assert len(server.driver.state.bags.values()) == 1
        server.check()


def test_a_workflow_that_was_cancelled_before_its_tasks_came_is_no_class(tmp_path):
    shape = from_edges(2, [(0, 1)])
    packed = [b64encode(compress(rows.tobytes())).decode() for rows in (shape.offsets, shape.children)]
    spec = {"name": "w", "command": [], "source": {"kind": "tasks"}, "workflow_class": "c"}
    with InProcess(tmp_path / "state") as server:
        first = server.post("/v1/jobs", {"spec": spec, "shape": packed})[1]["job"]
        assert server.post(f"/v1/jobs/{first}/cancel", {})[0] == 200
        status, told = server.post("/v1/jobs", {"spec": {**spec, "like": first}})
        assert status == 400 and "before all of its tasks had come" in told["detail"]
        server.check()
