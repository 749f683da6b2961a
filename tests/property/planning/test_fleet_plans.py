"""Planners of fleets on random snapshots: every plan can be carried out, and Windfall is late only where it must be."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windfall.planning.contract import ONDEMAND, SPOT, Job, Machine, Phase, Running, Snapshot, Task
from windfall.planning.fleet import scs, windfall
from windfall.planning.fleet.deadlines import assigned
from windfall.planning.fleet.mix import mix_of
from windfall.planning.fleet.model import Work, fits
from windfall.planning.offers import Offer
from windfall.planning.registry import FLEET_PLANNERS
from windfall.planning.workflow.methods.assign import assign

T = 10_000.0


@st.composite
def offers(draw):
    count = draw(st.integers(1, 4))
    return tuple(
        Offer(
            name=f"type{place}", pool="cloud", price_usd=draw(st.sampled_from([0.02, 0.1, 0.5])),
            cores=draw(st.sampled_from([1, 2, 4])), memory_gb=draw(st.sampled_from([1.0, 8.0])),
            speed=draw(st.sampled_from([0.3, 1.0, 8.0])), cycle_s=draw(st.sampled_from([1.0, 600.0, 3600.0])),
            lag_s=draw(st.sampled_from([0.0, 60.0, 390.0])), limit=draw(st.sampled_from([None, 0, 1, 5])),
            market=draw(st.sampled_from([ONDEMAND, SPOT])) if place else ONDEMAND,
        )
        for place in range(count)
    )  # fmt: skip


@st.composite
def snapshots(draw):
    rented = draw(offers())
    tasks: dict[int, Task] = {}
    after: dict[int, tuple[int, ...]] = {}
    jobs = []
    for number in range(1, draw(st.integers(1, 5)) + 1):
        deadline_t = T + draw(st.sampled_from([-100.0, 300.0, 1800.0, 7200.0]))
        is_workflow, count = draw(st.booleans()), draw(st.integers(1, 6))
        for place in range(count):
            id_ = number << 32 | place
            tasks[id_] = Task(
                id_, draw(st.sampled_from([1.0, 60.0, 500.0, 3000.0])), memory_gb=draw(st.sampled_from([0.5, 4.0])),
                task_class="", cores=draw(st.sampled_from([1, 2])), job=number, deadline_t=deadline_t,
            )  # fmt: skip
            parents = [number << 32 | above for above in range(place) if draw(st.integers(0, 2)) == 0]
            if is_workflow and parents:
                after[id_] = tuple(parents)
        rate = draw(st.sampled_from([0.0, 0.5, 20.0]))
        jobs.append(Job(number, deadline_t, T - 500.0, is_workflow, total=count, kind=number, per_hour=rate))
    machines = []
    ready = [id_ for id_ in tasks if id_ not in after]
    for number in range(1, draw(st.integers(0, 4)) + 1):
        offer = draw(st.sampled_from(rented))
        phase = draw(st.sampled_from([Phase.PENDING, Phase.IDLE, Phase.BUSY]))
        fit = [id_ for id_ in ready if tasks[id_].cores <= offer.cores]
        running = (Running(fit[0], draw(st.sampled_from([0.0, 50.0]))),) if phase == Phase.BUSY and fit else ()
        ready = [id_ for id_ in ready if all(id_ != run.task for run in running)]
        paid_s = draw(st.sampled_from([1.0, 30.0, 600.0]))
        machines.append(
            Machine(
                id=str(number),
                offer=offer,
                phase=phase,
                ready_t=T + offer.lag_s,
                running=running,
                paid_until_t=T + paid_s,
            )
        )
    return Snapshot(
        t=T, deadline_t=T + 7200.0, tasks=tasks, machines=tuple(machines), offers=rented, after=after,
        jobs=tuple(jobs), is_fleet=True, total=len(tasks),
    )  # fmt: skip


@pytest.mark.parametrize("name", FLEET_PLANNERS)
@settings(max_examples=40, deadline=None)
@given(snapshot=snapshots())
def test_every_plan_of_a_fleet_can_be_carried_out(name, snapshot):
    plan = FLEET_PLANNERS[name](snapshot)
    assert plan.only_reserved
    labels = {machine.id: machine.offer for machine in snapshot.machines} | {s.label: s.offer for s in plan.start}
    assert len(labels) == len(snapshot.machines) + len(plan.start)
    running = {run.task for machine in snapshot.machines for run in machine.running}
    seen = Counter(task for queue in plan.assign.values() for task in queue)
    assert set(seen.values()) <= {1} and seen.keys() <= snapshot.tasks.keys() - running
    for label, queue in plan.assign.items():
        assert all(snapshot.tasks[task].cores <= labels[label].cores for task in queue)
        assert all(snapshot.tasks[task].memory_gb <= labels[label].memory_gb for task in queue)
    for offer in snapshot.offers:
        there = sum(machine.offer.key == offer.key for machine in snapshot.machines)
        started = sum(start.offer.key == offer.key for start in plan.start)
        assert offer.limit is None or started == 0 or there + started <= offer.limit
    for label in plan.stop:
        machine = next(machine for machine in snapshot.machines if machine.id == label)
        assert not machine.running and not plan.assign.get(label)
    assert plan.replan_t > T or not snapshot.tasks


@settings(max_examples=40, deadline=None)
@given(snapshot=snapshots())
def test_the_same_snapshot_gives_the_same_plan(snapshot):
    assert FLEET_PLANNERS["windfall"](snapshot) == FLEET_PLANNERS["windfall"](snapshot)


@settings(max_examples=60, deadline=None)
@given(snapshot=snapshots())
def test_a_task_goes_to_spot_only_if_on_demand_could_do_it_in_time_after_its_end_there(snapshot):
    plan = FLEET_PLANNERS["windfall"](snapshot)
    offer_of = {machine.id: machine.offer for machine in snapshot.machines} | {s.label: s.offer for s in plan.start}
    ondemand = [offer for offer in snapshot.offers if offer.market == ONDEMAND]
    for label, queue in plan.assign.items():
        offer = offer_of[label]
        boot_s = offer.lag_s if label.startswith("new") else 0.0
        for task in map(snapshot.tasks.__getitem__, queue if offer.market == SPOT else ()):
            rescue_s = min(each.lag_s + task.seconds_on(each) for each in ondemand if fits(task, each))
            assert T + boot_s + task.seconds_on(offer) + rescue_s <= task.deadline_t


@settings(max_examples=40, deadline=None)
@given(snapshot=snapshots())
def test_a_task_that_cannot_wait_is_laid_out_on_a_machine(snapshot):
    """Of bags: a task that not even a machine ordered now ends in time is put somewhere, and waits for nothing."""
    if snapshot.after or any(offer.limit == 0 for offer in snapshot.offers):
        return
    work = Work(snapshot)
    mix = mix_of(work)
    layout = windfall.Layout(work, mix, assigned(work, assign, scs.waits_s(work), mix.allowed))
    layout.place_all()
    hurried = 0
    for wait in work.waiting:
        able = [offer for offer in work.offers if fits(wait.task, offer)]
        spare_s = [wait.task.deadline_t - T - offer.lag_s - wait.task.seconds_on(offer) for offer in able]
        if able and max(spare_s) <= 0.0 and layout.room.of(able[0]) + len(snapshot.machines) > 0:
            hurried += 1
            assert layout.ends[wait.id] >= T + min(wait.task.seconds_on(offer) for offer in able) - 1e-6
    assert layout.waits <= len(work.waiting) - hurried


def test_a_very_large_fleet_is_planned_by_the_loop_of_scs(monkeypatch):
    asked = []
    monkeypatch.setattr(windfall, "LAYOUT_EFFORT", 1)
    monkeypatch.setattr(windfall.scs, "plan", lambda work: asked.append(work) or FLEET_PLANNERS["gain"](work.snapshot))
    offer = Offer(name="one", pool="cloud", price_usd=0.1)
    tasks = {1 << 32 | place: Task(1 << 32 | place, 10.0, job=1, deadline_t=T + 100.0) for place in range(3)}
    FLEET_PLANNERS["windfall"](
        Snapshot(
            t=T, deadline_t=T + 100.0, tasks=tasks, machines=(), offers=(offer,), is_fleet=True,
            jobs=(Job(1, T + 100.0, T, total=3),),
        )
    )  # fmt: skip
    assert asked
