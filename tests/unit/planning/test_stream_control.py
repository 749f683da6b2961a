"""SCS: load vectors, scaling, consolidation, release and EDF of one control loop; deadlines remembered per class."""

from __future__ import annotations

import numpy as np
import pytest

from windfall.graph import from_edges
from windfall.planning.offers import Offer
from windfall.planning.stream.classes import JobClass, assigned_to_all
from windfall.planning.stream.control import Market, Rented, Rules, Waiting, control, load
from windfall.planning.workflow.model import Workflow

HOUR = 3600.0
RULES = Rules()


def market(types=1, lag_s=0.0, limit=100):
    return Market(np.full(types, HOUR), np.full(types, lag_s), np.ones(types), np.full(types, limit))


def waiting(*rows):
    """Rows of (kind, offer, begin, due, ready), perhaps with a latest end after that."""
    columns = list(zip(*((*row, row[3])[:6] for row in rows), strict=True)) if rows else [()] * 6
    kind, offer, begin, due, ready, latest = columns
    return Waiting(
        np.array(kind, dtype=np.int64),
        np.array(offer, dtype=np.int64),
        np.array(begin, dtype=float),
        np.array(due, dtype=float),
        np.array(latest, dtype=float),
        np.array(ready, dtype=bool),
    )


def rented(*rows):
    """Rows of (offer, leased, up, free)."""
    columns = list(zip(*rows, strict=True)) if rows else [(), (), (), ()]
    offer, leased, up, free = columns
    return Rented(np.array(offer, dtype=np.int64), np.array(leased, float), np.array(up, float), np.array(free, float))


def test_the_load_vector_of_figure_5_lets_one_machine_do_both_tasks():
    # 15 minutes between 3:00 and 4:00 and 15 minutes between 3:15 and 3:45, on the same type.
    tasks = waiting((0, 0, 0, 3600, True), (0, 0, 900, 2700, False))
    vector = load(0.0, tasks, tasks.offer, rented(), np.array([[900.0]]), market(), RULES, after_boot=False)[0]
    assert vector[[0, 20, 50, 70]] == pytest.approx([0.25, 0.75, 0.25, 0.0])
    assert control(0.0, tasks, rented(), np.array([[900.0]]), market(), RULES).acquire.tolist() == [1]


def test_a_load_in_the_distance_is_not_rented_for_yet():
    tasks = waiting((0, 0, 7200, 7800, False))
    decision = control(0.0, tasks, rented(), np.array([[600.0]]), market(lag_s=300), RULES)
    assert decision.acquire.tolist() == [0]
    near = waiting((0, 0, 330, 930, False))
    assert control(0.0, near, rented(), np.array([[600.0]]), market(lag_s=300), RULES).acquire.tolist() == [1]


def test_the_boot_shortens_the_interval_when_scaling_up():
    # 600 s of work due in 1300 s fits one machine twice over, but not after a boot of 300 s.
    tasks = waiting((0, 0, 0, 1300, True), (0, 0, 0, 1300, True))
    durations = np.array([[600.0]])
    assert control(0.0, tasks, rented(), durations, market(), RULES).needed.tolist() == [1]
    assert control(0.0, tasks, rented(), durations, market(lag_s=300), RULES).needed.tolist() == [2]


def test_a_limit_bounds_what_is_acquired():
    tasks = waiting(*[(0, 0, 0, 600, True)] * 5)
    assert control(0.0, tasks, rented(), np.array([[600.0]]), market(limit=2), RULES).acquire.tolist() == [2]


def test_the_earliest_deadline_gets_the_idle_machine_of_its_type():
    tasks = waiting((0, 0, 0, 900, True), (0, 0, 0, 700, True), (0, 1, 0, 100, True), (0, 0, 0, 50, False))
    machines = rented((0, -100, -50, 0), (1, -100, -50, 500))
    decision = control(0.0, tasks, machines, np.array([[60.0, 60.0]]), market(types=2), RULES)
    assert decision.starts == [(1, 0)]


def test_an_idle_machine_is_released_only_near_the_end_of_its_paid_hour():
    near = rented((0, -3570.0, -3000.0, 0.0))
    early = rented((0, -1800.0, -1000.0, 0.0))
    for machines, expected in ((near, [0]), (early, [])):
        assert control(0.0, waiting(), machines, np.zeros((1, 1)), market(), RULES).release == expected


def test_a_machine_that_is_needed_soon_is_not_released():
    machines = rented((0, -3570.0, -3000.0, 0.0))
    tasks = waiting((0, 0, 500, 1100, False))
    durations = np.array([[600.0]])
    assert control(0.0, tasks, machines, durations, market(lag_s=300), RULES).release == []
    # Without damping the same machine would go, and come back a boot later.
    assert control(0.0, tasks, machines, durations, market(lag_s=300), Rules(damping=0.0)).release == [0]


