"""Machines and plans in the engine, one event at a time; the promises of the state are checked after every step."""

from __future__ import annotations

import math
from array import array

import pytest
from msgspec.structs import replace

from tests.support.clouds.rented_cloud import KNOWN, SPOT, SURE, Cloud
from tests.support.engine.wishes import plans_wanted
from windfall import graph as graphs
from windfall.core.events import (
    CheckpointSaved,
    JobChanged,
    JobRules,
    JobSealed,
    JobShaped,
    JobSubmitted,
    MachineNoticed,
    MachineRefused,
    MachineResumed,
    OffersConfigured,
    PlanProposed,
    PricesReported,
    TaskClass,
    TasksAdded,
    TasksEstimated,
)
from windfall.core.renting import machines, plans, views
from windfall.core.renting.runtimes import ran_so_far
from windfall.core.state.hosts.hosts import GONE, HIBERNATED
from windfall.core.state.renting import fleet
from windfall.core.state.snapshot import load, save
from windfall.core.wishes import wake_at
from windfall.planning.contract import Phase, Plan, Start
from windfall.planning.offers import Offer


def test_a_job_that_may_rent_wants_a_plan_once_it_is_sealed_and_not_after_it_has_one() -> None:
    cloud = Cloud()
    bag = cloud.rent()
    assert plans_wanted(cloud.state) == [bag.number]
    cloud.plan(bag)
    assert plans_wanted(cloud.state) == []


def test_a_plan_that_was_overtaken_by_events_is_made_again() -> None:
    cloud = Cloud()
    bag = cloud.rent()
    cloud.plan(bag, start=[SPOT])
    seq = cloud.state.seq
    cloud.boot(1)
    cloud.step(PlanProposed(cloud.t, bag.number, seq, Plan()))
    assert plans_wanted(cloud.state) == [bag.number]


def test_reserved_tasks_go_to_their_machine_alone_and_in_order() -> None:
    cloud = Cloud()
    bag = cloud.rent(4)
    cloud.plan(bag, start=[SPOT, SURE], assign={"new-0": [3, 1], "new-1": [0, 2]})
    assert cloud.tasks("elsewhere", 4, 4) == []
    assert [task for _, task, _ in cloud.boot(1)] == [3, 1]
    assert [task for _, task, _ in cloud.boot(2)] == [0, 2]


@pytest.mark.parametrize(("in_order", "begun"), [(False, [2]), (True, [])])
def test_where_a_plan_keeps_the_order_a_core_waits_for_the_first_task_of_its_queue(in_order, begun) -> None:
    cloud = Cloud()
    shape = graphs.from_edges(3, [(0, 1)])
    job = cloud.step(JobSubmitted(0.0, JobRules("flow", rent_from=["cloud"], deadline_s=3600.0), [KNOWN])).decided.job
    cloud.step(JobShaped(0.0, job, shape.key, shape.offsets.tobytes(), shape.children.tobytes()))
    cloud.step(TasksAdded(0.0, job, 3))
    cloud.step(JobSealed(0.0, job))
    queues = {"new-0": [0], "new-1": [1, 2]}
    cloud.plan(cloud.state.bags[job], start=[SPOT, SURE], assign=queues, only_reserved=True, in_order=in_order)
    assert [task for _, task, _ in cloud.boot(1)] == [0]
    assert [task for _, task, _ in cloud.boot(2)] == begun


def test_a_queue_in_order_does_not_wait_for_a_task_that_can_never_begin() -> None:
    cloud = Cloud()
    shape = graphs.from_edges(4, [(0, 1)])
    once = replace(KNOWN, max_failures=1)
    job = cloud.step(JobSubmitted(0.0, JobRules("flow", rent_from=["cloud"], deadline_s=3600.0), [once])).decided.job
    cloud.step(JobShaped(0.0, job, shape.key, shape.offsets.tobytes(), shape.children.tobytes()))
    cloud.step(TasksAdded(0.0, job, 4))
    cloud.step(JobSealed(0.0, job))
    queues = {"new-0": [0, 3], "new-1": [1, 2]}
    cloud.plan(cloud.state.bags[job], start=[SPOT, SURE], assign=queues, only_reserved=True, in_order=True)
    first, _ = cloud.boot(1)
    assert cloud.boot(2) == []
    cloud.report(cloud.state.fleet.machines[1].host_name, first, cause="exit")
    assert [task for _, task, _ in cloud.boot(2)] == [2], "its parent has failed for good"


