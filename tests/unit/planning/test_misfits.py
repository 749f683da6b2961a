"""What tasks need was changed, or grew, after a plan had put them into the queue of a machine: they are moved."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from tests.support.clouds.rented_cloud import KNOWN, Cloud
from windfall.core.events import JobChanged, OffersConfigured
from windfall.core.renting import views
from windfall.planning.contract import Plan
from windfall.planning.misfits import without_misfits
from windfall.planning.offers import Offer
from windfall.planning.registry import planner_named

SMALL = Offer(name="small", pool="cloud", price_usd=0.1, cores=2, cycle_s=900.0, lag_s=60.0, memory_gb=2.0)
LARGE = replace(SMALL, name="large", price_usd=1.0, memory_gb=64.0, gpus=2)
LARGER = {"memory": {"memory_bytes": 8 << 30}, "gpus": {"needs": (("gpus", 1000),)}}


def changed(what: str):
    """A job with a task on a small machine that has just been ordered, and needs more now."""
    cloud = Cloud()
    cloud.step(OffersConfigured(cloud.t, "cloud", [SMALL, LARGE]))
    bag = cloud.rent(3, [replace(KNOWN, memory_bytes=1 << 30)])
    cloud.plan(bag, start=[SMALL], assign={"new-0": [0, 1, 2]})
    cloud.step(JobChanged(cloud.t, bag.number, bag.rules, [replace(bag.classes[0], **LARGER[what])]))
    return cloud, bag


@pytest.mark.parametrize("what", LARGER)
@pytest.mark.parametrize(("kind", "planner"), [("workflow", "windfall"), ("workflow", "greedy"), ("bag", "hads")])
def test_tasks_that_their_machine_cannot_hold_any_more_get_another_one(kind, planner, what):
    cloud, bag = changed(what)
    snapshot = views.view(cloud.state, bag.number, cloud.t, math.inf)
    assert snapshot.machines[0].waiting == (0, 1, 2)
    plan: Plan = planner_named(planner, kind)(snapshot)
    assert {start.offer.name for start in plan.start} == {"large"}
    larger = {task for start in plan.start for task in plan.assign[start.label]}
    assert larger == {0, 1, 2} and not plan.assign.get("1")


def test_tasks_that_fit_stay_in_their_queue():
    cloud, bag = changed("memory")
    cloud.step(JobChanged(cloud.t, bag.number, bag.rules, [KNOWN]))
    snapshot = views.view(cloud.state, bag.number, cloud.t, math.inf)
    assert without_misfits(snapshot) == snapshot


def test_a_workflow_for_which_no_machine_is_left_says_so_and_asks_again_soon():
    cloud, bag = changed("memory")
    snapshot = replace(views.view(cloud.state, bag.number, cloud.t, math.inf), machines=(), offers=())
    plan = planner_named("windfall", "workflow")(snapshot)
    assert not plan.start and "no offer has a machine left" in plan.because[0]
    assert snapshot.t < plan.replan_t < snapshot.t + 60
