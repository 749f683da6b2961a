"""Licences of the server limit how many machines a plan rents."""

from __future__ import annotations

from tests.support.engine.hand import Hand
from windfall.core.events import OffersConfigured, TaskClass
from windfall.core.renting import parents, views
from windfall.graph import from_edges
from windfall.planning.offers import Offer
from windfall.planning.registry import PLANNERS

LICENSED = TaskClass(needs=(("licence", 1000),), estimate_s=600.0)


def shown(*classes: TaskClass, licences: int = 4000, **offer):
    hand = Hand(resources={"licence": licences} if licences else {})
    made = Offer(name="m", pool="cloud", price_usd=0.1, cores=2, **offer)
    hand.step(OffersConfigured(hand.t, "cloud", [made]))
    bag = hand.submit_mixed(40, list(classes), rent_from=["cloud"], deadline_s=7200.0)
    return views.view(hand.state, bag.number, hand.t, 10_000.0)


def test_four_licences_fill_two_machines_of_two_cores():
    (offer,) = shown(LICENSED).offers
    assert (offer.limit, offer.pool_limit) == (2, 2)
    assert shown(LICENSED, limit=1).offers[0].limit == 1, "a smaller limit of the offer stays"


def test_a_wide_task_counts_with_all_its_cores():
    assert shown(TaskClass(cpus=2.0, needs=(("licence", 1000),))).offers[0].limit == 4


def test_a_job_with_tasks_that_need_no_licence_is_not_limited():
    assert shown(LICENSED, TaskClass()).offers[0].limit is None
    assert shown(LICENSED, licences=0).offers[0].limit is None


def test_a_plan_rents_no_machines_that_would_wait_for_licences():
    plan = PLANNERS["on-demand"](shown(LICENSED))
    assert len(plan.start) == 2
    assert len(PLANNERS["on-demand"](shown(LICENSED, licences=100_000)).start) > 2, "as many as the deadline asks for"


def test_tasks_of_a_workflow_that_need_a_licence_take_turns_in_its_plan():
    order = [3, 0, 1, 2, 4]
    assert list(parents.turns(order, 2)) == [(3, 1), (0, 2), (1, 4)]
    assert list(parents.turns(order, 9)) == []


def test_running_tasks_are_first_in_turn_and_parents_stand_before_children():
    graph = from_edges(4, [(2, 0), (0, 1)])
    assert parents.in_order(graph, {0, 1, 3}, {3}) == [3, 0, 1]
    order = parents.in_order(graph, {0, 1, 2}, set())
    assert order.index(2) < order.index(0) < order.index(1)
