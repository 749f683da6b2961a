"""Prices that move: the law is found again in paths drawn from it, live ones and those of forecasts."""

from __future__ import annotations

from math import log
from random import Random
from statistics import fmean, pstdev

import pytest
from msgspec.structs import replace

from windfall.core.state.renting.fleet import MachineState, owed_microusd
from windfall.core.state.state import State
from windfall.drivers.keepers.market import market_news
from windfall.errors import BadInput
from windfall.planning.counts import PriceCounts, priced
from windfall.planning.offers import Offer, PriceLaw
from windfall.planning.price_law import learned_law, path
from windfall.pools.emulated.cloud import EmulatedPool
from windfall.pools.emulated.config import rented_from
from windfall.pools.kinds import Place
from windfall.sim.studies.forecast import Forecast, Question, simulated, supply_of
from windfall.workflows.offers import offer_from

LAW = PriceLaw(changes_per_h=2.0, step=0.05, spread=0.2)


def counted(steps, until_h):
    found = PriceCounts()
    for at_h, usd in steps:
        priced(found, 3600.0 * at_h, usd)
    priced(found, 3600.0 * until_h, steps[-1][1])
    return found


def test_a_law_is_learned_from_the_prices_that_it_gave():
    chance = Random(1)
    steps = path(LAW, 0.1, 4000.0, lambda a, b: chance.uniform(1e-9, 1 - 1e-9))
    found = learned_law([counted(steps, 4000.0)])
    assert found is not None
    assert found.changes_per_h == pytest.approx(2.0, rel=0.05) and found.step == pytest.approx(0.05, rel=0.05)
    assert found.spread == pytest.approx(0.2, rel=0.25)
    assert pstdev(log(usd) for _, usd in steps) == pytest.approx(0.2, rel=0.25)


def test_prices_that_hardly_move_have_no_law_and_a_law_without_changes_stays():
    assert learned_law([PriceCounts()]) is None
    assert learned_law([counted([(0.0, 0.1), (1.0, 0.2)], 2.0)]) is None
    assert path(replace(LAW, changes_per_h=0.0), 0.1, 1e9, lambda a, b: 0.5) == [(0.0, 0.1)]


def test_forecasts_carry_the_spread_of_prices():
    sure = Offer(name="sure", price_usd=0.1, cycle_s=600.0, limit=4)

    def costs(offer):
        question = Question(
            estimates_s=(1500.0,) * 8, memory_bytes=(0,) * 8, spread=0.0, supplies=(supply_of(offer),),
            planner="on-demand",
        )  # fmt: skip
        runs = [run for _, run in simulated(question, [(7200.0, seed) for seed in range(1, 9)], None)]
        return Forecast(7200.0, tuple(runs)).cost_usd

    still = costs(sure)
    moving = costs(replace(sure, price_moves=PriceLaw(changes_per_h=6.0, step=0.2, spread=0.5)))
    assert still.low == still.high == still.mean
    assert moving.high > 1.1 * moving.low and moving.mean == pytest.approx(still.mean, rel=0.5)


def emulated(tmp_path, now):
    table = {
        "name": "spot", "market": "spot", "price_usd": 0.1, "cycle_s": 600,
        "law": {"price_changes_per_h": 60.0, "price_step": 0.1, "price_spread": 0.3},
    }  # fmt: skip
    from windfall.pools.emulated.config import Cloud

    cloud = Cloud("cloud", (rented_from(table, "cloud", 1.0, tmp_path, "test"),), seed=4)
    place = Place("http://127.0.0.1:9", tmp_path / "token", tmp_path / "account")
    return EmulatedPool(cloud, place, "me", lambda: now[0])


def test_an_emulated_cloud_charges_prices_that_move_and_the_ledger_bills_them(tmp_path):
    from windfall.core.engine import Engine

    now = [1_000_000.0]
    pool, engine, state = emulated(tmp_path, now), Engine(), State()
    again = None
    try:

        def look():
            for event in market_news(state, "cloud", pool, now[0]):
                engine.step(state, event)

        look()
        offer = state.fleet.offers["cloud"][0]
        assert offer.price_usd == 0.1
        machine = MachineState(number=1, fleet=1, offer=offer, requested_t=now[0], id="m1", ready_t=now[0])
        machine.meter = replace(machine.meter, since_t=now[0])
        state.fleet.add(machine)
        begun_t = now[0]
        for _ in range(60):
            now[0] += 60.0
            look()
        moves = pool.price_moves()
        assert len(moves) > 20 and state.fleet.offers["cloud"][0].price_usd == moves[-1].price_usd
        assert market_news(state, "cloud", pool, now[0]) == [], "what was told is not told again"
        held = [[move.price_usd for move in moves if move.since_t <= begun_t + cycle * 600.0][-1] for cycle in range(6)]
        assert len(set(held)) > 3
        assert owed_microusd(machine, now[0]) == pytest.approx(1e6 * sum(held), abs=6)
        again = emulated(tmp_path, now)
        assert again.price_moves() == moves, "the next server sees the same prices"
    finally:
        pool.close()
        if again is not None:
            again.close()


def test_a_law_of_prices_that_is_none_is_refused(tmp_path):
    base = {"name": "spot", "market": "spot", "price_usd": 0.1}
    assert offer_from(base | {"price_moves": {"changes_per_h": 1, "step": 0.1, "spread": 0.2}}, "x").price_moves
    for wrong in ({"changes_per_h": -1, "step": 0.1, "spread": 0.2}, {"changes_per_h": 1}, {"changes": 1}):
        with pytest.raises(BadInput):
            offer_from(base | {"price_moves": wrong}, "x")
    for law in ({"price_changes_per_h": 1.0}, {"price_changes_per_h": -1.0, "price_step": 0.1}):
        with pytest.raises(BadInput):
            rented_from(base | {"law": law}, "cloud", 1.0, tmp_path, "x")


def test_steps_stay_near_the_price_of_now_for_a_while():
    """What matters within hours is the step, however far prices get in months."""
    ends = []
    for seed in range(200):
        chance = Random(seed)
        steps = path(
            PriceLaw(changes_per_h=0.13, step=0.0024, spread=0.03), 1.0, 10.0, lambda a, b, c=chance: c.random()
        )
        ends.append(log(steps[-1][1]))
    assert pstdev(ends) < 0.006 and abs(fmean(ends)) < 0.002


def test_prices_that_were_next_to_nothing_once_make_no_law_without_bounds():
    watched = PriceCounts(4, 4 * 3600.0, 2e9, 1e18, 1e-300, 1e9, log_squares=4 * 700.0**2)
    law = learned_law([watched])
    assert law == PriceLaw(changes_per_h=1.0, step=1.0, spread=3.0)
    assert all(usd < 1e30 for _, usd in path(law, 1.0, 500.0, lambda a, b: 0.999))
