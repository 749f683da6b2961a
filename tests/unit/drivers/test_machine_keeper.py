"""The keeper of rented machines: whatever was lost or happened in between, provider and engine come to agree."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tests.support.clouds.providers import OFFERS, SPOT, STEADY, Account, FakeCloud
from windfall.core.engine import Engine
from windfall.core.events import (
    HostAsked,
    JobRules,
    JobSealed,
    JobSubmitted,
    PlanProposed,
    Settings,
    StrangersSeen,
    TaskClass,
    TasksAdded,
)
from windfall.core.explain.plan import last_refusal
from windfall.core.records import decode_record
from windfall.core.renting.machines import shut_until_t
from windfall.core.state.renting.fleet import ENDED, FAILED, GIVEN_UP, HIBERNATED, PENDING, REFUSED, RELEASED, TAKEN
from windfall.drivers.keepers.answers import guarded, started_many
from windfall.drivers.keepers.machines import MachineKeeper
from windfall.drivers.realtime import Realtime
from windfall.planning.contract import Plan, Start
from windfall.pools.contract import CAPACITY, CREDENTIALS, INVALID, QUOTA, RUNNING, TRANSIENT, Order, PoolError, Seen
from windfall.store.memory import MemoryStore


class World:
    """A driver, a provider in memory, and a keeper that looks only when told to."""

    def __init__(self) -> None:
        self.account = Account()
        self.store = MemoryStore()

    async def begin(self) -> World:
        """A server starts; begun again, it is the next one on the same store."""
        self.driver = Realtime(self.store, Engine(), Settings())
        self.driver.restore()
        await self.driver.start()
        self.cloud = FakeCloud(self.account)
        self.keeper = MachineKeeper(self.driver, {"cloud": self.cloud})
        self.keeper._begin = lambda: None
        await self.keeper.start()
        return self

    async def submit(self) -> None:
        now = self.driver.clock()
        job = JobSubmitted(now, JobRules("bag", rent_from=["cloud"]), [TaskClass()])
        await self.driver.submit([job, TasksAdded(now, 1, 4), JobSealed(now, 1)])

    async def plan(self, *starts, stop=()) -> None:
        plan = Plan(start=[Start(f"new-{i}", offer) for i, offer in enumerate(starts)], stop=[str(n) for n in stop])
        await self.driver.submit([PlanProposed(self.driver.clock(), 1, self.driver.state.seq, plan)])

    async def look(self) -> None:
        await self.keeper.look("cloud")

    def machine(self, number: int):
        return self.driver.state.fleet.machines[number]

    def crash(self) -> None:
        """The server was killed: what was committed stays."""
        for task in list(self.driver._tasks):
            task.cancel()


def play(story) -> World:
    async def run() -> World:
        world = await World().begin()
        await world.submit()
        await story(world)
        await world.keeper.stop()
        await world.driver.stop()
        return world

    return asyncio.run(run())


def test_what_a_plan_starts_is_ordered_once_and_known_by_the_providers_name():
    async def story(world):
        await world.plan(SPOT, STEADY)
        await world.look()
        await world.look()
        assert [(order.machine, order.host) for order in world.cloud.orders] == [(1, "cloud-m1"), (2, "cloud-m2")]
        assert (world.machine(1).id, world.machine(2).id) == ("i-1", "i-2")

    play(story)


def test_offers_are_told_once_and_again_only_when_they_have_changed():
    async def story(world):
        assert tuple(world.driver.state.fleet.offers["cloud"]) == OFFERS
        seq = world.driver.state.seq
        await world.keeper.start()
        assert world.driver.state.seq == seq

    play(story)


def test_a_refusal_ends_the_machine_and_costs_nothing():
    async def story(world):
        world.cloud.error = PoolError("no capacity")
        await world.plan(SPOT)
        await world.look()
        assert (world.machine(1).phase, world.machine(1).cause, world.machine(1).error) == (
            ENDED,
            REFUSED,
            "no capacity",
        )
        assert world.driver.state.fleet.markets["cloud/spot"].refused == 1

    play(story)


@pytest.mark.parametrize("kind", [CAPACITY, QUOTA, CREDENTIALS, INVALID])
def test_whatever_the_reason_a_refused_offer_is_left_alone_and_the_reason_is_told(kind):
    async def story(world):
        world.cloud.error = PoolError("no such image", kind)
        await world.plan(SPOT)
        await world.look()
        state = world.driver.state
        seen = state.fleet.markets["cloud/spot"]
        assert shut_until_t(seen, SPOT) > seen.refused_t, "the next plan would order the same at once"
        assert last_refusal(state, state.bags[1]) == "cloud refuses spot: no such image"
        world.cloud.error = None
        await world.plan(STEADY)
        await world.look()
        assert last_refusal(state, state.bags[1]) == "", "the provider has taken another order since"

    play(story)


def test_what_the_provider_does_is_told_with_the_providers_times():
    async def story(world):
        await world.plan(SPOT)
        await world.look()
        slept_t = world.account.now = world.driver.clock() - 2.0
        world.cloud.poke("i-1", "hibernate")
        await world.look()
        assert world.machine(1).phase == HIBERNATED and world.machine(1).sleeps == [(slept_t, None)]
        woke_t = world.account.now = slept_t + 1.0
        world.cloud.poke("i-1", "resume")
        await world.look()
        assert world.machine(1).phase == PENDING and world.machine(1).sleeps == [(slept_t, woke_t)]
        world.cloud.poke("i-1", "notice")
        await world.look()
        assert world.machine(1).noticed_t == woke_t + 5.0
        world.cloud.poke("i-1", "terminate")
        await world.look()
        assert (world.machine(1).phase, world.machine(1).cause, world.machine(1).ended_t) == (ENDED, TAKEN, woke_t)

    play(story)


def test_a_provider_that_still_names_the_hibernation_before_pauses_no_bill_twice():
    """The worker has asked for work since then, so the machine was awake, whatever the provider's list says."""

    async def story(world):
        await world.plan(SPOT)
        await world.look()
        slept_t = world.account.now = world.driver.clock() - 2.0
        world.cloud.poke("i-1", "hibernate")
        await world.look()
        ad = {"pool": "cloud", "machine": 1}
        await world.driver.submit([HostAsked(world.driver.clock(), world.machine(1).host_name, "b", 1, 1, 2, ad)])
        assert world.machine(1).phase != HIBERNATED
        await world.look()
        (_, woke_t), (again_t, _) = world.machine(1).sleeps
        assert slept_t < woke_t <= again_t

    play(story)