def test_a_task_moves_to_a_paid_machine_of_another_type_instead_of_renting():
    tasks = waiting((0, 0, 0, 1800, True))
    machines = rented((1, -600.0, -300.0, 0.0))
    slow = control(0.0, tasks, machines, np.array([[300.0, 900.0]]), market(types=2), RULES)
    assert (slow.moves, slow.acquire.tolist(), slow.starts) == ([(0, 1)], [0, 0], [(0, 0)])
    too_slow = control(0.0, tasks, machines, np.array([[300.0, 2000.0]]), market(types=2), RULES)
    assert (too_slow.moves, too_slow.acquire.tolist()) == ([], [1, 0])


def test_a_moved_task_may_take_the_time_that_those_behind_it_can_spare():
    machines = rented((1, -600.0, -300.0, 0.0))
    durations = np.array([[300.0, 900.0]])
    for latest, moves in ((1000.0, [(0, 1)]), (850.0, [])):
        tasks = waiting((0, 0, 0, 600, True, latest))
        assert control(0.0, tasks, machines, durations, market(types=2), RULES).moves == moves


def test_a_moved_task_leaves_no_load_behind_for_which_a_machine_would_be_rented():
    # While a machine boots for five minutes the task is counted in the time that is left after the boot.
    tasks = waiting((0, 0, 0, 600, True))
    machines = rented((1, -600.0, -300.0, 0.0))
    moved = control(0.0, tasks, machines, np.array([[60.0, 300.0]]), market(types=2, lag_s=300), RULES)
    assert (moved.moves, moved.acquire.tolist()) == ([(0, 1)], [0, 0])


def test_two_tasks_of_a_chain_within_one_minute_need_one_machine():
    # 60 s of work in 80 s each; the first ends and the second begins in the second minute.
    tasks = waiting((0, 0, 0, 80, True), (0, 0, 80, 160, False))
    vector = load(0.0, tasks, tasks.offer, rented(), np.array([[60.0]]), market(), RULES, after_boot=False)[0]
    assert vector[:4] == pytest.approx([0.75, 0.75, 0.5, 0.0])
    assert vector.sum() * RULES.bin_s == pytest.approx(120.0), "machine-seconds"


def pipeline(deadline_s=3600.0):
    names = ["a", "b", "c"]
    flow = Workflow("p", names, names, [300.0, 600.0, 300.0], [1] * 3, [0] * 3, from_edges(3, [(0, 1), (1, 2)]))
    offers = (Offer(name="slow", price_usd=0.1), Offer(name="fast", speed=2.0, price_usd=0.4))
    return JobClass(flow, offers, deadline_s)


def test_intervals_follow_one_another_and_end_with_the_deadline():
    template = pipeline().assigned(0, 3600.0)
    assert template.begin_s.tolist() == [0.0, *template.due_s[:2].tolist()]
    assert template.due_s[-1] == 3600.0
    assert template.ready.tolist() == [True, False, False]
    assert template.latest_s.tolist() == [2700.0, 3300.0, 3600.0]


def test_a_job_that_is_late_gets_faster_machines_and_one_that_is_early_cheaper_ones():
    shape = pipeline()
    late, early = shape.assigned(0b001, 700.0), shape.assigned(0b001, 2000.0)
    assert 1 in late.offer[1:].tolist()
    assert early.offer.tolist() == [-1, 0, 0]


def test_the_same_situation_is_worked_out_once():
    calls = []
    from windfall.planning.workflow.methods.assign import assign

    def counted(problem):
        calls.append(problem)
        return assign(problem)

    base = pipeline()
    shape = JobClass(base.workflow, base.offers, 3600.0, method=counted)
    for _ in range(3):
        assigned_to_all([shape], np.zeros(50, dtype=np.int64), np.ones(50, dtype=np.int64), np.full(50, 3000.0), 0.0)
    assert len(calls) == 1


def test_a_stream_lists_every_task_that_is_left_once():
    shapes = [pipeline(), pipeline(7200.0)]
    tasks, job, number = assigned_to_all(
        shapes, np.array([0, 1, 1]), np.array([0b000, 0b001, 0b011]), np.array([3600.0, 5000.0, 100.0]), 50.0
    )
    assert list(zip(job.tolist(), number.tolist(), strict=True)) == [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)]
    assert tasks.ready.tolist() == [True, False, False, True, False, True]
    assert tasks.kind.tolist() == [0, 1, 2, 4, 5, 5]
    assert tasks.due_s.min() >= 50.0
