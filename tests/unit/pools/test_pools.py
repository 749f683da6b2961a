"""The overlay in the engine: demand becomes requests, requests become hosts, and a pool that fails is left alone."""

from __future__ import annotations

from tests.support.engine.hand import Hand
from windfall.core.events import OverlayDue, PoolAnswered, PoolCounted, PoolsConfigured, TaskClass
from windfall.core.matching.ads import pool_ad
from windfall.core.state.hosts.pools import Ask, PoolRules
from windfall.core.supply.overlay import ERRORS_TO_OPEN, STUCK_S, is_stuck, remark
from windfall.core.wishes import AskWish, wishes
from windfall.policy.compiled import compile_policies

CHEAP = PoolRules("cheap", limit=4, slots=2, price_usd=0.1)
DEAR = PoolRules("dear", limit=10, slots=2, price_usd=1.0)
VOLUNTEERS = PoolRules("volunteers", kind="self", joins_itself=True)


def hand_with(*pools: PoolRules, **settings) -> Hand:
    hand = Hand(compile_policies, **settings)
    hand.step(PoolsConfigured(hand.t, list(pools)))
    return hand


def asked(hand: Hand) -> dict[str, int]:
    asks: list[Ask] = hand.step(OverlayDue(hand.t)).decided.asks
    return {ask.pool: ask.count for ask in asks}


def test_the_cheapest_pools_are_asked_first_and_within_their_limits():
    hand = hand_with(DEAR, CHEAP)
    hand.submit(12)
    assert asked(hand) == {"cheap": 4, "dear": 2}
    assert asked(hand) == {}, "what is pending is not asked for again"


def test_without_work_nobody_is_asked():
    assert asked(hand_with(CHEAP)) == {}


def test_a_bags_grid_policy_chooses_its_pools():
    hand = hand_with(CHEAP, DEAR)
    hand.submit(4, policies={"GridPolicy": 'Pool.Name == "dear"'})
    hand.submit(2, policies={"GridPolicy": 'Pool.Price < 0.5 && Pool.Kind == "local"'})
    assert asked(hand) == {"dear": 2, "cheap": 1}


def test_a_pool_whose_workers_are_too_narrow_for_a_task_is_not_asked_for_it():
    hand = hand_with(CHEAP)
    hand.submit(1, [TaskClass(cpus=3.0)])
    assert asked(hand) == {}


def test_a_worker_that_comes_is_pending_no_more_and_its_free_slots_are_used_first():
    hand = hand_with(CHEAP)
    hand.submit(3)
    assert asked(hand) == {"cheap": 2}
    (number,) = hand.state.supply.asked
    hand.step(PoolAnswered(hand.t, "cheap", 2, ask=number))
    hand.ask("c1", want=0, slots=2, pool="cheap")
    pool = hand.state.supply.pools["cheap"]
    assert pool.queued == 1
    hand.step(PoolCounted(hand.t, "cheap", 0))
    assert asked(hand) == {"cheap": 1}, "one of the two never came"


def test_volunteers_are_supply_and_are_never_asked():
    hand = hand_with(VOLUNTEERS, CHEAP)
    hand.ask("v", want=0, slots=3, pool="volunteers")
    hand.submit(4)
    assert asked(hand) == {"cheap": 1}


def test_a_starved_host_has_no_free_slots():
    hand = hand_with(CHEAP)
    hand.ask("hole", want=0, slots=2, pool="cheap")
    hand.state.host("hole").record.probation_until = hand.t + 60
    hand.submit(2)
    assert asked(hand) == {"cheap": 1}


def test_a_pool_that_fails_is_left_alone_and_the_demand_goes_on_being_known():
    hand = hand_with(CHEAP)
    hand.submit(8)
    for _ in range(ERRORS_TO_OPEN):
        count = asked(hand)["cheap"]
        hand.step(PoolAnswered(hand.t, "cheap", count, "no space left"))
    assert asked(hand) == {}
    hand.t += 61
    assert asked(hand) == {"cheap": 1}
    assert len(hand.tasks("c", want=2, slots=2, pool="cheap")) == 2
    assert asked(hand) == {"cheap": 3}


