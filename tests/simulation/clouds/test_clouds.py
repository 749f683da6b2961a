"""Clouds in the simulated world: promises at every step, the same markets for every planner, and what things cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.clouds.ledger import recounted
from windfall.core.events import CheckpointSaved, HostAsked, PricesReported, ResultsReported, TasksEstimated
from windfall.core.records import encode_record
from windfall.core.state.invariants import problems
from windfall.core.state.renting import fleet
from windfall.planning.contract import Phase, Plan, Start, Task
from windfall.planning.offers import Offer
from windfall.sim.clouds.market import Market, Supply
from windfall.sim.inputs.laws import RandomLaw, fixed
from windfall.sim.inputs.traces import Prices, Series
from windfall.sim.run import run
from windfall.sim.scenario import check
from windfall.sim.studies.one_bag import poisson, run_bag, traced
from windfall.sim.world import World

HOUR = 3600.0
SPOT = {"name": "spot", "market": "spot", "price_usd": 0.03, "cycle": "15m", "cores": 2, "limit": 6, "boot": "3m"}
SURE = {"name": "sure", "price_usd": 0.10, "cycle": "15m", "cores": 2, "limit": 8, "boot": "3m"}


def scenario(spot=None, bag=None, cloud=None, **more):
    """Two offers in a cloud and a small bag that a planner rents for; `spot`, `bag`, `cloud` change single keys."""
    document = {
        "cloud": [{"name": "cloud", "offer": [SPOT | (spot or {}), SURE]} | (cloud or {})],
        "bag": [
            {
                "name": "bag", "tasks": 40, "run": {"law": "uniform", "low": "2m", "high": "5m"}, "deadline": "40m",
                "planner": "hads", "told": "each", "max_losses": 200,
            } | (bag or {})
        ],
    }  # fmt: skip
    return check(document | more, Path("test.toml"))


OFTEN = {"interruptions_per_h": 4.0}
GONE_WRONG = {
    "terminated": OFTEN,
    "terminated with notice": OFTEN | {"notice": "2m"},
    "stopped": OFTEN | {"when_taken": "stop", "hibernated": {"law": "exponential", "mean": "5m"}},
    "hibernated for ever": OFTEN | {"when_taken": "hibernate"},
    "hibernated and resumed": OFTEN | {"when_taken": "hibernate", "hibernated": {"law": "exponential", "mean": "4m"}},
    "hibernated while it boots": {"interruptions_per_h": 60.0, "when_taken": "hibernate", "hibernated": "2m"},
    "taken at an age": {"life": {"law": "weibull", "scale": "15m", "shape": 3.0}},
    "refused now and then": {"refusals": 0.6},
    "capacity comes and goes": {
        "up": {"law": "exponential", "mean": "10m"}, "down": {"law": "exponential", "mean": "6m"},
    },
    "hibernated with checkpoints": OFTEN | {
        "when_taken": "hibernate", "hibernated": {"law": "exponential", "mean": "9m"},
    },
    "billed by the second": {"cycle": "1s", "minimum": "1m", "free_if_taken": False, "interruptions_per_h": 6.0},
}  # fmt: skip
APART = {"a network outage": {"outage": [{"at": "8m", "lasts": "6m"}]},
         "a restart": {"restart": [{"at": "8m", "lasts": "3m"}]}}  # fmt: skip


def watched(made, seed):
    """A world that has run, its records, and every promise that was broken on the way."""
    broken, records, worlds = [], [], []

    def keep(record):
        records.append(record)
        broken.extend(problem for world in worlds for problem in problems(world.driver.state))

    world = World(made, seed, keep)
    worlds.append(world)
    world.run()
    return world, records, broken


@pytest.mark.parametrize("what", [*GONE_WRONG, *APART])
@pytest.mark.parametrize("seed", [1, 2])
def test_the_engine_keeps_its_promises_at_every_step_whatever_happens_to_the_machines(what, seed):
    bag = {"checkpoint_mb": 10.0, "checkpoint_every": "1m"} if "checkpoints" in what else {}
    made = scenario(GONE_WRONG.get(what, OFTEN), bag, **APART.get(what, {}))
    world, records, broken = watched(made, seed)
    assert broken == []
    bag = world.driver.state.bags[1]
    assert bag.counts == [0, 0, 40, 0, 0], "every task is done"
    assert all(not machine.there for machine in world.driver.state.fleet.machines.values()), (
        "every machine was given back"
    )
    assert recounted(records, world.driver.now) == {
        number: fleet.owed_microusd(machine, world.driver.now)
        for number, machine in world.driver.state.fleet.machines.items()
    }


def log_of(made, seed) -> bytes:
    return b"".join(map(encode_record, watched(made, seed)[1]))


def test_the_same_seed_gives_the_same_log_and_another_seed_another():
    made = scenario(GONE_WRONG["hibernated and resumed"])
    assert log_of(made, 3) == log_of(made, 3)
    assert log_of(made, 3) != log_of(made, 4)


# --- markets --------------------------------------------------------------------------------------------------------


def supply(**more):
    return Supply(offer=Offer(name="spot", price_usd=0.1, market="spot", limit=4, pool="cloud"), **more)


MARKETS = {
    "poisson": {"interruptions_per_h": 3.0, "hibernated": RandomLaw("exponential", {"mean": 300.0})},
    "tide": {"up": RandomLaw("exponential", {"mean": HOUR}), "down": RandomLaw("exponential", {"mean": 600.0})},
    "series": {"ticks": Series(600.0, (4, 4, 2, 0, 0, 1, 3, 4))},
}


@pytest.mark.parametrize("kind", MARKETS)
def test_a_place_is_interrupted_at_the_same_times_in_every_plan(kind):
    early, late = (Market(supply(**MARKETS[kind]), "cloud", 5) for _ in range(2))
    first = early.rent(0.0) or early.rent(HOUR)
    at = early.taken_t(first, 0.0)
    for _ in range(3):
        tried = next(t for t in range(0, 20_000, 60) if (second := late.rent(float(t))) is not None)
        late.give_back(second)
    place = late.rent(float(tried))
    moments = {early.taken_t(first, float(t)) for t in range(0, 40_000, 100)}
    assert late.taken_t(place, float(tried)) in moments
    assert at in moments
    wake = early.back_t(first, at)
    assert wake == late.back_t(place, at)


def test_a_series_is_the_number_of_machines_that_can_be_had():
    market = Market(supply(ticks=Series(600.0, (2,))), "cloud", 1)
    assert [market.rent(0.0) is not None for _ in range(4)] == [True, True, True, True], "four share the largest count"
    market = Market(supply(ticks=Series(600.0, (2, 4))), "cloud", 1)
    counts = set()
    for t in (0.0, 600.0):
        places = [place for _ in range(4) if (place := market.rent(t)) is not None]
        counts.add(len(places))
        for place in places:
            market.give_back(place)
    assert counts == {2, 4}


def test_prices_hold_from_their_time_on_and_begin_again_where_the_series_ends():
    prices = Prices((0.0, 100.0, 250.0), (1.0, 2.0, 3.0), 300.0)
    assert [prices.at(t, 0.0) for t in (0.0, 99.0, 100.0, 260.0, 301.0)] == [1.0, 1.0, 2.0, 3.0, 1.0]
    assert [prices.next_t(t, 0.0) for t in (0.0, 100.0, 260.0)] == [100.0, 250.0, 300.0]


def test_a_bag_can_be_run_on_a_series_from_a_chosen_moment_of_it():
    offer = Offer(name="spot", price_usd=0.001, cycle_s=1.0, market="spot", limit=2, lag_s=30.0)
    series = {"spot": Series(600.0, (0, 2, 2, 0))}
    first, second = (
        run_bag([Task(0, 300.0)], traced([offer], series, begins), 9000.0, OneMachine(), 1) for begins in (0.25, 0.75)
    )
    assert first.finish_s == pytest.approx(330.0) and len(first.machines) == 1
    assert 1200.0 < second.finish_s < 1800.0, "there is none in the last tick, nor in the first again"
    assert {machine.cause for machine in second.machines} == {"refused", "released"}


class OneMachine:
    """Rents one machine of the first offer, and gives it back when there is nothing left."""

    names_up_to = 0.0

    def __call__(self, snapshot):
        if not snapshot.machines and snapshot.unfinished:
            return Plan(start=[Start("new", snapshot.offers[0])] if snapshot.left_of(snapshot.offers[0]) else [])
        idle = [machine.id for machine in snapshot.machines if machine.phase is Phase.IDLE]
        return Plan(stop=[] if snapshot.unfinished else idle)


def one_machine(tasks, supplies, **more):
    records = []
    outcome = run_bag(tasks, supplies, 9000.0, OneMachine(), 1, keep=records.append, **more)
    return outcome, records


def test_a_cycle_costs_the_price_that_holds_when_it_begins():
    offer = Offer(name="sure", price_usd=1.0, cycle_s=600.0, limit=2)
    moves = Prices(tuple(700.0 * n for n in range(20)), tuple(float(6 + n) for n in range(20)), 14_000.0)
    outcome, records = one_machine([Task(0, 2000.0)], [Supply(offer=offer, boot=fixed(60.0), prices=moves)])
    reported = [
        price for record in records if isinstance(record.event, PricesReported) for _, price in record.event.prices
    ]
    assert len(set(reported)) >= 3
    machine = outcome.machines[0]
    assert machine.ended_s == pytest.approx(2060.0)
    assert {1: round(outcome.cost_usd * 1e6)} == recounted(records, 0.0)
    assert outcome.cost_usd == pytest.approx(sum(reported[at] for at in held_at(records, [0.0, 600.0, 1200.0, 1800.0])))


def held_at(records, moments):
    """Which of the reported prices holds at each moment."""
    times = [record.event.t for record in records if isinstance(record.event, PricesReported)]
    return [max(place for place, t in enumerate(times) if t <= moment) for moment in moments]


# --- machines -------------------------------------------------------------------------------------------------------


def test_a_hibernated_task_stands_still_and_goes_on_from_its_break_point():
    offer = Offer(name="spot", price_usd=0.3, cycle_s=600.0, market="spot", when_taken="hibernate", limit=1)
    sleepy = Supply(offer=offer, boot=fixed(60.0), life=fixed(500.0), hibernated=fixed(1000.0), once=True)
    outcome, _ = one_machine([Task(0, 900.0)], [sleepy])
    assert outcome.finish_s == pytest.approx(60.0 + 900.0 + 1000.0)
    assert [what for _, _, what in outcome.events] == ["started", "ready", "hibernated", "resumed", "released"]
    assert outcome.machines[0].sleeps_s == ((500.0, 1500.0),)
    assert outcome.cost_usd == pytest.approx(2 * 0.3), "960 s held; the sleep is not billed"
    assert outcome.lost == 0 and outcome.machines[0].ready_s == 60.0


def test_a_hibernated_task_is_reported_as_by_workers_without_the_hibernation():
    world, records, _ = watched(scenario(GONE_WRONG["hibernated and resumed"]), 1)
    reports = [record.event for record in records if isinstance(record.event, ResultsReported)]
    runs_s = [result.end - result.start for event in reports for result in event.results if result.exit == 0]
    assert any(machine.sleeps for machine in world.driver.state.fleet.machines.values())
    assert len(runs_s) >= 40 and min(runs_s) >= 120 and max(runs_s) <= 300 + 1e-3


def test_a_stopped_machine_comes_back_and_begins_its_task_again():
    offer = Offer(name="spot", price_usd=0.3, cycle_s=600.0, market="spot", when_taken="stop", limit=1)
    stops = Supply(offer=offer, boot=fixed(60.0), life=fixed(500.0), hibernated=fixed(1000.0), once=True)
    outcome, _ = one_machine([Task(0, 900.0)], [stops])
    assert outcome.finish_s == pytest.approx(1500.0 + 60.0 + 900.0)
    assert outcome.lost == 1


def test_a_task_that_checkpoints_goes_on_from_there_on_another_machine():
    offer = Offer(name="spot", price_usd=0.3, cycle_s=600.0, market="spot", limit=1)
    task = Task(0, 3000.0, checkpoint_mb=25.0)  # 14 s to write or read
    taken = [Supply(offer=offer, boot=fixed(60.0), life=fixed(2060.0), once=True)]
    outcome, records = one_machine([task], taken)
    saved = [record.event.saved_s for record in records if isinstance(record.event, CheckpointSaved)]
    # Every ten minutes of work: three in the 2,000 s of the first machine, one more in the 1,200 s that are left.
    assert saved == [600.0, 1200.0, 1800.0, 2400.0]
    assert outcome.lost == 1 and outcome.done == 1
    assert outcome.finish_s == pytest.approx(2060.0 + 60.0 + 14.0 + 1200.0 + 14.0)


def test_a_notice_of_a_reclaim_triggers_a_checkpoint():
    offer = Offer(name="spot", price_usd=0.3, cycle_s=600.0, market="spot", limit=1)
    task = Task(0, 3000.0, checkpoint_mb=25.0)
    taken = [Supply(offer=offer, boot=fixed(60.0), life=fixed(2060.0), once=True, notice_s=120.0)]
    _, records = one_machine([task], taken)
    saved = [record.event.saved_s for record in records if isinstance(record.event, CheckpointSaved)]
    # At 1,880 s of its 2,000 s: three checkpoints of 14 s have been written by then.
    assert saved == [600.0, 1200.0, 1800.0, 1880.0 - 3 * 14.0, 1838.0 + 600.0]
    short = [Supply(offer=offer, boot=fixed(60.0), life=fixed(2060.0), once=True, notice_s=10.0)]
    _, records = one_machine([task], short)
    saved = [record.event.saved_s for record in records if isinstance(record.event, CheckpointSaved)]
    assert saved == [600.0, 1200.0, 1800.0, 2400.0], "ten seconds are too short to write it"


def test_a_bag_that_leaves_the_interval_to_the_engine_saves_as_it_is_told():
    bag = {"checkpoint_mb": 10.0, "checkpoint_auto": True, "run": "40m", "tasks": 6, "deadline": "8h"}
    made = scenario({"interruptions_per_h": 6.0, "told": True}, bag)
    world, records, broken = watched(made, 1)
    assert broken == [] and world.driver.state.bags[1].counts[2] == 6
    told = {
        (piece.job, piece.first): piece.checkpoint_s
        for record in records if isinstance(record.event, HostAsked)
        for piece in record.decided.assigned
    }  # fmt: skip
    assert all(told.values())
    saved = [record.event.saved_s for record in records if isinstance(record.event, CheckpointSaved)]
    assert saved and min(told.values()) < 600.0, "six interruptions an hour ask for more than one save in ten minutes"


def test_the_speed_of_an_offer_may_depend_on_the_class_of_the_task():
    offer = Offer(name="sure", price_usd=0.3, speed={"default": 1.0, "blast": 2.0}, limit=1)
    quick = [Supply(offer=offer, boot=fixed(0.0))]
    assert one_machine([Task(0, 900.0, task_class="blast")], quick)[0].finish_s == pytest.approx(450.0)
    assert one_machine([Task(0, 900.0, task_class="fit")], quick)[0].finish_s == pytest.approx(900.0)


def test_a_budget_ends_a_machine_before_the_cycle_that_would_exceed_it():
    offer = Offer(name="spot", price_usd=1.0, cycle_s=600.0, market="spot", limit=1, free_if_taken=False)
    short = [Supply(offer=offer, boot=fixed(60.0), life=fixed(700.0))]
    outcome, _ = one_machine([Task(0, 900.0)], short, budget_usd=5.0, until_s=20_000.0)
    assert outcome.finish_s is None and not outcome.met
    assert len(outcome.machines) == 3, "each comes to two dollars; with four spent there is money for half of one"
    assert [machine.cause for machine in outcome.machines] == ["taken", "taken", "released"]
    assert outcome.cost_usd == 5.0


# --- planners -------------------------------------------------------------------------------------------------------


def paper_offers():
    sizes = {"large": (2, 3.75, 0.105, 0.0294), "xlarge": (4, 7.5, 0.21, 0.0588)}
    return [
        Offer(
            name=f"{name}-{market}", price_usd=price, cores=cores, memory_gb=memory, cycle_s=900.0, lag_s=180.0,
            market=market, limit=5,
        )
        for name, (cores, memory, sure, spot) in sizes.items()
        for market, price in (("on-demand", sure), ("spot", spot))
    ]  # fmt: skip


@pytest.mark.parametrize("rates", [(1.0, 0.0), (5.0, 0.0), (5.0, 5.0)])
def test_hads_meets_its_deadline_under_hibernation_and_every_planner_meets_the_same_interruptions(rates):
    tasks = [Task(number, 110.0 + 7.0 * (number % 30), 0.005) for number in range(40)]
    markets = poisson(paper_offers(), *rates, 2100.0)
    for seed in range(1, 4):
        moments = {}
        for planner in ("hads", "hads-as-printed"):
            outcome = run_bag(tasks, markets, 2100.0, planner, seed)
            assert outcome.done == 40 and (outcome.met or planner != "hads")
            first = min(machine.number for machine in outcome.machines)
            moments[planner] = [t for t, number, what in outcome.events if number == first and what == "hibernated"]
        assert moments["hads"] == moments["hads-as-printed"], "the first machine is the same for both"


def test_a_plan_that_takes_time_comes_later_and_the_bag_is_done_all_the_same():
    for planning, first_s in (("30s", 30.0), ("0s", 0.0)):
        outcome, world = run(scenario(OFTEN, server={"planning": planning}), 1)
        assert outcome.bags[0].done == 40
        assert world.driver.state.fleet.machines[1].requested_t == first_s


@pytest.mark.parametrize("told", ["nothing", "mean", "each"])
def test_run_times_may_be_wrong_and_the_bag_is_done_all_the_same(told):
    error = {"law": "lognormal", "median": 1.1, "sigma": 0.3}
    world, records, broken = watched(scenario(OFTEN, {"told": told, "error": error, "deadline": "3h"}), 1)
    assert broken == []
    assert world.driver.state.bags[1].counts[2] == 40
    guesses = [event for record in records if isinstance(event := record.event, TasksEstimated)]
    assert len(guesses) == (told == "each")


class Stubborn:
    """Orders the same machine again whenever it is asked, however often it is refused."""

    names_up_to = 0.0

    def __call__(self, snapshot):
        return Plan(start=[Start("new", snapshot.offers[0])])


def test_time_passes_whatever_a_planner_says():
    offer = Offer(name="spot", price_usd=1.0, market="spot", limit=1)
    none = [Supply(offer=offer, boot=fixed(0.0), refusals=1.0)]
    outcome = run_bag([Task(0, 10.0)], none, 60.0, Stubborn(), 1, until_s=30.0)
    assert outcome.finish_s is None and outcome.cost_usd == 0.0
    assert 1 < outcome.plans <= 301


def test_hosts_that_cost_nothing_and_rented_machines_work_on_the_same_bag():
    pool = {"name": "grid", "hosts": 3, "stay": {"law": "exponential", "mean": "30m"}, "wait": "2m", "poll_max": "20s"}
    made = scenario({"interruptions_per_h": 3.0}, {"planner": "hads", "deadline": "3h"}, pool=[pool])
    broken, worlds = [], []
    world = World(
        made, 1, lambda record: broken.extend(p for w in worlds for p in problems(w.driver.state)),
        planner=lambda name: OneMachine(),
    )  # fmt: skip
    worlds.append(world)
    world.run()
    assert broken == []
    assert world.driver.state.bags[1].counts[2] == 40
    assert world.grounds[0].books.done > 0 and world.provider.books["cloud"].done > 0
    assert world.grounds[0].books.done + world.provider.books["cloud"].done == 40


class Broken:
    """Fails at every second look."""

    names_up_to = 0.0

    def __init__(self):
        self.looks = 0

    def __call__(self, snapshot):
        self.looks += 1
        if self.looks % 2:
            raise ZeroDivisionError("a mistake in a planner")
        return OneMachine()(snapshot)


def test_a_planner_that_fails_is_replaced_for_the_moment_and_the_bag_is_done():
    sure = Offer(name="sure", price_usd=0.1, cycle_s=600.0, limit=1)
    outcome = run_bag([Task(0, 900.0)], [Supply(offer=sure, boot=fixed(60.0))], 9000.0, Broken(), 1)
    assert outcome.finish_s == pytest.approx(960.0)
    assert outcome.failed_plans > 0
    assert "a mistake in a planner" in outcome.trouble and "stepped in" in outcome.trouble
