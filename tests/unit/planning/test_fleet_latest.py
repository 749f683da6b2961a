"""When tasks of a fleet must begin at the latest, where the number of machines is limited."""

from __future__ import annotations

import math

from windfall.planning.contract import Job, Machine, Phase, Running, Snapshot, Task
from windfall.planning.fleet.deadlines import assigned
from windfall.planning.fleet.latest import latest_starts, shared_starts
from windfall.planning.fleet.model import Work
from windfall.planning.offers import Offer
from windfall.planning.workflow.methods.assign import assign

OFFER = Offer(name="small", pool="cloud", price_usd=0.1, lag_s=60.0, limit=2)


def found(
    seconds: list[float], deadline_s: float = 1000.0, offer: Offer = OFFER, machines: tuple[Machine, ...] = (),
    after: dict[int, tuple[int, ...]] | None = None, cores: int = 1,
) -> dict[int, float]:  # fmt: skip
    tasks = {place: Task(place, s, job=1, deadline_t=deadline_s, cores=cores) for place, s in enumerate(seconds)}
    job = Job(1, deadline_s, 0.0, after is not None, total=len(tasks))
    work = Work(
        Snapshot(
            t=0.0, deadline_t=deadline_s, tasks=tasks, machines=machines, offers=(offer,), jobs=(job,), is_fleet=True,
            after=after or {},
        )
    )  # fmt: skip
    wishes = assigned(work, assign)
    ends_t = {wait.id: wishes[wait.id].latest_t for wait in work.waiting}
    return latest_starts(work, work.waiting, wishes, ends_t, work.room())


def test_tasks_that_can_have_a_machine_each_depend_on_nobody():
    assert found([100.0, 100.0]) == {}


def test_an_offer_without_a_limit_holds_no_task_back_however_many_machines_are_there():
    free = Offer(name="free", pool="cloud", price_usd=0.1, lag_s=60.0)
    idle = tuple(Machine(id=str(n), offer=free, phase=Phase.IDLE, paid_until_t=3600.0) for n in range(3))
    assert found([100.0] * 4, offer=free, machines=idle) == {}


def test_tasks_behind_each_other_on_few_machines_begin_one_run_time_earlier_each():
    assert sorted(found([100.0] * 6).values()) == [700.0, 700.0, 800.0, 800.0, 900.0, 900.0]


def test_a_task_for_which_no_time_is_left_has_no_latest_start():
    starts = found([400.0] * 6)
    assert sorted(starts.values())[:2] == [-math.inf] * 2
    assert sorted(starts.values())[2:] == [200.0, 200.0, 600.0, 600.0]


def test_a_machine_that_is_busy_counts_from_when_it_is_free():
    running = (Running(0, 450.0),)
    machine = Machine(id="1", offer=OFFER, phase=Phase.BUSY, running=running, paid_until_t=3600.0)
    starts = found([500.0, 500.0, 500.0, 500.0], machines=(machine,))
    assert sorted(starts.values()) == [-math.inf, 500.0, 500.0]


def test_tasks_of_two_cores_share_no_core_with_others():
    wide = Offer(name="wide", pool="cloud", price_usd=0.1, cores=3, lag_s=60.0, limit=1)
    assert sorted(found([100.0] * 2, offer=wide, cores=2).values()) == [800.0, 900.0]


def test_a_parent_ends_before_its_child_must_begin():
    starts = found([100.0, 100.0, 100.0, 100.0], after={3: (0, 1, 2)})
    assert starts[3] == 900.0
    assert sorted(starts[place] for place in (0, 1, 2)) == [700.0, 800.0, 800.0]


def shared(seconds: list[float], machines: int) -> list[float]:
    offers = (Offer(name="small", pool="cloud", price_usd=0.1, lag_s=60.0),)
    tasks = {place: Task(place, run_s, job=1, deadline_t=1000.0) for place, run_s in enumerate(seconds)}
    jobs = (Job(1, 1000.0, total=len(tasks)),)
    work = Work(Snapshot(t=0.0, deadline_t=1000.0, tasks=tasks, machines=(), offers=offers, jobs=jobs, is_fleet=True))
    wishes = assigned(work, assign)
    ends_t = {wait.id: 1000.0 for wait in work.waiting}
    return sorted(shared_starts(work, work.waiting, wishes, ends_t, [machines]).values())


def test_tasks_that_share_the_machines_of_a_stream_begin_one_after_the_other_though_nothing_limits_these():
    assert shared([100.0] * 4, machines=2) == [800.0, 800.0, 900.0, 900.0]
    assert shared([100.0] * 4, machines=4) == [900.0] * 4


def test_a_task_for_which_the_machines_of_a_stream_are_too_few_waits_by_itself():
    assert shared([400.0] * 4, machines=1) == [200.0, 600.0]
