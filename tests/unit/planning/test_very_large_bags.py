"""Bags of so many tasks that they come without names: many machines are renewed in few rounds."""

from __future__ import annotations

import math
from random import Random

import pytest
from msgspec.structs import replace

from windfall.planning.bags.leases import Leases
from windfall.planning.bags.packing import Item, merged
from windfall.planning.bags.planning_pass import PlanningPass
from windfall.planning.contract import ONDEMAND, SPOT, Group, Machine, Phase, Snapshot, Task
from windfall.planning.offers import Offer
from windfall.planning.registry import PLANNERS

MARKETS = ((SPOT, 0.01), (ONDEMAND, 0.03))
SMALL = Offer(name="s", price_usd=0.01, cores=2, cycle_s=60.0, lag_s=30.0, market=SPOT, limit=40)


def test_machines_that_differ_in_when_they_are_free_are_renewed_together(monkeypatch):
    machines = tuple(
        Machine(id=str(n), offer=SMALL, phase=Phase.IDLE, ready_t=0.0, paid_until_t=1000.0 + n, up_since_t=0.0)
        for n in range(40)
    )
    groups = (Group(Task(-1, 30.0), 3000),)
    shown = Snapshot(t=1000.0, deadline_t=9000.0, tasks={}, machines=machines, offers=(SMALL,), groups=groups)
    rounds, real = [], PlanningPass._choices

    def counted(self, left, useless):
        rounds.append(sum(left))
        return real(self, left, useless)

    monkeypatch.setattr(PlanningPass, "_choices", counted)
    decided = PlanningPass(shown, 5.0, ())
    decided.decide()
    assert decided.shortfall() == (0, 0) and sum(e.count for bin in decided.bins for e in bin.placed) == 3000
    assert len(rounds) < 20, "and not one round for each machine and each renewal"


@pytest.mark.parametrize("count", [20_000, 1_000_000])
def test_a_later_deadline_makes_many_short_tasks_hardly_dearer(count):
    """Where cells of time are longer than tasks, interruptions were counted for several tasks as if for each."""
    limits = tuple(replace(SMALL, limit=3000, market=market, price_usd=usd) for market, usd in MARKETS)

    def cost_usd(hours: float) -> float:
        groups = (Group(Task(-1, 60.0), count),)
        shown = Snapshot(t=0.0, deadline_t=3600.0 * hours, tasks={}, machines=(), offers=limits, groups=groups)
        return PLANNERS["windfall"](shown).predicted_cost_usd

    assert cost_usd(48.0) <= 1.25 * cost_usd(8.0)


def test_nearly_equal_tasks_of_a_large_bag_are_planned_as_one_kind_and_none_is_lost_or_shortened():
    random = Random(4)
    items = [
        Item(Task(n, random.lognormvariate(6.0, 0.5)), 1, [n], slack_s=100.0 * random.random()) for n in range(900)
    ]
    found = merged(items)
    assert len(found) < 300 and sum(item.count for item in found) == 900
    assert sorted(number for item in found for number in item.ids) == list(range(900))
    own = {item.ids[0]: item for item in items}
    for item in found:
        for number in item.ids:
            assert item.task.runtime_s + item.slack_s >= own[number].task.runtime_s + own[number].slack_s - 1e-9
            assert item.task.runtime_s == pytest.approx(own[number].task.runtime_s, rel=0.021)
    mean_s = math.fsum(item.task.runtime_s * item.count for item in found)
    assert mean_s == pytest.approx(math.fsum(item.task.runtime_s for item in items))
    assert merged(items[:300]) == items[:300], "up to 300 are planned one by one"


def test_prices_that_are_kept_between_rounds_are_those_that_would_be_computed_again(monkeypatch):
    random = Random(5)
    machines = tuple(
        Machine(id=str(n), offer=SMALL, phase=Phase.IDLE, ready_t=0.0, paid_until_t=1000.0 + n, up_since_t=0.0)
        for n in range(20)
    )
    tasks = {n: Task(n, 20.0 + 200.0 * random.random()) for n in range(250)}
    shown = Snapshot(t=1000.0, deadline_t=5000.0, tasks=tasks, machines=machines, offers=(SMALL,))

    def bought() -> list[tuple[str, float, int]]:
        decided = PlanningPass(shown, 5.0, ())
        decided.decide()
        return [(bin.name, bin.keep_t, sum(entry.count for entry in bin.placed)) for bin in decided.bins]

    kept, real = bought(), Leases.choices

    def forgetful(self, left, useless):
        self._priced.clear()
        return real(self, left, useless)

    monkeypatch.setattr(Leases, "choices", forgetful)
    assert bought() == kept