def test_a_machine_gets_nothing_ahead_and_nothing_of_other_jobs() -> None:
    cloud = Cloud()
    bag, other = cloud.rent(5), cloud.submit(3)
    cloud.plan(bag, start=[SPOT])
    assert [key[0] for key in cloud.boot(1, want=10)] == [bag.number] * 2
    assert cloud.boot(1, want=10) == []
    assert other.waiting == 3


def test_a_machine_takes_unassigned_tasks_of_its_job_after_its_own_queue() -> None:
    cloud = Cloud()
    bag = cloud.rent(3)
    cloud.plan(bag, start=[SPOT], assign={"new-0": [2]})
    assert [task for _, task, _ in cloud.boot(1)] == [2, 0]


def test_from_the_moment_that_a_plan_names_a_machine_that_may_vanish_begins_only_what_is_reserved_for_it() -> None:
    cloud = Cloud()
    bag = cloud.rent(6)
    until_t = cloud.t + 100.0
    cloud.plan(bag, start=[SPOT, SURE], assign={"new-0": [0]}, spot_until_t=until_t)
    assert len(cloud.boot(1)) == 2
    cloud.wait(101)
    cloud.plan(bag, start=[SPOT], assign={"new-0": [5]}, spot_until_t=until_t)
    assert [task for _, task, *_ in cloud.boot(3)] == [5]
    assert len(cloud.boot(2)) == 2


def test_a_new_queue_sets_free_what_it_does_not_name() -> None:
    cloud = Cloud()
    bag = cloud.rent(4)
    cloud.plan(bag, start=[SPOT], assign={"new-0": [0, 1, 2, 3]})
    cloud.plan(bag, assign={"1": [1]})
    assert (bag.waiting, sorted(bag.queues.reserved)) == (3, [1])


def test_limits_of_an_offer_hold_over_all_jobs() -> None:
    cloud = Cloud()
    one, two = cloud.rent(), cloud.rent()
    cloud.plan(one, start=[SURE])
    taken = cloud.plan(two, start=[SURE, SURE])
    assert len(taken.started) == 1
    assert taken.refused == ["start sure: all 2 are rented"]
    shown = {offer.name: offer.limit for offer in views.view(cloud.state, two.number, cloud.t, 1e9).offers}
    assert shown == {"small": 3, "sure": 1}


def test_the_limit_of_a_pool_holds_over_all_its_offers_and_jobs() -> None:
    cloud = Cloud()
    small, sure = replace(SPOT, pool_limit=4), replace(SURE, limit=None, pool_limit=4)
    cloud.step(OffersConfigured(cloud.t, "cloud", [small, sure]))
    one, two = cloud.rent(), cloud.rent()
    assert len(cloud.plan(one, start=[small, sure]).started) == 2
    taken = cloud.plan(two, start=[small, sure, sure])
    assert len(taken.started) == 2
    assert taken.refused == ["start sure: pool cloud has its 4 machines"]
    shown = views.view(cloud.state, one.number, cloud.t, 1e9)
    assert [(offer.limit, offer.pool_limit) for offer in shown.offers] == [(2, 2), (None, 2)]
    assert [shown.left_of(offer) for offer in shown.offers] == [0, 0]
    cloud.end(1, "released")
    shown = views.view(cloud.state, one.number, cloud.t, 1e9)
    assert [shown.left_of(offer) for offer in shown.offers] == [1, 1]


def test_what_is_billed_after_a_stop_is_told_apart() -> None:
    cloud = Cloud()
    bag = cloud.rent(budget_microusd=300_000)
    cloud.plan(bag, start=[SPOT])
    cloud.boot(1)
    machine = cloud.state.fleet.machines[1]
    cloud.wait(899)
    assert machine.stopping and fleet.after_stop_microusd(machine, cloud.t) == 0
    cloud.wait(10)
    assert cloud.cost_usd(1) == 0.5, "the provider did not stop it in time"
    assert fleet.after_stop_microusd(machine, cloud.t) == 250_000
    cloud.end(1, "released")
    assert fleet.after_stop_microusd(machine, cloud.t + 5000) == 250_000


