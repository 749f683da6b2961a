"""What every pool that rents machines promises (windfall.pools.contract). A new one is one more line in PROVIDERS."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from tests.support.clouds.kept import begun, plan, switch
from tests.support.clouds.misbehaving import LIES, LOSES, MOODS, MisbehavingCloud
from tests.support.clouds.providers import Account, FakeCloud, emulated
from tests.support.ec2.world import poked, priced_cloud
from windfall.core.state.hosts.pools import ENDING
from windfall.core.state.invariants import problems
from windfall.planning.offers import Offer
from windfall.pools.contract import ENDED, HIBERNATED, RELEASED, RUNNING, TAKEN, Order, Pool, PoolError, Seen
from windfall.pools.kinds import Place


def fake(directory: Path, stack: ExitStack) -> Callable:
    account = Account()
    return lambda owner: FakeCloud(account, owner)


def ec2(directory: Path, stack: ExitStack) -> Callable:
    cloud = stack.enter_context(priced_cloud(directory / "ec2"))
    (directory / "token").write_text("wf_x_y")
    place = Place("http://127.0.0.1:9", directory / "token", directory)
    return lambda owner: poked(cloud, msgspec.structs.replace(place, owner=owner, directory=directory / owner))


def openstack(directory: Path, stack: ExitStack) -> Callable:
    from tests.support.openstack import world as nova

    nova.python_of_nova()
    pytest.importorskip("openstack", reason="openstacksdk is missing: pip install 'windfall[openstack]'")
    cloud = stack.enter_context(nova.cloud_on(nova.shared_nova(), directory / "openstack"))
    (directory / "token").write_text("wf_x_y")
    place = Place("http://127.0.0.1:9", directory / "token", directory)
    return lambda owner: nova.poked(cloud, msgspec.structs.replace(place, owner=owner, directory=directory / owner))


ALL_MOODS = (*MOODS, LIES, LOSES)
PROVIDERS: dict[str, Callable] = {
    "fake": fake,
    "emulated": lambda directory, stack: lambda owner: emulated(directory, owner),
    "ec2": ec2,
    "openstack": openstack,
}
MARKS = {"openstack": pytest.mark.nova}


class World:
    """One provider; `pool(owner)` is how one server sees it. `poke` stands for what the provider does by itself."""

    def __init__(self, make) -> None:
        self._make = make
        self.pools: list = []

    def pool(self, owner: str = "me"):
        self.pools.append(self._make(owner))
        return self.pools[-1]

    def close(self) -> None:
        for pool in self.pools:
            pool.close()
        for owner in ("me", "somebody else"):
            last = self._make(owner)
            for seen in last.list():
                last.stop(seen.id)
            last.close()


@pytest.fixture(params=[pytest.param(name, marks=MARKS.get(name, ())) for name in PROVIDERS])
def world(request, tmp_path):
    with ExitStack() as stack:
        made = World(PROVIDERS[request.param](tmp_path, stack))
        yield made
        made.close()


def order(pool: Pool, number: int, market: str = "spot") -> Order:
    offer = next(offer for offer in pool.offers if offer.market == market)
    return Order(f"cloud-m{number}", offer.cores, number, offer)


def seen(pool: Pool, id: str) -> Seen:
    return next(row for row in pool.list() if row.id == id)


def until(pool: Pool, id: str, phase: str) -> Seen:
    end = time.monotonic() + 30.0
    while (found := seen(pool, id)).phase != phase:
        assert time.monotonic() < end, f"it is {found}"
        time.sleep(0.02)
    return found


def test_an_order_becomes_a_machine_with_its_name_that_boots_and_runs(world):
    pool = world.pool()
    id = pool.start(order(pool, 7))
    assert isinstance(id, str)
    ordered = seen(pool, id)
    running = until(pool, id, RUNNING)
    assert {ordered.host, running.host} == {"cloud-m7"} and running.since_t >= ordered.since_t


def test_what_is_ordered_twice_is_started_once(world):
    pool = world.pool()
    assert pool.start(order(pool, 7)) == pool.start(order(pool, 7))
    assert len(pool.list()) == 1


def test_a_machine_that_is_stopped_has_ended_and_is_still_shown_and_may_be_stopped_again(world):
    pool = world.pool()
    id = pool.start(order(pool, 1))
    until(pool, id, RUNNING)
    pool.stop(id)
    assert until(pool, id, ENDED).cause == RELEASED
    pool.stop(id)
    pool.stop("never-heard-of")
    assert seen(pool, id).cause == RELEASED


def test_an_order_that_has_ended_is_not_started_again(world):
    pool = world.pool()
    id = pool.start(order(pool, 1))
    pool.stop(id)
    assert pool.start(order(pool, 1)) == id and seen(pool, id).phase == ENDED


def test_more_than_there_are_is_refused_for_want_of_capacity(world):
    pool = world.pool()
    ids = [pool.start(order(pool, number)) for number in (1, 2, 3)]
    refused = pool.start(order(pool, 4))
    assert isinstance(refused, PoolError) and refused.is_capacity and refused.error
    pool.stop(ids[0])
    assert isinstance(pool.start(order(pool, 5)), str)


def test_an_offer_that_is_no_more_is_refused_for_good(world):
    refused = world.pool().start(Order("cloud-m1", 1, 1, Offer(name="yesterday", price_usd=1.0, pool="cloud")))
    assert isinstance(refused, PoolError) and not refused.is_capacity


def test_what_the_provider_does_is_shown_with_its_time(world):
    pool = world.pool()
    id = pool.start(order(pool, 1))
    awake = until(pool, id, RUNNING)
    pool.poke(id, "hibernate")
    asleep = seen(pool, id)
    pool.poke(id, "resume")
    again = seen(pool, id)
    pool.poke(id, "terminate")
    gone = seen(pool, id)
    assert [row.phase for row in (awake, asleep, again, gone)] == [RUNNING, HIBERNATED, RUNNING, ENDED]
    assert awake.since_t <= asleep.since_t <= again.since_t <= gone.since_t
    assert gone.cause == TAKEN


def test_a_notice_says_when_the_machine_will_be_reclaimed(world):
    pool = world.pool()
    id = pool.start(order(pool, 1))
    running = until(pool, id, RUNNING)
    assert running.taken_at_t is None
    pool.poke(id, "notice")
    told = seen(pool, id)
    assert told.phase == RUNNING and told.taken_at_t > running.since_t


def test_machines_outlive_their_server_and_are_found_by_their_names(world):
    first = world.pool()
    running, asleep = first.start(order(first, 1, "on-demand")), first.start(order(first, 2))
    until(first, running, RUNNING)
    until(first, asleep, RUNNING)
    first.poke(asleep, "hibernate")
    first.close()
    second = world.pool()
    assert {(row.id, row.host, row.phase) for row in second.list()} == {
        (running, "cloud-m1", RUNNING),
        (asleep, "cloud-m2", HIBERNATED),
    }
    assert second.start(order(second, 1, "on-demand")) == running
    second.stop(running)
    assert until(second, running, ENDED).cause == RELEASED


def test_machines_of_somebody_else_are_shown_as_strangers(world):
    other = world.pool("somebody else")
    id = other.start(order(other, 1))
    mine = world.pool()
    stranger = seen(mine, id)
    assert stranger.host is None and "somebody else" in stranger.about


# --- a provider and its keeper --------------------------------------------------------------------------------------


def misbehaving(moods: tuple[str, ...]) -> Callable:
    def made(directory: Path, stack: ExitStack) -> Callable:
        account = Account()
        return lambda owner: FakeCloud(account, owner) if owner != "me" else MisbehavingCloud(account, owner, moods)

    return made


KEPT = {
    "fake": fake,
    "emulated": PROVIDERS["emulated"],
    **{f"fake that {mood}": misbehaving((mood,)) for mood in ALL_MOODS},
    "fake in every mood": misbehaving(ALL_MOODS),
}


@pytest.mark.parametrize("provider", KEPT)
def test_with_its_keeper_nothing_is_left_behind_and_nothing_of_others_is_touched(provider, tmp_path):
    """Whatever the provider does: slow, failing, lying, losing, starting twice, out of order."""

    async def story(pool: Pool) -> None:
        driver, keeper = await begun(pool)
        keeper._begin = lambda: None  # type: ignore[method-assign]
        await keeper.start()
        spot = next(offer for offer in pool.offers if offer.market == "spot")
        for _ in range(3):
            await plan(driver, spot, 1)
            for _ in range(5):
                await keeper.look("cloud")
        state = driver.state
        ours = {machine.host_name for machine in state.fleet.machines.values()}
        ids = [machine.id for machine in state.fleet.machines.values() if machine.id]
        assert len(ours) == len(state.fleet.machines) == 3 and problems(state) == []
        assert len({*ids}) == len(ids), "one machine is billed under two numbers"
        await switch(driver, ENDING)
        end = time.monotonic() + 60.0
        while "cloud" in keeper.pools:
            assert time.monotonic() < end, "machines are left"
            await keeper.look("cloud")
            await asyncio.sleep(pool.interval_s)
        await keeper.stop()
        await driver.stop()

    with ExitStack() as stack:
        world = World(KEPT[provider](tmp_path, stack))
        if "that" not in provider and "mood" not in provider:
            stack.callback(world.close)
        other = world.pool("somebody else")
        theirs = other.start(order(other, 1, "on-demand"))
        asyncio.run(story(world.pool()))
        assert [row.host for row in other.list() if row.phase != ENDED] == ["cloud-m1"], "ours are gone, theirs is not"
        other.stop(theirs)
