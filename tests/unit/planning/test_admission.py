"""What one more job means for a fleet: whether it is in time beside the others, and what would help if not."""

from __future__ import annotations

import math

from msgspec.structs import replace

from windfall.planning.contract import BudgetPeriod, Job, Snapshot, Task
from windfall.planning.fleet.admission import NewJob, Verdict, judge
from windfall.planning.fleet.streams import price_stream
from windfall.planning.offers import Offer
from windfall.server.queries.renting.admission import in_words
from windfall.server.queries.renting.admission_process import told_of

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


def says(verdict: Verdict, deadline_s: float) -> list[str]:
    told = {"fleet": "night", "deadline_s": deadline_s, **told_of(verdict), "others_late": len(verdict.late_others)}
    return in_words(told, 3600.0)


def test_an_empty_fleet_keeps_a_deadline_with_room_for_a_boot():
    verdict = judge(fleet(), bag(2, 600.0, 3600.0))
    assert verdict.met and not verdict.late_others
    assert 700.0 <= verdict.finish_s <= 3600.0
    assert 0.0999 < verdict.extra_usd < 0.21
    assert says(verdict, 3600.0) == []


def test_a_deadline_that_no_machine_can_keep_is_told_with_the_earliest_one():
    verdict = judge(fleet(), bag(1, 600.0, 300.0))
    assert not verdict.met and verdict.without_limits is None
    assert verdict.earliest_s is not None and verdict.earliest_s >= 700.0
    again = judge(fleet(), bag(1, 600.0, verdict.earliest_s))
    assert again.met
    said = says(verdict, 300.0)
    assert "would not keep a deadline 5m" in said[0] and "earliest" in said[1]


def test_others_that_take_all_machines_make_a_job_late_and_a_larger_limit_would_help():
    crowded = fleet(others=6, seconds=1000.0, deadline_s=7000.0)
    verdict = judge(crowded, bag(4, 1000.0, 6900.0))
    assert not verdict.met or verdict.late_others
    assert verdict.earliest_s is not None and verdict.earliest_s > 6900.0
    assert verdict.without_limits is not None and verdict.without_limits.extra_usd > 0
    assert any("larger limits" in line for line in says(verdict, 6900.0))


def test_the_tasks_of_a_workflow_follow_each_other():
    chain = NewJob(tuple(Task(place, 600.0) for place in range(3)), {1: (0,), 2: (1,)}, 7200.0)
    verdict = judge(fleet(), chain)
    assert verdict.met and verdict.finish_s >= 1900.0


def test_a_task_that_fits_nowhere_is_told():
    verdict = judge(fleet(), bag(1, 10.0, 3600.0, memory_gb=64.0))
    assert verdict.fits_nowhere and not verdict.met
    assert "no machine on which all tasks fit" in says(verdict, 3600.0)[0]


def test_a_fleet_that_may_rent_nothing_keeps_no_deadline():
    nothing = Offer(name="one", pool="cloud", price_usd=0.1, limit=0)
    assert not judge(fleet(offer=nothing), bag(1, 10.0, 3600.0)).met


def test_a_budget_that_is_too_small_is_told_with_what_is_missing():
    verdict = judge(fleet(budget_usd=0.05), bag(1, 600.0, 3600.0))
    assert verdict.met and math.isclose(verdict.over_budget_usd, 0.05)
    assert "$0.05" in says(verdict, 3600.0)[0]


def test_the_budget_of_each_period_counts_for_the_cycles_that_begin_in_it():
    period = BudgetPeriod(usd=0.2, length_s=3600.0, until_t=T + 1800.0)
    rich = fleet(budget_usd=0.2, budget_period=period)
    four_hours = bag(8, 3400.0, 4 * 3600.0 + 200.0)
    assert judge(rich, four_hours).holds, "two machines an hour, for four hours: never more than the budget of an hour"
    poor = judge(fleet(budget_usd=0.1, budget_period=replace(period, usd=0.1)), four_hours)
    assert not poor.holds and poor.budget_usd is not None
    enough = replace(period, usd=poor.budget_usd)
    assert judge(fleet(budget_usd=poor.budget_usd, budget_period=enough), four_hours).holds
    assert any("would suffice" in line for line in says(poor, 4 * 3600.0))