def test_a_hibernated_machine_goes_back_if_its_return_would_exceed_the_budget() -> None:
    cloud = Cloud()
    bag = cloud.rent(budget_microusd=600_000)
    cloud.plan(bag, start=[SPOT])
    cloud.boot(1)
    cloud.wait(899)
    cloud.sleep(1)
    assert cloud.plan(bag, start=[SPOT]).refused, "its second cycle may begin at any moment and is set aside"
    assert not cloud.state.fleet.machines[1].stopping
    cloud.step(JobChanged(cloud.t, bag.number, replace(bag.rules, budget_microusd=400_000)))
    cloud.wait(1)
    assert cloud.state.fleet.machines[1].stopping and cloud.cost_usd(1) == 0.25


def test_a_larger_budget_keeps_a_machine_and_a_saved_state_keeps_the_promise() -> None:
    cloud = Cloud()
    bag = cloud.rent(budget_microusd=300_000)
    cloud.plan(bag, start=[SPOT])
    cloud.boot(1)
    assert wake_at(load(save(cloud.state))) == wake_at(cloud.state)
    assert 895.4 < cloud.state.fleet.budget_t - cloud.t < 895.6
    cloud.step(JobChanged(cloud.t, bag.number, replace(bag.rules, budget_microusd=600_000)))
    assert 1795.4 < cloud.state.fleet.budget_t - cloud.t < 1795.6


def test_a_budget_stops_launching_and_says_so_but_ends_nothing() -> None:
    cloud = Cloud()
    bag = cloud.rent(budget_microusd=1_200_000)
    taken = cloud.plan(bag, start=[SURE, SPOT])
    assert [offer.name for _, _, offer in taken.started] == ["sure"]
    assert taken.refused[0].startswith("start small: the budget of $1.20 does not allow it")
    assert cloud.state.fleet.machines[1].there


def test_a_hibernated_machine_is_not_billed_and_its_lease_stands_still() -> None:
    cloud = Cloud()
    bag = cloud.rent(2)
    cloud.plan(bag, start=[SPOT], assign={"new-0": [0, 1]})
    cloud.wait(60)
    keys = cloud.boot(1)
    cloud.wait(100)
    cloud.sleep(1)
    cloud.wait(10_000)
    assert cloud.state.host("cloud-m1").state == HIBERNATED
    assert cloud.cost_usd(1) == 0.25
    assert bag.counts[1] == 2
    cloud.step(MachineResumed(cloud.t, 1, cloud.t))
    cloud.wait(50)
    cloud.boot(1)
    assert cloud.report("cloud-m1", *keys) == [0, 0]
    assert bag.state == "done"


def test_a_worker_that_asks_again_has_resumed_whatever_the_provider_has_said() -> None:
    cloud = Cloud()
    bag = cloud.rent(2)
    cloud.plan(bag, start=[SPOT])
    cloud.boot(1)
    cloud.sleep(1)
    cloud.wait(5)
    cloud.boot(1)
    assert cloud.state.fleet.machines[1].phase == fleet.RUNNING


def test_tasks_of_a_hibernated_machine_may_move_and_are_dropped_when_it_resumes() -> None:
    cloud = Cloud()
    bag = cloud.rent(2)
    cloud.plan(bag, start=[SPOT], assign={"new-0": [0, 1]})
    cloud.boot(1)
    cloud.sleep(1)
    taken = cloud.plan(bag, start=[SURE], assign={"new-0": [0]})
    assert [entry[1] for entry in taken.moved] == [0]
    assert [task for _, task, _ in cloud.boot(2)] == [0]
    cloud.step(MachineResumed(cloud.t, 1, cloud.t))
    answer = cloud.ask("cloud-m1", 2, 2)
    assert answer.cancel == [(bag.number, 0, 1)]
    assert bag.columns.losses[0] == 0


