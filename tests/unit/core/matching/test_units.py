"""Units of resources: whole ones are a task's alone, parts share one, licences are counted for the server."""

from __future__ import annotations

import pytest

from tests.support.engine.engine_machine import Eager
from tests.support.engine.hand import Hand
from windfall.core.events import HostAsked, JobCancelled, ServerStarted, Settings, TaskClass
from windfall.core.explain.jobs import host_reasons
from windfall.core.matching.units import FreeUnits
from windfall.core.state.hosts.hosts import Host
from windfall.core.state.snapshot import load, save
from windfall.core.state.state import State

GPU = TaskClass(needs=(("gpus", 1000),))
HALF = TaskClass(needs=(("gpus", 500),))
LICENSED = TaskClass(needs=(("licence", 1000),))


def free(**counts: int) -> FreeUnits:
    host = Host.new(1, "h", 0.0)
    host.describe({"resources": counts}, 1, 0.0)
    return FreeUnits(State(), host)


def units_of(answer):
    return [piece.units for piece in answer.assigned]


def test_whole_units_are_given_once_each():
    units = free(gpus=2)
    assert units.take((("gpus", 1000),)) == (("gpus", 0, 1000),)
    assert units.take((("gpus", 1000),)) == (("gpus", 1, 1000),)
    assert units.take((("gpus", 1000),)) is None


def test_parts_fill_a_unit_before_they_begin_another():
    units = free(gpus=2)
    assert [units.take((("gpus", 400),)) for _ in range(4)] == [
        (("gpus", 0, 400),), (("gpus", 0, 400),), (("gpus", 1, 400),), (("gpus", 1, 400),),
    ]  # fmt: skip
    assert units.take((("gpus", 400),)) is None, "0.2 of each is left, and a part is of one unit"


def test_more_than_one_unit_is_whole_ones_and_a_part_of_another():
    units = free(gpus=3)
    assert units.take((("gpus", 1500),)) == (("gpus", 0, 1000), ("gpus", 1, 500))
    assert units.take((("gpus", 1500),)) == (("gpus", 2, 1000), ("gpus", 1, 500))


def test_a_task_that_lacks_one_resource_takes_nothing_of_another():
    units = free(gpus=1)
    assert units.take((("fpga", 1000), ("gpus", 1000))) is None
    assert units.take((("gpus", 1000),)) is not None


def test_a_host_gets_as_many_tasks_as_it_has_gpus():
    hand = Hand()
    hand.submit(5, [GPU])
    answer = hand.ask("h", want=4, slots=4, resources={"gpus": 2})
    assert units_of(answer) == [(("gpus", 0, 1000),), (("gpus", 1, 1000),)]
    assert hand.ask("h", want=2, slots=4).assigned == []
    hand.report("h", (1, 1, 1))
    assert units_of(hand.ask("h", want=3, slots=4)) == [(("gpus", 1, 1000),)]


def test_nothing_goes_ahead_that_would_keep_units_from_others():
    hand = Hand()
    hand.submit(20, [TaskClass(needs=(("gpus", 1000),), estimate_s=1.0)])
    answer = hand.ask("h", want=1, slots=1, room=8, resources={"gpus": 8}, round_trip_s=2.0)
    assert len(answer.assigned) == 1


def test_a_cancelled_attempt_has_its_units_until_its_worker_says_that_it_ended():
    hand = Hand()
    hand.submit(1, [GPU])
    hand.ask("h", want=2, slots=2, resources={"gpus": 1})
    hand.step(JobCancelled(hand.t, 1))
    hand.submit(1, [GPU])
    answer = hand.ask("h", want=2, slots=2)
    assert answer.cancel == [(1, 0, 1)] and answer.assigned == [], "its process still has the GPU"
    hand.report("h", (1, 0, 1), cause="cancelled")
    assert units_of(hand.ask("h", want=2, slots=2)) == [(("gpus", 0, 1000),)]


def test_a_new_boot_of_a_worker_has_all_its_units():
    hand = Hand()
    hand.submit(2, [GPU])
    hand.ask("h", want=1, resources={"gpus": 1})
    hand.step(JobCancelled(hand.t, 1, [0]))
    answer = hand.step(HostAsked(hand.t, "h", "second", 1, 1, 1, {"resources": {"gpus": 1}})).decided
    assert units_of(answer) == [(("gpus", 0, 1000),)]


def test_licences_are_counted_over_all_hosts_and_restarts():
    hand = Hand(resources={"licence": 2000})
    hand.submit(9, [LICENSED])
    given = [key for name in ("a", "b", "c") for key in hand.tasks(name, want=2, slots=2)]
    assert len(given) == 2
    hand.state = load(save(hand.state))
    hand.step(ServerStarted(hand.t, Settings(resources={"licence": 2000})))
    assert hand.tasks("c", want=2, slots=2) == []
    hand.report("a", given[0])
    assert len(hand.tasks("c", want=2, slots=2)) == 1


def test_fewer_licences_after_a_restart_are_not_exceeded_by_new_tasks():
    hand = Hand(resources={"licence": 3000})
    hand.submit(9, [LICENSED])
    given = hand.tasks("a", want=3, slots=3)
    hand.step(ServerStarted(hand.t, Settings(resources={"licence": 1000})))
    hand.report("a", given[0])
    assert hand.tasks("b", want=3, slots=3) == []


def test_a_licence_of_a_host_that_is_lost_is_free_again():
    hand = Hand(resources={"licence": 1000}, lease_s=10.0)
    hand.submit(3, [LICENSED])
    assert len(hand.tasks("a")) == 1
    assert hand.tasks("b") == []
    hand.wait(30.0)
    assert len(hand.tasks("b")) == 1


@pytest.mark.parametrize(("licences", "replicas"), [(1, 0), (2, 1)])
def test_a_replica_needs_units_of_its_own(licences, replicas):
    hand = Hand(Eager, resources={"licence": 1000 * licences})
    hand.submit(1, [LICENSED], policies={"ReplicationRequirements": "true"})
    assert len(hand.tasks("a")) == 1
    assert len(hand.tasks("b")) == replicas


def test_explain_names_the_largest_host():
    hand = Hand()
    bag = hand.submit(1, [TaskClass(needs=(("gpus", 2000),))])
    hand.ask("h", resources={"gpus": 1})
    hand.ask("g")
    found = host_reasons(hand.state, hand.engine.policies, bag, None, hand.state.hosts.by_name["g"], hand.t)
    assert [reason.detail for reason in found] == ["no host has 2 GPUs; the largest has 1"]


def test_explain_says_that_the_server_has_too_few():
    hand = Hand(resources={"licence": 1000})
    bag = hand.submit(1, [TaskClass(needs=(("licence", 2000),))])
    hand.ask("h")
    found = host_reasons(hand.state, hand.engine.policies, bag, None, hand.state.hosts.by_name["h"], hand.t)
    assert [reason.detail for reason in found] == ["the server has 1 licence in all; asked for: 2 licence"]


def test_explain_says_that_others_have_the_units():
    hand = Hand()
    bag = hand.submit(2, [GPU])
    hand.ask("h", want=2, slots=2, resources={"gpus": 1})
    found = host_reasons(hand.state, hand.engine.policies, bag, None, hand.state.hosts.by_name["h"], hand.t)
    assert [(reason.what, reason.text) for reason in found] == [("busy", "the resources are in use")]
