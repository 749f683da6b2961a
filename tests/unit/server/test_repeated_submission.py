"""A submission is repeated under its key: what an earlier one left undone is done, and nothing is done twice."""

import pytest

from tests.support.server.asgi import InProcess


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
