"""Owners in a fleet: no job waits for ever, caps hold, and shares are kept while the fleet is too small."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windfall.planning.contract import Job, Machine, Phase, Running, Snapshot, Task
from windfall.planning.fleet.owners import cores_at_most, let_in
from windfall.planning.offers import Offer
from windfall.planning.registry import FLEET_PLANNERS

OFFER = Offer(name="one", pool="cloud", price_usd=0.1, cores=2, cycle_s=3600.0, lag_s=60.0, limit=2)
PERIOD_S = 60.0


def snapshot(jobs, tasks, running=(), after=None, **more):
    machine = Machine(id="1", offer=OFFER, phase=Phase.BUSY, running=tuple(Running(id_, 30.0) for id_ in running))
    return Snapshot(
        t=0.0, deadline_t=1e6, tasks={task.id: task for task in tasks}, machines=(machine,), offers=(OFFER,),
        jobs=tuple(jobs), after=after or {}, is_fleet=True, **more,
    )  # fmt: skip


def job(number, owner, priority=0.0, deadline_t=1e5):
    return Job(number, deadline_t, 0.0, priority=priority, owner=owner)


def tasks_of(number, count, run_s=60.0, deadline_t=1e5, cores=1):
    return [
        Task(number << 32 | place, run_s, 0.5, "", cores=cores, job=number, deadline_t=deadline_t)
        for place in range(count)
    ]


@settings(deadline=None, max_examples=40)
@given(
    share=st.floats(0.05, 1.0), priority=st.integers(-3, 0), flood=st.integers(1, 3), rush_s=st.floats(10.0, 500.0),
    run_s=st.sampled_from([20.0, 60.0, 300.0]),
)  # fmt: skip
def test_nobody_starves_beside_owners_and_priorities_that_never_stop_submitting(share, priority, flood, rush_s, run_s):
    """Each round a flood of more urgent jobs arrives, and the first four tasks that were let in run, by deadline."""
    old = job(1, "patient", priority, 1e9)
    waits = tasks_of(1, 3, run_s, 1e9)
    number, t, floods = 2, 0.0, []
    for _ in range(2_000):
        for owner, urgent in (("greedy", 3.0), ("patient", 2.0)):
            for _ in range(flood):
                deadline_t = t + rush_s
                floods.append((job(number, owner, urgent, deadline_t), tasks_of(number, 2, run_s, deadline_t)))
                number += 1
        floods = floods[-60:]
        seen = snapshot(
            [old, *(each for each, _ in floods)], [*waits, *(task for _, row in floods for task in row)],
            owner_shares={"patient": share},
        )  # fmt: skip
        chosen, _ = let_in(seen, PERIOD_S)
        first = sorted(chosen.tasks.values(), key=lambda task: (task.deadline_t, task.id))
        # Of what was let in for four periods, as many run as the fleet does in that time.
        able = max(4, int(4 * 4 * PERIOD_S / run_s))
        ran = {task.id for task in first[:able]}
        waits = [task for task in waits if task.id not in ran]
        floods = [(each, left) for each, row in floods if (left := [task for task in row if task.id not in ran])]
        t += max(PERIOD_S, run_s)
        if not waits:
            return
    raise AssertionError("the patient job never ran")


@settings(deadline=None, max_examples=60)
@given(caps=st.dictionaries(st.sampled_from(["a", "b"]), st.integers(1, 5), min_size=1), counts=st.tuples(
    st.integers(0, 6), st.integers(0, 6)), running=st.integers(0, 2), wide=st.integers(1, 2))  # fmt: skip
def test_what_runs_and_what_is_let_in_stays_below_the_cap(caps, counts, running, wide):
    tasks = [*tasks_of(1, counts[0] + running), *tasks_of(2, counts[1], cores=wide)]
    runs = [task.id for task in tasks if task.job == 1][:running]
    chosen, said = let_in(snapshot([job(1, "a"), job(2, "b")], tasks, runs, owner_caps=caps), PERIOD_S)
    held = Counter()
    for task in chosen.tasks.values():
        held["a" if task.job == 1 else "b"] += task.cores
    for owner, cap in caps.items():
        assert held[owner] <= max(cap, running if owner == "a" else 0)
    assert set(runs) <= set(chosen.tasks)
    if len(chosen.tasks) < len(tasks):
        assert said


def test_the_room_of_a_small_fleet_goes_to_owners_by_their_shares():
    jobs = [job(1, "a", deadline_t=100.0), job(2, "b", deadline_t=9e4)]
    tasks = [*tasks_of(1, 500, deadline_t=100.0), *tasks_of(2, 500, deadline_t=9e4)]
    seen = snapshot(jobs, tasks, owner_shares={"b": 3.0})
    assert cores_at_most(seen) == 4
    chosen, said = let_in(seen, PERIOD_S)
    count = Counter(task.job for task in chosen.tasks.values())
    assert count[1] + count[2] == 16 and count[2] == 12
    assert said == ["owners share 4 cores: 984 tasks wait for their turn"]


def test_a_child_never_takes_the_cap_that_its_parent_needs():
    tasks = tasks_of(1, 2)
    seen = snapshot([job(1, "a")], tasks, after={tasks[0].id: (tasks[1].id,)}, owner_caps={"a": 1})
    assert set(let_in(seen, PERIOD_S)[0].tasks) == {tasks[1].id}


def test_a_fleet_of_one_owner_without_caps_is_left_alone():
    seen = snapshot([job(1, "a"), job(2, "a")], [*tasks_of(1, 300), *tasks_of(2, 300)])
    assert let_in(seen, PERIOD_S) == (seen, [])


@pytest.mark.parametrize("planner", FLEET_PLANNERS)
def test_every_planner_reserves_within_the_caps_and_says_so(planner):
    seen = snapshot([job(1, "a"), job(2, "b")], [*tasks_of(1, 9), *tasks_of(2, 3)], owner_caps={"a": 1})
    plan = FLEET_PLANNERS[planner](seen)
    reserved = Counter(name >> 32 for queue in plan.assign.values() for name in queue)
    assert reserved[1] <= 1 and any("cap of 1 cores" in line for line in plan.because)
