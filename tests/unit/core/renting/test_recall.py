"""Machines that a plan recalls: what runs there saves and waits again, and then they end."""

from __future__ import annotations

from tests.support.clouds.rented_cloud import SPOT, SURE, Cloud
from windfall.core.decisions import HostAnswered, PlanTaken
from windfall.core.events import CheckpointSaved, HostAsked, Result, ResultsReported, TaskClass
from windfall.core.renting import views
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.jobs.columns import HELD, WAITING
from windfall.core.state.snapshot import load, save
from windfall.core.wishes import wishes
from windfall.wire.messages import CAUSES, PREEMPTED

SAVES = TaskClass(estimate_s=3000.0, estimate_is_exact=True, checkpoint_mb=50.0, max_losses=1)


def on_demand() -> tuple[Cloud, Bag]:
    """A task that saves and runs on an on-demand machine, and a spot machine that the provider has promised."""
    cloud = Cloud()
    bag = cloud.rent(1, [SAVES])
    cloud.plan(bag, start=[SURE], assign={"new-0": [0]})
    assert len(cloud.boot(1)) == 1
    cloud.work(1, 600)
    cloud.plan(bag, start=[SPOT])
    return cloud, bag


def answer(cloud: Cloud, number: int, leaving: str = "") -> HostAnswered:
    host = cloud.state.hosts.by_name[cloud.state.fleet.machines[number].host_name]
    asked = HostAsked(cloud.t, host.name, host.session.boot, host.session.n + 1, 0, 2, None, leaving)
    decided = cloud.step(asked).decided
    assert isinstance(decided, HostAnswered)
    return decided


def test_a_recalled_worker_is_told_at_once_to_save_and_to_end() -> None:
    cloud, bag = on_demand()
    cloud.plan(bag, recall=["1"])
    host = cloud.state.fleet.machines[1].host
    assert host in wishes(cloud.state).tell
    assert answer(cloud, 1).stop == "save"
    assert host not in wishes(cloud.state).tell
    assert bag.columns.state[0] == HELD
    assert 1 not in wishes(cloud.state).end


def test_what_it_has_saved_goes_on_elsewhere_costs_the_task_nothing_and_the_machine_ends() -> None:
    cloud, bag = on_demand()
    cloud.plan(bag, recall=["1"])
    answer(cloud, 1)
    cloud.step(CheckpointSaved(cloud.t, bag.number, 0, 1, 600.0))
    preempted = Result(bag.number, 0, 1, CAUSES.index(PREEMPTED), None, 0.0, cloud.t)
    cloud.step(ResultsReported(cloud.t, cloud.state.fleet.machines[1].host_name, [preempted]))
    assert bag.columns.state[0] == WAITING
    assert bag.columns.losses[0] == 0
    answer(cloud, 1, "recalled")
    assert 1 in wishes(cloud.state).end
    cloud.plan(bag, assign={"2": [0]})
    assert [(task, attempt) for _, task, attempt in cloud.boot(2)] == [(0, 2)]
    assert views.view(cloud.state, bag.number, cloud.t, 1e9).tasks[0].saved_s == 600.0


def test_a_recalled_machine_gets_nothing_more_and_planners_see_that_it_goes() -> None:
    cloud, bag = on_demand()
    cloud.plan(bag, recall=["1"])
    assert cloud.boot(1, want=2) == []
    seen = {machine.id: machine for machine in views.view(cloud.state, bag.number, cloud.t, 1e9).machines}
    assert (seen["1"].is_recalled, seen["2"].is_recalled, seen["2"].is_taken) == (True, False, True)


def test_a_recall_outlives_a_restart() -> None:
    cloud, bag = on_demand()
    cloud.plan(bag, recall=["1"])
    again = load(save(cloud.state))
    assert again.fleet.machines[1].recalled_t == cloud.t
    assert list(wishes(again).tell) == [again.fleet.machines[1].host]


def test_a_machine_whose_task_cannot_be_saved_is_not_recalled() -> None:
    cloud = Cloud()
    bag = cloud.rent(1)
    cloud.plan(bag, start=[SURE], assign={"new-0": [0]})
    cloud.boot(1)
    taken = cloud.plan(bag, recall=["1", "9"])
    assert isinstance(taken, PlanTaken)
    assert taken.recalled == []
    assert taken.refused == [
        "recall m1: what runs there cannot be saved",
        "recall 9: there is no such machine",
    ]