def test_tasks_that_run_on_a_machine_that_is_up_do_not_move() -> None:
    cloud = Cloud()
    bag = cloud.rent(2)
    cloud.plan(bag, start=[SPOT, SURE])
    cloud.boot(1)
    taken = cloud.plan(bag, assign={"2": [0, 1]})
    assert (taken.moved, taken.queues) == ([], [(2, [])])


def test_a_reclaimed_machine_gives_its_tasks_back_and_its_last_cycle_is_free() -> None:
    cloud = Cloud()
    bag = cloud.rent(4)
    cloud.plan(bag, start=[SPOT], assign={"new-0": [0, 1, 2, 3]})
    cloud.boot(1)
    cloud.wait(950)
    cloud.end(1)
    assert (bag.waiting, bag.queues.reserved, bag.counts[0]) == (4, {}, 4)
    assert cloud.cost_usd(1) == 0.25
    assert cloud.state.host("cloud-m1").state == GONE
    assert plans_wanted(cloud.state) == [bag.number]


def test_a_machine_that_never_came_costs_nothing_and_its_offer_rests_for_a_while() -> None:
    cloud = Cloud()
    bag = cloud.rent(2)
    cloud.step(PlanProposed(cloud.t, bag.number, cloud.state.seq, Plan(start=[Start("a", SPOT)], assign={"a": [0]})))
    cloud.step(MachineRefused(cloud.t, 1, "no capacity"))
    assert (cloud.cost_usd(1), bag.queues.reserved) == (0.0, {})
    shown = {offer.name: offer.limit for offer in views.view(cloud.state, bag.number, cloud.t, 1e9).offers}
    assert shown["small"] == 0
    cloud.plan(bag)
    assert wake_at(cloud.state) == pytest.approx(cloud.t + 15)
    cloud.wait(15)
    assert plans_wanted(cloud.state) == [bag.number]
    shown = {offer.name: offer.limit for offer in views.view(cloud.state, bag.number, cloud.t, 1e9).offers}
    assert shown["small"] == 3


def test_a_busy_machine_is_not_stopped_and_an_idle_one_is() -> None:
    cloud = Cloud()
    bag = cloud.rent(2)
    cloud.plan(bag, start=[SPOT, SPOT])
    keys = cloud.boot(1)
    cloud.boot(2)
    taken = cloud.plan(bag, stop=["1", "2"])
    assert (taken.stopped, taken.refused) == ([2], ["stop m1: 2 tasks run on it"])
    cloud.report("cloud-m1", *keys)
    assert plans.closing(cloud.state, bag.number).stop == ["1"]


def test_a_machine_that_runs_out_of_work_calls_for_a_plan_once() -> None:
    cloud = Cloud()
    bag = cloud.rent(2)
    cloud.submit(1)
    cloud.plan(bag, start=[SPOT, SPOT], assign={"new-0": [0, 1]})
    cloud.boot(1)
    cloud.plan(bag)
    cloud.boot(2)
    cloud.plan(bag)
    cloud.boot(2)
    assert plans_wanted(cloud.state) == []


def test_a_planner_sees_what_is_left_of_running_tasks_without_hibernated_time() -> None:
    cloud = Cloud()
    bag = cloud.rent(3)
    cloud.plan(bag, start=[SPOT], assign={"new-0": [0, 1, 2]})
    cloud.boot(1)
    cloud.wait(50)
    cloud.sleep(1)
    cloud.wait(1000)
    (machine,) = views.view(cloud.state, bag.number, cloud.t, 1e9).machines
    assert (machine.phase, machine.waiting) == (Phase.HIBERNATED, (2,))
    assert [entry.left_s for entry in machine.running] == [250.0, 250.0]
    assert machine.paid_until_t == math.inf


def test_a_planner_that_names_no_tasks_sees_groups() -> None:
    cloud = Cloud()
    bag = cloud.rent(1000)
    snapshot = views.view(cloud.state, bag.number, cloud.t, 0.0)
    assert (snapshot.tasks, [(group.count, group.task.runtime_s) for group in snapshot.groups]) == ({}, [(1000, 300.0)])


