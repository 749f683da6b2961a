"""The slots of free hosts that `windfall plan JOB` counts on."""

from __future__ import annotations

from tests.support.clouds.rented_cloud import SPOT, Cloud
from windfall.server.queries.renting.money import free_slots


def test_slots_that_are_idle_or_work_for_the_job_count_and_rented_machines_do_not():
    cloud = Cloud()
    other = cloud.submit(2)
    cloud.tasks("mine", 2, 4)
    bag = cloud.rent()
    cloud.plan(bag, start=[SPOT])
    cloud.boot(1)
    assert free_slots(cloud.state) == free_slots(cloud.state, bag.number) == [2]
    assert free_slots(cloud.state, other.number) == [4]
