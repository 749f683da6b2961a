"""What one more job means for a fleet: whether it is in time beside the others, and what would help if not."""

from __future__ import annotations

import math

from windfall.cli.run.admit import in_words
from windfall.planning.contract import Job, Snapshot, Task
from windfall.planning.fleet.admission import NewJob, Verdict, judge
from windfall.planning.offers import Offer

T = 1000.0
OFFER = Offer(name="one", pool="cloud", price_usd=0.1, lag_s=100.0, memory_gb=4.0, limit=2)


def fleet(others: int = 0, seconds: float = 600.0, deadline_s: float = 7200.0, **more: object) -> Snapshot:
    """A fleet of at most two machines of one core, with bags of two tasks each."""
    offer = more.pop("offer", OFFER)
    tasks = {
        job << 32 | place: Task(job << 32 | place, seconds, job=job, deadline_t=T + deadline_s)
        for job in range(1, others + 1)
        for place in range(2)
    }
    jobs = tuple(Job(job, T + deadline_s, T, total=2) for job in range(1, others + 1))
    return Snapshot(
        t=T, deadline_t=T + deadline_s, tasks=tasks, machines=(), offers=(offer,), jobs=jobs, is_fleet=True, **more
    )


def bag(count: int, seconds: float, deadline_s: float, **needs: object) -> NewJob:
    return NewJob(tuple(Task(place, seconds, **needs) for place in range(count)), {}, deadline_s)


def test_an_empty_fleet_keeps_a_deadline_with_room_for_a_boot():
    verdict = judge(fleet(), bag(2, 600.0, 3600.0))
    assert verdict.met and not verdict.late_others
    assert 700.0 <= verdict.finish_s <= 3600.0
    assert 0.0999 < verdict.extra_usd < 0.21
    assert in_words(verdict, "night", 3600.0) == []


def test_a_deadline_that_no_machine_can_keep_is_told_with_the_earliest_one():
    verdict = judge(fleet(), bag(1, 600.0, 300.0))
    assert not verdict.met and verdict.without_limits is None
    assert verdict.earliest_s is not None and verdict.earliest_s >= 700.0
    again = judge(fleet(), bag(1, 600.0, verdict.earliest_s))
    assert again.met
    said = in_words(verdict, "night", 300.0)
    assert "would not keep a deadline 5m" in said[0] and "earliest" in said[1]


def test_others_that_take_all_machines_make_a_job_late_and_a_larger_limit_would_help():
    crowded = fleet(others=6, seconds=1000.0, deadline_s=7000.0)
    verdict = judge(crowded, bag(4, 1000.0, 6900.0))
    assert not verdict.met or verdict.late_others
    assert verdict.earliest_s is not None and verdict.earliest_s > 6900.0
    assert verdict.without_limits is not None and verdict.without_limits.extra_usd > 0
    assert any("larger limits" in line for line in in_words(verdict, "night", 6900.0))


def test_the_tasks_of_a_workflow_follow_each_other():
    chain = NewJob(tuple(Task(place, 600.0) for place in range(3)), {1: (0,), 2: (1,)}, 7200.0)
    verdict = judge(fleet(), chain)
    assert verdict.met and verdict.finish_s >= 1900.0


def test_a_task_that_fits_nowhere_is_told():
    verdict = judge(fleet(), bag(1, 10.0, 3600.0, memory_gb=64.0))
    assert verdict.fits_nowhere and not verdict.met
    assert "no machine on which all tasks fit" in in_words(verdict, "night", 3600.0)[0]


def test_a_fleet_that_may_rent_nothing_keeps_no_deadline():
    nothing = Offer(name="one", pool="cloud", price_usd=0.1, limit=0)
    assert not judge(fleet(offer=nothing), bag(1, 10.0, 3600.0)).met


def test_a_budget_that_is_too_small_is_told_with_what_is_missing():
    verdict = judge(fleet(budget_usd=0.05), bag(1, 600.0, 3600.0))
    assert verdict.met and math.isclose(verdict.over_budget_usd, 0.05)
    assert "$0.05" in in_words(verdict, "night", 3600.0)[0]


def test_a_job_that_makes_others_late_is_told():
    said = in_words(Verdict(10.0, True, (3, 4), 1.0, earliest_s=50.0), "night", 20.0)
    assert "late with 2 of its other jobs" in said[0]