def test_a_group_of_tasks_with_estimates_of_their_own_is_shown_in_seconds() -> None:
    cloud = Cloud()
    bag = cloud.rent(4, [TaskClass(estimate_is_exact=True)])
    cloud.step(TasksEstimated(cloud.t, bag.number, array("f", [10.0, 20.0, 30.0, 40.0]).tobytes()))
    (group,) = views.view(cloud.state, bag.number, cloud.t, 0.0).groups
    assert (group.task.runtime_s, group.task.mean_s) == (25.0, 25.0)


def test_several_refusals_at_once_are_one_answer_and_a_short_cycle_is_no_reason_to_ask_every_second() -> None:
    cloud = Cloud()
    by_second = Offer(name="second", pool="cloud", price_usd=0.001, cycle_s=1.0, lag_s=60.0, market="spot")
    cloud.step(OffersConfigured(cloud.t, "cloud", [by_second]))
    bag = cloud.rent(2)
    starts = [Start("a", by_second), Start("b", by_second), Start("c", by_second)]
    cloud.step(PlanProposed(cloud.t, bag.number, cloud.state.seq, Plan(start=starts)))
    for number in (1, 2, 3):
        cloud.step(MachineRefused(cloud.t, number, "no capacity"))
    assert machines.shut_until_t(cloud.state.fleet.markets[by_second.key], by_second) == pytest.approx(cloud.t + 10)


def test_run_times_are_learned_and_corrected_for_the_speed_of_the_machine() -> None:
    cloud = Cloud()
    fast = Offer(name="fast", pool="cloud", price_usd=1.0, cores=2, speed=2.0)
    cloud.step(OffersConfigured(cloud.t, "cloud", [fast]))
    bag = cloud.rent(60, [TaskClass()])
    cloud.plan(bag, start=[fast])
    for _ in range(25):
        keys = cloud.boot(1)
        cloud.wait(10)
        cloud.report("cloud-m1", *keys, run_s=10.0)
    (group,) = views.view(cloud.state, bag.number, cloud.t, 0.0).groups
    assert group.task.mean_s == pytest.approx(20.0)
    assert group.task.runtime_s == pytest.approx(20.0)


def test_plans_keep_slack_for_the_spread_that_was_told() -> None:
    def planned_s(spread: float | None) -> float:
        cloud = Cloud()
        bag = cloud.rent(12, [TaskClass(estimate_s=300.0, spread=spread)])
        tasks = views.view(cloud.state, bag.number, cloud.t, math.inf).tasks
        return max(task.runtime_s for task in tasks.values())

    exact, narrow, usual, wide = map(planned_s, (0.0, 0.1, None, 0.9))
    assert exact == pytest.approx(300.0, rel=1e-3)
    assert exact < narrow < usual < wide


def test_a_task_that_runs_or_was_cut_short_is_known_to_take_longer_than_it_has_run() -> None:
    cloud = Cloud()
    bag = cloud.rent(3, [TaskClass(estimate_s=300.0)])
    cloud.plan(bag, start=[SPOT, SPOT], assign={"new-0": [0, 1]})
    cloud.boot(1)
    cloud.work(1, 900)
    running = views.view(cloud.state, bag.number, cloud.t, 1e9).tasks
    assert running[0].mean_s > 900.0 > running[2].mean_s
    assert running[0].runtime_s > running[2].runtime_s
    cloud.end(1)
    cut_short = views.view(cloud.state, bag.number, cloud.t, 1e9).tasks
    assert cut_short[0].runtime_s == running[0].runtime_s
    assert views.view(load(save(cloud.state)), bag.number, cloud.t, 1e9).tasks == cut_short
    cloud.plan(bag, assign={"2": [0, 1]})
    keys = cloud.boot(2)
    cloud.work(2, 1000)
    cloud.report("cloud-m2", *keys, run_s=1000.0)
    assert bag.progress.interrupted_s == {}


def test_what_only_waited_on_its_machine_has_not_run() -> None:
    cloud = Cloud()
    bag = cloud.rent(3, [TaskClass(estimate_s=300.0)])
    cloud.plan(bag, start=[SPOT])
    cloud.boot(1)
    cloud.work(1, 900)
    cloud.state.hosts[cloud.state.fleet.machines[1].host].slots = 1
    assert [seconds > 0.0 for seconds in ran_so_far(cloud.state, bag, cloud.t).values()] == [True, False]


