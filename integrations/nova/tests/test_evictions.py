"""Evictions through the API of a real Nova."""

from __future__ import annotations

import pytest
from windfall_nova.cloud.cloud import Cloud

SMALL = {"vcpu": 1, "ram_mb": 2000}
LARGE = {"vcpu": 8, "ram_mb": 16000}


@pytest.fixture
def cloud():
    made = Cloud()
    yield made
    made.close()


def test_a_normal_request_evicts_a_preemptible_server(cloud):
    cloud.host("host-A")
    cloud.boot("p", LARGE, preemptible=True)
    cloud.boot("n", SMALL)
    assert cloud.names() == {"n": "host-A"}
    assert cloud.used()["host-A"] == {"VCPU": 1, "MEMORY_MB": 2000, "DISK_GB": 0}


def test_a_preemptible_request_evicts_nobody(cloud):
    cloud.host("host-A")
    cloud.boot("p", LARGE, preemptible=True)
    cloud.boot("q", SMALL, preemptible=True, status="ERROR")
    assert cloud.names()["p"] == "host-A"
