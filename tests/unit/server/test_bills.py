"""What rented machines went into, in dollars: the parts add up to the bill, and each cause has its own."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from tests.support.clouds.rented_cloud import SPOT, SURE, Cloud
from windfall.core.events import TaskClass
from windfall.server.queries.renting.bills import bills

LONG = TaskClass(estimate_s=300.0, estimate_is_exact=True, max_failures=9, max_losses=9)


def told(cloud: Cloud) -> dict:
    service = SimpleNamespace(state=cloud.state, driver=SimpleNamespace(clock=lambda: cloud.t))
    status, answer = asyncio.run(bills(service, None))
    assert status == 200
    return answer


def parts(answer: dict, place: int = 0) -> dict[str, float]:
    row = answer["waste"][place]
    assert sum(part["usd"] for part in row["parts"]) == pytest.approx(row["usd"])
    assert sum(part["core_s"] for part in row["parts"]) == pytest.approx(row["paid_core_s"])
    return {part["what"]: part["core_s"] for part in row["parts"]}


def booted(cloud: Cloud, bag, offer=SURE) -> tuple[int, str, list]:
    (number, _, _), *_ = cloud.plan(bag, start=[offer]).started
    cloud.wait(60)
    machine = cloud.state.fleet.machines[number]
    return number, machine.host_name, cloud.boot(number)


def test_boot_results_and_failures_of_a_machine_are_told_apart():
    cloud = Cloud()
    number, host, (one, two) = booted(cloud, cloud.rent(2, [LONG]))
    cloud.work(number, 300)
    cloud.report(host, one, run_s=290.0)
    cloud.report(host, two, cause="exit", run_s=200.0)
    found = parts(told(cloud))
    assert found["tasks"] == pytest.approx(290)
    assert found["failed"] == pytest.approx(200)
    assert found["boot"] == pytest.approx(2 * 60)
    # The cycle of 900 s is paid for on both cores; 360 s of it have passed.
    assert found["remainder"] == pytest.approx(2 * 540)
    assert found["idle"] == pytest.approx(2 * 300 - 290 - 200)
    assert found["lost"] == found["replica"] == found["cancelled"] == 0


def test_attempts_that_were_lost_with_their_machine_count_as_lost():
    cloud = Cloud()
    number, _, keys = booted(cloud, cloud.rent(2, [LONG]), SPOT)
    assert len(keys) == 2
    cloud.work(number, 1000)
    cloud.end(number)
    answer = told(cloud)
    # The cycle in which it was reclaimed is not billed; of the first one, all but the boot is lost.
    assert parts(answer)["lost"] == pytest.approx(2 * (900 - 60))
    assert answer["waste"][0]["attempts_lost"] == 2
    assert "lost attempts" in answer["pictures"][0]["says"]


def test_a_task_of_two_cores_counts_twice_its_seconds():
    cloud = Cloud()
    wide = TaskClass(cpus=2, estimate_s=300.0, estimate_is_exact=True)
    number, host, keys = booted(cloud, cloud.rent(1, [wide]))
    cloud.work(number, 300)
    cloud.report(host, *keys, run_s=290.0)
    assert parts(told(cloud))["tasks"] == pytest.approx(2 * 290)


def test_work_of_a_cancelled_job_is_neither_idle_nor_lost():
    from windfall.core.events import JobCancelled

    cloud = Cloud()
    bag = cloud.rent(2, [LONG])
    number, _, _ = booted(cloud, bag)
    cloud.work(number, 100)
    cloud.step(JobCancelled(cloud.t, bag.number, None, "enough"))
    found = parts(told(cloud))
    assert found["cancelled"] == pytest.approx(2 * 100)
    assert found["lost"] == 0


def test_what_runs_is_not_called_idle():
    cloud = Cloud()
    number, _, _ = booted(cloud, cloud.rent(2, [LONG]))
    cloud.work(number, 100)
    found = parts(told(cloud))
    assert found["tasks"] == pytest.approx(2 * 100) and found["idle"] == pytest.approx(0)
