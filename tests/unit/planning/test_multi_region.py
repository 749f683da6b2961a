"""The published rules for several regions: where they go when a zone is lost, and what progress is worth to them."""

from __future__ import annotations

import pytest

from windfall.lab.spot.fleet import planner_of, planners_in
from windfall.lab.spot.worlds import World, run
from windfall.planning.spot.fleet import FleetTerms, Seat, Zone
from windfall.planning.spot.law import LEARNING, PRIOR
from windfall.planning.spot.market import Market
from windfall.planning.spot.multi_region import RULES, EagerFailover, SkyNomad, expected_life_h
from windfall.planning.spot.sight import Watcher

SPOT = Market.SPOT


def terms(work_ticks: int = 60, deadline_ticks: int = 100) -> FleetTerms:
    return FleetTerms(
        seats=1, work_ticks=work_ticks, deadline_ticks=deadline_ticks, changeover_ticks=2, tick_s=600.0,
        ondemand_usd=3.0,
    )  # fmt: skip


def test_a_lost_machine_is_replaced_in_the_cheapest_other_zone_first():
    planner = EagerFailover(terms(), 3)
    here = [Zone(1, 1.0), Zone(1, 1.2), Zone(1, 1.1)]
    planner.observe(here, [Seat()])
    assert planner.choose(0, 60, [Seat()])[0].zone == 0
    planner.observe(here, [Seat()])
    assert planner.choose(5, 57, [Seat()])[0].zone == 2, "zone 0 was lost: it is tried last"
    planner.observe([Zone(1, 1.0), Zone(0, 1.2), Zone(0, 1.1)], [Seat()])
    assert planner.choose(9, 55, [Seat()])[0].zone == 0, "nothing else is left"


def test_progress_is_worth_more_the_further_the_work_is_behind():
    planner = SkyNomad(terms(), 1)
    planner.observe([Zone(0, 1.0)], [Seat()])
    assert planner.choose(10, 50, [Seat()])[0].market is Market.IDLE, "ahead of its line it waits"
    assert planner.choose(40, 50, [Seat()])[0].market is Market.ONDEMAND, "behind it, it pays"
    planner.observe([Zone(1, 1.0)], [Seat()])
    assert planner.choose(10, 50, [Seat()])[0].market is SPOT
    assert planner.choose(10, 50, [Seat(SPOT, 0, 0, 3)])[0].zone == 0


def test_old_spot_is_expected_to_live_longer_than_young():
    watcher = Watcher(600.0, PRIOR, LEARNING)
    watcher.observe(True)
    young = expected_life_h(watcher)
    for _ in range(100):
        watcher.observe(True)
    assert 0.5 < young < expected_life_h(watcher)


@pytest.mark.parametrize("name", sorted(RULES))
@pytest.mark.parametrize("counts", [[[1, 1]], [[0, 0]], [[1, 0], [0, 1]] * 4, [[1, 1], [1, 1], [0, 0], [0, 0], [0, 1]]])
def test_the_rules_for_several_regions_keep_the_deadline_whatever_zones_do(name, counts):
    world = World("w", 600.0, 1, 3.0, (counts * 200)[:150], [[1.0, 1.1]] * 150)
    found = run(world, 0, terms(), planner_of(name, PRIOR)(terms(), 2))
    assert found.met
    assert found.cost_usd > 0.0
    assert name in planners_in("zones") and name not in planners_in("fleet")
