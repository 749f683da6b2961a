"""Time on machines that tasks may use later: longer leases, and on-demand time that serves what spot loses."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from windfall.planning.bags.planning_pass import PlanningPass
from windfall.planning.bags.windfall import Windfall
from windfall.planning.contract import ONDEMAND, SPOT, Machine, Market, Phase, Running, Snapshot, Task
from windfall.planning.offers import Offer
from windfall.planning.spot.live import learned_rates

CERTAIN = Offer(name="o", price_usd=0.1, cores=2, cycle_s=900.0, lag_s=180.0, market=ONDEMAND, limit=5)
RISKY = Offer(
    name="s", price_usd=0.03, cores=2, cycle_s=900.0, lag_s=180.0, market=SPOT, limit=5, when_taken="hibernate"
)
TASKS = {number: Task(number, 200.0) for number in range(3)}


def busy(offer: Offer, tasks: list[int], left_s: float, paid_until_t: float) -> Machine:
    running = tuple(Running(number, left_s) for number in tasks)
    return Machine(id="m", offer=offer, phase=Phase.BUSY, running=running, paid_until_t=paid_until_t, up_since_t=-100.0)


def test_a_machine_that_runs_is_kept_rather_than_another_one_rented_at_the_same_price():
    there = busy(CERTAIN, [0, 1], left_s=90.0, paid_until_t=100.0)
    plan = Windfall()(Snapshot(t=0.0, deadline_t=2000.0, tasks=TASKS, offers=(CERTAIN,), machines=(there,), total=3))
    assert not plan.start
    assert plan.assign["m"] == [2]


def on_demand_usd(interruptions_per_h: float) -> float:
    """The price per task of an on-demand lease for one task, beside two that run on spot."""
    risky = replace(RISKY, interruptions_per_h=interruptions_per_h, resumes_per_h=0.0)
    there = busy(risky, [0, 1], left_s=150.0, paid_until_t=200.0)
    snapshot = Snapshot(t=0.0, deadline_t=2000.0, tasks=TASKS, offers=(CERTAIN, risky), machines=(there,), total=3)
    choices = PlanningPass(snapshot, 5.0, ()).leases.choices([1], set())
    return min(choice.per_task_usd for choice in choices if choice.bin.offer == CERTAIN)


def test_spare_time_on_demand_counts_where_spot_is_about_to_lose_tasks():
    assert on_demand_usd(30.0) < 0.06 < 0.099 < on_demand_usd(0.01) <= 0.1


def test_a_few_hibernations_outweigh_the_usual_rate_also_for_offers_that_nobody_has_tried():
    seen = Market(hibernated=4, up_s=2400.0, spells=4)
    offers = (RISKY, replace(RISKY, name="untried"))
    rates = [3600.0 * learned_rates(offer, {RISKY.key: seen}, 600.0).interrupts_per_s for offer in offers]
    # Six an hour were seen; nothing is known of the other offer but that its pool has such offers.
    assert rates[0] > 4.0
    assert rates[1] > 3.0


@pytest.mark.parametrize("phase", [Phase.BUSY, Phase.IDLE])
@pytest.mark.parametrize("offers", [(CERTAIN,), (CERTAIN, replace(RISKY, name="newer")), ()])
def test_a_machine_whose_offer_was_withdrawn_is_planned_with(offers, phase):
    there = replace(busy(RISKY, [0] if phase == Phase.BUSY else [], left_s=90.0, paid_until_t=500.0), phase=phase)
    plan = Windfall()(Snapshot(t=0.0, deadline_t=3000.0, tasks=TASKS, offers=offers, machines=(there,), total=3))
    assert "m" not in plan.stop
