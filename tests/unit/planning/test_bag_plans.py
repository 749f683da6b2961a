"""The planners of bags on snapshots made by hand: what they rent, what they wait for, when they replan."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from msgspec.structs import replace

from windfall.lab.hads.world import AC_S, DEADLINE_S, job, offers
from windfall.planning.bags.cover import early_rescue_usd
from windfall.planning.bags.feasibility import attainable, earliest_deadline_t, fits_by
from windfall.planning.bags.packing import Bin, Item, fill, fresh, longest_first
from windfall.planning.bags.planning_pass import PlanningPass
from windfall.planning.bags.prices import Prices
from windfall.planning.bags.safety_net import SafetyNet
from windfall.planning.contract import ONDEMAND, SPOT, Group, Machine, Market, Phase, Running, Snapshot, Task
from windfall.planning.counts import AWAY, CountSettings, SpellCounts, launched, was_up
from windfall.planning.counts import count as count_spell
from windfall.planning.offers import Offer
from windfall.planning.registry import DEFAULT, PLANNERS
from windfall.planning.spot.live import learned_rates, observed_markets

WINDFALL = PLANNERS["windfall"]
DEAR = Offer(name="o", price_usd=1.0, cores=2, cycle_s=600.0, lag_s=60.0, market=ONDEMAND, limit=20)
CHEAP = Offer(
    name="s", price_usd=0.3, cores=2, cycle_s=600.0, lag_s=60.0, market=SPOT, limit=20, when_taken="hibernate"
)


def snapshot(
    *machines: Machine, seconds: float = 100.0, count: int = 4, t: float = 0.0, deadline_t: float = 2000.0, **more
):
    tasks = {number: Task(number, seconds) for number in range(count)}
    values = {"tasks": tasks, "offers": (CHEAP, DEAR), "total": count} | more
    return Snapshot(t=t, deadline_t=deadline_t, machines=machines, **values)


def machine(phase: Phase = Phase.IDLE, offer: Offer = CHEAP, name: str = "m", **more) -> Machine:
    return Machine(id=name, offer=offer, phase=phase, **more)


def markets(plan) -> list[str]:
    return [start.offer.market for start in plan.start]


def test_every_planner_of_the_issue_is_there_and_ours_is_the_default():
    assert DEFAULT == "windfall"
    assert set(PLANNERS) >= {"windfall", "hads", "hads-as-printed", "uniform-progress", "greedy", "on-demand", "spot"}


def test_it_rents_spot_where_nothing_is_known_and_time_is_plenty():
    plan = WINDFALL(snapshot())
    assert set(markets(plan)) == {SPOT}
    assert sorted(task for queue in plan.assign.values() for task in queue) == [0, 1, 2, 3]
    assert plan.predicted_cost_usd >= 0.3
    assert "all on-demand" in {rejected.what for rejected in plan.rejected}
    assert next(r for r in plan.rejected if r.what.startswith("all on")).cost_usd > plan.predicted_cost_usd


@pytest.mark.parametrize(("count", "words"), [(1, "to run 1 task"), (4, "to run 4 tasks")])
def test_a_plan_says_in_words_for_how_many_tasks_it_rents(count, words):
    assert any(text.endswith(words) for text in WINDFALL(snapshot(count=count)).because)


def test_it_rents_on_demand_where_spot_is_known_to_be_reclaimed_all_the_time():
    hopeless = replace(CHEAP, interruptions_per_h=60.0, resumes_per_h=0.0)
    assert set(markets(WINDFALL(snapshot(offers=(hopeless, DEAR))))) == {ONDEMAND}


@pytest.mark.parametrize("days", [0.02, 0.2, 1, 7, 90])
def test_a_far_deadline_makes_short_tasks_no_dearer(days):
    by_the_minute = tuple(replace(offer, cycle_s=60.0, lag_s=5.0) for offer in (CHEAP, DEAR))
    plan = WINDFALL(snapshot(seconds=2.0, count=12, deadline_t=days * 86_400.0, offers=by_the_minute))
    assert set(markets(plan)) == {SPOT} and plan.predicted_cost_usd == pytest.approx(0.3, rel=0.1)
    assert next(r for r in plan.rejected if r.what.startswith("all on")).cost_usd == pytest.approx(1.0)


def test_what_is_paid_for_is_filled_before_anything_is_rented():
    plan = WINDFALL(snapshot(machine(paid_until_t=600.0, ready_t=0.0)))
    assert plan.start == []
    assert sorted(plan.assign["m"]) == [0, 1, 2, 3]


def test_an_idle_machine_is_kept_for_tasks_of_mean_length_before_another_one_is_rented():
    """Billed by the minute, a lease was prolonged for the shortest task only; machines came and went idle."""
    minute = tuple(replace(offer, cycle_s=60.0, price_usd=offer.price_usd / 10) for offer in (CHEAP, DEAR))
    tasks = {number: Task(number, seconds) for number, seconds in enumerate((221.0, 394.0, 569.0, 662.0))}
    idle = machine(offer=minute[1], paid_until_t=300.0, ready_t=240.0, up_since_t=240.0)
    plan = WINDFALL(snapshot(idle, t=240.0, deadline_t=3556.0, tasks=tasks, offers=minute[1:]))
    assert plan.start == [] and sorted(plan.assign["m"]) == [0, 1, 2, 3]


def test_an_idle_machine_ends_just_before_its_next_cycle_and_not_sooner():
    spare = machine(name="spare", paid_until_t=600.0)
    busy = machine(Phase.BUSY, DEAR, "busy", running=(Running(0, 400.0),), paid_until_t=1200.0)
    early = WINDFALL(snapshot(spare, busy, count=1, t=300.0))
    assert early.stop == []
    assert 590.0 <= early.replan_t < 600.0
    assert WINDFALL(snapshot(spare, busy, count=1, t=early.replan_t)).stop == ["spare"]


def test_a_hibernated_machine_is_waited_for_until_a_rescue_would_be_late():
    hibernated = machine(Phase.HIBERNATED, running=(Running(0, 60.0),), paid_until_t=math.inf, hibernated_since_t=100.0)
    wakes = (replace(CHEAP, resumes_per_h=30.0), DEAR)
    plan = WINDFALL(snapshot(hibernated, count=1, t=100.0, offers=wakes))
    assert plan.start == []
    assert plan.replan_t <= 2000.0 - 60.0 - 100.0
    late = WINDFALL(snapshot(hibernated, count=1, t=1835.0, offers=wakes))
    assert markets(late) == [ONDEMAND]
    assert late.assign[late.start[0].label] == [0]


def test_on_demand_machines_start_when_the_safety_net_would_fail():
    busy = machine(Phase.BUSY, running=(Running(0, 90.0),), paid_until_t=2400.0)
    plan = WINDFALL(snapshot(busy, count=1, t=2000.0 - 5.0 - 160.0))
    assert markets(plan) == [ONDEMAND]
    assert any("the safety net would not hold" in reason for reason in plan.because)


def test_it_replans_before_the_safety_net_could_fail():
    busy = machine(Phase.BUSY, running=(Running(0, 500.0),), paid_until_t=1200.0)
    shown = snapshot(busy, count=1, seconds=600.0, t=300.0)
    plan = WINDFALL(shown)
    safety_net = SafetyNet(shown, [], shown.room(), 5.0)
    assert plan.replan_t <= safety_net.latest_t([Item(Task(0, 600.0), 1, [])])


def test_a_deadline_before_the_earliest_possible_one_does_not_fit():
    asked = snapshot(deadline_t=120.0)
    assert not fits_by(asked, 120.0)
    assert fits_by(asked, earliest_deadline_t(asked, 0.0))


def test_no_deadline_is_possible_for_a_task_that_fits_on_no_machine():
    small = (replace(CHEAP, memory_gb=1.0), replace(DEAR, memory_gb=1.0))
    assert earliest_deadline_t(snapshot(tasks={0: Task(0, 10.0, memory_gb=2.0)}, offers=small), 5.0) == math.inf


def test_a_million_tasks_are_planned_in_numbers():
    groups = (Group(Task(-1, 30.0), 600_000), Group(Task(-1, 10.0), 400_000))
    many = (replace(CHEAP, limit=500, cores=64), replace(DEAR, limit=5_000, cores=64))
    plan = WINDFALL(snapshot(tasks={}, groups=groups, offers=many, total=1_000_000, deadline_t=4 * 3600.0))
    assert 1 <= len(plan.start) <= 5_500
    assert all(queue == [] for queue in plan.assign.values())
    assert plan.predicted_finish_t <= 4 * 3600.0


def test_a_job_without_a_deadline_is_planned_too():
    assert set(markets(WINDFALL(snapshot(deadline_t=math.inf)))) == {SPOT}


def test_greedy_and_all_spot_rent_spot_and_on_demand_does_not():
    shown = snapshot()
    assert set(markets(PLANNERS["greedy"](shown))) == {SPOT}
    assert set(markets(PLANNERS["spot"](shown))) == {SPOT}
    assert set(markets(PLANNERS["on-demand"](shown))) == {ONDEMAND}


def test_uniform_progress_waits_above_its_line_and_rents_on_demand_below_it():
    hibernated = machine(Phase.HIBERNATED, running=(Running(0, 60.0),), paid_until_t=math.inf, hibernated_since_t=100.0)
    ahead = snapshot(hibernated, count=1, t=100.0, total=100)
    behind = snapshot(hibernated, count=1, t=1000.0, total=1)
    assert PLANNERS["uniform-progress"](ahead).start == []
    assert markets(PLANNERS["uniform-progress"](behind)) == [ONDEMAND]


def test_machines_that_survive_lower_the_hazard_rate_and_reclaimed_ones_raise_it():
    nothing = learned_rates(CHEAP, {}).interrupts_per_s
    calm = snapshot(machine(Phase.BUSY, up_since_t=0.0), t=36_000.0, deadline_t=40_000.0)
    assert learned_rates(CHEAP, observed_markets(calm)).interrupts_per_s < nothing / 2
    assert learned_rates(CHEAP, {CHEAP.key: Market(hibernated=5, up_s=3600.0)}).interrupts_per_s > 2 * nothing


def test_a_task_costs_more_the_later_it_is_and_a_hibernated_one_no_more_than_a_waiting_one():
    sleepy = tuple(replace(offer, when_taken="hibernate") for offer in offers())
    shown = Snapshot(t=0.0, deadline_t=DEADLINE_S, tasks={}, machines=(), offers=sleepy)
    prices = Prices(shown, 198.0, 60, 5.0)
    assert prices.waiting_usd[0] < prices.waiting_usd[60] < prices.waiting_usd[80]
    assert len(prices.hibernated_usd) == 4
    for hibernated_usd in prices.hibernated_usd.values():
        assert all(hibernated_usd[cell] <= prices.waiting_usd[cell] for cell in range(100))
    assert prices.ondemand_usd[0] >= prices.waiting_usd[0]


def test_each_core_is_filled_to_the_brim_where_there_is_more_than_fits():
    items = longest_first(
        Item(Task(place, seconds), 1, [place]) for place, seconds in enumerate([300.0, 290.0, 240.0, 60.0])
    )
    bin, left = Bin("m", replace(DEAR, cores=1), [0.0], 360.0, []), [1, 1, 1, 1]
    assert fill(bin, items, left) == 2
    assert bin.free_t == [360.0]


def test_hungry_tasks_do_not_run_side_by_side():
    fat = [Item(Task(place, 100.0, memory_gb=3.0), 1, [place]) for place in range(2)]
    bin = fresh("m", replace(DEAR, memory_gb=4.0), 0.0, math.inf)
    fill(bin, fat, [1, 1])
    assert sorted(entry.start_t for entry in bin.placed) == [60.0, 160.0]


def test_the_paper_s_first_job_starts_on_spot_for_less_than_the_paper_s_schedule_costs_with_luck():
    tasks = {task.id: task for task in job("J551")}
    plan = WINDFALL(Snapshot(t=0.0, deadline_t=DEADLINE_S, tasks=tasks, machines=(), offers=tuple(offers()), total=60))
    assert set(markets(plan)) == {SPOT}
    assert sum(start.offer.price_usd for start in plan.start) < 0.29
    assert plan.predicted_finish_t <= 2 * AC_S


def test_refused_spot_is_waited_for_while_on_demand_costs_no_more_later_and_not_longer():
    spot = Offer(name="spot", pool="c", market="spot", price_usd=0.1, cores=1, lag_s=60.0, limit=0)
    sure = Offer(name="sure", pool="c", price_usd=0.4, cores=1, lag_s=60.0, limit=10)
    tasks = {number: Task(number, 600.0) for number in range(4)}
    markets = {spot.key: Market(refused=1, refused_t=0.0)}

    def planned(t: float):
        seen = Snapshot(t=t, deadline_t=4 * 3600.0, tasks=tasks, machines=(), offers=(spot, sure), markets=markets)
        return PLANNERS["windfall"](seen)

    early = planned(1.0)
    assert early.start == []
    assert 1.0 < early.replan_t < 4 * 3600.0
    assert any("wait for spot" in reason for reason in early.because)
    late = planned(4 * 3600.0 - 700.0)
    assert {start.offer.name for start in late.start} == {"sure"}
    assert len(late.start) == 4


BY_THE_HOUR = Offer(name="h", pool="c", market=SPOT, price_usd=0.9, cores=1, lag_s=200.0, limit=40)
SURE_BY_THE_HOUR = Offer(name="o", pool="c", price_usd=3.0, cores=1, lag_s=200.0, limit=60)


def doubtful(count: int) -> dict[int, Task]:
    return {number: Task(number, 2400.0, mean_s=1350.0) for number in range(count)}


def test_by_the_second_it_rents_far_fewer_machines_than_there_are_tasks():
    terms = {"cycle_s": 1.0, "minimum_s": 60.0}
    tariffs = (
        replace(BY_THE_HOUR, price_usd=0.9 / 3600, **terms),
        replace(SURE_BY_THE_HOUR, price_usd=3.0 / 3600, **terms),
    )
    assert len(WINDFALL(snapshot(tasks=doubtful(40), offers=tariffs, deadline_t=4 * 3600.0)).start) <= 12


def test_no_paid_machine_is_idle_while_another_has_a_queue():
    idle = [machine(name=f"m{number}", paid_until_t=600.0) for number in range(3)]
    plan = WINDFALL(snapshot(*idle, count=6))
    assert plan.start == []
    assert sorted(len(plan.assign[one.id]) for one in idle) == [2, 2, 2]


def test_where_all_machines_are_being_reclaimed_no_more_are_rented_and_the_rest_waits():
    noticed_offers = machine(
        Phase.BUSY, BY_THE_HOUR, running=(Running(0, 600.0),), paid_until_t=3600.0, noticed_t=300.0
    )
    shown = snapshot(
        noticed_offers, tasks=doubtful(4), offers=(BY_THE_HOUR, SURE_BY_THE_HOUR), t=300.0, deadline_t=8 * 3600.0
    )
    plan = WINDFALL(shown)
    assert plan.start == []
    assert any("wait for spot" in reason for reason in plan.because)


def test_an_hour_that_is_free_when_the_machine_is_reclaimed_is_not_expected_to_be_paid():
    shown = snapshot(offers=(replace(BY_THE_HOUR, interruptions_per_h=1.0), SURE_BY_THE_HOUR), deadline_t=4 * 3600.0)
    charged = snapshot(
        offers=(replace(BY_THE_HOUR, interruptions_per_h=1.0, free_if_taken=False), SURE_BY_THE_HOUR),
        deadline_t=4 * 3600.0,
    )
    free_usd, charged_usd = (
        float(Prices(seen, 1350.0, 40, 5.0).paid_cycles(seen.offers[0], np.array([2.0]))[0])
        for seen in (shown, charged)
    )
    assert free_usd == pytest.approx(math.exp(-1) + math.exp(-2))
    assert charged_usd == pytest.approx(1 + math.exp(-1))


def test_forty_machines_that_go_at_once_tell_less_than_forty_that_go_one_by_one():
    together, apart = (
        learned_rates(BY_THE_HOUR, {BY_THE_HOUR.key: Market(reclaimed=40, up_s=40 * 200.0, spells=spells)}, 3600.0)
        for spells in (1, 40)
    )
    assert together.interrupts_per_s < apart.interrupts_per_s / 3


def test_an_hour_that_costs_nothing_when_it_is_cut_short_is_no_reason_to_rent_more_machines_at_every_look():
    tariffs, tasks = (BY_THE_HOUR, SURE_BY_THE_HOUR), doubtful(20)
    first = WINDFALL(snapshot(tasks=tasks, offers=tariffs, deadline_t=8 * 3600.0))
    rented = [
        machine(Phase.PENDING, start.offer, str(place), ready_t=200.0, paid_until_t=3600.0, up_since_t=0.0)
        for place, start in enumerate(first.start)
    ]
    again = WINDFALL(snapshot(*rented, tasks=tasks, offers=tariffs, t=60.0, deadline_t=8 * 3600.0))
    assert len(again.start) <= 1


def test_spot_that_has_just_gone_is_waited_for_even_if_on_demand_costs_a_little_more_later():
    spot, sure = replace(BY_THE_HOUR, limit=0), SURE_BY_THE_HOUR
    markets = {spot.key: Market(started_t=3000.0, refused=1, refused_t=3600.0)}
    planning_pass = PlanningPass(
        snapshot(tasks=doubtful(40), offers=(spot, sure), markets=markets, t=3600.0, deadline_t=4 * 3600.0), 5.0, []
    )
    later_t = planning_pass.t + planning_pass.review_pause_s()
    assert planning_pass.worth_postponing(planning_pass.items, later_t)
    assert planning_pass._ondemand_usd(planning_pass.items, planning_pass.by_t - 2000.0) > planning_pass._ondemand_usd(
        planning_pass.items, planning_pass.t
    )
    assert not planning_pass.worth_postponing(planning_pass.items, planning_pass.by_t - 1.0)


def test_spot_is_waited_for_where_absences_were_short_and_not_where_they_were_long():
    spot = replace(BY_THE_HOUR, limit=0)

    def seen(absence_s: float, absences: int) -> PlanningPass:
        counts = SpellCounts(away_t=3000.0, seen_t=3600.0)
        for _ in range(absences):
            count_spell(counts, AWAY, 0.0, 0.0, absence_s, ended=True)
        markets = {spot.key: Market(started_t=3000.0, refused=1, refused_t=3600.0, counts=counts)}
        return PlanningPass(
            snapshot(tasks=doubtful(40), offers=(spot, SURE_BY_THE_HOUR), markets=markets, t=3600.0,
                     deadline_t=4 * 3600.0), 5.0, []
        )  # fmt: skip

    short, long = seen(900.0, 60), seen(40 * 3600.0, 10)
    later_t = short.by_t - 2000.0  # on-demand machines cost more by then
    assert short.worth_postponing(short.items, later_t)
    assert not long.worth_postponing(long.items, later_t)


def test_many_that_wait_together_stop_waiting_sooner_than_one():
    spot = replace(BY_THE_HOUR, limit=0)

    def waits_until(count: int) -> float:
        markets = {spot.key: Market(refused=1, refused_t=0.0)}
        for t in np.arange(0.0, 4 * 3600.0, 60.0).tolist():
            seen = snapshot(
                tasks=doubtful(count), offers=(spot, SURE_BY_THE_HOUR), markets=markets, t=t, deadline_t=4 * 3600.0
            )
            if WINDFALL(seen).start:
                return t
        return math.inf

    assert waits_until(20) < waits_until(1) - 300.0


def test_no_alternative_that_is_shown_costs_less_than_what_was_chosen():
    for offers_ in ((CHEAP, DEAR), (BY_THE_HOUR, SURE_BY_THE_HOUR), (replace(CHEAP, interruptions_per_h=9.0), DEAR)):
        for deadline_t in (2_000.0, 7_200.0, 28_800.0):
            for count in (4, 40):
                plan = WINDFALL(snapshot(count=count, offers=offers_, deadline_t=deadline_t))
                assert all(r.cost_usd >= plan.predicted_cost_usd - 1e-6 for r in plan.rejected)


def test_an_idle_spot_machine_ends_where_a_task_without_a_name_could_not_be_rescued_from_it():
    spare, sure = machine(name="spare", paid_until_t=2400.0), machine(offer=DEAR, name="sure", paid_until_t=2400.0)
    late = snapshot(spare, sure, tasks={}, groups=(Group(Task(-1, 100.0), 1),), total=1, t=1800.0)
    assert WINDFALL(late).stop == ["spare"]


def test_what_waits_behind_others_on_demand_is_looked_at_while_it_could_still_be_moved():
    busy = machine(Phase.BUSY, SURE_BY_THE_HOUR, running=(Running(0, 1200.0),), waiting=(1,), paid_until_t=3600.0)
    shown = snapshot(busy, tasks=doubtful(2), offers=(SURE_BY_THE_HOUR,), deadline_t=7200.0)
    plan = WINDFALL(shown)
    assert plan.start == []
    assert plan.replan_t <= 7200.0 - 2400.0 - 200.0


def test_spot_is_not_rented_if_a_rescue_would_begin_before_it_has_done_anything():
    spot = Offer(name="s", pool="c", price_usd=0.03, cores=2, lag_s=120.0, limit=20, market=SPOT)
    steady = Offer(name="o", pool="c", price_usd=0.085, cores=2, lag_s=120.0, limit=20)
    tasks = {number: Task(number, 480.0, mean_s=320.0) for number in range(200)}
    tight = PLANNERS[DEFAULT](Snapshot(t=0.0, deadline_t=2400.0, tasks=tasks, machines=(), offers=(spot, steady)))
    assert set(markets(tight)) == {ONDEMAND}
    mean_cores = PLANNERS[DEFAULT](Snapshot(t=0.0, deadline_t=7200.0, tasks=tasks, machines=(), offers=(spot, steady)))
    assert set(markets(mean_cores)) == {SPOT}


def test_the_price_of_an_early_rescue_grows_smoothly_as_the_deadline_comes_nearer():
    """It was the whole rescue or nothing: spot first went from $0.74 to $2.27 within two milliseconds."""
    spot = Offer(name="s", pool="c", price_usd=0.03, cores=2, lag_s=120.0, limit=20, market=SPOT)
    steady = Offer(name="o", pool="c", price_usd=0.085, cores=2, lag_s=120.0, limit=20)
    tasks = {number: Task(number, 480.0, mean_s=320.0) for number in range(200)}

    def early_usd(deadline_t: float) -> float:
        decided = PlanningPass(
            Snapshot(t=0.0, deadline_t=deadline_t, tasks=tasks, machines=(), offers=(spot, steady)), 5.0, ()
        )
        decided.decide()
        return early_rescue_usd(decided)

    found = [early_usd(2420.0 + 20.0 * step) for step in range(14)]
    assert found[0] > 1.0 and found[-1] < 0.3
    assert max(abs(after - before) for before, after in pairwise(found)) < 0.25


def test_on_demand_machines_share_one_queue_where_tasks_of_unknown_length_can_begin_in_time():
    """Forty tasks of 23 minutes, of which one in four hundred takes longer than 83: two hours are left."""
    sure = replace(DEAR, cores=1, limit=60, lag_s=240.0, price_usd=3.06, cycle_s=3600.0)
    tasks = {number: Task(number, 5000.0, mean_s=1360.0) for number in range(40)}
    shot = replace(snapshot(tasks=tasks, offers=(sure,), deadline_t=7200.0), run_time_quantile=0.9975)
    plan = PLANNERS["on-demand"](shot)
    assert 14 <= len(plan.start) <= 34, "a machine for each task is far too many"
    assert sum(len(queue) for queue in plan.assign.values()) == 40
    # Whatever has not begun by then moves to a machine that is rented then.
    assert plan.replan_t <= 7200.0 - 5000.0 - 240.0
    assert len(PLANNERS["greedy"](shot).start) == 40


def test_a_young_spell_of_spot_is_no_reason_for_on_demand_where_there_is_time_to_wait_for_an_old_one():
    """Reclaimed after four minutes: capacity that has just come back is risky now and much less so later."""
    hour = 3600.0
    spot = replace(CHEAP, cores=1, when_taken="terminate", cycle_s=hour, lag_s=200.0, price_usd=0.9, limit=40)
    sure = replace(DEAR, cores=1, cycle_s=hour, lag_s=200.0, price_usd=3.0, limit=60)
    counts = SpellCounts()
    launched(counts, 0.0, CountSettings())
    was_up(counts, 0.0, 240.0, True, CountSettings())
    seen = Market(up_s=720.0, reclaimed=3, spells=1, started_t=0.0, counts=counts)
    shot = snapshot(seconds=1360.0, count=20, t=260.0, deadline_t=8 * hour, offers=(spot, sure), markets={"/s": seen})
    prices = Prices(shot, 1360.0, 20, 5.0)
    spot_usd, sure_usd = float(prices.waiting_usd[0]), float(prices.ondemand_usd[0])
    assert 0.05 < spot_usd < 0.6 < sure_usd, "an hour of spot holds two or three tasks, or is free"
    assert set(markets(WINDFALL(shot))) == {SPOT}


def test_a_first_plan_that_cannot_promise_the_deadline_names_the_nearest_that_can_be_promised():
    tasks = {number: Task(number, 3000.0, mean_s=1000.0) for number in range(4)}
    plan = WINDFALL(snapshot(tasks=tasks, deadline_t=2500.0))
    assert plan.promised_t is not None and 3000.0 + DEAR.lag_s < plan.promised_t < 1.05 * (3000.0 + DEAR.lag_s + 5.0)
    assert "cannot be promised with a chance of 95%" in plan.because[0] and "until " in plan.because[0]
    again = WINDFALL(snapshot(tasks=tasks, deadline_t=plan.promised_t))
    assert again.promised_t is None and "promised" not in again.because[0]
    # Once something is rented it has been said.
    begun = WINDFALL(snapshot(machine(), tasks=tasks, deadline_t=2500.0))
    assert begun.promised_t is None


def test_a_tail_beyond_the_deadline_is_no_reason_for_a_machine_for_each_task():
    """Two short run times and six that last: one task in 500 would take longer than the time that is left."""
    sure = replace(DEAR, cores=1, limit=60, lag_s=240.0, price_usd=3.06, cycle_s=3600.0)
    tasks = {number: Task(number, 9618.0, mean_s=422.0) for number in range(40)}
    shot = replace(snapshot(tasks=tasks, offers=(sure,), deadline_t=6800.0), run_time_quantile=0.9979)
    plan = WINDFALL(shot)
    assert len(plan.start) <= 20
    assert plan.promised_t is not None and plan.promised_t > 6800.0, "it is still said that nothing is promised"


def test_quantiles_that_can_be_kept_are_kept_and_others_fall_as_the_time_does():
    shot = snapshot(tasks=doubtful(20), offers=(CHEAP, DEAR), deadline_t=50_000.0)
    assert attainable(shot, 5.0) is shot
    planned_s = [attainable(replace(shot, deadline_t=by_t), 5.0).tasks[0].runtime_s for by_t in range(1800, 4000, 50)]
    assert planned_s[0] < planned_s[-1] and planned_s == sorted(planned_s)
    assert all(after - before < 60.0 for before, after in pairwise(planned_s)), "and smoothly"


def test_while_spot_is_refused_and_run_times_are_uncertain_one_task_begins_on_demand_and_the_others_wait():
    """All forty waited for spot until they were found to be too long for the time that was left."""
    refused = Market(refused=3, refused_t=900.0)
    spot = replace(CHEAP, when_taken="terminate", limit=0)
    tasks = {number: Task(number, 1000.0, mean_s=300.0) for number in range(20)}

    def planned(t: float, **more):
        shown = Snapshot(
            t=t, deadline_t=9000.0, tasks=tasks, machines=(), offers=(spot, DEAR), markets={spot.key: refused}, **more
        )
        return WINDFALL(shown)

    assert planned(5000.0, total=20).start == [], "at first all wait"
    plan = planned(6000.0, total=20)
    assert [start.offer for start in plan.start] == [DEAR]
    assert any("wait for spot capacity" in reason for reason in plan.because)
    assert planned(6000.0, total=40).start == [], "twenty have ended: what tasks take is known"


def test_a_plan_counts_what_running_tasks_will_still_cost():
    by_the_second = replace(DEAR, price_usd=0.001, cycle_s=1.0)
    busy = machine(Phase.BUSY, by_the_second, running=(Running(0, 90.0), Running(1, 40.0)), paid_until_t=10.0)
    plan = WINDFALL(snapshot(busy, count=2, t=10.0, offers=(by_the_second,), spent_usd=0.5))
    assert plan.predicted_cost_usd == pytest.approx(0.59)
