"""A rented machine's life gives the same records in both drivers: ordered, ready, reclaimed, hibernated, given back.

The simulated world runs first. What its hosts, its users and its markets did is then done again to the live driver, on
a loop in virtual time, with a provider that answers orders as the simulated one did. Orders, ends and their causes are
the live keeper's own.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from tests.simulation.clouds.test_clouds import scenario
from tests.simulation.drivers.test_two_drivers import InlinePlanning
from tests.support.engine.virtual_loop import run_virtually
from windfall.core import events as ev
from windfall.core.engine import Engine
from windfall.core.records import Record
from windfall.drivers.keepers import supply
from windfall.drivers.keepers.machines import MachineKeeper
from windfall.drivers.keepers.plans import PlanKeeper
from windfall.drivers.realtime import Realtime
from windfall.policy import compile_policies
from windfall.pools.contract import CAPACITY, ENDED, HIBERNATED, RUNNING, Order, PoolError, Seen
from windfall.sim.world import World
from windfall.store.memory import MemoryStore

MINE = (ev.ServerStarted, ev.OffersConfigured, ev.TimerFired, ev.PlanProposed, ev.MachineStarted, ev.MachineRefused)
"""Made by the drivers themselves. All other events come from the world."""
OF_MACHINES = (ev.MachineNoticed, ev.MachineHibernated, ev.MachineResumed, ev.MachineEnded)
TURNS = 60
"""Turns of the loop in which the drivers do what is theirs at one moment."""
END_S = 3 * 3600.0
SEEDS = range(1, 7)
SPOT = {"market": "spot", "interruptions_per_h": 4.0}
LIVES = {
    "reclaimed": SPOT | {"when_taken": "terminate"},
    "reclaimed with notice": SPOT | {"when_taken": "terminate", "notice": "2m"},
    "hibernated and resumed": SPOT | {"when_taken": "hibernate", "hibernated": {"law": "exponential", "mean": "4m"}},
    "refused": SPOT | {"refusals": 0.5},
}
SHOWS = {
    "reclaimed": set(),
    "reclaimed with notice": {"MachineNoticed"},
    "hibernated and resumed": {"MachineHibernated", "MachineResumed"},
    "refused": {"MachineRefused"},
}


class PlayedCloud:
    """A provider that does to machines what the simulated one did, and tells its keeper of each change."""

    interval_s = 1e9

    def __init__(self, records: list[Record]) -> None:
        events = [record.event for record in records]
        self.offers = tuple(next(event.offers for event in events if isinstance(event, ev.OffersConfigured)))
        self.answers: dict[int, str | PoolError] = {}
        for event in events:
            if isinstance(event, ev.MachineStarted):
                self.answers[event.machine] = event.id
            elif isinstance(event, ev.MachineRefused):
                self.answers[event.machine] = PoolError(event.error, CAPACITY)
        self.shown: dict[int, Seen] = {}
        self.changed: Any = None

    def watch(self, changed) -> None:
        self.changed = changed

    def start(self, order: Order) -> str | PoolError:
        answer = self.answers[order.machine]
        if isinstance(answer, str):
            self.shown[order.machine] = Seen(answer, RUNNING, 0.0, order.host)
        return answer

    def stop(self, id: str, gently: bool = False) -> None:
        number = next(number for number, seen in self.shown.items() if seen.id == id)
        self.change(number, phase=ENDED, since_t=asyncio.get_running_loop().time(), cause="released")

    def list(self) -> list[Seen]:
        return list(self.shown.values())

    def close(self) -> None:
        pass

    def change(self, number: int, **what: Any) -> None:
        self.shown[number] = msgspec.structs.replace(self.shown[number], **what)
        self.changed()

    def play(self, event: ev.AnyEvent) -> None:
        if isinstance(event, ev.MachineNoticed):
            self.change(event.machine, taken_at_t=event.until)
        elif isinstance(event, ev.MachineHibernated):
            self.change(event.machine, phase=HIBERNATED, since_t=event.at)
        elif isinstance(event, ev.MachineResumed):
            self.change(event.machine, phase=RUNNING, since_t=event.at)
        elif isinstance(event, ev.MachineEnded) and event.cause == "taken":
            self.change(event.machine, phase=ENDED, since_t=event.at, cause="taken")


def simulated(made, seed: int) -> list[Record]:
    records: list[Record] = []
    # Not `World.run`: it ends with the last task, before the machines are given back.
    World(made, seed, records.append).driver.run(END_S)
    return records


def happenings(played: list[Record]) -> list[tuple[int, list[ev.AnyEvent]]]:
    """What the world did, each with the number of records before it. Events of one moment between which no driver said
    anything are one exchange."""
    found: list[tuple[int, list[ev.AnyEvent]]] = []
    follows = False
    for place, event in enumerate(record.event for record in played):
        if isinstance(event, MINE):
            follows = False
        elif follows and event.t == found[-1][1][0].t and not isinstance(event, OF_MACHINES):
            found[-1][1].append(event)
        else:
            found.append((place, [event]))
            follows = not isinstance(event, OF_MACHINES)
    return found


async def live(made, played: list[Record]) -> list[Record]:
    records, loop, cloud = list[Record](), asyncio.get_running_loop(), PlayedCloud(played)
    driver = Realtime(MemoryStore(), Engine(compile_policies), made.settings)
    driver.clock = loop.time
    driver.on_commit.append(records.extend)
    await driver.start()
    keeper, planner = MachineKeeper(driver, {"cloud": cloud}), PlanKeeper(driver, 1.0, InlinePlanning())
    await keeper.start()
    await planner.start()
    for before, together in happenings(played):
        await asyncio.sleep(max(0.0, together[0].t - loop.time()))
        for _ in range(TURNS):
            # No rule says which of two things of one moment comes first: here, what came first in the simulation.
            if len(records) >= before:
                break
            await asyncio.sleep(0)
        if isinstance(together[0], OF_MACHINES):
            cloud.play(together[0])
        else:
            driver.submit(together)
    await asyncio.sleep(END_S - loop.time())
    for part in (keeper, planner, driver):
        await part.stop()
    return records


def plain(record: Record) -> Any:
    """A record as it is compared. A clock that is moved on by differences rounds: microseconds are told, not less."""
    return _rounded(msgspec.to_builtins(record))


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, (list, tuple)):
        return [_rounded(item) for item in value]
    return {key: _rounded(item) for key, item in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize("life", LIVES)
def test_a_rented_machine_gives_the_same_records_in_both_drivers(life, monkeypatch):
    monkeypatch.setattr(supply, "_NOTICE_GAP_S", 0.0)
    made = scenario(LIVES[life], {"tasks": 12})
    kinds, causes = set(), set()
    for seed in SEEDS:
        ours = simulated(made, seed)
        theirs = run_virtually(live(made, ours))
        for mine, other in zip(ours, theirs, strict=False):
            assert plain(mine) == plain(other), f"seed {seed}"
        assert len(ours) == len(theirs)
        kinds |= {type(record.event).__name__ for record in ours}
        causes |= {record.event.cause for record in ours if isinstance(record.event, ev.MachineEnded)}
    # Not every seed shows every life.
    assert {"MachineStarted", "MachineEnded", "PlanProposed"} | SHOWS[life] <= kinds
    assert causes >= ({"released", "taken"} if life.startswith("reclaimed") else {"released"})
