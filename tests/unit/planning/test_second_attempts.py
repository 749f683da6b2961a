"""When a task that runs on spot gets a second attempt on an on-demand machine."""

from __future__ import annotations

import math

import numpy as np
import pytest
from msgspec.structs import replace

from windfall.planning.bags.second_attempts import RunTimeGiven
from windfall.planning.contract import ONDEMAND, SPOT, Machine, Phase, Plan, Running, Snapshot, Task
from windfall.planning.offers import Offer
from windfall.planning.registry import PLANNERS

CHEAP = Offer(
    name="s", price_usd=0.9, cycle_s=3600.0, lag_s=120.0, market=SPOT, limit=20, interruptions_per_h=2.0,
    when_taken="terminate",
)  # fmt: skip
DEAR = Offer(name="o", price_usd=3.0, cycle_s=3600.0, lag_s=120.0, market=ONDEMAND, limit=20)


def busy(age_s: float, quantile_s: float, **more) -> Machine:
    running = (Running(0, quantile_s - age_s),)
    return Machine(id="1", offer=CHEAP, phase=Phase.BUSY, running=running, paid_until_t=3000.0, up_since_t=0.0, **more)


def planned(*machines: Machine, deadline_t: float, quantile_s: float = 4200.0, mean_s: float = 2400.0, **more) -> Plan:
    tasks = {0: Task(0, quantile_s, mean_s=mean_s)}
    shown = Snapshot(
        t=1800.0, deadline_t=deadline_t, tasks=tasks, machines=machines, offers=(CHEAP, DEAR), total=40,
        run_time_quantile=0.95, **more,
    )  # fmt: skip
    return PLANNERS["windfall"](shown)


def test_a_task_that_could_not_begin_again_in_time_gets_a_second_attempt_on_demand_and_the_plan_says_why():
    plan = planned(busy(1500.0, 4200.0), deadline_t=6000.0)
    (label,) = [label for label, tasks in plan.again.items() if tasks == [0]]
    assert [start.offer.market for start in plan.start if start.label == label] == [ONDEMAND]
    assert any("second attempt" in reason for reason in plan.because)


def test_a_task_that_could_still_begin_again_at_its_very_end_gets_none_and_is_looked_at_before_that_changes():
    plan = planned(busy(1500.0, 4200.0), deadline_t=20_000.0)
    assert not plan.again
    assert plan.replan_t <= 20_000.0 - 4200.0 - 2700.0


def test_a_second_attempt_that_could_not_be_in_time_either_is_not_begun():
    assert not planned(busy(1500.0, 4200.0), deadline_t=3200.0).again


@pytest.mark.parametrize(("confidence", "is_begun"), [(0.3, False), (0.95, True), (0.99, True)])
def test_what_a_low_confidence_can_do_without_is_not_rented(confidence, is_begun):
    plan = planned(busy(1500.0, 4200.0), deadline_t=6000.0, confidence=confidence)
    assert bool(plan.again) == is_begun


def test_one_is_enough():
    second = Machine(
        id="2", offer=DEAR, phase=Phase.BUSY, running=(Running(0, 4000.0),), paid_until_t=5000.0, up_since_t=0.0
    )
    assert not planned(busy(1500.0, 4200.0), second, deadline_t=6000.0).again
    booting = Machine(
        id="2", offer=DEAR, phase=Phase.PENDING, ready_t=1900.0, paid_until_t=5000.0, again=(0,), up_since_t=0.0
    )
    plan = planned(busy(1500.0, 4200.0), booting, deadline_t=6000.0)
    assert not plan.again and not plan.start and "2" not in plan.stop


def test_an_idle_on_demand_machine_takes_it_at_once_when_notice_is_given():
    idle = Machine(id="2", offer=DEAR, phase=Phase.IDLE, paid_until_t=1900.0, up_since_t=0.0)
    plan = planned(busy(1500.0, 4200.0, noticed_t=1920.0), idle, deadline_t=6000.0)
    assert plan.again == {"2": [0]}
    assert not plan.start and "2" not in plan.stop


def test_a_hibernating_machine_keeps_what_it_has_done_so_there_is_no_second_attempt():
    sleepy = replace(CHEAP, when_taken="hibernate")
    machine = Machine(
        id="1", offer=sleepy, phase=Phase.BUSY, running=(Running(0, 2700.0),), paid_until_t=3000.0, up_since_t=0.0
    )
    assert not planned(machine, deadline_t=6000.0).again


def test_the_law_of_a_running_task_keeps_its_median_and_its_quantile():
    law = RunTimeGiven(600.0, 900.0, 3600.0, 0.05)
    chances = law.survival(np.array([100.0, 600.0, 900.0, 3600.0, 7200.0]))
    assert chances[:4] == pytest.approx([1.0, 1.0, 0.5, 0.05])
    assert 0.0 < chances[4] < 0.05
    assert all(math.isfinite(chance) for chance in chances)
