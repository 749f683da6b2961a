"""One run of a scenario to its end, and its result. Touches the log file it is asked to write."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from windfall.core.decisions import TAIL_REPLICA, HostAnswered
from windfall.core.events import PlanProposed
from windfall.core.records import Record
from windfall.core.renting import money, shares
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.jobs.columns import CANCELLED, DONE, FAILED
from windfall.core.state.renting import fleet
from windfall.core.state.state import State
from windfall.sim.hosts.host import Books
from windfall.sim.logfile import LogFile
from windfall.sim.scenario import Scenario
from windfall.sim.world import Watch, World


class BagOutcome(Struct):
    """How one bag ended. `replicas` were made in the tail; `discarded` results came after an accepted one."""

    name: str
    tasks: int
    done: int
    failed: int
    unfinished: int
    attempts: int
    replicas: int
    discarded: int
    submitted_s: float
    turnaround_s: float | None
    tail_s: float | None
    deadline_s: float | None
    met: bool | None
    run_s: float
    planner: str = ""
    plans: int = 0
    cost_usd: float = 0.0
    """Cost of the machines rented for it."""
    planned_cost_usd: float | None = None
    planned_finish_s: float | None = None
    """Prediction of the first plan."""
    failed_plans: int = 0
    trouble: str = ""
    """How often the planner failed and the fallback planned instead, and the first error."""


class OfferOutcome(Struct):
    """The machines rented of one offer."""

    offer: str
    market: str
    machines: int = 0
    refused: int = 0
    taken: int = 0
    slept: int = 0
    """Number of hibernations and stops."""
    held_h: float = 0.0
    cost_usd: float = 0.0


class RunOutcome(Struct):
    """How one run ended. `waste`: time spent on results that were not needed, as a share of the useful time."""

    scenario: str
    seed: int
    finished: bool
    turnaround_s: float
    cost_usd: float
    met: bool | None
    failed: int
    replicas: float
    discarded: float
    waste: float
    lost: float
    utilisation: float
    bags: list[BagOutcome]
    pools: dict[str, Books]
    events: int
    records: int
    machines: int = 0
    interrupted: int = 0
    offers: list[OfferOutcome] = []


class Notes:
    """Facts noted during a run because the final state does not contain them: replicas and tails."""

    def __init__(self) -> None:
        self.replicas: dict[int, int] = {}
        self.tails: dict[int, float] = {}
        self.troubles: dict[int, list[str]] = {}

    def keep(self, record: Record) -> None:
        decided = record.decided
        if type(decided) is not HostAnswered:
            event = record.event
            if type(event) is PlanProposed and event.error:
                self.troubles.setdefault(event.job, []).append(event.error)
            return
        for job, tail in decided.tails:
            if tail:
                self.tails.setdefault(job, record.event.t)
        if self.tails:
            for piece in decided.assigned:
                if piece.why == TAIL_REPLICA:
                    self.replicas[piece.job] = self.replicas.get(piece.job, 0) + piece.count


def run(
    scenario: Scenario, seed: int, log: Path | None = None, watch: Watch | None = None,
    look: Callable[[World], None] | None = None,
) -> tuple[RunOutcome, World]:  # fmt: skip
    """Run a scenario under a seed to its end."""
    notes = Notes()
    with LogFile(log) as file, seldom_collected():
        keep = notes.keep if log is None else _both(notes.keep, file.write)
        world = World(scenario, seed, keep, watch)
        world.run(look)
    return outcome_of(world, notes, seed), world


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Run the cycle collector rarely: the engine and the world make no reference cycles, and with hundreds of thousands
    of objects the collector would take a tenth of the time."""
    before = gc.get_threshold()
    gc.set_threshold(100_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _both(first: Callable[[Record], None], second: Callable[[Record], None]) -> Callable[[Record], None]:
    def keep(record: Record) -> None:
        first(record)
        second(record)

    return keep


def outcome_of(world: World, notes: Notes, seed: int) -> RunOutcome:
    state, end_s = world.driver.state, world.driver.now
    fleets = {state.fleet.serving(bag.number) for bag in state.bags.values()}
    charged = {number: shares.charged(state, number, end_s) for number in sorted(fleets)}
    bags = [
        _bag_outcome(state, bag, notes, charged[state.fleet.serving(bag.number)].get(bag.number, 0))
        for bag in state.bags.values()
    ]
    pools = {ground.pool.name: ground.books for ground in world.grounds}
    rented = {} if world.provider is None else world.provider.books
    pools |= rented
    useful = sum(books.useful_s for books in pools.values()) or 1.0
    present = sum(books.present_s for books in pools.values()) or 1.0
    tasks = sum(bag.tasks for bag in bags) or 1
    met = [bag.met for bag in bags if bag.met is not None]
    return RunOutcome(
        scenario=world.scenario.name,
        seed=seed,
        finished=all(bag.turnaround_s is not None for bag in bags) and len(bags) == len(world.jobs),
        turnaround_s=max((bag.submitted_s + (bag.turnaround_s or end_s) for bag in bags), default=end_s),
        cost_usd=sum(books.cost_microusd for books in pools.values()) / 1e6,
        met=all(met) if met else None,
        failed=sum(bag.failed for bag in bags),
        replicas=sum(bag.replicas for bag in bags) / tasks,
        discarded=sum(bag.discarded for bag in bags) / tasks,
        waste=sum(books.discarded_s for books in pools.values()) / useful,
        lost=sum(books.lost_s + books.failed_s for books in pools.values()) / useful,
        utilisation=useful / present,
        bags=bags,
        pools=pools,
        events=world.driver.events,
        records=state.seq,
        machines=sum(books.hosts for books in rented.values()),
        interrupted=sum(books.interrupted for books in rented.values()),
        offers=_offer_outcomes(world),
    )


def _offer_outcomes(world: World) -> list[OfferOutcome]:
    state, now = world.driver.state, world.driver.now
    found = {
        supply.offer.key: OfferOutcome(supply.offer.key, supply.offer.market)
        for cloud in world.scenario.clouds
        for supply in cloud.supplies
    }
    for machine in state.fleet.machines.values():
        entry = found[machine.offer.key]
        entry.machines += machine.cause != fleet.REFUSED
        entry.refused += machine.cause == fleet.REFUSED
        entry.taken += machine.cause == fleet.TAKEN
        entry.slept += len(machine.sleeps)
        entry.held_h += money.held_s(machine.meter, now) / 3600
        entry.cost_usd += money.usd(fleet.owed_microusd(machine, now))
    return list(found.values())


def _bag_outcome(state: State, bag: Bag, notes: Notes, charged_microusd: int) -> BagOutcome:
    counts = bag.counts
    turnaround_s = None if bag.finished_t is None else bag.finished_t - bag.submitted_t
    deadline_s = bag.rules.deadline_s
    met = None if deadline_s is None else turnaround_s is not None and turnaround_s <= deadline_s
    tail = notes.tails.get(bag.number)
    planned = state.fleet.plan_of(bag.number)
    finish_t = None if planned is None else planned.first_finish_t
    troubles = notes.troubles.get(state.fleet.serving(bag.number), [])
    return BagOutcome(
        name=bag.rules.name,
        tasks=bag.total,
        done=counts[DONE],
        failed=counts[FAILED],
        unfinished=bag.total - counts[DONE] - counts[FAILED] - counts[CANCELLED],
        attempts=bag.tally.attempts,
        replicas=notes.replicas.get(bag.number, 0),
        discarded=bag.tally.waste,
        submitted_s=bag.submitted_t,
        turnaround_s=turnaround_s,
        tail_s=None if tail is None else tail - bag.submitted_t,
        deadline_s=deadline_s,
        met=met,
        run_s=bag.tally.run_s,
        planner=bag.rules.planner,
        plans=0 if planned is None else planned.plans,
        cost_usd=money.usd(charged_microusd),
        planned_cost_usd=None if planned is None else planned.first_cost_usd,
        planned_finish_s=None if finish_t is None else finish_t - bag.submitted_t,
        failed_plans=len(troubles),
        trouble=troubles[0] if troubles else "",
    )


def completions(bag: Bag) -> Any:
    """The times at which a bag's tasks were done, ascending."""
    state = np.frombuffer(bag.columns.state, dtype=np.uint8)
    ends = np.frombuffer(bag.columns.end, dtype=np.float64)[state == DONE]
    return np.sort(ends)


def run_seed(scenario: bytes, seed: int) -> bytes:
    """For executors: a scenario and a seed in, an outcome out, both encoded."""
    decoded = msgspec.msgpack.decode(scenario, type=Scenario)
    outcome, _ = run(decoded, seed)
    return msgspec.msgpack.encode(outcome)