@pytest.mark.parametrize("told_t", [0.0, -5e9, 1e12])
def test_an_end_at_an_impossible_time_costs_what_it_costs_until_it_is_seen(told_t):
    async def story(world):
        await world.plan(STEADY)
        await world.look()
        world.account.now = told_t
        world.cloud.poke("i-1", "terminate")
        await world.look()
        assert abs(world.machine(1).ended_t - world.driver.clock()) < 60

    play(story)


GARBAGE = [
    None, "i-1", 7, {"id": "i-1"}, [None], ["i-1"], [{"id": "i-1"}], [Seen("", RUNNING)], [Seen("i-1", "asleep")],
    [Seen(7, RUNNING)], [Seen("i-1", RUNNING, float("nan"))], [Seen("i-1", RUNNING, host="")],
    [Seen("i-1", RUNNING, taken_at_t="soon")], [Seen("i-1", ENDED, cause="bored")], [Seen("i" * 5000, RUNNING)],
]  # fmt: skip


@pytest.mark.parametrize("garbage", GARBAGE, ids=str)
def test_a_list_that_cannot_be_understood_says_nothing(garbage, caplog):
    async def story(world):
        await world.plan(SPOT)
        await world.look()
        world.cloud.list = lambda: garbage
        await world.look()
        assert world.machine(1).there and world.machine(1).phase == PENDING and world.cloud.stops == []
        del world.cloud.list
        world.cloud.poke("i-1", "terminate")
        await world.look()
        assert world.machine(1).cause == TAKEN, "the next list that can be understood counts"

    play(story)
    assert "the pool breaks its contract" in caplog.text


@pytest.mark.parametrize("garbage", [None, "", 7, "i" * 5000, ["i-1"]])
def test_an_answer_to_an_order_that_is_no_id_is_an_error_and_the_order_is_repeated(garbage):
    async def story(world):
        await world.plan(SPOT)
        world.cloud.start = lambda order: garbage
        await world.look()
        assert world.machine(1).there and not world.machine(1).id
        del world.cloud.start
        await world.look()
        assert world.machine(1).id == "i-1"

    play(story)