def test_clients_that_suit_no_job_do_not_come_and_go_for_ever():
    hand = hand_with(CHEAP)
    hand.submit(8, policies={"JobRequirements": "Host.Memory > 1000000"})
    workers = 0
    for _ in range(240):
        for _ in range(asked(hand).get("cheap", 0)):
            workers += 1
            hand.ask(f"c{workers}", want=2, slots=2, pool="cheap", memory_mb=1000)
            hand.ask(f"c{workers}", want=0, slots=2, leaving="idle")
        hand.t += 60
    assert workers <= 20, "four hours"
    assert "no waiting job may run" in hand.state.supply.pools["cheap"].last_error
    hand.submit(4)
    hand.t += 3600
    assert asked(hand) == {"cheap": 1}
    hand.tasks("new", want=2, slots=2, pool="cheap")
    assert asked(hand)["cheap"] > 0, "one that is given work makes up for all"


def test_the_pool_ad_says_what_policies_may_ask():
    hand = hand_with(CHEAP)
    hand.submit(4)
    asked(hand)
    hand.ask("c", want=0, slots=2, pool="cheap")
    assert pool_ad(hand.state, "cheap") == {
        "Name": "cheap", "Kind": "local", "Limit": 4, "Queued": 1, "Running": 1, "Price": 0.1,
    }  # fmt: skip
    assert pool_ad(hand.state, "elsewhere") == {"Name": "elsewhere", "Running": 0}


def test_for_tasks_that_must_fail_over_only_the_fail_over_pool_is_asked():
    hand = hand_with(CHEAP, DEAR, failover_pool="dear")
    hand.submit(1, [TaskClass(max_failures=5)])
    for host in ("a", "b"):
        hand.report(host, *hand.tasks(host), cause="exit")
    assert asked(hand) == {"dear": 1}


QUEUE = PoolRules("queue", "slurm", limit=20, slots=8, per_minute=600.0, backlog=3, least_slots=1)


def test_no_more_workers_are_pending_in_a_queue_than_its_backlog_and_more_are_asked_for_when_some_come():
    hand = hand_with(QUEUE)
    hand.submit(160)
    assert asked(hand) == {"queue": 3}
    (number,) = hand.state.supply.asked
    hand.step(PoolAnswered(hand.t, "queue", 3, ask=number))
    assert asked(hand) == {}
    hand.ask("c1", want=8, slots=8, pool="queue")
    assert asked(hand) == {"queue": 1}


def test_a_queue_that_does_not_move_is_left_alone_and_its_work_goes_to_a_dearer_pool():
    hand = hand_with(QUEUE, PoolRules("dear", limit=2, slots=8, price_usd=1.0))
    hand.submit(16)
    assert asked(hand) == {"queue": 2}
    (number,) = hand.state.supply.asked
    hand.step(PoolAnswered(hand.t, "queue", 2, ask=number))
    hand.t += STUCK_S + 1
    hand.step(PoolCounted(hand.t, "queue", 2))
    assert asked(hand) == {"dear": 2}
    row = hand.state.supply.pools["queue"]
    assert remark(row, hand.t) == "2 workers are pending, and none has come for 5m01s"
    hand.step(PoolCounted(hand.t, "queue", 1))
    assert not is_stuck(row, hand.t), "one of them is gone from the queue: it moves"


def test_workers_of_a_queue_are_as_large_as_the_work_that_waits():
    hand = hand_with(QUEUE)
    hand.submit(5)
    (ask,) = hand.step(OverlayDue(hand.t)).decided.asks
    assert (ask.count, ask.slots) == (1, 5)
    assert wishes(hand.state).asks == [AskWish("queue", ask.number, 1, 5)]
    hand.step(PoolAnswered(hand.t, "queue", 1, ask=ask.number))
    assert hand.state.supply.pools["queue"].sizes == {}
    hand.submit(14)
    (ask,) = hand.step(OverlayDue(hand.t)).decided.asks
    assert (ask.count, ask.slots) == (2, 6), "the pending one counts as full, and two share the rest"


def test_a_worker_is_never_narrower_than_a_task_that_waits_for_it():
    hand = hand_with(QUEUE)
    hand.submit(1, [TaskClass(cpus=4.0)])
    hand.submit(1)
    (ask,) = hand.step(OverlayDue(hand.t)).decided.asks
    assert (ask.count, ask.slots) == (1, 5)
    other = hand_with(QUEUE)
    other.submit(9, [TaskClass(cpus=1.0), TaskClass(cpus=7.0)])
    (ask,) = other.step(OverlayDue(other.t)).decided.asks
    assert ask.slots >= 7 or ask.slots == 0


def test_a_full_worker_is_asked_for_where_enough_work_waits():
    hand = hand_with(QUEUE)
    hand.submit(100)
    (ask,) = hand.step(OverlayDue(hand.t)).decided.asks
    assert (ask.count, ask.slots) == (3, 0)