def test_machines_that_are_reclaimed_together_make_one_spell() -> None:
    cloud = Cloud()
    bag = cloud.rent(6)
    cloud.plan(bag, start=[SPOT, SPOT, SPOT])
    cloud.end(1)
    cloud.wait(30)
    cloud.end(2)
    cloud.wait(3600)
    cloud.end(3)
    market = cloud.state.fleet.markets[SPOT.key].market()
    assert (market.reclaimed, market.spells) == (3, 2)
    assert market.up_s == pytest.approx(0 + 30 + 3630)


def test_offers_and_machines_that_are_reclaimed_together_are_counted_and_those_that_stay() -> None:
    cloud = Cloud()
    other, third = replace(SPOT, name="other"), replace(SPOT, name="third")
    cloud.step(OffersConfigured(cloud.t, "cloud", [SPOT, other, third, SURE]))
    bag = cloud.rent(8)
    cloud.plan(bag, start=[SPOT, SPOT, SPOT, other, third])
    for number in (1, 2, 4):
        cloud.end(number)
        cloud.wait(10)
    counts = cloud.state.fleet.markets[SPOT.key].counts
    assert (counts.peers, counts.peers_lost) == (2, 1)
    assert (counts.together, counts.beside) == ({other.key: 1}, {other.key: 1, third.key: 1})
    of_other = cloud.state.fleet.markets[other.key].counts
    assert (of_other.together, of_other.beside) == ({SPOT.key: 1}, {SPOT.key: 1, third.key: 1})
    assert load(save(cloud.state)).fleet.markets[SPOT.key].counts.beside == counts.beside


def test_a_hibernation_that_a_worker_has_subtracted_is_not_subtracted_again() -> None:
    cloud = Cloud()
    bag = cloud.rent(60, [TaskClass()])
    cloud.plan(bag, start=[SPOT])
    for slept_s in (0.0, 30.0) * 12:
        keys = cloud.boot(1)
        cloud.wait(10)
        cloud.sleep(1)
        cloud.wait(slept_s)
        cloud.step(MachineResumed(cloud.t, 1, cloud.t))
        cloud.wait(10)
        cloud.report("cloud-m1", *keys, run_s=20.0)
    (group,) = views.view(cloud.state, bag.number, cloud.t, 0.0).groups
    assert group.task.mean_s == pytest.approx(20.0)
    assert group.task.runtime_s == pytest.approx(20.0)


def test_a_checkpoint_of_an_earlier_attempt_is_where_the_next_one_begins() -> None:
    cloud = Cloud()
    klass = TaskClass(estimate_s=300.0, estimate_is_exact=True, checkpoint_mb=50.0)
    bag = cloud.rent(1, [klass])
    cloud.plan(bag, start=[SPOT])
    cloud.boot(1)
    cloud.wait(200)
    cloud.step(CheckpointSaved(cloud.t, bag.number, 0, 1, 200.0))
    cloud.end(1)
    cloud.plan(bag, start=[SURE])
    assert views.view(cloud.state, bag.number, cloud.t, 1e9).tasks[0].seconds_on(SURE) == 100 + 13 + 2
    cloud.boot(2)
    cloud.wait(15)
    (machine,) = views.view(cloud.state, bag.number, cloud.t, 1e9).machines
    assert machine.running[0].left_s == pytest.approx(100)


def test_a_machine_that_will_be_reclaimed_gets_no_more_work() -> None:
    cloud = Cloud()
    bag = cloud.rent(4)
    cloud.plan(bag, start=[SPOT])
    cloud.boot(1, want=1)
    cloud.step(MachineNoticed(cloud.t, 1, cloud.t + 120))
    assert cloud.boot(1) == []
    assert plans_wanted(cloud.state) == [bag.number]


def test_a_cycle_costs_what_the_price_was_when_it_began() -> None:
    cloud = Cloud()
    bag = cloud.rent(2)
    cloud.plan(bag, start=[SPOT])
    cloud.wait(100)
    cloud.step(PricesReported(cloud.t, "cloud", [("small", 0.5)]))
    cloud.wait(1000)
    assert cloud.cost_usd(1) == 0.75
    assert cloud.state.fleet.offers["cloud"][0].price_usd == 0.5


