"""Fleets over zones: who loses a machine, what a move costs, where work goes, and the lab around it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from windfall.errors import BadInput
from windfall.lab import data
from windfall.lab.spot.bags import run_bag
from windfall.lab.spot.command import command
from windfall.lab.spot.trace import Series
from windfall.lab.spot.trace import run as run_one
from windfall.lab.spot.worlds import World, bound_usd, prices, run
from windfall.planning.spot.fleet import (
    FleetTerms,
    Pick,
    Seat,
    SeatBySeat,
    Zone,
    after_loss,
    even_shares,
    fit_shares,
    move,
)
from windfall.planning.spot.fleet_windfall import FleetWindfall
from windfall.planning.spot.market import Market
from windfall.planning.spot.windfall import PLANNERS, Windfall

SPOT, ONDEMAND = Market.SPOT, Market.ONDEMAND


def fleet(seats: int, work_h: float, deadline_h: float, changeover: int = 2) -> FleetTerms:
    return FleetTerms(
        seats=seats,
        work_ticks=seats * round(work_h * 6),
        deadline_ticks=round(deadline_h * 6),
        changeover_ticks=changeover,
        tick_s=600.0,
        ondemand_usd=3.0,
    )


def flickering(ticks: int, stays: float, seed: int) -> list[int]:
    rng = np.random.default_rng(seed)
    return (np.cumsum(rng.random(ticks) > stays) % 2).astype(int).tolist()


def test_a_zone_takes_back_the_machines_started_last():
    seats = (Seat(SPOT, 0, 0, 3), Seat(SPOT, 0, 0, 9), Seat(SPOT, 0, 1, 5), Seat(ONDEMAND, 0, -1, 1))
    left = after_loss(seats, (Zone(1, 1.0), Zone(1, 1.0)))
    assert left == (seats[0], Seat(), seats[2], seats[3])


def test_another_zone_is_another_machine_with_a_changeover_of_its_own():
    seat = Seat(SPOT, 0, 0, 3)
    assert move(2, seat, Pick(SPOT, 0), 7) == (Seat(SPOT, 0, 0, 3), 1)
    assert move(2, seat, Pick(SPOT, 1), 7) == (Seat(SPOT, 1, 1, 7), 0)
    assert move(2, seat, Pick(ONDEMAND), 7) == (Seat(ONDEMAND, 1, -1, 7), 0)
    assert move(2, seat, Pick(Market.IDLE), 7) == (Seat(), 0)


def test_even_shares_differ_by_one_at_most_and_are_the_whole():
    assert even_shares(11, 4) == [3, 3, 3, 2]


def test_work_that_comes_back_goes_to_the_seats_with_least_and_what_is_gone_goes_from_most():
    assert fit_shares([5, 1, 2], 11) == [5, 3, 3]
    assert fit_shares([5, 1, 2], 6) == [3, 1, 2]


def test_a_task_whose_machine_goes_starts_again_and_one_that_runs_is_finished():
    # One seat, spot for four ticks, then never: a task of three ticks after a changeover of two is lost once.
    terms = FleetTerms(
        seats=1, work_ticks=3, deadline_ticks=30, changeover_ticks=2, tick_s=600.0, ondemand_usd=3.0
    )  # fmt: skip
    world = World("drawn", 600.0, 1, 3.0, [[1]] * 4 + [[0]] * 40, [[1.0]] * 44)
    outcome = run_bag(world, 0, terms, (1800.0,), lambda planned, zones: SeatBySeat(planned, zones, PLANNERS["greedy"]))
    assert outcome.met
    assert outcome.cost_usd == pytest.approx((4 * 1.0 + 5 * 3.0) / 6)


def test_a_fleet_of_one_in_one_zone_does_what_the_single_planner_does():
    ticks = flickering(500, 0.9, 3)
    terms = fleet(1, 14, 18)
    world = World("drawn", 600.0, 1, 3.0, [[there] for there in ticks], [[1.0]] * len(ticks))
    one = run_one(
        Series("drawn", 600.0, [bool(there) for there in ticks]), 300, terms.of_seat(1.0), Windfall(terms.of_seat(1.0))
    )
    found = run(world, 300, terms, FleetWindfall(terms, 1))
    assert (found.finish_h, found.met) == (one.finish_h, one.met)
    assert found.cost_usd == pytest.approx(one.cost_usd, rel=1e-12)  # sums in another order


def test_work_moves_to_the_seat_whose_spot_is_steady():
    ticks = flickering(400, 0.7, 5)
    world = World("drawn", 600.0, 2, 3.0, [[1 + there] for there in ticks], [[1.0]] * len(ticks))
    terms = fleet(2, 10, 13)
    planner = FleetWindfall(terms, 1)
    for tick in range(250):
        planner.observe(world.sight(tick), (Seat(), Seat()))
    planner.choose(0, terms.work_ticks, (Seat(), Seat()))
    assert sum(planner.shares) == terms.work_ticks
    assert planner.shares[0] > planner.shares[1]
    apart = SeatBySeat(terms, 1, PLANNERS["windfall"])
    assert run(world, 250, terms, FleetWindfall(terms, 1)).cost_usd <= run(world, 250, terms, apart).cost_usd


@pytest.mark.parametrize(("dear", "machine_hours_in_cheap"), [(2.9, True), (1.01, False)])
def test_a_machine_is_left_for_a_cheaper_zone_only_where_that_pays(dear, machine_hours_in_cheap):
    terms = fleet(1, 10, 14)
    usd = [[1.0, 1.0]] * 205 + [[dear, 1.0]] * 200
    world = World("drawn", 600.0, 1, 3.0, [[1, 1]] * 405, usd)
    outcome = run(world, 200, terms, FleetWindfall(terms, 2))
    stays = (62 * 1.0 + 57 * (dear - 1.0)) / 6
    moves = (62 + 2) / 6
    assert outcome.cost_usd == pytest.approx(moves if machine_hours_in_cheap else stays, rel=1e-3)


def test_where_one_zone_goes_another_takes_over_without_on_demand():
    terms = fleet(1, 10, 12)
    counts = [[1, 0] if tick // 36 % 2 == 0 else [0, 1] for tick in range(600)]
    world = World("drawn", 600.0, 1, 3.0, counts, [[1.0, 1.0]] * 600)
    outcome = run(world, 400, terms, FleetWindfall(terms, 2))
    assert outcome.cost_usd <= (60 + 3 * 2) / 6 + 1e-9


def test_a_fleet_that_always_has_spot_pays_for_its_work_and_one_changeover_each_and_the_bound_for_fewer_starts():
    terms = fleet(3, 5, 8)
    world = World("calm", 600.0, 3, 3.0, [[3]] * 60, [[1.0]] * 60)
    # Two machines could do the work of three in eight hours; parts of machines need no more.
    assert 3 * 30 / 6 < bound_usd(world, 0, terms) <= (3 * 30 + 2 * 2) / 6
    assert run(world, 0, terms, FleetWindfall(terms, 1)).cost_usd == pytest.approx(3 * 32 / 6)


needs_traces = pytest.mark.skipif(data.root() is None, reason="the shared traces are not here (set WINDFALL_DATA)")


@needs_traces
def test_prices_are_held_from_change_to_change_and_capacity_ends_above_the_price_on_demand():
    world = next(world for world in prices(0.0, 0.0) if world.name == "2015 r3.large")
    dear = [tick for tick, (usd,) in enumerate(world.usd) if usd >= world.ondemand_usd]
    assert dear
    assert all(world.counts[tick] == [0] for tick in dear)
    assert {world.counts[tick][0] for tick in range(len(world.counts))} == {0, world.seats}


@needs_traces
def test_the_lab_writes_a_report_a_figure_and_one_document(tmp_path):
    result = CliRunner().invoke(
        command,
        ["--experiment", "fleet", "--starts", "1", "--work-h", "2", "--deadline-h", "3", "--jobs", "1", "--json",
         "--out", str(tmp_path)],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    summary = json.loads(result.output)
    assert summary["missed"]["3"] == dict.fromkeys(["omniscient", *PLANNERS], 0)
    assert min(summary["ratio"]["3"]["all"].values()) >= 1.0
    assert {path.name for path in tmp_path.iterdir()} == {"spot-fleet.md", "spot-fleet.json", "spot-fleet.svg"}


def test_a_deadline_that_the_work_does_not_fit_into_is_refused_before_anything_runs(tmp_path):
    result = CliRunner().invoke(command, ["--work-h", "5", "--deadline-h", "5", "--out", str(tmp_path)])
    assert isinstance(result.exception, BadInput)
    assert list(tmp_path.iterdir()) == []
