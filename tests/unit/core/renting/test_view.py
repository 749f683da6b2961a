"""What a planner is shown of many tasks: the quick way and the way task by task show the same."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.support.clouds.rented_cloud import SURE, Cloud
from windfall.bench.in_process.view import CORES, busy_state
from windfall.core.engine import Engine
from windfall.core.events import HostAsked, JobChanged, MachineHibernated, MachineResumed, OffersConfigured
from windfall.core.renting import runtimes, views
from windfall.core.state.state import State
from windfall.planning.contract import Snapshot, inputs_of


def eventful(running: int) -> State:
    """Machines that were hibernated, one that is, one that holds more than it has slots, one that says nothing."""
    state, engine = busy_state(running), Engine()
    first, second, third, *_ = state.fleet.machines.values()
    for machine in (first, second):
        engine.step(state, MachineHibernated(420.0, machine.number, 420.0))
    engine.step(state, MachineResumed(460.0, first.number, 460.0))
    engine.step(state, HostAsked(470.0, third.host_name, "b", 9, 2 * CORES, CORES))
    engine.step(state, HostAsked(480.0, "other", "b", 1, 4, 4, {}))
    return state


@pytest.mark.parametrize("names_up_to", [100.0, 10_000.0])
@pytest.mark.parametrize("t", [490.0, 700.0, 3_000.0, 85_000.0])
def test_what_is_equal_for_all_tasks_is_asked_once_and_nothing_else_changes(
    monkeypatch: Any, t: float, names_up_to: float
) -> None:
    state = eventful(320)
    quick = views.view(state, 1, t, names_up_to)
    assert len(quick.tasks) > 300
    monkeypatch.setattr(views, "is_plain", lambda bag: False)
    monkeypatch.setattr(runtimes, "_plain_speed", lambda state, bag, host: None)
    assert views.view(state, 1, t, names_up_to) == quick


@pytest.mark.parametrize("names_up_to", [100.0, 10_000.0])
def test_a_view_in_columns_is_the_same_once_the_planner_has_made_it_whole(names_up_to: float) -> None:
    state = eventful(320)
    sent = views.view(state, 1, 700.0, names_up_to, in_columns=True)
    plain = views.view(state, 1, 700.0, names_up_to)
    assert sent.columns and not sent.tasks
    assert sent.unfinished == plain.unfinished
    assert inputs_of(sent) == inputs_of(plain)
    read = msgspec.msgpack.decode(msgspec.msgpack.encode(sent), type=Snapshot).whole()
    assert read == plain
    assert list(read.tasks) == list(plain.tasks)


def test_a_view_in_columns_of_a_job_without_running_tasks_counts_no_task_as_the_longest() -> None:
    cloud = Cloud()
    bag = cloud.rent(40)
    sent = views.view(cloud.state, bag.number, cloud.t, 1.0, in_columns=True)
    assert sent.columns and sent.groups
    assert inputs_of(replace(sent, groups=())).longest_s == 0.0
    assert inputs_of(sent) == inputs_of(views.view(cloud.state, bag.number, cloud.t, 1.0))


def test_tasks_whose_memory_grows_by_the_attempt_are_not_shown_in_columns() -> None:
    state = busy_state(320)
    bag = state.bags[1]
    bag.classes[0] = replace(bag.classes[0], memory_per_attempt=True)
    sent = views.view(state, 1, 700.0, 100.0, in_columns=True)
    assert not sent.columns
    assert sent == views.view(state, 1, 700.0, 100.0)


def test_what_each_task_fetches_is_in_the_speed_and_price_of_the_offers_that_planners_see_and_not_in_the_bill():
    cloud = Cloud()
    far = replace(SURE, data_usd_per_gb=0.1, data_mb_per_s=10.0, region="us")
    cloud.step(OffersConfigured(cloud.t, "cloud", [far]))
    bag = cloud.rent(4, task_data_gb={"eu": 3.0})
    (offer,) = views.view(cloud.state, bag.number, cloud.t, 100).offers
    assert offer.speed == pytest.approx(0.5), "300 s of work and 300 s of fetching"
    assert offer.price_usd == pytest.approx(1.0 + 2 * 0.3 * 900 / 600)
    cloud.plan(bag, start=[offer])
    assert cloud.state.fleet.machines[1].offer.price_usd == 1.0


def test_a_job_of_which_more_confidence_is_asked_is_planned_again_with_it():
    cloud = Cloud()
    bag = cloud.rent()
    cloud.plan(bag)
    before = list(cloud.state.fleet.plans_due)
    cloud.step(JobChanged(cloud.t, bag.number, replace(bag.rules, confidence=0.999)))
    assert (before, list(cloud.state.fleet.plans_due)) == ([], [bag.number])
    assert views.view(cloud.state, bag.number, cloud.t, 100.0).confidence == 0.999
