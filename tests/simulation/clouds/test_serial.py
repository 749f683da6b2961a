"""A long task that checkpoints, through the engine, beside the laboratory's planner on the same series of capacity."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from windfall.lab.spot.engine import boot_of, run_in_engine, supplies_of
from windfall.lab.spot.trace import Series, choices, run, terms_of
from windfall.planning.contract import Task
from windfall.planning.spot.market import Market, Terms
from windfall.planning.spot.windfall import PLANNERS, Windfall, WindfallByAsking
from windfall.sim.studies.one_bag import run_bag

TICK_S = 600.0


def terms(work_h: float, deadline_h: float) -> Terms:
    return terms_of(
        TICK_S, work_h=work_h, deadline_h=deadline_h, changeover_s=720.0, spot_usd=1.0, ondemand_usd=3.0
    )  # fmt: skip


def spells(*ticks: int) -> Series:
    """Capacity for so many ticks, then none for so many, and so on."""
    available = [place % 2 == 0 for place, count in enumerate(ticks) for _ in range(count)]
    return Series("made up", TICK_S, available)


LONG_SPELLS = spells(40, 9, 60, 14, 30, 3, 70, 20, 200)
NEVER = spells(0, 400)
ALWAYS = spells(400)
LATE = spells(0, 30, 300)


@pytest.mark.parametrize("deadline_h", [18.0, 24.0])
@pytest.mark.parametrize("series", [LONG_SPELLS, NEVER, ALWAYS, LATE], ids=["spells", "never", "always", "late"])
def test_the_engine_chooses_what_the_laboratory_chooses_tick_by_tick(series: Series, deadline_h: float) -> None:
    assert_same(series, 0, terms(15.0, deadline_h))


@pytest.mark.parametrize("seed", range(6))
def test_the_engine_chooses_what_the_laboratory_chooses_on_drawn_series_with_a_past(seed: int) -> None:
    rng = np.random.default_rng(seed)
    assert_same(spells(*(int(length) for length in rng.geometric(0.1, 120))), 300, terms(10.0, 11.0 + seed))


def assert_same(series: Series, start: int, work: Terms) -> None:
    in_laboratory = tuple(choices(series, start, work, WindfallByAsking(work, boot_s=boot_of(work))))
    in_engine = run_in_engine(series, start, work)
    assert shown(in_engine.choices[: len(in_laboratory)]) == shown(in_laboratory)
    assert in_engine.result.met
    cost_usd = run(series, start, work, WindfallByAsking(work, boot_s=boot_of(work))).cost_usd
    assert in_engine.result.cost_usd == pytest.approx(cost_usd, rel=0.02)


def shown(chosen: tuple[Market, ...]) -> str:
    return "".join({Market.IDLE: ".", Market.SPOT: "s", Market.ONDEMAND: "D"}[choice] for choice in chosen)


@pytest.mark.parametrize("series", [NEVER, ALWAYS], ids=["never", "always"])
def test_where_capacity_never_changes_it_makes_no_difference_whether_it_is_seen_or_asked_for(series: Series) -> None:
    work = terms(15.0, 18.0)
    assert tuple(choices(series, 0, work, Windfall(work))) == tuple(choices(series, 0, work, WindfallByAsking(work)))


def test_a_task_on_demand_goes_back_to_spot_and_loses_nothing_but_the_changeover() -> None:
    series, work = spells(30, 12, 200), terms(15.0, 17.0)
    found = run_in_engine(series, 0, work)
    assert Market.ONDEMAND in found.choices[30:42]
    assert found.choices[-1] is Market.SPOT
    assert found.result.met


def test_the_time_of_saves_is_part_of_the_work() -> None:
    found = run_in_engine(NEVER, 0, terms(15.0, 17.0), save_every_s=TICK_S)
    assert found.result.met


@pytest.mark.parametrize("seed", range(6))
def test_the_deadline_is_kept_whatever_capacity_does(seed: int) -> None:
    rng = np.random.default_rng(seed)
    series = spells(*(int(length) for length in rng.geometric(0.12, 120)))
    work = terms(10.0, 12.0 + seed)
    found = run_in_engine(series, 0, work)
    assert found.result.met
    assert found.result.cost_usd <= 1.25 * run(series, 0, work, PLANNERS["windfall"](work)).cost_usd


def test_several_such_tasks_each_have_a_machine_and_cost_less_than_on_demand() -> None:
    work, rng = terms(15.0, 20.0), np.random.default_rng(3)
    series = spells(*(int(length) for length in rng.geometric(0.08, 120)))
    supplies = [replace(each, offer=replace(each.offer, limit=3)) for each in supplies_of(series, 0, work)]
    tasks = [Task(place, (15.0 - place) * 3600.0, checkpoint_mb=1.0) for place in range(3)]
    found, ondemand = (
        run_bag(tasks, supplies, 20.5 * 3600.0, planner, 1, save_every_s=3600.0)
        for planner in ("windfall", "on-demand")
    )
    assert found.met
    assert found.trouble == ""
    assert found.cost_usd < ondemand.cost_usd
