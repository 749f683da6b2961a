"""What goes wrong: nobody is evicted in vain, and a line of the log says why."""

from __future__ import annotations

import pytest
from windfall_nova.cloud.cloud import Hypervisor

SMALL = {"vcpu": 1, "ram_mb": 2000}
HALF = {"vcpu": 4, "ram_mb": 8000}
LARGE = {"vcpu": 8, "ram_mb": 16000}


def _has(lines, *parts):
    return any(all(part in line for part in parts) for line in lines)


def test_two_requests_at_once_share_the_place_of_one_victim(cloud):
    cloud.hosts("host-A")
    cloud.boot("p", LARGE, preemptible=True)
    both = [cloud.boot(name, HALF, wait=False) for name in ("m", "n")]
    for one in both:
        cloud.wait_for(one["id"], "ACTIVE")
    assert cloud.names() == {"m": "host-A", "n": "host-A"}


def test_two_requests_at_once_for_one_place_give_it_to_one(cloud, said):
    cloud.hosts("host-A")
    cloud.boot("p", LARGE, preemptible=True)
    both = [cloud.boot(name, LARGE, wait=False)["id"] for name in ("m", "n")]
    ended = sorted(cloud.wait_for_end(uuid)["status"] for uuid in both)
    assert ended == ["ACTIVE", "ERROR"]
    assert _has(said(), "no host has room for", "even without preemptible servers")


@pytest.mark.parametrize("grace", [0.0, 0.2])
def test_a_victim_that_does_not_go_keeps_its_place_and_another_host_is_found(cloud, said, grace):
    cloud.set("windfall", grace=grace, gone_timeout=1.5)
    cloud.hosts("host-A", "host-B")
    stuck = cloud.boot("stuck", LARGE, preemptible=True, host="host-A")
    other = cloud.boot("other", LARGE, preemptible=True, host="host-B")
    cloud.age(stuck["id"], 60)
    cloud.age(other["id"], 1800)
    Hypervisor.stubborn.add(stuck["id"])
    new = cloud.boot("n", SMALL)
    cloud.set("windfall", grace=0.0, gone_timeout=60.0)
    assert cloud.names() == {"stuck": "host-A", "n": "host-B"}
    assert cloud.used()["host-A"]["VCPU"] == 8
    words = "did not shut down" if grace else "was not deleted"
    assert _has(said(), f"{new['id']} gives back its claim on host-A: server {stuck['id']} {words}")
    if grace:
        left = cloud.api.get_server(stuck["id"])
        assert (left["status"], left["metadata"]) == ("ACTIVE", {})


def test_nobody_is_evicted_on_a_compute_that_is_down(cloud, said):
    cloud.hosts("host-A", "host-B")
    cheap = cloud.boot("cheap", LARGE, preemptible=True, host="host-A")
    dear = cloud.boot("dear", LARGE, preemptible=True, host="host-B")
    cloud.age(cheap["id"], 60)
    cloud.age(dear["id"], 1800)
    cloud.down("host-A")
    cloud.boot("n", SMALL)
    cloud.down("host-A", False)
    assert cloud.names() == {"cheap": "host-A", "n": "host-B"}
    assert _has(said(), "nobody is evicted on host-A: its compute service is down")


def test_a_claim_that_placement_refuses_evicts_nobody_and_is_made_again(cloud, said, monkeypatch):
    cloud.hosts("host-A")
    victim = cloud.boot("p", LARGE, preemptible=True)
    placement = cloud.scheduler._facts.placement
    post, refused = placement.post, []

    def once(context, body):
        if not refused:
            refused.append(cloud.api.get_server(victim["id"])["status"])
            return "resource provider generation conflict"
        return post(context, body)

    monkeypatch.setattr(placement, "post", once)
    cloud.boot("n", SMALL)
    assert refused == ["ACTIVE"]
    assert cloud.names() == {"n": "host-A"}
    assert _has(said(), "on host-A was refused: resource provider generation conflict")


def test_the_place_of_a_server_that_cannot_be_built_is_free_again(cloud):
    cloud.hosts("host-A")
    cloud.boot("p", LARGE, preemptible=True)
    Hypervisor.failing.add("host-A")
    cloud.boot("n", SMALL, status="ERROR")
    Hypervisor.failing.clear()
    assert cloud.boot("q", LARGE, preemptible=True)["OS-EXT-SRV-ATTR:host"] == "host-A"


def test_nobody_is_evicted_for_a_project_that_is_at_its_quota_by_now(cloud, said, monkeypatch):
    cloud.hosts("host-A")
    cloud.boot("p", LARGE, preemptible=True)
    check = cloud.scheduler._check_quota

    def later(*args):
        cloud.set("quota", instances=1)
        check(*args)

    monkeypatch.setattr(cloud.scheduler, "_check_quota", later)
    new = cloud.boot("n", SMALL, status="ERROR")
    cloud.set("quota", instances=-1)
    assert cloud.names()["p"] == "host-A"
    assert _has(said(), f"nobody is evicted for {new['id']}: its project is at its quota")


def test_a_victim_that_is_busy_is_passed_over(cloud):
    cloud.hosts("host-A", "host-B")
    busy = cloud.boot("busy", LARGE, preemptible=True, host="host-A")
    other = cloud.boot("other", LARGE, preemptible=True, host="host-B")
    cloud.age(busy["id"], 60)
    cloud.age(other["id"], 1800)
    cloud.scheduler._refresh_facts(cloud.admin_context())
    cloud.task_state(busy["id"], "image_snapshot")
    cloud.boot("n", SMALL)
    cloud.task_state(busy["id"], None)
    assert cloud.names() == {"busy": "host-A", "n": "host-B"}


def test_a_victim_is_told_then_shut_down_then_deleted(cloud):
    cloud.set("windfall", grace=5.0)
    cloud.hosts("host-A")
    victim = cloud.boot("p", LARGE, preemptible=True)
    new = cloud.boot("n", SMALL)
    cloud.set("windfall", grace=0.0)
    (uuid, metadata), *_ = Hypervisor.powered_off
    assert uuid == victim["id"]
    assert metadata["windfall:evicted_for"] == new["id"]
    assert float(metadata["windfall:evicted_at_t"]) > 0
    assert cloud.names() == {"n": "host-A"}
