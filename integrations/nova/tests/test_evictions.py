"""Evictions through the API of a real Nova."""

from __future__ import annotations

SMALL = {"vcpu": 1, "ram_mb": 2000}
HALF = {"vcpu": 4, "ram_mb": 8000}
LARGE = {"vcpu": 8, "ram_mb": 16000}


def test_a_normal_request_evicts_a_preemptible_server_and_leaves_the_rest_free(cloud, said):
    cloud.hosts("host-A")
    victim = cloud.boot("p", LARGE, preemptible=True)
    new = cloud.boot("n", SMALL)
    assert cloud.names() == {"n": "host-A"}
    assert cloud.used()["host-A"] == {"VCPU": 1, "MEMORY_MB": 2000, "DISK_GB": 0}
    assert f"windfall: server {victim['id']} is gone; its place is that of {new['id']}" in said()


def test_a_preemptible_request_evicts_nobody(cloud, said):
    cloud.hosts("host-A")
    cloud.boot("p", LARGE, preemptible=True)
    new = cloud.boot("q", SMALL, preemptible=True, status="ERROR")
    assert cloud.names()["p"] == "host-A"
    assert f"windfall: no room for {new['id']}, which is preemptible (by its flavor) and evicts nobody" in said()


def test_a_host_with_room_is_taken_before_anybody_is_evicted(cloud):
    cloud.hosts("host-A", "host-B")
    cloud.boot("p", LARGE, preemptible=True, host="host-A")
    cloud.boot("n", HALF)
    assert cloud.names() == {"p": "host-A", "n": "host-B"}


def test_normal_servers_are_never_evicted(cloud, said):
    cloud.hosts("host-A")
    cloud.boot("n", LARGE)
    new = cloud.boot("m", SMALL, status="ERROR")
    assert cloud.names()["n"] == "host-A"
    assert f"windfall: no host has room for {new['id']}, even without preemptible servers" in said()


def test_a_request_of_many_servers_evicts_for_each(cloud):
    cloud.hosts("host-A", "host-B")
    for host in ("host-A", "host-B"):
        cloud.boot(f"p-{host}", LARGE, preemptible=True, host=host)
    cloud.boot_many("n", LARGE, 2)
    assert sorted(cloud.names().values()) == ["host-A", "host-B"]
    assert all(name.startswith("n") for name in cloud.names())


def test_a_request_of_many_servers_that_does_not_fit_evicts_nobody(cloud, said):
    cloud.hosts("host-A", "host-B")
    victim = cloud.boot("p", LARGE, preemptible=True, host="host-A")
    cloud.boot("n", LARGE, host="host-B")
    cloud.boot_many("m", LARGE, 2, status="ERROR")
    assert cloud.names()["p"] == "host-A"
    assert cloud.api.get_server(victim["id"])["status"] == "ACTIVE"
    assert cloud.used()["host-A"]["VCPU"] == 8
    assert any("gives back its claim on host-A: not all servers of the request find a host" in line for line in said())