@pytest.mark.parametrize("after_s", [float("inf"), float("nan"), -1.0, 1e12, "soon"])
def test_a_provider_cannot_ask_to_be_left_alone_for_ever(after_s):
    answer = guarded(lambda: PoolError("later", "moody", after_s))
    assert answer.kind == TRANSIENT and 0.0 <= answer.retry_after_s <= 3600.0


def test_as_many_answers_as_orders_are_needed():
    class Many(FakeCloud):
        def start_many(self, orders):
            return ["i-1"]

    orders = [Order("cloud-1-1"), Order("cloud-1-2")]
    assert {answer.kind for answer in started_many(Many(Account()), orders)} == {TRANSIENT}


def test_a_machine_that_shall_end_is_stopped_until_it_has_ended():
    async def story(world):
        await world.plan(SPOT)
        await world.look()
        await world.plan(stop=[1])
        await world.look()
        assert world.cloud.stops == ["i-1"] and world.machine(1).there
        await world.look()
        assert (world.machine(1).phase, world.machine(1).cause) == (ENDED, RELEASED)

    play(story)


def test_a_machine_that_was_given_up_before_it_was_ordered_is_never_ordered():
    async def story(world):
        await world.plan(SPOT)
        await world.plan(stop=[1])
        await world.look()
        assert world.cloud.orders == [] and world.machine(1).cause == REFUSED

    play(story)


def test_a_machine_that_is_no_longer_shown_has_failed_or_was_reclaimed_if_there_was_a_notice():
    async def story(world):
        await world.plan(STEADY, STEADY)
        await world.look()
        world.cloud.poke("i-2", "notice")
        await world.look()
        world.cloud.forget("i-1")
        world.cloud.forget("i-2")
        await world.look()
        assert [world.machine(number).cause for number in (1, 2)] == [FAILED, TAKEN]

    play(story)


def test_an_order_whose_answer_was_lost_is_found_again_by_its_number():
    async def story(world):
        await world.plan(SPOT)
        machine = world.machine(1)
        order = Order(machine.host_name, machine.offer.cores, 1, machine.offer)
        assert world.cloud.start(order) == "i-1"  # and then the server was killed
        world.crash()
        await world.begin()
        await world.look()
        assert world.machine(1).id == "i-1" and world.cloud.orders == []
        assert world.machine(1).meter.since_t == world.machine(1).requested_t, "it is paid for from the order on"

    play(story)


class DatedCloud(FakeCloud):
    """It says from when on machines are billed: `launched` seconds after our order."""

    launched: float | str = 0.0

    def billed_from_t(self, id: str) -> float | str | None:
        if self.launched == "raises":
            raise RuntimeError("a bug of the provider")
        return self.launched if isinstance(self.launched, str) else self.world.machine(1).requested_t + self.launched


@pytest.mark.parametrize(
    ("launched", "billed_after_s"),
    [(3.0, 3.0), (-0.7, -0.7), (-1.7e9, 0.0), (7200.0, 0.0), (float("nan"), 0.0), ("yesterday", 0.0), ("raises", 0.0)],
)
@pytest.mark.parametrize("answered", [True, False])
def test_a_machine_is_billed_from_its_launch_if_the_provider_tells_a_likely_time(launched, billed_after_s, answered):
    async def story(world):
        world.cloud.__class__ = DatedCloud
        world.cloud.world, world.cloud.launched = world, launched
        await world.plan(STEADY)
        machine = world.machine(1)
        if not answered:
            order = Order(machine.host_name, machine.offer.cores, 1, machine.offer)
            assert world.cloud.start(order) == "i-1"  # and the answer was lost
        await world.look()
        assert world.machine(1).id == "i-1"
        assert machine.meter.since_t - machine.requested_t == pytest.approx(billed_after_s, abs=0.5)

    play(story)


def test_an_order_that_was_committed_and_not_carried_out_is_carried_out_by_the_next_server():
    async def story(world):
        await world.plan(SPOT)
        world.crash()
        await world.begin()
        await world.look()
        assert len(world.cloud.orders) == 1 and world.machine(1).id == "i-1"

    play(story)