def test_a_looser_deadline_that_the_budget_allows_is_named():
    period = BudgetPeriod(usd=0.1, length_s=3600.0, until_t=T + 3600.0)
    tight = judge(fleet(budget_usd=0.1, budget_period=period), bag(2, 3000.0, 3600.0))
    assert tight.met and tight.over_budget_usd > 0
    assert tight.earliest_s is not None and tight.earliest_s > 3600.0
    loose = bag(2, 3000.0, tight.earliest_s)
    assert judge(fleet(budget_usd=0.1, budget_period=period), loose).holds


def test_a_job_that_makes_others_late_is_told():
    said = says(Verdict(10.0, True, (3, 4), 1.0, earliest_s=50.0), 20.0)
    assert "late with 2 of its other jobs" in said[0]


def test_jobs_that_come_more_often_cost_more_an_hour_and_less_each():
    often, seldom = (price_stream(fleet(), bag(4, 300.0, 5400.0), per_hour) for per_hour in (60.0, 6.0))
    assert often is not None and seldom is not None
    work_usd = 60 * 4 * 300 / 3600 * OFFER.price_usd
    assert work_usd <= often.after_usd <= 1.5 * work_usd
    assert often.after_usd > seldom.after_usd > often.before_usd == 0.0
    assert often.each_usd < seldom.each_usd
    assert often.beyond_limits == seldom.beyond_limits == ("one",), (
        "2 machines of work alone are more than the limit of 2"
    )
    rare = price_stream(fleet(), bag(4, 300.0, 5400.0), 1.0)
    assert rare is not None and rare.beyond_limits == ()


def test_a_stream_of_jobs_that_cannot_be_in_time_or_fit_nowhere_has_no_price():
    assert price_stream(fleet(), bag(4, 300.0, 350.0), 60.0) is None
    assert price_stream(fleet(), bag(1, 10.0, 3600.0, memory_gb=64.0), 60.0) is None


def test_a_cap_of_the_owner_counts_in_admission():
    """Eight tasks of ten minutes on two cores take forty minutes; without the cap they run at once."""
    capped = fleet(owner_caps={"bo": 2}, offer=replace(OFFER, limit=None))
    assert judge(capped, bag(8, 600.0, 1800.0)).met
    verdict = judge(capped, replace(bag(8, 600.0, 1800.0), owner="bo"))
    assert not verdict.met and verdict.finish_s >= 2400.0
    assert verdict.earliest_s is not None and judge(capped, replace(bag(8, 600.0, verdict.earliest_s), owner="bo")).met


def test_a_task_wider_than_the_cap_of_its_owner_is_never_in_time():
    verdict = judge(fleet(owner_caps={"bo": 1}), replace(bag(1, 600.0, 7200.0, cores=2), owner="bo"))
    assert not verdict.met


def test_the_share_of_the_owner_counts_where_the_fleet_cannot_run_all_at_once():
    """Ten machines, twenty tasks of others and ten of this owner: it can count on its part of the machines."""
    others = fleet(10, offer=replace(OFFER, limit=10), seconds=600.0, deadline_s=7200.0)
    others = replace(others, jobs=tuple(replace(job, owner="ana") for job in others.jobs))
    mine = replace(bag(10, 600.0, 1900.0), owner="bo")
    assert judge(replace(others, owner_shares={"bo": 9.0}), mine).met
    verdict = judge(replace(others, owner_shares={"ana": 9.0}), mine)
    assert not verdict.met and verdict.finish_s >= 6000.0


def test_a_fleet_that_is_paused_is_said_to_be_instead_of_having_no_machine_that_is_large_enough():
    verdict = judge(fleet(offer=replace(OFFER, limit=0)), bag(1, 600.0, 3600.0))
    told = {"fleet": "night", "deadline_s": 3600.0, **told_of(verdict), "others_late": 0}
    assert in_words(told, 3600.0, "fleet night is paused") == [
        "fleet night is paused and rents no machine", "open it again: windfall fleet resume night"
    ]  # fmt: skip
    assert "on which all tasks fit" in in_words(told, 3600.0)[0]
