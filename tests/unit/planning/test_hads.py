"""HADS: the formulas of the paper on its own jobs, and what it does on each of its four events."""

from __future__ import annotations

import pytest
from msgspec import structs

from windfall.errors import BadInput
from windfall.planning.contract import Machine, Phase, Running, Snapshot, Task
from windfall.planning.hads.dynamic import AS_PRINTED, Settings, replan, stealable
from windfall.planning.hads.lanes import Lanes
from windfall.planning.hads.primary import first_plan, least_deadline_s, primary, spot_deadline_s, worst_makespan_s
from windfall.planning.offers import Offer

AC_S, DEADLINE_S, LAG_S = 900.0, 2100.0, 180.0
TYPES = {
    "c3.large": (2, 3.75, 0.105, 0.0294),
    "c4.large": (2, 3.75, 0.100, 0.0308),
    "c3.xlarge": (4, 7.5, 0.210, 0.0588),
    "c4.xlarge": (4, 7.5, 0.199, 0.0617),
}


def paper_offers() -> tuple[Offer, ...]:
    """Table 7: five of each type in each market."""
    return tuple(
        Offer(
            name=name, cores=cores, memory_gb=memory, price_usd=prices[market == "spot"], cycle_s=AC_S, lag_s=LAG_S,
            market=market, limit=5,
        )
        for name, (cores, memory, *prices) in TYPES.items()
        for market in ("on-demand", "spot")
    )  # fmt: skip


def paper_job(count: int, least_s: float, mean_s: float, most_s: float) -> list[Task]:
    """Table 8: run times from the least to the most on a curve with the mean of the table; memory grows with them."""
    bend = (most_s - least_s) / (mean_s - least_s) - 1.0
    times = [least_s + (most_s - least_s) * (place / (count - 1)) ** bend for place in range(count)]
    return [Task(place, seconds, memory_gb=4e-5 * seconds) for place, seconds in enumerate(times)]


JOBS = {
    "J551": paper_job(60, 102.0, 198.0, 323.0),
    "J552": paper_job(80, 103.0, 199.0, 322.0),
    "J553": paper_job(100, 107.0, 190.0, 330.0),
}


@pytest.mark.parametrize(("job", "rounds", "minutes"), [("J551", 2, 24.3), ("J552", 2, 24.3), ("J553", 3, 19.0)])
def test_d_spot_is_the_deadline_less_the_longest_tasks_on_a_two_core_machine(job, rounds, minutes):
    tasks = JOBS[job]
    longest = max(task.runtime_s for task in tasks)
    assert (rounds - 0.2) * longest < worst_makespan_s(tasks, paper_offers(), 20) <= rounds * longest
    assert spot_deadline_s(tasks, paper_offers(), 20, DEADLINE_S) / 60 == pytest.approx(minutes, abs=0.8)


@pytest.mark.parametrize(("job", "machines"), [("J551", 3), ("J552", 4)])
def test_the_primary_schedule_takes_the_paper_s_number_of_four_core_machines(job, machines):
    offers, tasks = paper_offers(), JOBS[job]
    until_s = spot_deadline_s(tasks, offers, 20, DEADLINE_S)
    firsts = primary(tasks, offers, until_s)
    assert firsts is not None
    assert [first.offer.name for first in firsts] == ["c3.xlarge"] * machines
    assert sorted(task for first in firsts for task in first.tasks) == [task.id for task in tasks]
    assert max(first.finish_s for first in firsts) <= until_s


def test_the_third_job_needs_more_machines_than_the_four_of_the_paper_s_table():
    offers, tasks = paper_offers(), JOBS["J553"]
    firsts = primary(tasks, offers, spot_deadline_s(tasks, offers, 20, DEADLINE_S))
    assert firsts is not None
    assert len(firsts) > 4


def test_a_deadline_that_cannot_be_promised_names_the_one_that_can():
    offers, tasks = paper_offers(), JOBS["J551"]
    with pytest.raises(BadInput, match="no schedule") as caught:
        first_plan(tasks, offers, 0.0, 900.0)
    least_s = least_deadline_s(tasks, offers)
    assert f"{least_s:.0f} s" in caught.value.hint
    assert first_plan(tasks, offers, 0.0, least_s).start
    with pytest.raises(BadInput):
        first_plan(tasks, offers, 0.0, least_s - 2.0)


