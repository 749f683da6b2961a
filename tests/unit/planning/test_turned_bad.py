"""An offer that has turned bad: what it says of others, what its machines are worth, and what is rented next."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from windfall.planning.bags.packing import Item
from windfall.planning.bags.prices import Prices
from windfall.planning.contract import ONDEMAND, SPOT, Machine, Market, Phase, Running, Snapshot, Task
from windfall.planning.offers import Offer
from windfall.planning.registry import PLANNERS
from windfall.planning.spot.live import HOUR_S, Learner

WINDFALL = PLANNERS["windfall"]
CHEAP = Offer(
    name="spot-a", price_usd=0.030, cores=2, cycle_s=3600.0, lag_s=60.0, market=SPOT, limit=5, when_taken="hibernate",
    interruptions_per_h=1.0, resumes_per_h=2.0,
)  # fmt: skip
NEXT = replace(CHEAP, name="spot-b", price_usd=0.034)
SURE = Offer(name="sure", price_usd=0.1, cores=2, cycle_s=3600.0, lag_s=60.0, market=ONDEMAND, limit=5)
BAD = Market(up_s=3600.0, hibernated=13, resumed=13, spells=13, hibernated_s=13 * 1800.0)


def shown(*machines: Machine, seen: dict[str, Market], count: int = 12, t: float = 3600.0) -> Snapshot:
    tasks = {number: Task(number, 480.0) for number in range(count)}
    return Snapshot(
        t=t, deadline_t=t + 7200.0, tasks=tasks, machines=machines, offers=(CHEAP, NEXT, SURE), markets=seen,
        total=count,
    )  # fmt: skip


def per_hour(markets: dict[str, Market], offer: Offer) -> float:
    return HOUR_S * Learner(markets, 7200.0).rates(offer).interrupts_per_s


def test_one_bad_offer_says_little_of_the_others_of_its_pool():
    markets = {CHEAP.key: BAD, NEXT.key: Market()}
    bad, unseen = per_hour(markets, CHEAP), per_hour(markets, NEXT)
    assert 1.0 < unseen < 2.5 and bad > 2 * unseen


def test_offers_that_are_all_bad_say_that_the_next_one_is_bad_too():
    others = {replace(CHEAP, name=f"spot-{name}").key: BAD for name in "cdef"}
    one, many = per_hour({CHEAP.key: BAD}, NEXT), per_hour(others, NEXT)
    assert many > 1.5 * one


def test_a_hibernated_machine_is_worth_less_where_it_will_hibernate_again():
    calm = Prices(shown(seen={}), 480.0, 12, 5.0)
    bad = Prices(shown(seen={CHEAP.key: BAD, NEXT.key: Market()}), 480.0, 12, 5.0)
    assert bad.hibernated_usd[CHEAP.key][0] > 2 * calm.hibernated_usd[CHEAP.key][0]
    assert bad.hibernated_usd[NEXT.key][0] < bad.hibernated_usd[CHEAP.key][0]
    assert bad.stretch(CHEAP) > bad.stretch(NEXT) > calm.stretch(NEXT) == pytest.approx(1.0 + 1.0 / 7.5)


def test_the_next_machine_is_of_another_type_where_the_cheapest_hibernates_all_the_time():
    assert {start.offer.name for start in WINDFALL(shown(seen={})).start} == {"spot-a"}
    plan = WINDFALL(shown(seen={CHEAP.key: BAD, NEXT.key: Market()}))
    assert {start.offer.name for start in plan.start} == {"spot-b"}


def beside(resumes_per_h: float, *running: Running) -> Snapshot:
    """A machine that is hibernated with task 0, which is nearly done, beside an on-demand machine."""
    offer = replace(CHEAP, resumes_per_h=resumes_per_h)
    hibernated = Machine(
        id="m", offer=offer, phase=Phase.HIBERNATED, running=(Running(0, 30.0),), hibernated_since_t=3500.0
    )
    phase = Phase.BUSY if running else Phase.IDLE
    other = Machine(id="n", offer=SURE, phase=phase, running=running, paid_until_t=3600.0 + 3000.0)
    return replace(shown(hibernated, other, seen={}, count=1 + len(running)), offers=(offer, NEXT, SURE))


@pytest.mark.parametrize(("resumes_per_h", "moves"), [(6.0, False), (0.5, True)])
def test_a_task_that_has_begun_is_moved_only_if_it_ends_sooner_than_on_the_resumed_machine(resumes_per_h, moves):
    plan = WINDFALL(beside(resumes_per_h, Running(1, 470.0), Running(2, 470.0)))
    assert (plan.replan_t == pytest.approx(3600.0 + 470.0)) == moves


def test_a_task_leaves_a_hibernated_machine_only_when_a_core_is_free_elsewhere():
    assert "n" not in WINDFALL(beside(0.5, Running(1, 470.0), Running(2, 470.0))).assign
    assert WINDFALL(beside(0.5)).assign["n"] == [0]


def test_a_machine_that_hardly_ever_resumes_is_not_waited_for_although_waiting_costs_nothing_yet():
    often, hardly = (Prices(beside(rate), 480.0, 1, 5.0) for rate in (2.0, 0.01))
    offer = replace(CHEAP, resumes_per_h=2.0)
    assert often.waiting_pays(offer, 3600.0) and not hardly.waiting_pays(offer, 3600.0)
    assert hardly.hibernated_usd[offer.key][0] < hardly.waiting_usd[0]


def test_a_row_of_tasks_leaves_time_for_the_hibernations_of_its_machine():
    item = Item(Task(0, 100.0), 9, [])
    assert item.expected_end_t(CHEAP, 0.0, 1000.0) == 1000.0
    assert item.expected_end_t(CHEAP, 0.0, 1000.0, stretch=2.0) == pytest.approx(500.0)
    unsure = replace(item, slack_s=100.0)
    n = unsure.expected_end_t(CHEAP, 0.0, 1000.0, stretch=2.0) / 100.0
    assert n * 200.0 + math.sqrt(n) * 100.0 == pytest.approx(1000.0)
