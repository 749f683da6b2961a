"""Whatever is forgotten and when, what everything costs stays the same to the micro-dollar."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.clouds.rented_cloud import SPOT, SURE, Cloud
from windfall.core.events import JobCancelled, JobForgotten, PricesReported
from windfall.core.state.renting.fleet import owed_microusd
from windfall.core.state.snapshot import load, save
from windfall.server.queries.renting.bills import bills

machines = st.lists(
    st.tuples(st.sampled_from([SPOT, SURE]), st.integers(0, 300), st.sampled_from(["taken", "given back"])), max_size=3
)


def told(cloud: Cloud) -> dict:
    service = SimpleNamespace(state=cloud.state, driver=SimpleNamespace(clock=lambda: cloud.t))
    return asyncio.run(bills(service, None))[1]


def owed(cloud: Cloud) -> int:
    there = sum(
        owed_microusd(machine, cloud.t if machine.ended_t is None else machine.ended_t)
        for machine in cloud.state.fleet.machines.values()
    )
    return there + cloud.state.fleet.ledger.total_microusd


@settings(max_examples=60, deadline=None)
@given(jobs=st.lists(machines, min_size=1, max_size=4), order=st.permutations(range(4)), price=st.floats(0.01, 3.0))
def test_the_bill_of_everything_is_the_same_before_and_after_jobs_are_forgotten(jobs, order, price):
    cloud = Cloud()
    cloud.t = 1_700_000_000.0
    bags, expected = [], {}
    for rented in jobs:
        bag = cloud.rent(2)
        bags.append(bag)
        for offer, seconds, cause in rented:
            started = cloud.plan(bag, start=[offer]).started
            for number, _, _ in started:
                cloud.wait(seconds)
                cloud.step(PricesReported(cloud.t, "cloud", [("small", price)]))
                cloud.end(number, cause)
        cloud.step(JobCancelled(cloud.t, bag.number))
        mine = [cloud.state.fleet.machines[number] for number in cloud.state.fleet.by_fleet.get(bag.number, ())]
        expected[bag.number] = sum(owed_microusd(machine, machine.ended_t or cloud.t) for machine in mine)
    cloud.wait(3601.0)
    before = told(cloud)
    total = owed(cloud)
    assert total == sum(expected.values()) and round(before["total_usd"] * 1e6) == total
    for place in order:
        if place < len(bags):
            assert cloud.step(JobForgotten(cloud.t, bags[place].number)).decided.refused == ""
            after = told(cloud)
            for part in ("total_usd", "pools", "months", "machines"):
                assert after[part] == before[part], part
            assert owed(cloud) == total
    assert not cloud.state.fleet.machines and not cloud.state.bags
    assert {job: paid.microusd for job, paid in cloud.state.fleet.ledger.jobs.items()} == {
        job: microusd for job, microusd in expected.items() if job in cloud.state.fleet.ledger.jobs
    }
    assert sum(paid.microusd for paid in cloud.state.fleet.ledger.jobs.values()) == total
    assert save(load(save(cloud.state))) == save(cloud.state)
