"""What may be changed on a job that runs, over HTTP as the command line does it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from windfall.client import Client
from windfall.client.local.server import LocalServer
from windfall.core.events import JobChanged
from windfall.core.records import decode_record
from windfall.errors import WindfallError
from windfall.store import open_store
from windfall.store.location import StateLocation


def asking(path):
    return Client(local=LocalServer(StateLocation(path), worker=False))


def the_change(path):
    """The one change of a job that the log of a state holds."""
    store = open_store(StateLocation(path))
    try:
        events = [decode_record(row.data).event for row in store.records(0, 1000)]
    finally:
        store.close()
    (changed,) = [event for event in events if isinstance(event, JobChanged)]
    return changed


def test_replication_and_memory_of_a_job_can_be_changed(tmp_path):
    with asking(tmp_path / "state") as client:
        client.submit("true {}", range(5)).change(replication="queued", max_replicas=2, fixed_memory=True, memory="2G")
    changed = the_change(tmp_path / "state")
    assert (changed.rules.replication, changed.rules.max_replicas) == ("queued", 2)
    assert changed.classes is not None
    assert (changed.classes[0].fixed_memory, changed.classes[0].memory_bytes) == (True, 2 << 30)


def test_what_tasks_need_can_be_changed_and_taken_away(tmp_path):
    with asking(tmp_path / "state") as client:
        job = client.submit("true {}", range(2), gpus=1, resources={"licence": 1})
        job.change(resources={"gpus": 2, "licence": 0, "fpga": 0.5})
        with pytest.raises(WindfallError, match="fpga"):
            job.change(resources={"fpga": -1})
    changed = the_change(tmp_path / "state")
    assert changed.classes is not None and changed.classes[0].needs == (("fpga", 500), ("gpus", 2000))


def test_the_confidence_of_a_job_can_be_changed(tmp_path):
    with asking(tmp_path / "state") as client:
        client.submit("true {}", range(5)).change(confidence=0.99)
    changed = the_change(tmp_path / "state")
    assert changed.rules.confidence == 0.99


@pytest.mark.parametrize(
    "change",
    [
        {"confidence": 1.0},
        {"confidence": 0},
        {"confidence": "high"},
        {"replication": "often"},
        {"max_replicas": 0},
        {"fixed_memory": "yes"},
        {"resources": {"gpus": 0.00001}},
    ],
)
def test_a_wrong_value_is_refused_with_its_name(tmp_path, change):
    with asking(tmp_path / "state") as client, pytest.raises(WindfallError, match=next(iter(change))):
        client.submit("true {}", range(5)).change(**change)


def test_waiting_for_the_end_of_a_job_is_one_request_however_often_it_changes(tmp_path):
    with asking(tmp_path / "state") as client:
        job = client.submit("true {}", range(5))
        asked, get = [], client.transport.get
        client.transport.get = lambda path, **query: (asked.append(query), get(path, **query))[1]
        with ThreadPoolExecutor(1) as waiting:
            ended = waiting.submit(job.wait, 60)
            for priority in range(20):
                job.change(priority=priority)
            job.cancel()
            assert ended.result(60)["state"] == "cancelled"
        assert [query.get("ended") for query in asked] in ([None, 1], [None])
