"""Pools that are paused, drained, ended and removed, in the engine, one event at a time."""

from __future__ import annotations

from tests.support.clouds.rented_cloud import SPOT, Cloud
from tests.support.engine.hand import Hand
from windfall.core.engine import Engine
from windfall.core.events import (
    HostAsked,
    MachineEnded,
    MachineStarted,
    OverlayDue,
    PlanProposed,
    PoolAdded,
    PoolAnswered,
    PoolCounted,
    PoolRemoved,
    PoolsConfigured,
    PoolSwitched,
)
from windfall.core.records import decode_record, encode_record
from windfall.core.renting import views
from windfall.core.state.hosts.pools import DRAINING, ENDING, NEVER_CAME_KEPT, OPEN, PAUSED, PoolRules
from windfall.core.state.snapshot import load, save
from windfall.core.state.state import State
from windfall.core.supply import modes
from windfall.core.supply.pools import look
from windfall.core.wishes import wishes
from windfall.planning.contract import Plan, Start


def hand_with_pools(*names: str) -> Hand:
    hand = Hand()
    hand.step(PoolsConfigured(hand.t, [PoolRules(name, limit=4) for name in names or ("p",)]))
    return hand


def switch(hand: Hand, mode: str, pool: str = "p", reason: str = ""):
    return hand.step(PoolSwitched(hand.t, pool, mode, reason)).decided


def asked(hand: Hand) -> dict[str, int]:
    return {ask.pool: ask.count for ask in hand.step(OverlayDue(hand.t)).decided.asks}


def test_a_paused_pool_is_asked_for_nothing_until_it_is_resumed_and_says_why():
    hand = hand_with_pools()
    hand.submit(3)
    switch(hand, PAUSED, reason="maintenance")
    assert asked(hand) == {}
    _, asks = look(hand.state, hand.engine.policies, hand.t)
    assert [ask.held_back for ask in asks] == ["pool p is paused: maintenance"]
    switch(hand, OPEN)
    assert asked(hand) == {"p": 3}


def test_the_work_of_a_paused_pool_goes_to_another_one():
    hand = hand_with_pools("p", "q")
    hand.submit(3)
    switch(hand, PAUSED)
    assert asked(hand) == {"q": 3}


def test_hosts_of_a_paused_pool_go_on_working():
    hand = hand_with_pools()
    hand.submit(2)
    switch(hand, PAUSED)
    assert len(hand.tasks("p-1-1", pool="p")) == 1


def test_requests_that_were_not_carried_out_are_withdrawn_and_count_no_more():
    hand = hand_with_pools()
    hand.submit(3)
    asked(hand)
    assert hand.state.supply.pools["p"].queued == 3
    switch(hand, PAUSED)
    assert wishes(hand.state).asks == [] and hand.state.supply.pools["p"].queued == 0


def test_hosts_of_a_draining_pool_finish_what_they_hold_get_nothing_more_and_are_told_to_go():
    hand = hand_with_pools()
    hand.submit(5)
    keys = hand.tasks("p-1-1", pool="p")
    switch(hand, DRAINING)
    answer = hand.ask("p-1-1")
    assert not answer.assigned and not answer.stop
    hand.report("p-1-1", *keys)
    assert hand.ask("p-1-1").stop == "drained"
    late = hand.ask("p-1-2", pool="p")
    assert late.stop == "drained" and not late.assigned, "one that was on its way is told so, too"
    assert hand.tasks("elsewhere", pool="q"), "the rest is for other hosts"


def test_free_slots_of_a_draining_pool_keep_no_other_pool_from_being_asked():
    hand = hand_with_pools("p", "q")
    hand.ask("p-1-1", slots=4, pool="p")
    switch(hand, DRAINING)
    hand.submit(3)
    assert asked(hand) == {"q": 3}


def test_hosts_of_an_ending_pool_hand_back_what_they_run_and_all_its_workers_are_stopped():
    hand = hand_with_pools()
    hand.submit(2)
    hand.tasks("p-1-1", pool="p")
    switch(hand, ENDING)
    assert hand.ask("p-1-1").stop == "now"
    assert modes.to_end(hand.state, "p", ["p-1-1", "p-1-2"]) == [("p-1-1", False), ("p-1-2", False)]


def test_only_workers_of_a_draining_pool_that_hear_nothing_are_stopped_by_their_provider():
    hand = hand_with_pools()
    hand.ask("p-1-1", pool="p")
    assert modes.to_end(hand.state, "p", ["p-1-1", "p-1-2"]) == []
    switch(hand, DRAINING)
    assert modes.to_end(hand.state, "p", ["p-1-1", "p-1-2"]) == [("p-1-2", True)]


def test_a_pool_is_not_removed_while_something_of_it_lives():
    hand = hand_with_pools()
    hand.step(PoolAdded(hand.t, "p", "{}"))
    hand.ask("p-1-1", pool="p")
    assert hand.step(PoolRemoved(hand.t, "p")).decided.refused == "pool p still has 1 worker"
    assert "p" in hand.state.supply.pools
    hand.ask("p-1-1", want=0, leaving="drained")
    assert not hand.step(PoolRemoved(hand.t, "p")).decided.refused
    assert not hand.state.supply.pools and not hand.state.supply.added


