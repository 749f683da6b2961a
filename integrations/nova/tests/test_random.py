"""Random sequences of requests against brute force: every decision of the running scheduler is a cheapest one."""

from __future__ import annotations

import time
from itertools import combinations

import numpy as np
import pytest

SIZES = ({"vcpu": 1, "ram_mb": 2000}, {"vcpu": 2, "ram_mb": 4000}, {"vcpu": 4, "ram_mb": 8000})
HOSTS = ("host-A", "host-B")
VCPUS = 8
SLACK_S = 300  # ages are whole multiples of it, and no boot takes so long


@pytest.mark.parametrize("seed", [1])
def test_each_request_costs_what_the_cheapest_choice_costs(cloud, seed):
    rng = np.random.default_rng(seed)
    cloud.hosts(*HOSTS)
    servers: dict[str, dict] = {}
    evictions = 0
    for number in range(14):
        size = SIZES[int(rng.integers(len(SIZES)))]
        preemptible = bool(rng.random() < 0.6)
        free = {host: VCPUS - sum(one["vcpu"] for one in servers.values() if one["host"] == host) for host in HOSTS}
        room = max(free.values()) >= size["vcpu"]
        best = _cheapest(servers, free, size["vcpu"])
        expected = "ACTIVE" if room or (best is not None and not preemptible) else "ERROR"
        made = cloud.boot(f"s{number}", size, preemptible, status=expected)
        left = cloud.names()
        gone = {name for name in servers if name not in left}
        if expected == "ERROR" or room:
            assert gone == set()
        else:
            evictions += 1
            assert len({servers[name]["host"] for name in gone}) == 1
            assert all(servers[name]["preemptible"] for name in gone)
            assert sum(_cost(servers[name]) for name in gone) <= best + len(gone) * SLACK_S / 2
        for name in gone:
            del servers[name]
        if expected == "ERROR":
            cloud.api.delete_server(made["id"])
            continue
        run_s = float(rng.integers(1, 11)) * SLACK_S
        cloud.age(made["id"], run_s)
        servers[f"s{number}"] = {
            "host": left[f"s{number}"], "vcpu": size["vcpu"], "preemptible": preemptible,
            "since_s": time.time() - run_s,
        }  # fmt: skip
    assert evictions, "the sequence shows nothing"


def _cost(server: dict) -> float:
    return (time.time() - server["since_s"]) % 3600


def _cheapest(servers: dict[str, dict], free: dict[str, int], need: int) -> float | None:
    """All sets of preemptible servers of all hosts."""
    costs = []
    for host in HOSTS:
        here = [one for one in servers.values() if one["host"] == host and one["preemptible"]]
        for count in range(len(here) + 1):
            for chosen in combinations(here, count):
                if free[host] + sum(one["vcpu"] for one in chosen) >= need:
                    costs.append(sum(_cost(one) for one in chosen))
    return min(costs) if costs else None