def test_a_task_waits_for_memory_although_a_core_is_free():
    lanes = Lanes(Offer(name="m", price_usd=1.0, cores=2, memory_gb=4.0), ready_t=0.0)
    lanes.append(Task(1, 100.0, memory_gb=3.0))
    lanes.append(Task(4, 30.0, memory_gb=1.0))
    assert lanes.start_t(Task(5, 10.0, memory_gb=2.0)) == 100.0
    assert lanes.start_t(Task(6, 10.0, memory_gb=5.0)) == float("inf")


def offer_of(name: str, market: str) -> Offer:
    return next(offer for offer in paper_offers() if (offer.name, offer.market) == (name, market))


def machine(name: str, phase: Phase, *, market: str = "spot", running=(), waiting=(), paid_until_t=9e9) -> Machine:
    return Machine(
        id=name,
        offer=offer_of("c3.large", market),
        phase=phase,
        running=tuple(Running(task, left_s) for task, left_s in running),
        waiting=tuple(waiting),
        paid_until_t=paid_until_t,
    )


def snapshot(t: float, *machines: Machine, runtimes: dict[int, float]) -> Snapshot:
    return Snapshot(
        t=t,
        deadline_t=DEADLINE_S,
        tasks={number: Task(number, seconds) for number, seconds in runtimes.items()},
        machines=machines,
        offers=paper_offers(),
    )


def test_a_hibernated_machine_is_waited_for_until_an_on_demand_start_would_only_just_do():
    hibernated = machine("m1", Phase.HIBERNATED, running=[(1, 50.0)], waiting=[2])
    plan = replan(snapshot(600.0, hibernated, runtimes={1: 200.0, 2: 300.0}), Settings(margin_s=0.0))
    assert not plan.start
    assert plan.replan_t == pytest.approx(DEADLINE_S - LAG_S - 300.0)
    assert plan.rejected[0].cost_usd == pytest.approx(0.100)


def test_at_the_limit_tasks_go_to_a_new_on_demand_machine_and_start_over():
    hibernated = machine("m1", Phase.HIBERNATED, running=[(1, 50.0)], waiting=[2])
    plan = replan(snapshot(1620.0, hibernated, runtimes={1: 200.0, 2: 300.0}), Settings(margin_s=0.0))
    assert [(start.offer.name, start.offer.market) for start in plan.start] == [("c4.large", "on-demand")]
    assert plan.assign == {"m1": [], "new-0": [2, 1]}
    assert plan.predicted_finish_t == pytest.approx(DEADLINE_S)


def test_attempt_one_is_an_idle_machine_and_spot_before_on_demand():
    hibernated = machine("m1", Phase.HIBERNATED, waiting=[1])
    idle = [machine("od", Phase.IDLE, market="on-demand"), machine("sp", Phase.IDLE)]
    plan = replan(snapshot(1690.0, hibernated, *idle, runtimes={1: 230.0}), AS_PRINTED)
    assert not plan.start
    assert plan.assign == {"m1": [], "sp": [1]}


def test_a_careful_migration_takes_no_spot_machine_from_which_there_is_no_rescue():
    hibernated = machine("m1", Phase.HIBERNATED, waiting=[1])
    idle = [machine("od", Phase.IDLE, market="on-demand"), machine("sp", Phase.IDLE)]
    plan = replan(snapshot(1690.0, hibernated, *idle, runtimes={1: 230.0}))
    assert plan.assign == {"m1": [], "od": [1]}


def test_attempt_two_is_a_busy_machine():
    hibernated = machine("m1", Phase.HIBERNATED, waiting=[1])
    busy = machine("m2", Phase.BUSY, market="on-demand", running=[(2, 60.0), (3, 90.0)])
    plan = replan(snapshot(1800.0, hibernated, busy, runtimes={1: 120.0, 2: 200.0, 3: 200.0}))
    assert not plan.start
    assert plan.assign == {"m1": [], "m2": [1]}


def test_only_tasks_that_would_not_start_in_the_paid_cycle_are_stolen_and_only_from_on_demand():
    victim = machine(
        "od", Phase.BUSY, market="on-demand", running=[(1, 200.0), (2, 200.0)], waiting=[3, 4, 5], paid_until_t=300.0
    )
    other = machine("sp2", Phase.BUSY, running=[(6, 200.0), (7, 200.0)], waiting=[8, 9], paid_until_t=300.0)
    idle = machine("sp", Phase.IDLE)
    resumed = structs.replace(idle, ready_t=-500.0, up_since_t=0.0)
    now = snapshot(0.0, victim, other, resumed, runtimes=dict.fromkeys(range(1, 10), 200.0))
    assert stealable(victim, now) == [5]
    assert replan(now, AS_PRINTED).assign == {"sp": [5], "od": [3, 4]}
    # As printed, stealing is what a machine does that resumes; ours lets any idle one do it.
    never_hibernated = structs.replace(now, machines=(victim, other, structs.replace(idle, up_since_t=-500.0)))
    assert replan(never_hibernated, AS_PRINTED).assign == {}
    assert 5 in replan(never_hibernated, Settings(balance=False)).assign["sp"]