def test_modes_and_added_pools_are_in_the_snapshot_and_in_the_log():
    hand = hand_with_pools("p", "q")
    hand.step(PoolAdded(hand.t, "q", '{"kind":"local"}', "/srv"))
    switch(hand, DRAINING, reason="old")
    switch(hand, PAUSED, "cloud")
    kept = load(save(hand.state))
    assert (kept.supply.modes, kept.supply.added) == (hand.state.supply.modes, hand.state.supply.added)
    replayed, engine = State(), Engine()
    for record in hand.log:
        engine.apply(replayed, decode_record(encode_record(record)))
    assert save(replayed) == save(hand.state)


def test_the_last_words_of_workers_that_never_came_are_kept():
    hand = hand_with_pools()
    for number in range(NEVER_CAME_KEPT + 3):
        said = [(f"p-{number}-1", "python3: not found")]
        hand.step(PoolAnswered(hand.t, "p", 1, "python3: not found", 0, said))
    kept = load(save(hand.state)).supply.pools["p"].never_came
    assert len(kept) == NEVER_CAME_KEPT and kept[-1] == (hand.t, f"p-{NEVER_CAME_KEPT + 2}-1", "python3: not found")


# --- machines -------------------------------------------------------------------------------------------------------


def test_a_paused_pool_rents_nothing_and_its_machines_go_on():
    cloud = Cloud()
    bag = cloud.rent(4)
    cloud.plan(bag, start=[SPOT])
    cloud.boot(1)
    cloud.step(PlanProposed(cloud.t, bag.number, cloud.state.seq, Plan(start=[Start("new", SPOT)])))
    assert [*wishes(cloud.state).order] == [2]
    switch(cloud, PAUSED, SPOT.pool)
    assert ([*wishes(cloud.state).order], [*wishes(cloud.state).end]) == ([], [2]), "not ordered yet: given up"
    decided = cloud.plan(bag, start=[SPOT])
    assert not decided.started and "is paused" in decided.refused[0]
    assert cloud.state.fleet.machines[1].there and not cloud.state.fleet.machines[1].stopping
    offered = views.view(cloud.state, bag.number, cloud.t, 1000).offers
    assert {offer.limit for offer in offered if offer.name == SPOT.name} <= {1, 2}


def test_a_machine_of_a_draining_pool_ends_when_it_has_done_what_it_runs_and_its_queue_goes_elsewhere():
    cloud = Cloud()
    bag = cloud.rent(4)
    cloud.plan(bag, start=[SPOT, SPOT], assign={"new-0": [0, 1, 2, 3]})
    keys = cloud.boot(1)
    cloud.step(MachineStarted(cloud.t, 2, "i-2", cloud.t))
    decided = switch(cloud, DRAINING, SPOT.pool)
    assert (decided.stopped, decided.freed) == ([2], [1])
    assert not bag.queues.reserved, "what waited for it may run elsewhere"
    name = cloud.state.fleet.machines[1].host_name
    cloud.report(name, *keys)
    answer = cloud.ask(name)
    assert (answer.stop, answer.given_back) == ("drained", 1)
    assert {*wishes(cloud.state).end} == {1, 2}


def test_nothing_is_planned_on_a_machine_of_a_draining_pool_and_one_whose_host_was_lost_ends():
    cloud = Cloud()
    bag = cloud.rent(4)
    cloud.plan(bag, start=[SPOT])
    cloud.boot(1)
    switch(cloud, DRAINING, SPOT.pool)
    shown = views.view(cloud.state, bag.number, cloud.t, 1000).machines
    assert [machine.noticed_t for machine in shown] == [cloud.t]
    decided = cloud.plan(bag, assign={"1": [3]})
    assert not decided.queues and "drained" in decided.refused[0]
    name = cloud.state.fleet.machines[1].host_name
    cloud.step(HostAsked(cloud.t, name, "another boot", 1, 0, 1, {"pool": SPOT.pool, "machine": 1}, "lost"))
    assert 1 in wishes(cloud.state).end


def test_a_machine_that_failed_before_it_came_keeps_its_last_words():
    cloud = Cloud()
    cloud.plan(cloud.rent(1), start=[SPOT])
    cloud.step(MachineStarted(cloud.t, 1, "i-1", cloud.t))
    cloud.step(MachineEnded(cloud.t, 1, cloud.t, "failed", "cloud-init: no network"))
    assert cloud.state.fleet.machines[1].error == "cloud-init: no network"


def test_what_waits_in_a_queue_is_withdrawn_when_every_job_has_ended():
    hand = Hand()
    hand.step(PoolsConfigured(hand.t, [PoolRules("q", "slurm", limit=9, slots=1, backlog=3), PoolRules("p", limit=3)]))
    bag = hand.submit(1)
    keys = hand.tasks("q-1-1", pool="q")
    hand.step(PoolCounted(hand.t, "q", 2))
    hand.step(PoolCounted(hand.t, "p", 2))
    waiting = ["q-1-1", "q-1-2", "q-2-1", "q-doctor-1a"]
    assert modes.to_end(hand.state, "q", waiting) == [], "its task may have to run again"
    hand.report("q-1-1", *keys)
    assert bag.finished_t is not None
    assert modes.to_end(hand.state, "q", waiting) == [("q-1-2", True), ("q-2-1", True)], "one that came is there"
    assert modes.to_end(hand.state, "p", ["p-1-2"]) == [], "workers of a pool without a queue come at once"
    hand.submit(1)
    assert modes.to_end(hand.state, "q", waiting) == []
