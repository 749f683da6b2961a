"""The experiments of the OPIE paper on a real Nova: `python -m windfall_nova.cloud.experiment --out F`.

Writes one JSON document: tables 3 to 6 as booted servers, and figure 2, the latency of a request, through the API and
inside the scheduler. `default` is Nova's own scheduler, `retry` the same with a client that makes room after a failure
and asks again, `windfall` ours. Touches the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from windfall.lab.opie.tables import CAPACITY, SIZES, TABLES
from windfall_nova.cloud.cloud import Cloud

FLEET = "fleet"
MOST_TRIES = 20
SCENARIOS = ("empty, normal", "empty, preemptible", "saturated, normal")
DEFAULT, RETRY, WINDFALL = "default", "retry", "windfall"
PLAN = ((DEFAULT, SCENARIOS[0]), (RETRY, SCENARIOS[2]), *((WINDFALL, scenario) for scenario in SCENARIOS))
Json = dict[str, Any]


def tables(tell: Callable[[str], None]) -> list[Json]:
    """Whom Nova evicts in the states of the paper's tables."""
    cloud = Cloud()
    rows = []
    try:
        for number, table in TABLES.items():
            tell(f"table {number}")
            cloud.stage(table.hosts)
            before = set(cloud.names())
            server = cloud.boot("new", table.request.resources)
            host = server["OS-EXT-SRV-ATTR:hypervisor_hostname"]
            gone = sorted(before - set(cloud.names()))
            same = (host, gone) == (table.host, sorted(table.victims))
            paper = {"host": table.host, "victims": list(table.victims)}
            rows.append({"table": number, "paper": paper, "nova": {"host": host, "victims": gone}, "same": same})
            cloud.clear()
    finally:
        cloud.close()
    return rows


@contextmanager
def timed_calls(scheduler: str) -> Iterator[list[float]]:
    """Seconds that calls of schedulers take that are made inside of the block."""
    seconds: list[float] = []
    if scheduler == WINDFALL:
        from windfall_nova.manager import PreemptingSchedulerManager as Manager
    else:
        from nova.scheduler.manager import SchedulerManager as Manager
    plain = Manager.select_destinations

    def timed(self: Any, *args: Any, **kwargs: Any) -> Any:
        begun = time.perf_counter()
        try:
            return plain(self, *args, **kwargs)
        finally:
            seconds.append(time.perf_counter() - begun)

    Manager.select_destinations = timed
    try:
        yield seconds
    finally:
        Manager.select_destinations = plain


def latency(scheduler: str, scenario: str, hosts: int, requests: int) -> Json:
    """One bar of figure 2."""
    with timed_calls(scheduler) as seconds:
        return _latency(scheduler, scenario, hosts, requests, seconds)


def _latency(scheduler: str, scenario: str, hosts: int, requests: int, seconds: list[float]) -> Json:
    cloud = Cloud(preempting=scheduler == WINDFALL)
    try:
        cloud.host(FLEET, [f"node-{number:04d}" for number in range(hosts)])
        preemptible = scenario.endswith("preemptible")
        victims: list[str] = []
        if scenario.startswith("saturated"):
            victims = [
                cloud.boot(f"p{number}", CAPACITY, preemptible=True)["id"] for number in range(min(hosts, requests))
            ]
            _fill(cloud)
        if scheduler == WINDFALL:
            cloud.scheduler._refresh_facts(cloud.admin_context())
        # A request fills a host where all are full: each of them needs one victim.
        size = CAPACITY if victims else SIZES["S"]
        through_api = []
        seconds.clear()
        for number in range(requests):
            begun = time.perf_counter()
            if scheduler == RETRY:
                _retry(cloud, f"n{number}", size, victims)
            else:
                cloud.boot(f"n{number}", size, preemptible=preemptible)
            through_api.append(time.perf_counter() - begun)
    finally:
        cloud.close()
    return {
        "scheduler": scheduler, "scenario": scenario, "hosts": hosts, "requests": requests,
        "api_ms": _summary(through_api), "calls": len(seconds), "call_ms": _summary(seconds),
    }  # fmt: skip


def _fill(cloud: Cloud) -> None:
    """Let somebody else hold every host that is still empty, in placement alone: booting thousands takes too long."""
    placement = cloud.nova.placement
    for row in placement.get("/resource_providers").body["resource_providers"]:
        used = placement.get(f"/resource_providers/{row['uuid']}/usages").body["usages"]
        if not used["VCPU"]:
            resources = {"VCPU": CAPACITY["vcpu"], "MEMORY_MB": CAPACITY["ram_mb"]}
            body = {
                "allocations": {row["uuid"]: {"resources": resources}}, "project_id": "p", "user_id": "u",
                "consumer_generation": None,
            }  # fmt: skip
            answer = placement.put(f"/allocations/{uuid.uuid4()}", body, version="1.28")
            assert answer.status == 204, answer.body


def _retry(cloud: Cloud, name: str, size: Mapping[str, float], victims: list[str]) -> None:
    """What a client without us does: it asks, fails, makes room, and asks again until placement has seen that."""
    cloud.api.delete_server(cloud.boot(name, size, status="ERROR")["id"])
    victim = victims.pop()
    cloud.api.delete_server(victim)
    while any(one["id"] == victim for one in cloud.api.get_servers(detail=False)):
        time.sleep(0.02)
    for number in range(MOST_TRIES):
        again = cloud.boot(f"{name}-{number}", size, wait=False)["id"]
        if cloud.wait_for_end(again)["status"] == "ACTIVE":
            return
        cloud.api.delete_server(again)
    raise AssertionError(f"no room after {MOST_TRIES} tries")


def _summary(seconds: Sequence[float]) -> Json:
    ms = [1e3 * one for one in seconds]
    deviation = statistics.stdev(ms) if len(ms) > 1 else 0.0
    return {"mean": statistics.mean(ms), "deviation": deviation, "median": statistics.median(ms), "best": min(ms)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True, help="where the document goes: Nova logs to the output")
    parser.add_argument("--hosts", type=int, nargs="+", default=[24])
    parser.add_argument("--requests", type=int, default=10)
    parser.add_argument("--no-tables", action="store_true")
    options = parser.parse_args()
    try:
        _run(options)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)  # threads of Nova would keep it for a while


def _run(options: Any) -> None:
    def tell(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    document: Json = {"tables": [] if options.no_tables else tables(tell), "figure_2": []}
    for hosts in options.hosts:
        for scheduler, scenario in PLAN:
            tell(f"figure 2: {hosts:,} hosts, {scenario}, {scheduler}")
            document["figure_2"].append(latency(scheduler, scenario, hosts, options.requests))
    options.out.write_text(json.dumps(document))


if __name__ == "__main__":
    main()