def test_as_printed_tasks_wait_to_the_second_while_one_machine_of_the_slowest_type_could_do_them():
    hibernated = machine("m1", Phase.HIBERNATED, running=[(1, 50.0)], waiting=[2])
    now = snapshot(600.0, hibernated, runtimes={1: 200.0, 2: 300.0})
    assert replan(now, AS_PRINTED).replan_t == pytest.approx(DEADLINE_S - LAG_S - 300.0)
    long = snapshot(
        600.0, machine("m1", Phase.HIBERNATED, waiting=list(range(8))), runtimes=dict.fromkeys(range(8), 400.0)
    )
    assert replan(long, AS_PRINTED).assign["m1"] == [], "one machine of two cores would take 1600 s: they move at once"
    assert replan(long, Settings()).replan_t > 600.0


def test_an_idle_machine_ends_just_before_its_next_cycle():
    idle = machine("m1", Phase.IDLE, paid_until_t=900.0)
    early, late = (replan(snapshot(t, idle, runtimes={}), Settings(margin_s=5.0)) for t in (100.0, 895.0))
    assert (early.stop, early.replan_t) == ([], 895.0)
    assert late.stop == ["m1"]


def test_an_idle_machine_takes_waiting_tasks_that_would_finish_there_sooner():
    busy = machine("m1", Phase.BUSY, running=[(1, 200.0), (2, 200.0)], waiting=[3, 4, 5, 6])
    idle = machine("m2", Phase.IDLE, paid_until_t=900.0)
    plan = replan(snapshot(0.0, busy, idle, runtimes=dict.fromkeys(range(1, 7), 200.0)))
    assert sorted(plan.assign["m1"] + plan.assign["m2"]) == [3, 4, 5, 6]
    assert plan.predicted_finish_t == pytest.approx(400.0)


def test_a_checkpoint_is_not_lost_in_a_migration():
    task = Task(1, 300.0, checkpoint_mb=100.0, saved_s=200.0)
    hibernated = machine("m1", Phase.HIBERNATED, running=[(1, 90.0)])
    now = Snapshot(t=600.0, deadline_t=DEADLINE_S, tasks={1: task}, machines=(hibernated,), offers=paper_offers())
    waits, forgets = (replan(now, Settings(margin_s=0.0, checkpoints=keeps)).replan_t for keeps in (True, False))
    # If it resumes then, it runs for 90 seconds more, and must still be open to a rescue at their end.
    assert waits == pytest.approx(DEADLINE_S - LAG_S - (13.0 + 0.04 * 100.0 + 100.0) - 90.0)
    assert forgets == pytest.approx(DEADLINE_S - LAG_S - 300.0 - 90.0)


def test_tasks_of_a_reclaimed_machine_move_at_once():
    busy = machine("m1", Phase.BUSY, running=[(1, 100.0)])
    plan = replan(snapshot(100.0, busy, runtimes={1: 200.0, 2: 200.0}))
    assert plan.assign == {"m1": [2]}


def test_it_says_what_its_schedule_will_cost():
    plan = first_plan(JOBS["J551"], paper_offers(), 0.0, DEADLINE_S)
    assert plan.predicted_cost_usd == pytest.approx(5 * 0.0588)


def test_a_machine_that_resumed_too_late_for_its_queue_gives_the_rest_away_where_it_is_careful():
    spot = next(offer for offer in paper_offers() if offer.market == "spot" and offer.name == "c3.large")
    tasks = {number: Task(number, 300.0) for number in range(6)}
    resumed = Machine(id="w", offer=spot, phase=Phase.BUSY, waiting=tuple(tasks), paid_until_t=2000.0)
    snapshot = Snapshot(t=1200.0, deadline_t=DEADLINE_S, tasks=tasks, machines=(resumed,), offers=paper_offers())
    careful, printed = replan(snapshot, Settings()), replan(snapshot, AS_PRINTED)
    assert len(careful.assign["w"]) < 6
    assert careful.start
    assert printed.start == []
