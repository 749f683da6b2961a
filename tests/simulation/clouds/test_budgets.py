"""Random clouds, prices and budgets: no billing cycle that would exceed the budget is begun."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from windfall.core.decisions import TimeJudged
from windfall.core.events import MachineEnded
from windfall.core.state.invariants import problems
from windfall.core.state.renting import fleet
from windfall.planning.contract import Task
from windfall.planning.offers import Offer
from windfall.planning.registry import PLANNERS
from windfall.sim.clouds.market import Supply
from windfall.sim.inputs.laws import NEVER, RandomLaw, fixed
from windfall.sim.inputs.traces import Prices
from windfall.sim.studies.one_bag import scenario_of
from windfall.sim.world import World

PRICES = st.floats(0.01, 0.5)


@st.composite
def supplies(draw):
    """A spot and an on-demand offer: billed by the second or the hour, reclaimed in every way, at moving prices."""
    cycle_s = draw(st.sampled_from([1.0, 60.0, 900.0, 3600.0]))
    spot_usd = draw(PRICES) * cycle_s / 3600.0
    common = {
        "cycle_s": cycle_s, "cores": draw(st.integers(1, 2)), "lag_s": draw(st.sampled_from([0.0, 45.0])),
        "minimum_s": draw(st.sampled_from([0.0, 60.0])), "bills_boot": draw(st.booleans()), "limit": 4,
        "free_if_taken": draw(st.booleans()),
    }  # fmt: skip
    when_taken = draw(st.sampled_from(["terminate", "hibernate", "stop"]))
    spot = Offer(name="spot", market="spot", price_usd=spot_usd, when_taken=when_taken, **common)
    sure = Offer(name="sure", price_usd=3 * spot_usd, **common)
    moves = st.lists(st.tuples(st.floats(60.0, 5000.0), PRICES), min_size=1, max_size=4)
    prices = None
    if draw(st.booleans()):
        steps = sorted(draw(moves))
        prices = Prices(
            (0.0, *(at for at, _ in steps)), (spot_usd * 3600 / cycle_s, *(usd for _, usd in steps)), 6000.0
        )
    hibernated = RandomLaw("exponential", {"mean": 300.0}) if draw(st.booleans()) else NEVER
    return [
        Supply(
            offer=spot, boot=fixed(spot.lag_s), interruptions_per_h=draw(st.sampled_from([0.0, 2.0, 10.0])),
            hibernated=hibernated, prices=prices, begins=0.0,
        ),
        Supply(offer=sure, boot=fixed(sure.lag_s)),
    ]  # fmt: skip


def spent_usd(world, t=None):
    state, now = world.driver.state, world.driver.now if t is None else t
    return sum(fleet.owed_microusd(machine, now) for machine in state.fleet.machines.values()) / 1e6


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    offers=supplies(), tasks=st.lists(st.floats(100.0, 4000.0), min_size=1, max_size=12), share=st.floats(0.02, 1.2),
    planner=st.sampled_from(["windfall", "greedy", "on-demand"]), seed=st.integers(0, 99),
)  # fmt: skip
def test_no_cycle_that_we_chose_to_begin_exceeds_the_budget(offers, tasks, share, planner, seed):
    hourly_usd = max(supply.offer.price_usd * 3600.0 / supply.offer.cycle_s for supply in offers)
    budget_usd = round(share * (sum(tasks) / 3600.0 + len(tasks)) * hourly_usd, 6) or 1e-6
    made = scenario_of([Task(i, s) for i, s in enumerate(tasks)], offers, 5000.0, planner, None, budget_usd, 20_000.0)
    broken, worlds = [], []

    def keep(record):
        for world in worlds:
            broken.extend(problems(world.driver.state))
            if spent_usd(world, record.event.t) > budget_usd + 1e-9:
                broken.append((record.event, spent_usd(world, record.event.t)))

    world = World(made, seed, keep, None, PLANNERS.__getitem__)
    worlds.append(world)
    world.run()
    assert not broken, broken[0]
    assert spent_usd(world) <= budget_usd + 1e-9
    machines = world.driver.state.fleet.machines.values()
    assert not any(fleet.after_stop_microusd(machine, world.driver.now) for machine in machines)


def test_a_machine_goes_back_before_the_cycle_that_would_break_the_budget_and_its_task_goes_back_to_the_queue():
    offer = Offer(name="sure", price_usd=0.25, cycle_s=900.0, cores=1, limit=1)
    made = scenario_of([Task(0, 2000.0)], [Supply(offer=offer)], 5000.0, "on-demand", None, 0.6, 20_000.0)
    records = []
    world = World(made, 1, records.append, None, PLANNERS.__getitem__)
    world.run()
    state = world.driver.state
    told = [record for record in records if isinstance(record.decided, TimeJudged) and record.decided.given_back]
    ended = [record.event for record in records if isinstance(record.event, MachineEnded)]
    assert spent_usd(world) == 0.5 and [record.decided.given_back for record in told] == [[1]]
    assert 1795.4 < told[0].event.t < 1795.6 and ended[0].cause == "released"
    assert state.bags[1].columns.losses[0] == 0 and state.bags[1].waiting == 1