def test_what_happened_while_no_server_ran_is_told_by_the_next_one():
    async def story(world):
        await world.plan(SPOT, STEADY)
        await world.look()
        world.crash()
        world.account.now = 2000.0
        world.cloud.poke("i-1", "hibernate")
        world.cloud.poke("i-2", "terminate")
        await world.begin()
        await world.look()
        assert (world.machine(1).phase, world.machine(2).cause) == (HIBERNATED, TAKEN)

    play(story)


def test_one_of_ours_that_the_engine_believes_ended_is_stopped_and_shown():
    async def story(world):
        await world.plan(SPOT)
        await world.look()
        world.cloud.poke("i-1", "terminate")
        await world.look()
        world.cloud.poke("i-1", "resume")  # the provider was mistaken
        await world.look()
        assert world.cloud.stops == ["i-1"]
        assert world.driver.state.fleet.strangers["cloud"][0][0] == "i-1"
        await world.look()
        assert world.driver.state.fleet.strangers["cloud"] == []

    play(story)


def test_strangers_are_shown_when_they_change_and_left_alone():
    async def story(world):
        other = FakeCloud(world.account, "somebody")
        other.start(Order("x", 2, 1, SPOT))
        for _ in range(3):
            await world.look()
        assert world.driver.state.fleet.strangers["cloud"] == [("i-1", "of somebody")]
        other.forget("i-1")
        for _ in range(3):
            await world.look()
        assert world.driver.state.fleet.strangers["cloud"] == [] and world.cloud.stops == []

    world = play(story)
    records = [decode_record(row.data) for row in world.store.records(0, 1000)]
    assert sum(isinstance(record.event, StrangersSeen) for record in records) == 2


def test_released_at_the_end_nothing_is_left_and_the_engine_knows():
    async def story(world):
        await world.plan(SPOT, STEADY)
        await world.look()
        await world.keeper.stop(release=True)
        assert sorted(world.cloud.stops) == ["i-1", "i-2"]
        assert {world.machine(number).cause for number in (1, 2)} == {RELEASED}
        world.keeper = MachineKeeper(world.driver, {})

    play(story)


def test_an_order_that_was_not_carried_out_when_all_is_released_never_is():
    async def story(world):
        await world.plan(SPOT)
        await world.keeper.stop(release=True)
        assert (world.machine(1).cause, world.machine(1).error) == (REFUSED, GIVEN_UP)
        assert last_refusal(world.driver.state, world.driver.state.bags[1]) == "", "nobody has refused it"
        await world.begin()
        await world.look()
        assert world.cloud.orders == []

    play(story)


def test_a_start_that_is_under_way_when_the_server_stops_is_waited_for_and_ended():
    async def story(world):
        started, go, start = asyncio.Event(), threading.Event(), world.cloud.start
        loop = asyncio.get_running_loop()

        def slow(order):
            loop.call_soon_threadsafe(started.set)
            assert go.wait(60)
            return start(order)

        world.cloud.start = slow
        await world.plan(SPOT)
        world.keeper._tasks.append(asyncio.create_task(world.look()))
        await started.wait()
        stopping = asyncio.create_task(world.keeper.stop(release=True))
        await asyncio.sleep(0)
        go.set()
        await stopping
        assert world.cloud.stops == ["i-1"] and world.machine(1).cause == RELEASED
        world.keeper = MachineKeeper(world.driver, {})

    play(story)


def test_a_pool_that_two_take_away_at_once_is_taken_away_once():
    async def story(world):
        assert await asyncio.gather(*(world.keeper.remove("cloud") for _ in range(3))) == ["", "", ""]
        assert not world.keeper.pools

    play(story)


def test_a_pool_that_is_taken_away_while_its_provider_is_asked_is_no_failure(caplog):
    async def story(world):
        asked, may_answer = threading.Event(), threading.Event()

        def slow():
            asked.set()
            may_answer.wait(30)
            return []

        world.cloud.list = slow
        looking = asyncio.create_task(world.keeper._keep("cloud"))
        await asyncio.to_thread(asked.wait, 30)
        assert await world.keeper.remove("cloud") == ""
        may_answer.set()
        await asyncio.wait_for(looking, 30)

    play(story)
    assert "could not be looked after" not in caplog.text