def test_a_price_that_is_heard_of_late_is_billed_from_when_it_took_effect() -> None:
    cloud = Cloud()
    offer = replace(SPOT, cycle_s=1.0, price_usd=0.001)
    cloud.step(OffersConfigured(cloud.t, "cloud", [offer]))
    bag = cloud.rent(2)
    begun_t = cloud.t
    cloud.plan(bag, start=[offer, offer])
    cloud.wait(100)
    cloud.end(2, "released")
    cloud.wait(100)
    cloud.step(PricesReported(cloud.t, "cloud", [("small", 0.002)], begun_t + 40.0))
    assert (cloud.cost_usd(1), cloud.cost_usd(2)) == (0.36, 0.16)
    cloud.step(PricesReported(cloud.t, "cloud", [("small", 0.003)], begun_t + 150.0))
    assert (cloud.cost_usd(1), cloud.cost_usd(2)) == (0.41, 0.16)
    assert cloud.state.fleet.priced_t == {"cloud/small": begun_t + 150.0}


def test_a_price_from_before_a_machine_was_ordered_is_its_first_price() -> None:
    cloud = Cloud()
    offer = replace(SPOT, cycle_s=1.0, price_usd=0.001)
    cloud.step(OffersConfigured(cloud.t, "cloud", [offer]))
    bag = cloud.rent(2)
    cloud.plan(bag, start=[offer])
    cloud.wait(10)
    cloud.step(PricesReported(cloud.t, "cloud", [("small", 0.002)], cloud.t - 60.0))
    assert cloud.cost_usd(1) == 0.02


def test_a_price_that_moves_while_a_machine_is_hibernated_counts_from_its_resumption() -> None:
    cloud = Cloud()
    offer = replace(SPOT, cycle_s=1.0, price_usd=0.001)
    cloud.step(OffersConfigured(cloud.t, "cloud", [offer]))
    bag = cloud.rent(2)
    cloud.plan(bag, start=[offer])
    cloud.boot(1)
    cloud.wait(10)
    cloud.sleep(1)
    asleep_t = cloud.t
    cloud.wait(100)
    cloud.step(MachineResumed(cloud.t, 1, cloud.t))
    cloud.wait(10)
    cloud.step(PricesReported(cloud.t, "cloud", [("small", 0.002)], asleep_t + 50.0))
    assert cloud.cost_usd(1) == 0.03


def test_cancelling_a_job_leaves_no_task_reserved() -> None:
    from windfall.core.events import JobCancelled

    cloud = Cloud()
    bag = cloud.rent(4)
    cloud.plan(bag, start=[SPOT], assign={"new-0": [0, 1, 2, 3]})
    cloud.step(JobCancelled(cloud.t, bag.number))
    assert (bag.state, bag.queues.reserved) == ("cancelled", {})
    assert plans.closing(cloud.state, bag.number).stop == ["1"]


def test_a_host_that_only_says_that_it_is_a_machine_is_none() -> None:
    cloud = Cloud()
    bag = cloud.rent(2)
    cloud.plan(bag, start=[SPOT], assign={"new-0": [0, 1]})
    assert cloud.tasks("liar", 2, 2, pool="cloud", machine=1) == []


def test_a_state_with_machines_comes_back_as_it_was() -> None:
    cloud = Cloud()
    bag = cloud.rent(4)
    cloud.plan(bag, start=[SPOT, SURE], assign={"new-0": [0, 1], "new-1": [2]}, replan_t=cloud.t + 77)
    cloud.boot(1)
    cloud.sleep(1)
    again = load(save(cloud.state))
    assert save(again) == save(cloud.state)
    assert views.view(again, bag.number, cloud.t, 1e9) == views.view(cloud.state, bag.number, cloud.t, 1e9)
    assert machines.spent_microusd(again, bag.number, cloud.t) == 1_250_000
    assert (plans_wanted(again), again.fleet.replan_t) == ([bag.number], cloud.t + 77)


