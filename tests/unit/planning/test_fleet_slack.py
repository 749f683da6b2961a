"""How Windfall's planner of fleets divides the slack of a job among its stages, and which types a stream keeps."""

from __future__ import annotations

from itertools import pairwise

import pytest
from msgspec.structs import replace

from windfall.planning.contract import Job, Machine, Phase, Running, Snapshot, Task
from windfall.planning.fleet import scs, windfall
from windfall.planning.fleet.deadlines import assigned
from windfall.planning.fleet.mix import mix_of
from windfall.planning.fleet.model import Work
from windfall.planning.offers import Offer
from windfall.planning.workflow.methods.assign import assign

HOUR = 3600.0
OFFERS = (
    Offer(name="plain", pool="cloud", price_usd=0.1, lag_s=300.0, speed={"a": 1.0, "b": 1.0}),
    Offer(name="quick", pool="cloud", price_usd=0.5, lag_s=300.0, speed={"a": 1.0, "b": 10.0}),
)


def fleet_of(
    *, stages: str = "aba", per_hour: float = 10.0, usual_per_hour: float = 10.0, is_chain: bool = True,
    cycle_s: float = HOUR,
) -> Work:  # fmt: skip
    """One job, an hour's work at speed 1, with four hours: a chain, or a first task and the others behind it."""
    offers = tuple(replace(offer, cycle_s=cycle_s) for offer in OFFERS)
    ids = [1 << 32 | place for place in range(len(stages))]
    tasks = {
        name: Task(name, HOUR / len(stages), task_class=kind, job=1, deadline_t=4 * HOUR)
        for name, kind in zip(ids, stages, strict=True)
    }
    job = Job(1, 4 * HOUR, is_workflow=True, total=len(ids), per_hour=per_hour, usual_per_hour=usual_per_hour)
    after = {child: (parent if is_chain else ids[0],) for parent, child in pairwise(ids)}
    return Work(
        Snapshot(
            t=0.0, deadline_t=4 * HOUR, tasks=tasks, machines=(), offers=offers, is_fleet=True, jobs=(job,), after=after
        )
    )


def test_the_boot_for_which_a_new_job_waits_counts_from_its_arrival():
    first, found = 1 << 32, []
    for age_s in (0.0, 150.0, 300.0):
        work = fleet_of()
        work.jobs[1] = replace(work.job(1), submitted_t=-age_s)
        counted = assigned(work, assign, [0.0, 0.0], boot_counts=True)[first]
        still = assigned(work, assign, [0.0, 0.0])[first]
        found.append(still.due_t - counted.due_t)
    assert found[0] == 0.0 < found[1] < found[2], "less and less of the boot is left"


def layout_of(work: Work) -> windfall.Layout:
    mix = mix_of(work)
    return windfall.Layout(work, mix, assigned(work, assign, scs.waits_s(work), mix.allowed))


def test_the_first_stage_leaves_slack_to_those_behind_it():
    layout = layout_of(fleet_of(stages="aaaa"))
    spare_s = [layout.last_t[wait.id] - layout.latest_t[wait.id] for wait in layout.work.waiting]
    stage_s = spare_s[0] - spare_s[1]
    assert stage_s > 0.15 * 2.5 * HOUR, "a fifth of the slack for each of four stages"
    assert [here - behind for here, behind in pairwise(spare_s)] == pytest.approx([stage_s] * 3)


def test_tasks_side_by_side_keep_nothing_for_later():
    layout = layout_of(fleet_of(stages="aaaa", is_chain=False))
    assert set(layout.kept_s.values()) == {0.0}


def test_a_chain_keeps_less_for_later_the_fewer_billing_cycles_it_has_time_for():
    kept_s = []
    for cycles in (4, 2, 1, 0.5):
        layout = layout_of(fleet_of(stages="aaaa", cycle_s=4 * HOUR / cycles))
        kept_s.append(layout.kept_s[layout.work.waiting[0].id])
    assert kept_s[0] > 0
    assert kept_s == pytest.approx([kept_s[0], kept_s[0], kept_s[0] / 2, kept_s[0] / 4])


def test_a_new_machine_is_of_the_type_that_its_task_should_have_though_another_is_cheaper_for_it_alone():
    layout = layout_of(fleet_of(stages="ab"))
    behind = layout.work.waiting[1]
    assert layout.mix.allowed == {0, 1} and layout.wishes[behind.id].offer == 1
    ordered = layout._cheapest_new(behind, 0.0, layout.last_t[behind.id])
    layout.wishes[behind.id] = replace(layout.wishes[behind.id], offer=0)
    alone = layout._cheapest_new(behind, 0.0, layout.last_t[behind.id])
    assert ordered is not None and alone is not None
    assert (ordered[2], alone[2]) == (1, 0) and alone[0] < ordered[0]


def test_a_job_of_one_stage_may_wait_with_all_its_slack():
    layout = layout_of(fleet_of(stages="a"))
    (wait,) = layout.work.waiting
    assert layout.last_t[wait.id] - layout.latest_t[wait.id] <= OFFERS[0].lag_s


def test_a_stream_that_has_just_ended_keeps_its_types_and_loses_its_load():
    busy, ended = (
        mix_of(fleet_of(per_hour=30.0, usual_per_hour=30.0)),
        mix_of(fleet_of(per_hour=1.5, usual_per_hour=30.0)),
    )
    low = mix_of(fleet_of(per_hour=1.5, usual_per_hour=1.5))
    assert busy.allowed == ended.allowed == {0, 1} and low.allowed == {0}
    assert ended.load[1] == pytest.approx(busy.load[1] / 20)


