"""What may be changed on a job that runs, over HTTP as the command line does it."""

from __future__ import annotations

import pytest

from windfall.client import Client
from windfall.client.local import LocalServer
from windfall.core.events import JobChanged
from windfall.core.records import decode_record
from windfall.errors import WindfallError
from windfall.store import open_store
from windfall.store.location import StateLocation


def asking(path):
    return Client(local=LocalServer(StateLocation(path), worker=False))


def test_replication_and_memory_of_a_job_can_be_changed(tmp_path):
    with asking(tmp_path / "state") as client:
        client.submit("true {}", range(5)).change(replication="queued", max_replicas=2, fixed_memory=True, memory="2G")
    store = open_store(StateLocation(tmp_path / "state"))
    try:
        events = [decode_record(row.data).event for row in store.records(0, 1000)]
    finally:
        store.close()
    changed = next(event for event in events if isinstance(event, JobChanged))
    assert (changed.rules.replication, changed.rules.max_replicas) == ("queued", 2)
    assert changed.classes is not None
    assert (changed.classes[0].fixed_memory, changed.classes[0].memory_bytes) == (True, 2 << 30)


@pytest.mark.parametrize("change", [{"replication": "often"}, {"max_replicas": 0}, {"fixed_memory": "yes"}])
def test_a_wrong_value_is_refused_with_its_name(tmp_path, change):
    with asking(tmp_path / "state") as client, pytest.raises(WindfallError, match=next(iter(change))):
        client.submit("true {}", range(5)).change(**change)
