"""Bundles in the simulator: the engine's own rule, over slow links and through outages."""

from __future__ import annotations

from pathlib import Path

import pytest

from windfall.sim.scenario import check
from windfall.sim.world import World

OUTAGE_S = (600.0, 720.0)


def world(policy: dict[str, str], tasks: int = 400, hosts: int = 2, **more) -> tuple[World, list]:
    ran: list[tuple[str, float, float, int]] = []
    pool = {"name": "far", "hosts": hosts, "slots": 2, "round_trip": "0.3s", "heartbeat": "20s"} | more
    document = {
        "server": {"lease": "10m"},
        "pool": [pool],
        "bag": [{"name": "bag", "tasks": tasks, "run": "30s", "policy": policy}],
        "outage": [{"at": "10m", "lasts": "2m"}],
    }
    made = World(
        check(document, Path("test.toml")), 1,
        watch=lambda host, key, start, end, cause: ran.append((host, start, end, cause)),
    )  # fmt: skip
    made.run()
    return made, ran


def idle_s(ran: list, slots: int) -> float:
    start, end = OUTAGE_S
    return slots * (end - start) - sum(max(0.0, min(end, b) - max(start, a)) for _, a, b, _ in ran)


def test_hosts_that_hold_five_tasks_a_slot_have_no_idle_slot_through_an_outage():
    made, ran = world({"Concurrency": "10"})
    assert made.driver.state.bags[1].state == "done"
    assert idle_s(ran, 4) == pytest.approx(0.0, abs=1e-6)


def test_hosts_that_hold_what_they_run_are_idle_for_most_of_an_outage():
    _, ran = world({"Concurrency": "2"})
    assert idle_s(ran, 4) > 0.5 * 4 * (OUTAGE_S[1] - OUTAGE_S[0])


def test_without_a_policy_a_round_trip_costs_no_slot_time_once_run_times_are_known():
    made, ran = world({})
    begun = sorted(start for host, start, _, _ in ran if host == "far-0")
    # Two slots that never wait: from the third round on a task begins every 30 s on each.
    later = [start for start in begun if 100.0 < start < 500.0]
    gaps = {round(b - a, 6) for a, b in zip(later[::2], later[2::2], strict=False)}
    assert gaps == {30.0}, gaps
    assert made.driver.state.bags[1].state == "done"


def test_the_last_tasks_of_a_bundle_go_to_hosts_that_are_idle():
    made, ran = world({"Concurrency": "20"}, tasks=20, hosts=5)
    assert {host for host, *_ in ran} == {f"far-{n}" for n in range(5)}
    bag = made.driver.state.bags[1]
    assert bag.finished_t is not None and bag.finished_t < 150.0, "a few rounds of 30 s, and not ten"
    assert sum(bag.columns.losses) == 0