def test_a_job_with_no_more_time_than_a_cycle_is_charged_all_of_the_paid_time_that_it_uses():
    for cycle_s, pays_all in ((4 * HOUR, {1}), (HOUR, set())):
        assert layout_of(fleet_of(cycle_s=cycle_s)).pays_all == pays_all


def one_machine_that_waits(run_s: float) -> list[int]:
    """The queue of an idle machine: the second task of a job whose first runs elsewhere, and a task that is ready."""
    offer = Offer(name="plain", pool="cloud", price_usd=0.1, lag_s=300.0, limit=2)
    first, second, other = 1 << 32, 1 << 32 | 1, 2 << 32
    tasks = {
        first: Task(first, 600.0, job=1, deadline_t=1000.0),
        second: Task(second, 300.0, job=1, deadline_t=1000.0),
        other: Task(other, run_s, job=2, deadline_t=4 * HOUR),
    }
    up = {"ready_t": -600.0, "paid_until_t": HOUR}
    machines = (
        Machine(id="1", offer=offer, phase=Phase.BUSY, running=(Running(first, 200.0),), **up),
        Machine(id="2", offer=offer, phase=Phase.IDLE, waiting=(second,), **up),
    )
    jobs = (Job(1, 1000.0, -600.0, is_workflow=True, total=2), Job(2, 4 * HOUR, total=1))
    work = Work(
        Snapshot(
            t=0.0, deadline_t=4 * HOUR, tasks=tasks, machines=machines, offers=(offer,), is_fleet=True, jobs=jobs,
            after={second: (first,)},
        )
    )  # fmt: skip
    layout = layout_of(work)
    wait = {each.id: each for each in work.waiting}
    held = next(each for each in layout.slots if each.label == "2")
    layout._put(wait[second], held, 200.0)
    layout._put(wait[other], held, 0.0)
    return held.queue


def test_a_task_that_is_ready_is_not_queued_where_it_would_overtake_one_that_the_machine_waits_for():
    assert one_machine_that_waits(run_s=900.0) == [1 << 32 | 1], "it would begin at once, and the other be late"
    assert one_machine_that_waits(run_s=150.0) == [1 << 32 | 1, 2 << 32], "it ends before the other can begin"


def short_of_slack(limit: int | None = None) -> windfall.Layout:
    """Three jobs of two tasks, each half an hour on the plain type, with a boot and 400 seconds to spare.

    The other type is four times as fast and five times as expensive.
    """
    span_s = 300.0 + 2 * 1800.0 + 400.0
    plain, fast = replace(OFFERS[0], limit=limit), replace(OFFERS[1], limit=limit, speed={"a": 4.0})
    tasks, after = {}, {}
    for number in (1, 2, 3):
        first, second = number << 32, number << 32 | 1
        for name in (first, second):
            tasks[name] = Task(name, 1800.0, task_class="a", job=number, deadline_t=span_s)
        after[second] = (first,)
    jobs = tuple(Job(n, span_s, is_workflow=True, total=2, per_hour=30.0, usual_per_hour=30.0) for n in (1, 2, 3))
    snapshot = Snapshot(
        t=0.0, deadline_t=span_s, tasks=tasks, machines=(), offers=(plain, fast), is_fleet=True, jobs=jobs, after=after
    )
    return layout_of(Work(snapshot))


def test_a_reserve_never_takes_the_time_for_the_type_that_a_task_should_have():
    layout = short_of_slack()
    first = layout.work.waiting[0]
    assert layout.wishes[first.id].offer == 0, "the plain type is in time, and cheaper"
    assert layout.latest_t[first.id] < 300.0 + 1800.0 <= layout.last_t[first.id], "the reserve is longer than the slack"
    layout.place_all()
    starts = layout.written().start
    assert starts and {start.offer.name for start in starts} == {"plain"}, "ordered now: nobody waits for a faster one"


def test_a_task_after_which_others_need_a_limited_machine_does_not_use_its_reserve():
    layout = short_of_slack(limit=2)
    assert layout.hurried
    for wait in layout.work.waiting:
        if wait.id in layout.hurried:
            assert layout._planned_end_t(wait, 0.0) == layout.latest_t[wait.id]


def test_a_machine_is_ordered_early_enough_for_all_tasks_that_are_to_share_it():
    """Alone, each of six tasks of 10 minutes could wait until a boot before its last moment."""
    offer = replace(OFFERS[0], speed={"a": 1.0})
    tasks = {n << 32: Task(n << 32, 600.0, task_class="a", job=n, deadline_t=4 * HOUR) for n in range(1, 7)}
    jobs = tuple(
        Job(n, 4 * HOUR, is_workflow=True, total=1, per_hour=0.5, usual_per_hour=0.5, kind=0) for n in range(1, 7)
    )
    work = Work(
        Snapshot(t=0.0, deadline_t=4 * HOUR, tasks=tasks, machines=(), offers=(offer,), is_fleet=True, jobs=jobs)
    )
    layout = layout_of(work)
    assert layout.mix.machines[0] <= 1.0
    layout.place_all()
    last_t = min(layout.latest_t.values()) - 600.0 - offer.lag_s
    assert layout.order_t <= last_t - 5 * 600.0, "the last of them begins 50 minutes after the first"
