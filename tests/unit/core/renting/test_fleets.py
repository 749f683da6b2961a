"""Named fleets in the engine: who is served, by which machines, and what changes of a fleet do."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.support.engine.hand import Hand
from windfall.core.events import (
    FleetChanged,
    FleetCreated,
    JobForgotten,
    MachineEnded,
    MachineStarted,
    OffersConfigured,
    PlanProposed,
    TimerFired,
)
from windfall.core.explain import jobs as explain_jobs
from windfall.core.explain import plan as explain_plan
from windfall.core.explain import sharing
from windfall.core.renting import plans, shares, views
from windfall.core.state.renting import budgets
from windfall.core.state.renting.fleet import owed_microusd
from windfall.core.state.renting.fleets import DELETED, DRAINING, PAUSED, FleetRules, meant, named
from windfall.core.state.snapshot import load, save
from windfall.core.wishes import machines_to_wake, plan_wish
from windfall.planning.contract import FLEET, Plan, Start
from windfall.planning.offers import Offer

OFFER = Offer(name="one", price_usd=0.36, cores=2, cycle_s=3600.0, pool="cloud", limit=3)


class Shared(Hand):
    """A fleet, and machines that come when they are ordered."""

    def __init__(self, offer: Offer = OFFER, **rules: object) -> None:
        super().__init__(lease_s=1e6)
        self.offer = offer
        self.step(OffersConfigured(self.t, "cloud", [offer]))
        self.number = self.step(FleetCreated(self.t, FleetRules("shared", ["cloud"], **rules))).decided.number

    def job(self, count: int, **rules: object):
        return self.submit(count, fleet="shared", deadline_s=7200.0, **rules)

    def plan(self, **parts: object):
        plan = Plan(only_reserved=True, **parts)
        return self.step(PlanProposed(self.t, self.number, self.state.seq, plan)).decided

    def machine(self, *names: int) -> tuple[int, str]:
        """Rent one with this queue; its number and the name of its host."""
        taken = self.plan(start=[Start("new", self.offer)], assign={"new": list(names)})
        number = taken.started[0][0]
        self.step(MachineStarted(self.t, number, f"i-{number}", self.t))
        return number, self.state.fleet.machines[number].host_name

    def ask_for(self, number: int, want: int = 2):
        host = self.state.fleet.machines[number].host_name
        return self.tasks(host, want, 2, machine=number, pool="cloud")

    def change(self, mode: str):
        return self.step(FleetChanged(self.t, self.number, mode)).decided


def test_a_job_of_a_fleet_is_forgotten_and_what_each_job_is_charged_stays_the_same():
    hand = Shared()
    first, second = hand.job(1, name="first", owner="ada"), hand.job(1, name="second")
    names = [named(hand.number, bag.number, 0) for bag in (first, second)]
    number, host = hand.machine(*names)
    hand.wait(60.0)
    keys = hand.ask_for(number)
    hand.wait(600.0)
    hand.report(host, *keys, run_s=500.0)
    assert first.finished_t is not None and second.finished_t is not None
    forget = JobForgotten(hand.t, first.number)
    assert "kept for an hour after its end" in hand.step(forget).decided.refused
    hand.wait(3600.0)
    before = shares.charged(hand.state, hand.number, hand.t)
    assert before[first.number] > 0
    assert hand.step(JobForgotten(hand.t, first.number)).decided.refused == ""
    assert first.number not in hand.state.bags
    assert shares.charged(hand.state, hand.number, hand.t) == before
    paid = hand.state.fleet.ledger.jobs[first.number]
    assert (paid.name, paid.owner, paid.microusd) == ("first", "ada", before[first.number])
    assert hand.state.fleet.ledger.total_microusd == 0, "the machines of the fleet hold the money"
    assert hand.state.fleet.book.by_number[hand.number].forgotten_jobs == 1
    assert save(load(save(hand.state))) == save(hand.state)
    third = hand.job(1)
    hand.plan(assign={str(number): [named(hand.number, third.number, 0)]})
    hand.report(host, *hand.ask_for(number))
    hand.step(MachineEnded(hand.t, number, hand.t, "given back"))
    assert sum(shares.charged(hand.state, hand.number, hand.t).values()) == owed_microusd(
        hand.state.fleet.machines[number], hand.t
    )


def test_a_fleet_and_a_job_never_have_the_same_number():
    hand = Shared()
    assert hand.number == 1 and hand.job(1).number == 2
    assert hand.step(FleetCreated(hand.t, FleetRules("other", ["cloud"]))).decided.number == 3
    assert hand.submit(1).number == 4


@pytest.mark.parametrize(
    ("fleet", "job", "task"), [(7, 7, 0), (7, 7, 99_999_999), (1, 2, 0), (1, 3_000_000, 99_999_999)]
)
def test_a_plan_names_a_task_by_one_number(fleet, job, task):
    assert meant(fleet, named(fleet, job, task)) == (job, task)


def test_one_machine_serves_the_tasks_of_several_jobs_and_each_result_counts_for_its_own():
    hand = Shared()
    first, second = hand.job(2), hand.job(2)
    queue = [named(hand.number, first.number, 0), named(hand.number, second.number, 1)]
    number, host = hand.machine(*queue)
    keys = hand.ask_for(number)
    assert [key[:2] for key in keys] == [(first.number, 0), (second.number, 1)]
    hand.report(host, *keys)
    assert (first.counts[2], second.counts[2]) == (1, 1)
    assert hand.ask_for(number) == [], "it begins only what is reserved for it"


def test_a_machine_of_a_fleet_gets_nothing_of_a_job_outside():
    hand = Shared()
    hand.job(1)
    outside = hand.submit(3)
    number, _ = hand.machine()
    assert hand.ask_for(number) == []
    assert {key[0] for key in hand.tasks("free", want=4, slots=4)} == {2, outside.number}, "a free host serves all"


def test_a_plan_cannot_name_tasks_of_a_job_outside_its_fleet():
    hand = Shared()
    hand.job(1)
    outside = hand.submit(1)
    taken = hand.plan(start=[Start("new", OFFER)], assign={"new": [named(hand.number, outside.number, 0), 5, -1]})
    assert taken.queues[0][1] == []


def test_the_snapshot_shows_every_unfinished_job_with_its_deadline_the_earliest_first():
    hand = Shared()
    late, soon = hand.submit(2, fleet="shared", deadline_s=9000.0), hand.submit(1, fleet="shared", deadline_s=100.0)
    seen = views.view(hand.state, hand.number, hand.t, float("inf"))
    assert seen.is_fleet and [job.number for job in seen.jobs] == [soon.number, late.number]
    assert {(task.job, task.deadline_t) for task in seen.tasks.values()} == {
        (late.number, hand.t + 9000.0),
        (soon.number, hand.t + 100.0),
    }
    assert plan_wish(hand.state, hand.number).kind == FLEET


def test_a_job_with_machines_of_its_own_is_a_fleet_under_its_own_number():
    hand = Shared()
    own = hand.submit(2, rent_from=["cloud"], deadline_s=100.0)
    seen = views.view(hand.state, own.number, hand.t, float("inf"))
    assert not seen.is_fleet and [job.number for job in seen.jobs] == [own.number]
    assert set(seen.tasks) == {0, 1} and seen.offers[0].limit == 3


def test_fleets_share_the_limit_of_a_pool():
    hand = Shared()
    hand.job(1)
    own = hand.submit(1, rent_from=["cloud"], deadline_s=100.0)
    for _ in range(3):
        hand.machine()
    taken = hand.step(PlanProposed(hand.t, own.number, hand.state.seq, Plan(start=[Start("x", OFFER)]))).decided
    assert taken.started == [] and "all 3 are rented" in taken.refused[0]
    assert views.view(hand.state, own.number, hand.t, 10.0).offers[0].limit == 0


def test_a_fleet_with_unfinished_jobs_is_not_deleted_and_its_name_is_taken():
    hand = Shared()
    job = hand.job(1)
    assert "has 1 unfinished job in it: 2" in hand.change(DELETED).refused
    assert "already" in hand.step(FleetCreated(hand.t, FleetRules("shared", ["cloud"]))).decided.refused
    hand.report("free", *hand.tasks("free"))
    assert job.finished_t is not None
    assert hand.change(DELETED).refused == ""
    assert hand.step(FleetCreated(hand.t, FleetRules("shared", ["cloud"]))).decided.number == 3


def test_a_paused_fleet_rents_nothing_and_a_drained_one_gives_its_machines_back():
    hand = Shared()
    hand.job(1)
    number, host = hand.machine(named(1, 2, 0))
    hand.change(PAUSED)
    assert "fleet shared is paused" in hand.plan(start=[Start("x", OFFER)]).refused[0]
    assert hand.ask_for(number), "what is there goes on"
    hand.change(DRAINING)
    assert plans.closing(hand.state, hand.number) is None, "its job has not ended"
    hand.report(host, (2, 0, 1))
    assert plans.closing(hand.state, hand.number).stop == [str(number)]


def test_the_budget_of_a_fleet_is_renewed_every_hour():
    hand = Shared(budget_microusd=400_000)
    hand.job(1)
    hand.machine()
    assert "the budget" in hand.plan(start=[Start("x", OFFER)]).refused[0]
    machine = hand.state.fleet.machines[1]
    hand.wait(3590.0)
    hand.step(MachineEnded(hand.t, 1, hand.t, "released"))
    assert owed_microusd(machine, hand.t) == 360_000
    assert "the budget" in hand.plan(start=[Start("x", OFFER)]).refused[0]
    hand.wait(11.0)
    assert hand.plan(start=[Start("x", OFFER)]).started


def test_machines_of_a_fleet_are_woken_for_every_job_in_it():
    hand = Shared()
    first, second = hand.job(1), hand.job(1)
    number, _ = hand.machine()
    hand.ask_for(number)
    hand.plan(assign={str(number): [named(1, second.number, 0)]})
    assert [machine.number for machine in machines_to_wake(hand.state, hand.log[-1])] == [number]
    assert first.number != second.number


def test_a_cycle_is_split_among_its_users_and_an_idle_one_is_the_fleets():
    hand = Shared()
    first, second = hand.job(1), hand.job(1)
    number, host = hand.machine(named(1, 2, 0), named(1, 3, 0))
    keys = hand.ask_for(number)
    hand.wait(900.0)
    hand.report(host, keys[0])
    hand.wait(1800.0)
    hand.report(host, keys[1])
    hand.wait(4500.0)
    # 900 s of the first job and 2,700 s of the second one in the first cycle; nobody in the second and the third.
    charged = shares.charged(hand.state, hand.number, hand.t)
    assert charged == {first.number: 90_000, second.number: 270_000, shares.FLEET: 360_000}
    assert shares.charged_to_job_microusd(hand.state, first.number, hand.t) == 90_000
    again = load(save(hand.state))
    assert shares.charged(again, hand.number, hand.t) == charged


def test_a_plan_reserves_nothing_beyond_the_cap_of_an_owner():
    hand = Shared(owner_caps={"bo": 2})
    mine, other = hand.job(3, owner="bo"), hand.job(2, owner="ana")
    names = [named(hand.number, mine.number, task) for task in range(3)]
    first, _ = hand.machine(names[0], named(hand.number, other.number, 0))
    taken = hand.plan(start=[Start("new", OFFER)], assign={"new": [names[1], names[2]]})
    # The queue of the first machine is not given anew, and counts.
    assert taken.queues[-1][1] == [names[1]]
    assert taken.refused == ["1 tasks of bo: the cap of 2 cores is reached"]
    assert len(hand.ask_for(first)) == 2
    again = hand.plan(start=[Start("new", OFFER)], assign={"new": [names[2]]})
    assert again.queues[-1][1] == [] and again.refused
    assert load(save(hand.state)).fleet.book.by_number[hand.number].rules.owner_caps == {"bo": 2}


def test_explain_says_which_jobs_share_a_machine_and_why():
    hand = Shared()
    first, second, third = hand.job(2), hand.job(1), hand.job(1)
    queue = [named(hand.number, first.number, 0), named(hand.number, second.number, 0)]
    number, host = hand.machine(*queue)
    keys = hand.ask_for(number)
    hand.t += 600.0
    hand.report(host, *keys)
    hand.t += 3600.0
    hand.plan(assign={str(number): [named(hand.number, first.number, 1)]})
    (kept,) = hand.ask_for(number)
    hand.t += 60.0
    hand.report(host, kept)
    hand.plan(assign={str(number): [named(hand.number, third.number, 0)]})

    (told,) = sharing.of_job(hand.state, second, hand.t)
    assert [part["job"] for part in told["jobs"]] == [first.number, second.number, third.number]
    assert [part["cycles_begun"] for part in told["jobs"]] == [2, 0, 0]
    parts = shares.shares_of(hand.state, hand.state.fleet.machines[number], hand.t)
    assert [round(1e6 * part["cost_usd"]) for part in told["jobs"]] == [
        parts[first.number], parts[second.number], 0
    ]  # fmt: skip
    why = told["because"]
    assert f"rented for job {first.number}" in why[0]
    assert f"job {second.number} used 10m00s of cycles that were paid already: $0.18 instead of $0.36" in why[1]
    assert f"1 task of job {third.number} is reserved for it" in why[2]
    assert sharing.of_job(hand.state, hand.submit(1, rent_from=["cloud"], deadline_s=9.0), hand.t) == []


def test_a_fleet_whose_machines_stop_slowly_tells_them_to_stop_earlier():
    hand = Shared(budget_microusd=800_000)
    hand.job(8)
    slow, _ = hand.machine()
    usual_s = budgets.lead_s(hand.state, hand.number)
    assert usual_s == budgets.LEAD_SHARE * OFFER.cycle_s == 18.0
    hand.plan(stop=[str(slow)])
    hand.t += 30.0
    hand.step(MachineEnded(hand.t, slow, hand.t, "released"))
    assert budgets.lead_s(hand.state, hand.number) == pytest.approx(1.5 * 30.0)
    began_t = hand.t
    hand.machine()
    look_t = hand.state.fleet.budgets[hand.number]
    assert began_t + OFFER.cycle_s - 46.0 < look_t < began_t + OFFER.cycle_s - 44.0


def test_the_lead_of_a_stop_is_at_least_two_seconds_and_at_most_a_minute():
    hand = Shared(budget_microusd=800_000)
    hand.job(8)
    assert budgets.offer_lead_s(replace(OFFER, cycle_s=1.0)) == 2.0
    assert budgets.offer_lead_s(replace(OFFER, cycle_s=86400.0)) == 60.0
    stuck, _ = hand.machine()
    hand.plan(stop=[str(stuck)])
    hand.t += 5000.0
    hand.step(MachineEnded(hand.t, stuck, hand.t, "released"))
    assert budgets.lead_s(hand.state, hand.number) == 60.0


def test_many_machines_are_told_to_stop_earlier_than_one():
    """They are stopped one after the other: 12 within 2 s began seven cycles that the budget did not allow."""
    hand = Shared(replace(OFFER, limit=None), budget_microusd=80_000_000)
    hand.job(80)
    hand.machine()
    alone_s = budgets.lead_s(hand.state, hand.number)
    for _ in range(11):
        hand.machine()
    assert budgets.lead_s(hand.state, hand.number) == pytest.approx(alone_s + 11 * budgets.STOP_EACH_S)


def test_the_budget_of_an_hour_holds_by_the_clock_of_the_server_where_cycles_are_shorter():
    """Cycles of a minute, as in a cloud at 60 times the speed: the budget of the hour pays for 13, however they end."""
    price = 360_000
    hand = Shared(replace(OFFER, cycle_s=60.0, limit=None), budget_microusd=13 * price)
    hand.job(80)
    left = [hand.machine()[0] for _ in range(4)]
    end_t = hand.t + 3600.0 - 60.0
    while left and hand.state.fleet.budget_t < end_t:
        hand.t = max(hand.t, hand.state.fleet.budget_t)
        hand.step(TimerFired(hand.t))
        for number in [each for each in left if hand.state.fleet.machines[each].stopping]:
            hand.t += 0.4
            hand.step(MachineEnded(hand.t, number, hand.t, "released"))
            left.remove(number)
    spent = sum(owed_microusd(machine, end_t) for machine in hand.state.fleet.machines.values())
    assert not left and 12 * price <= spent <= 13 * price


def test_a_job_is_told_its_part_of_what_is_billed_after_a_stop():
    """The budget pays for one cycle; the provider stops the machine of two jobs when the next has begun."""
    shared = Shared(budget_microusd=400_000, budget_s=86_400.0)
    one, two = shared.job(1), shared.job(1)
    number, _ = shared.machine(named(shared.number, one.number, 0), named(shared.number, two.number, 0))
    shared.ask_for(number)
    machine = shared.state.fleet.machines[number]
    shared.wait(3599.0)
    assert machine.stopping
    assert shares.after_stop_microusd(shared.state, one.number, shared.t) == 0
    shared.wait(10.0)
    parts = [shares.after_stop_microusd(shared.state, bag.number, shared.t) for bag in (one, two)]
    assert parts == [180_000, 180_000]
    told = explain_plan.money_of(shared.state, one, shared.t)
    assert told is not None and told["after_stop_usd"] == 0.18


def why(hand: Shared, bag):
    return explain_jobs.why_waiting(hand.state, hand.engine.policies, bag, None, hand.t)


def test_a_job_of_a_paused_fleet_is_told_that_it_is_paused_and_how_to_open_it():
    hand = Shared()
    bag = hand.job(2)
    hand.change(PAUSED)
    told = why(hand, bag)
    assert told["because"] == "no machine is rented: fleet shared is paused"
    assert told["stuck"] and told["try"] == ["windfall fleet resume shared"]


def test_a_machine_of_a_fleet_is_no_host_for_jobs_outside_of_it():
    hand = Shared()
    inside, outside = hand.job(2), hand.submit(1)
    number, _ = hand.machine(named(hand.number, inside.number, 0))
    hand.wait(60.0)
    hand.ask_for(number)
    told = why(hand, outside)
    assert told["willing"] == 0
    assert [reason["clause"] for reason in told["reasons"]] == ["the host is rented for other jobs"]
