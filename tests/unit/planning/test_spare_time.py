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


TIGHT_S = (126.0, 155.4, 127.4, 128.9, 109.6)
"""Run times in the order of a queue that ends just within paid time; longest first, it does not."""


def tightly_packed(phase: Phase) -> Snapshot:
    """A spot machine of two cores that has run 425 seconds, with two running tasks and a queue."""
    tasks = {0: Task(0, 330.0), 1: Task(1, 330.0)} | {n: Task(n, s) for n, s in enumerate(TIGHT_S, 2)}
    there = Machine(
        id="m",
        offer=replace(RISKY, interruptions_per_h=1.0, resumes_per_h=8.0),
        phase=phase,
        running=(Running(0, 209.6), Running(1, 92.2)),
        waiting=tuple(range(2, 7)),
        paid_until_t=474.8,
        up_since_t=None if phase is Phase.HIBERNATED else 0.0,
        hibernated_since_t=0.0 if phase is Phase.HIBERNATED else None,
    )
    return Snapshot(t=0.0, deadline_t=1200.0, tasks=tasks, offers=(CERTAIN, there.offer), machines=(there,), total=7)


def test_a_queue_that_fits_into_paid_time_is_kept_where_a_new_layout_would_begin_another_cycle():
    plan = Windfall()(tightly_packed(Phase.BUSY))
    assert not plan.start and "m" not in plan.assign
    assert plan.predicted_finish_t == pytest.approx(474.8, abs=0.5)


def test_tasks_that_stay_on_a_hibernated_machine_keep_the_order_in_which_they_were_packed():
    snapshot = tightly_packed(Phase.HIBERNATED)
    idle = Machine(id="n", offer=CERTAIN, phase=Phase.BUSY, running=(Running(7, 130.0), Running(8, 130.0)),
                   paid_until_t=420.0, up_since_t=0.0)  # fmt: skip
    tasks = snapshot.tasks | {7: Task(7, 330.0), 8: Task(8, 330.0)}
    # Two of them are to move to the other machine, but only when its cores are free.
    plan = Windfall()(replace(snapshot, machines=(*snapshot.machines, idle), tasks=tasks, total=9))
    assert plan.assign.get("m", [2, 3, 4, 5, 6]) == [2, 3, 4, 5, 6]