def test_the_guess_for_tasks_of_unknown_run_time_grows_while_they_run() -> None:
    cloud = Cloud()
    bag = cloud.rent(8, [TaskClass()])
    (group,) = views.view(cloud.state, bag.number, cloud.t, 0.0).groups
    assert group.task.runtime_s == 60.0
    cloud.plan(bag, start=[SPOT])
    cloud.boot(1)
    cloud.plan(bag)
    assert wake_at(cloud.state) <= cloud.t + 60.0
    cloud.wait(100)
    (group,) = views.view(cloud.state, bag.number, cloud.t, 0.0).groups
    assert group.task.runtime_s == pytest.approx(150.0)


def test_the_first_result_and_every_doubling_of_results_calls_for_a_plan() -> None:
    cloud = Cloud()
    bag = cloud.rent(20, [TaskClass()])
    cloud.plan(bag, start=[SPOT])
    called = []
    for _ in range(8):
        keys = cloud.boot(1, want=1)
        cloud.plan(bag)
        cloud.wait(1)
        cloud.report("cloud-m1", *keys, run_s=1.0)
        called.append(bool(plans_wanted(cloud.state)))
    assert called == [True, True, False, True, False, False, False, True]


def test_the_quantile_of_a_task_grows_with_the_tasks_that_are_open() -> None:
    """All tasks of a job are to be in time with its confidence, not each of them."""
    found = []
    for count in (1, 10, 100):
        cloud = Cloud()
        bag = cloud.rent(count, [TaskClass(estimate_s=300.0)])
        shown = views.view(cloud.state, bag.number, cloud.t, math.inf)
        found.append(shown.tasks[0].runtime_s)
        assert shown.tasks[0].mean_s == pytest.approx(300.0)
    assert found[0] < 0.8 * found[1] < found[1] < 0.9 * found[2]


def test_few_samples_say_nothing_of_far_quantiles() -> None:
    """After one result of unknown tasks a hundred open tasks are planned with the quantile of one."""
    found = []
    for count in (2, 101):
        cloud = Cloud()
        bag = cloud.rent(count, [TaskClass()])
        cloud.plan(bag, start=[SPOT])
        (key, *_) = cloud.boot(1)
        cloud.wait(10)
        cloud.report("cloud-m1", key, run_s=10.0)
        found.append(
            max(task.runtime_s for task in views.view(cloud.state, bag.number, cloud.t, math.inf).tasks.values())
        )
    assert found[0] == pytest.approx(found[1], rel=0.2)


def test_plans_reckon_with_boots_and_refusals_that_were_seen() -> None:
    cloud = Cloud()
    bag = cloud.rent(8, [TaskClass(estimate_s=300.0)])
    told_s = {offer.key: offer.lag_s for offer in cloud.state.fleet.offers["cloud"]}
    cloud.plan(bag, start=[SPOT])
    cloud.wait(SPOT.lag_s + 240.0)
    cloud.boot(1)
    shown = {offer.key: offer.lag_s for offer in views.view(cloud.state, bag.number, cloud.t, math.inf).offers}
    assert all(shown[key] == pytest.approx(told_s[key] + 240.0, abs=5.0) for key in told_s), "all offers of the pool"
    cloud.step(PlanProposed(cloud.t, bag.number, cloud.state.seq, Plan(start=[Start("new-0", SURE)])))
    cloud.step(MachineRefused(cloud.t, 2, "no capacity"))
    later = {offer.key: offer.lag_s for offer in views.view(cloud.state, bag.number, cloud.t, math.inf).offers}
    assert later[SURE.key] > shown[SURE.key] and later[SPOT.key] == shown[SPOT.key]


def test_a_worker_that_asks_after_its_machine_has_ended_gets_nothing_and_is_no_contradiction() -> None:
    cloud = Cloud()
    bag = cloud.rent(4)
    cloud.plan(bag, start=[SPOT], assign={"new-0": [0, 1]})
    cloud.boot(1)
    cloud.end(1)
    cloud.wait(1)
    assert cloud.boot(1) == []  # every step checks that the state does not contradict itself
    assert cloud.state.hosts[1].state != GONE
