"""Very many jobs of a shared fleet: the most urgent are shown one by one, the rest by class."""

from __future__ import annotations

import pytest

from tests.support.engine.hand import Hand
from windfall.core.events import FleetCreated, MachineStarted, OffersConfigured, PlanProposed
from windfall.core.renting import backlog, views
from windfall.core.state.renting.fleets import FleetRules, named
from windfall.planning.contract import Plan, Start
from windfall.planning.offers import Offer
from windfall.planning.registry import FLEET_PLANNERS

OFFER = Offer(name="one", price_usd=0.36, cores=2, cycle_s=3600.0, lag_s=60.0, pool="cloud")


def crowded(monkeypatch: pytest.MonkeyPatch, jobs: int = 40, shown: int = 10) -> tuple[Hand, int]:
    """A fleet that shows ten jobs; those that came last are due first."""
    monkeypatch.setattr(backlog, "LEAST_SHOWN", shown)
    monkeypatch.setattr(backlog, "MOST_SHOWN", shown)
    hand = Hand(lease_s=1e6)
    hand.step(OffersConfigured(hand.t, "cloud", [OFFER]))
    fleet = hand.step(FleetCreated(hand.t, FleetRules("shared", ["cloud"]))).decided.number
    for place in range(jobs):
        hand.submit(2, fleet="shared", deadline_s=36000.0 - 1000.0 * (place // 4))
    return hand, fleet


def test_the_most_urgent_jobs_are_shown_and_the_rest_is_counted(monkeypatch):
    hand, fleet = crowded(monkeypatch)
    view = views.view(hand.state, fleet, hand.t, float("inf"))
    deadlines = sorted(bag.rules.deadline_s for bag in hand.state.bags.values())
    assert len(view.jobs) == 10 and len(view.tasks) == 20
    assert sorted(job.deadline_t - job.submitted_t for job in view.jobs) == deadlines[:10]
    assert sum(each.count for each in view.backlog) == 60 and view.unfinished == 80
    assert {each.task.id for each in view.backlog} == {-1}
    assert len(view.backlog) <= 8, "one row for each class and time"


def test_a_job_that_has_a_reservation_or_runs_is_shown(monkeypatch):
    hand, fleet = crowded(monkeypatch)
    last = min(hand.state.bags)
    queue = [named(fleet, last, 0)]
    plan = Plan(start=[Start("new", OFFER)], assign={"new": queue}, only_reserved=True)
    (number, _, _), *_ = hand.step(PlanProposed(hand.t, fleet, hand.state.seq, plan)).decided.started
    assert last in {job.number for job in views.view(hand.state, fleet, hand.t, float("inf")).jobs}
    hand.step(MachineStarted(hand.t, number, "i-1", hand.t))
    assert hand.tasks(hand.state.fleet.machines[number].host_name, 1, 2, machine=number, pool="cloud")
    view = views.view(hand.state, fleet, hand.t, float("inf"))
    assert last in {job.number for job in view.jobs} and len(view.jobs) == 11


@pytest.mark.parametrize("planner", ["scs", "windfall"])
def test_machines_are_rented_for_jobs_that_are_not_shown(monkeypatch, planner):
    hand, fleet = crowded(monkeypatch)
    few = FLEET_PLANNERS[planner](views.view(hand.state, fleet, hand.t + 25000.0, float("inf")))
    monkeypatch.setattr(backlog, "LEAST_SHOWN", 1)
    monkeypatch.setattr(backlog, "MOST_SHOWN", 1)
    fewer = FLEET_PLANNERS[planner](views.view(hand.state, fleet, hand.t + 25000.0, float("inf")))
    monkeypatch.setattr(backlog, "LEAST_SHOWN", 1000)
    monkeypatch.setattr(backlog, "MOST_SHOWN", 1000)
    every = FLEET_PLANNERS["scs"](views.view(hand.state, fleet, hand.t + 25000.0, float("inf")))
    assert len(few.start) > 0
    assert abs(len(few.start) - len(every.start)) <= 1 and abs(len(fewer.start) - len(every.start)) <= 1


def test_a_plan_may_name_tasks_of_jobs_that_were_not_shown(monkeypatch):
    hand, fleet = crowded(monkeypatch)
    hidden = min(hand.state.bags)
    plan = Plan(start=[Start("new", OFFER)], assign={"new": [named(fleet, hidden, 0)]}, only_reserved=True)
    taken = hand.step(PlanProposed(hand.t, fleet, hand.state.seq, plan)).decided
    assert taken.queues[0][1] == [named(fleet, hidden, 0)]
