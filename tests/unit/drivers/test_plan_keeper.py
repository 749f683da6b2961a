"""Planners in a process of their own: plans are proposed; a planner that fails or is too slow has a fallback."""

from __future__ import annotations

import asyncio
import math

import pytest

from tests.support.clouds.providers import SPOT, STEADY
from windfall.core.engine import Engine
from windfall.core.events import (
    JobCancelled,
    JobForgotten,
    JobRules,
    JobSealed,
    JobSubmitted,
    OffersConfigured,
    Settings,
    TaskClass,
    TasksAdded,
)
from windfall.core.wishes import FALLBACK, PLANNER, PlanWish
from windfall.drivers.keepers import planner_process
from windfall.drivers.keepers.plans import PlanKeeper, Planning
from windfall.drivers.realtime import Realtime
from windfall.planning.contract import Group, Plan, Snapshot, Task
from windfall.store.memory import MemoryStore

SNAPSHOT = Snapshot(
    t=1000.0,
    deadline_t=5000.0,
    tasks={},
    machines=(),
    offers=(SPOT, STEADY),
    groups=(Group(Task(-1, 100.0), 8),),
    begun_t=1000.0,
)
WISH = PlanWish(1, PLANNER, FALLBACK, 1000.0)
ORACLE = PlanWish(1, "oracle", FALLBACK, 1000.0)


@pytest.fixture
def planning():
    made = Planning(limit_s=30.0)
    yield made
    made.close()
    made.clear()


@pytest.fixture
def stepping_in(monkeypatch):
    """The fallback, so that it can be told apart."""
    asked = []

    def think(name, snapshot):
        asked.append(name)
        return Plan(because=["stepped in"])

    monkeypatch.setattr(planner_process, "think", think)
    return asked


def test_a_planner_says_in_its_process_what_it_says_here(planning):
    plan, error = planning.propose(WISH, SNAPSHOT)
    assert error == "" and plan == planner_process.think(PLANNER, SNAPSHOT) and plan.start


def test_a_planner_that_nobody_knows_is_stepped_in_for(planning, stepping_in):
    plan, error = planning.propose(ORACLE, SNAPSHOT)
    assert stepping_in == [FALLBACK] and plan.because == ["stepped in"]
    assert "oracle" in error and "stepped in" in error


def test_one_that_thinks_too_long_is_killed_stepped_in_for_and_asked_again_the_next_time(planning, stepping_in):
    planning.warm()
    planning._limit_s = 0.0
    _, error = planning.propose(WISH, SNAPSHOT)
    assert "no answer within" in error and planning._process is None
    planning._limit_s = 30.0
    assert planning.propose(WISH, SNAPSHOT)[1] == ""


def test_one_whose_process_was_killed_is_started_again(planning, stepping_in):
    planning.warm()
    planning._process.kill()
    planning._process.wait()
    assert "its process failed" in planning.propose(WISH, SNAPSHOT)[1]
    assert planning.propose(WISH, SNAPSHOT)[1] == ""


def test_when_even_the_fallback_fails_there_is_an_empty_plan_and_a_later_look(planning, monkeypatch):
    def fail(name, snapshot):
        raise ArithmeticError("two and two")

    monkeypatch.setattr(planner_process, "think", fail)
    plan, error = planning.propose(ORACLE, SNAPSHOT)
    assert not plan.start and plan.replan_t > SNAPSHOT.t and "two and two" in error


class InPlace:
    """A planner without a process, which says what it is told to."""

    def __init__(self, *plans: Plan) -> None:
        self.plans, self.shown = list(plans), []

    def warm(self) -> None:
        pass

    def propose(self, wish, snapshot):
        if isinstance(snapshot, Plan):
            return snapshot, ""
        self.shown.append((wish.planner, snapshot.whole()))
        return (self.plans.pop(0) if self.plans else Plan()), ""

    def close(self) -> None:
        pass

    def clear(self) -> None:
        pass


def test_a_job_that_rents_is_planned_for_when_it_is_there_and_again_when_a_plan_asks_for_it():
    async def story():
        driver = Realtime(MemoryStore(), Engine(), Settings())
        await driver.start()
        keeper = PlanKeeper(driver)
        keeper._planning = planner = InPlace(Plan(replan_t=driver.clock() + 0.2), Plan())
        await keeper.start()
        now = driver.clock()
        rules = JobRules("bag", deadline_s=60.0, rent_from=["cloud"], planner="hads")
        await driver.submit([OffersConfigured(now, "cloud", [SPOT, STEADY]), JobSubmitted(now, rules, [TaskClass()])])
        await driver.submit([TasksAdded(now, 1, 4), JobSealed(now, 1)])
        while len(planner.shown) < 2:
            await asyncio.sleep(0.01)
        await keeper.stop()
        await driver.stop()
        return driver, planner

    driver, planner = asyncio.run(asyncio.wait_for(story(), 30))
    (name, first), _ = planner.shown
    assert name == "hads" and len(first.tasks) == 4 and {offer.name for offer in first.offers} == {"spot", "steady"}
    assert driver.state.fleet.plans[1].plans == 2


def test_a_change_that_cannot_wait_is_planned_for_although_others_are_being_collected():
    async def story():
        driver = Realtime(MemoryStore(), Engine(), Settings())
        await driver.start()
        keeper = PlanKeeper(driver)
        keeper._planning = planner = InPlace()
        await keeper.start()
        now = driver.clock()
        rules = JobRules("bag", deadline_s=60.0, rent_from=["cloud"])
        await driver.submit([OffersConfigured(now, "cloud", [SPOT, STEADY]), JobSubmitted(now, rules, [TaskClass()])])
        await driver.submit([TasksAdded(now, 1, 4), JobSealed(now, 1)])
        while not planner.shown:
            await asyncio.sleep(0.01)
        driver.state.fleet.plans[1].collects_until_t = now + 3600.0  # as after a plan for very many machines
        driver.state.touch(1, math.inf)
        keeper._changed.set()
        while not keeper._waiting:
            await asyncio.sleep(0.01)
        await driver.submit([OffersConfigured(driver.clock(), "cloud", [STEADY])])
        while len(planner.shown) < 2:
            await asyncio.sleep(0.01)
        await keeper.stop()
        await driver.stop()
        return planner

    planner = asyncio.run(asyncio.wait_for(story(), 30))
    assert [offer.name for offer in planner.shown[1][1].offers] == ["steady"]


def test_a_job_that_is_forgotten_while_its_plan_waits_is_not_planned_for():
    async def story():
        driver = Realtime(MemoryStore(), Engine(), Settings())
        await driver.start()
        keeper = PlanKeeper(driver)
        keeper._planning = planner = InPlace()
        now = driver.clock()
        await driver.submit([JobSubmitted(now, JobRules("bag", rent_from=["cloud"]), [TaskClass()])])
        await driver.submit([TasksAdded(now, 1, 4), JobSealed(now, 1), JobCancelled(now, 1, None)])
        await driver.submit([JobForgotten(now, 1)])
        await keeper.plan(1)
        await driver.stop()
        return driver, planner

    driver, planner = asyncio.run(story())
    assert not driver.state.bags and not planner.shown
