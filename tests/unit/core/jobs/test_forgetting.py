"""Jobs that are forgotten: which may be, what is left of them, and what their hosts say later."""

from __future__ import annotations

import pytest

from tests.support.clouds.rented_cloud import SURE, Cloud
from tests.support.engine.hand import Hand
from windfall import graph
from windfall.core.decisions import STALE
from windfall.core.events import (
    FleetCreated,
    JobCancelled,
    JobForgotten,
    JobRules,
    JobSealed,
    JobShaped,
    JobSubmitted,
    MachineEnded,
    TaskClass,
    TasksAdded,
)
from windfall.core.matching.policy import DefaultPolicy
from windfall.core.records import decode_record, encode_record
from windfall.core.state.renting.fleets import FleetRules
from windfall.core.state.renting.ledger import MOST_JOBS, Ledger, PaidJob
from windfall.core.state.snapshot import load, save
from windfall.core.state.state import State


def forget(hand: Hand, job: int) -> str:
    return hand.step(JobForgotten(hand.t, job)).decided.refused


def ended(hand: Hand, count: int = 2, **rules) -> int:
    bag = hand.submit(count, **rules)
    while keys := hand.tasks("h", want=4, slots=4):
        hand.report("h", *keys)
    assert bag.finished_t is not None
    return bag.number


def workflow(hand: Hand, **rules) -> int:
    shape = graph.from_edges(2, [(0, 1)])
    job = hand.step(JobSubmitted(hand.t, JobRules("flow", **rules), [TaskClass()])).decided.job
    hand.step(JobShaped(hand.t, job, shape.key, shape.offsets.tobytes(), shape.children.tobytes()))
    hand.step(TasksAdded(hand.t, job, 2))
    hand.step(JobSealed(hand.t, job))
    hand.step(JobCancelled(hand.t, job))
    return job


def test_a_job_that_has_ended_leaves_nothing_but_its_number():
    hand = Hand()
    job = ended(hand, key="k")
    assert forget(hand, job) == ""
    state = hand.state
    assert not state.bags and not state.bags.by_key and not state.bags.unfinished
    assert state.was_forgotten(job) and not state.was_forgotten(job + 1) and not state.was_forgotten(0)
    assert hand.submit(1, key="k").number == job + 1, "numbers are used once, keys again"


def test_a_job_that_has_not_ended_stays_and_the_reason_is_said():
    hand = Hand()
    bag = hand.submit(2)
    assert forget(hand, bag.number) == f"job {bag.number} has not ended: it is running"
    assert hand.state.bags[bag.number] is bag
    assert forget(hand, 99) == "there is no job 99"


def test_a_late_result_of_a_forgotten_job_changes_nothing():
    hand = Hand()
    bag = hand.submit(2)
    keys = hand.tasks("h", want=2, slots=2)
    hand.step(JobCancelled(hand.t, bag.number))
    assert forget(hand, bag.number) == ""
    assert hand.report("h", *keys) == [STALE, STALE]
    assert list(hand.ask("h").cancel) == keys
    hand.wait(1000.0)
    assert not hand.state.bags


class Impatient(DefaultPolicy):
    """Gives attempts up after seven seconds."""

    def deadline_s(self, host, job, bag, pool, now, queue=None):
        return 7.0


@pytest.mark.parametrize("silent_s", [0.0, 200.0])
def test_a_host_is_told_to_drop_an_attempt_that_was_given_up(silent_s):
    hand = Hand(Impatient, lease_s=60.0)
    bag = hand.submit(1, [TaskClass(max_losses=1)], policies={"Deadline": "7"})
    keys = hand.tasks("h")
    hand.wait(8.0)
    assert bag.state == "failed" and bag.attempts.given_up and list(hand.state.host("h").held) == keys
    hand.wait(silent_s)
    assert list(hand.state.host("h").held) == keys
    assert forget(hand, bag.number) == "" and not hand.state.host("h").held
    assert list(hand.ask("h").cancel) == keys
    assert hand.report("h", *keys) == [STALE]


def test_the_first_of_a_class_stays_while_others_have_its_tasks():
    hand = Hand()
    first = workflow(hand, workflow_class="c")
    second = workflow(hand, workflow_class="c", like=first)
    assert f"job {second} has the tasks of job {first}" in forget(hand, first)
    assert forget(hand, second) == ""
    assert len(hand.state.bags.shapes) == 1
    assert forget(hand, first) == ""
    assert not hand.state.bags.shapes


def test_a_job_that_rented_is_forgotten_an_hour_after_its_last_machine_and_its_bill_stays():
    cloud = Cloud()
    cloud.t = 1_700_000_000.0
    bag = cloud.rent(2, name="dear", owner="ada")
    (number, _, _), *_ = cloud.plan(bag, start=[SURE]).started
    cloud.work(number, 100)
    cloud.step(JobCancelled(cloud.t, bag.number))
    assert "machine that has not ended" in forget(cloud, bag.number)
    cloud.end(number, "given back")
    usd = cloud.cost_usd(number)
    assert "open until an hour" in forget(cloud, bag.number)
    cloud.wait(3600.0)
    assert forget(cloud, bag.number) == ""
    fleet = cloud.state.fleet
    assert fleet.ledger.months == {"2023-11": {"cloud": round(usd * 1e6)}} and usd > 0
    paid = fleet.ledger.jobs[bag.number]
    assert (paid.name, paid.owner, paid.machines, paid.microusd) == ("dear", "ada", 1, round(usd * 1e6))
    assert not fleet.machines and not fleet.plans and not fleet.by_fleet
    assert save(load(save(cloud.state))) == save(cloud.state)
    cloud.step(MachineEnded(cloud.t, number, cloud.t, "taken"))  # the provider says it once more
    assert fleet.ledger.total_microusd == round(usd * 1e6)


def test_a_job_that_was_to_rent_and_never_did_leaves_no_bill():
    hand = Hand()
    job = ended(hand, rent_from=["cloud"])
    assert job in hand.state.fleet.plans
    assert forget(hand, job) == ""
    assert not hand.state.fleet.ledger.jobs and not hand.state.fleet.plans


def test_of_many_forgotten_bills_the_newest_are_told_apart_and_all_are_in_the_sums():
    ledger = Ledger()
    for job in range(MOST_JOBS + 7):
        ledger.add_machine("2026-11", "cloud", 3)
        ledger.add_job(PaidJob(job, "j", "", 0.0, 1, 3))
    assert len(ledger.jobs) == MOST_JOBS and min(ledger.jobs) == 7
    assert ledger.total_microusd == 3 * (MOST_JOBS + 7) == ledger.pools()["cloud"]


def test_the_number_of_a_fleet_is_not_that_of_a_forgotten_job():
    hand = Hand()
    number = hand.step(FleetCreated(hand.t, FleetRules("f", ["cloud"]))).decided.number
    assert not hand.state.was_forgotten(number)


@pytest.mark.parametrize("restart", [False, True])
def test_a_restart_gives_the_same_state(restart):
    hand = Hand()
    kept = ended(hand)
    assert forget(hand, ended(hand)) == ""
    state = State()
    for place, record in enumerate(hand.log):
        hand.engine.apply(state, decode_record(encode_record(record)))
        state = load(save(state)) if restart and place % 3 == 0 else state
    assert save(state) == save(hand.state) == save(load(save(state)))
    assert list(state.bags) == [kept] and state.bags.next == 3
