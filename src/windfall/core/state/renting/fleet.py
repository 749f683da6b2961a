"""Rented machines and plans as the engine remembers them. Pure data; what happens to them stands in core.machines.

Bills are computed from the meters alone, so no sum can differ from them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from windfall.core.renting import money
from windfall.core.renting.money import Meter, Tariff
from windfall.core.state.renting.fleets import FleetBook, NamedFleet, Use, meant
from windfall.core.state.renting.ledger import Ledger
from windfall.planning.contract import Market, Plan
from windfall.planning.counts import SeriesSource, SpellCounts, copied
from windfall.planning.offers import Offer

if TYPE_CHECKING:
    from windfall.core.state.hosts.hosts import Host
    from windfall.core.state.jobs.attempts import Attempt
    from windfall.core.state.state import State

PENDING, RUNNING, HIBERNATED, ENDED = "pending", "running", "hibernated", "ended"
RELEASED, TAKEN, FAILED, REFUSED = "released", "taken", "failed", "refused"
GIVEN_UP = "given up before it was ordered"
"""Error of a machine that was refused by nobody."""


class MachineState(Struct, array_like=True):
    """One rented machine of a fleet. `queue` are the tasks that are reserved for it, in order (fleets.named)."""

    number: int
    fleet: int
    offer: Offer
    requested_t: float
    phase: str = PENDING
    id: str = ""
    """Its name at the provider; empty until the order was taken."""
    meter: Meter = field(default_factory=Meter)
    rates: list[tuple[float, float]] = field(default_factory=list)
    """(seconds held, price of a cycle that begins after that): prices move."""
    ready_t: float | None = None
    host: int = 0
    queue: list[int] = field(default_factory=list)
    stopping: bool = False
    idle: bool = False
    ended_t: float | None = None
    cause: str = ""
    error: str = ""
    noticed_t: float | None = None
    sleeps: list[tuple[float, float | None]] = field(default_factory=list)
    """(from, to) of each hibernation; the last one is open while the machine is hibernated."""
    stopping_t: float | None = None
    """When it was told to stop."""
    uses: list[Use] = field(default_factory=list)
    """What jobs have used of it, where several share it."""
    recalled_t: float | None = None
    """When its worker was told to save what runs there and to end."""
    because: str = ""
    """Why its offer was chosen, as the plan said that started it."""
    again: list[int] = field(default_factory=list)
    """Tasks that run elsewhere and shall get a second attempt here (fleets.named); see `again_of`."""
    beside: list[int] = field(default_factory=list)
    """Those in `queue` that run on free hosts and shall get a second attempt here (fleets.named); see `beside_of`."""

    @property
    def there(self) -> bool:
        return self.phase != ENDED

    @property
    def host_name(self) -> str:
        return f"{self.offer.pool}-m{self.number}"

    @property
    def name(self) -> str:
        return f"m{self.number}"

    def slept_s(self, since_t: float, t: float) -> float:
        """Seconds of hibernation between two moments."""
        return math.fsum(
            max(0.0, min(t, t if to is None else to) - max(since_t, from_)) for from_, to in self.sleeps
        )  # fmt: skip


class Seen(Struct, array_like=True):
    """What was seen of an offer: see planning.contract.Market. `refusals` counts those in a row."""

    up_s: float = 0.0
    reclaimed: int = 0
    hibernated: int = 0
    resumed: int = 0
    hibernated_s: float = 0.0
    refused: int = 0
    refused_t: float | None = None
    started_t: float | None = None
    refusals: int = 0
    spells: int = 0
    cut_t: float | None = None
    counts: SpellCounts = field(default_factory=SpellCounts)
    """What the law of availability is learned from."""
    started: int = 0
    boot_delays_s: list[float] = field(default_factory=list)
    """By how much the newest boots took longer than the offer says."""
    imported: SpellCounts | None = None
    """What published series say; they are apart because they count in full, however many machines were rented."""
    sources: list[SeriesSource] = field(default_factory=list)

    def cut(self, t: float, together_s: float) -> bool:
        """A machine was reclaimed or hibernated: is it the first of those that are interrupted together?"""
        is_first = self.cut_t is None or t - self.cut_t > together_s
        self.spells += is_first
        self.cut_t = t
        return is_first

    def market(self) -> Market:
        return Market(
            up_s=self.up_s, reclaimed=self.reclaimed, hibernated=self.hibernated, resumed=self.resumed,
            hibernated_s=self.hibernated_s, refused=self.refused, refused_t=self.refused_t, started_t=self.started_t,
            spells=self.spells, counts=copied(self.counts),
            imported=None if self.imported is None else copied(self.imported),
        )  # fmt: skip


RELEASE_S = 5.0
"""Seconds before the last moment at which changes are planned: a plan that ends an idle machine takes time."""


class PlanState(Struct, array_like=True):
    """What is planned for one fleet. Something has changed since the plan was made if `changed_seq` > `planned_seq`."""

    fleet: int
    changed_seq: int = 0
    planned_seq: int = 0
    replan_t: float = math.inf
    plan: Plan | None = None
    planned_t: float | None = None
    refused: list[str] = field(default_factory=list)
    error: str = ""
    plans: int = 0
    first_cost_usd: float | None = None
    """What the first plan predicted, to be compared with the result."""
    first_finish_t: float | None = None
    not_before_t: float = -math.inf
    collects_until_t: float = -math.inf
    """Until then changes that may wait are collected, and planned together."""
    change_by_t: float = math.inf
    """Until when all changes since the plan may wait."""

    @property
    def at_t(self) -> float:
        """When to plan, if something has changed."""
        return max(self.not_before_t, min(self.collects_until_t, self.change_by_t - RELEASE_S))


def tariff_of(offer: Offer) -> Tariff:
    return Tariff(
        cycle_microusd=money.price_microusd(offer.price_usd),
        cycle_s=offer.cycle_s,
        minimum_s=offer.minimum_s,
        free_if_taken=offer.free_if_taken,
        free_if_taken_within_s=offer.free_if_taken_within_s,
    )


def owed_microusd(machine: MachineState, t: float) -> int:
    """What a machine costs up to t, begun cycles in full, and the data it fetched; nothing if it never came."""
    if machine.cause == REFUSED:
        return 0
    return _cycles_microusd(machine, machine.meter, t) + data_microusd(machine)


def data_microusd(machine: MachineState) -> int:
    """What the data costs that a machine fetches when it is ready, by the prices of its offer."""
    return 0 if machine.ready_t is None else money.microusd(machine.offer.start_usd)


def _cycles_microusd(machine: MachineState, meter: Meter, t: float) -> int:
    return money.owed_at_rates(tariff_of(machine.offer), meter, t, machine.rates)


def held_at(machine: MachineState, at: float, t: float) -> float:
    """Billable seconds up to `at`, which is t or earlier."""
    end_t = t if machine.ended_t is None else machine.ended_t
    later_s = end_t - at - machine.slept_s(at, end_t)
    return max(0.0, money.held_s(machine.meter, t) - max(0.0, later_s))


def after_stop_microusd(machine: MachineState, t: float) -> int:
    """What the provider bills for cycles that began after it was told to stop the machine."""
    if machine.stopping_t is None or machine.cause == REFUSED:
        return 0
    meter = machine.meter
    as_told = replace(meter, held_s=held_at(machine, machine.stopping_t, t), since_t=None)
    return _cycles_microusd(machine, meter, t) - _cycles_microusd(machine, as_told, t)


def paid_until_t(machine: MachineState, t: float) -> float:
    """When its present cycle ends, if it is held until then."""
    return money.paid_until_t(machine.offer, machine.meter, t)


def machine_of(state: State, host: Host) -> MachineState | None:
    """The machine that a host is the worker of: by its ad, and only under the name that it was ordered with."""
    if not state.fleet.machines:
        return None
    number = host.ad.get("machine")
    machine = state.fleet.machines.get(number) if isinstance(number, int) else None
    return machine if machine is not None and machine.host_name == host.name else None


def queue_of(state: State, machine: MachineState) -> list[int]:
    """The tasks that wait for this machine. The bag decides: the machine's own list may name tasks that are no longer
    reserved.
    """
    own = state.bags.get(machine.fleet)
    if own is not None:
        reserved = own.queues.reserved
        return [task for task in machine.queue if reserved.get(task) == machine.number]
    found = []
    for name in machine.queue:
        job, task = meant(machine.fleet, name)
        if state.bags[job].queues.reserved.get(task) == machine.number:
            found.append(name)
    return found


def again_of(state: State, machine: MachineState) -> list[int]:
    """The tasks that still need a second attempt on this machine: those with one attempt, which is on another one."""
    if not machine.again:
        return []
    found = []
    for name in machine.again:
        job, task = meant(machine.fleet, name)
        live = state.bags[job].attempts.live.get(task, ()) if job in state.bags else ()
        if len(live) == 1 and live[0].host != machine.host:
            found.append(name)
    return found


def beside_of(state: State, machine: MachineState) -> list[int]:
    """The tasks that run on free hosts alone and still need a second attempt on this machine."""
    found = []
    for name in machine.beside:
        job, task = meant(machine.fleet, name)
        live = state.bags[job].attempts.live.get(task, ()) if job in state.bags else ()
        if live and all(is_on_free_host(state, attempt) for attempt in live):
            found.append(name)
    return found


def is_on_free_host(state: State, attempt: Attempt) -> bool:
    host = state.hosts.get(attempt.host)
    return host is None or machine_of(state, host) is None


def row_of(state: State, machine: MachineState) -> list[int]:
    """What this machine will begin: tasks that wait for it and second attempts beside free hosts, in their order."""
    waiting = queue_of(state, machine)
    if not machine.beside:
        return waiting
    here = {*waiting, *beside_of(state, machine)}
    return [name for name in machine.queue if name in here]


def awake_since(machine: MachineState) -> float:
    """Since when it has been up without a break; before its boot is over, since it was asked for."""
    woke_t = machine.sleeps[-1][1] if machine.sleeps else None
    return woke_t if woke_t is not None else (machine.ready_t or machine.requested_t)


class SavedFleet(Struct, array_like=True):
    offers: dict[str, list[Offer]]
    machines: list[MachineState]
    markets: dict[str, Seen]
    strangers: dict[str, list[tuple[str, str]]]
    plans: list[PlanState]
    plans_due: list[int]
    next: int
    priced_t: dict[str, float] = {}
    named: list[NamedFleet] = []
    of_job: dict[int, int] = {}
    ledger: Ledger = field(default_factory=Ledger)


class Fleet:
    """All rented machines, what was seen of their offers, and the plans of the fleets that they belong to."""

    __slots__ = (
        "beside",
        "book",
        "budget_t",
        "budgets",
        "by_fleet",
        "ledger",
        "machines",
        "markets",
        "next",
        "offers",
        "plans",
        "plans_due",
        "priced_t",
        "replan_t",
        "strangers",
        "there",
        "there_of",
        "to_end",
        "to_order",
    )

    def __init__(self) -> None:
        self.next = 1
        self.offers: dict[str, list[Offer]] = {}
        """By pool."""
        self.priced_t: dict[str, float] = {}
        """When the last reported prices took effect, by the keys of offers."""
        self.machines: dict[int, MachineState] = {}
        self.by_fleet: dict[int, list[int]] = {}
        self.book = FleetBook()
        """Fleets with a name, and the jobs in them."""
        self.there: dict[int, MachineState] = {}
        """Machines that have not ended: the cost of a look must not grow with those that have."""
        self.there_of: dict[int, dict[int, MachineState]] = {}
        """The same by fleet."""
        self.to_order: dict[int, None] = {}
        """Machines that the provider has not been asked for, or has not answered for."""
        self.to_end: dict[int, None] = {}
        """Machines that shall end and have not."""
        self.beside: dict[tuple[int, int], int] = {}
        """By job and task: the machine that shall begin a second attempt beside a free host."""
        self.markets: dict[str, Seen] = {}
        """What was seen of offers, by their keys."""
        self.strangers: dict[str, list[tuple[str, str]]] = {}
        """Machines at a provider that are not ours, or ours and forgotten, by pool."""
        self.plans: dict[int, PlanState] = {}
        """By fleet: a job's own has the number of the job."""
        self.plans_due: dict[int, None] = {}
        self.replan_t = math.inf
        """The earliest time at which some plan is due without anything having changed."""
        self.budgets: dict[int, float] = {}
        """By fleet that has a budget and machines: when a machine may have to be given back (state.budgets)."""
        self.budget_t = math.inf
        """The earliest of these."""
        self.ledger = Ledger()
        """What forgotten jobs have cost."""

    def add(self, machine: MachineState) -> None:
        self.machines[machine.number] = machine
        self.by_fleet.setdefault(machine.fleet, []).append(machine.number)
        if machine.there:
            self.there[machine.number] = machine
            self.there_of.setdefault(machine.fleet, {})[machine.number] = machine
        self.note_order(machine)
        self.note_beside(machine)
        self.next = max(self.next, machine.number + 1)

    def remove(self, machine: MachineState) -> None:
        """It has ended."""
        if self.there.pop(machine.number, None) is not None:
            del self.there_of[machine.fleet][machine.number]
        self.note_order(machine)

    def note_order(self, machine: MachineState) -> None:
        """Keep `to_order` and `to_end` true to a machine; call after its phase, its id or `stopping` has changed."""
        number = machine.number
        if machine.there and machine.stopping:
            self.to_end[number] = None
        else:
            self.to_end.pop(number, None)
        if machine.there and not machine.stopping and not machine.id:
            self.to_order[number] = None
        else:
            self.to_order.pop(number, None)

    def note_beside(self, machine: MachineState) -> None:
        """Enter the second attempts of a machine into `beside`."""
        for name in machine.beside:
            self.beside[meant(machine.fleet, name)] = machine.number

    def set_beside(self, machine: MachineState, names: list[int]) -> None:
        """Give a machine new second attempts beside free hosts; no other machine keeps one of these tasks."""
        for name in machine.beside:
            self.beside.pop(meant(machine.fleet, name), None)
        for name in names:
            other = self.machines.get(self.beside.get(meant(machine.fleet, name), 0))
            if other is not None:
                other.beside = [each for each in other.beside if each != name]
        machine.beside = list(names)
        self.note_beside(machine)

    def serving(self, job: int) -> int:
        """The fleet of a job; of one that rents nothing, the one that it would have of its own."""
        return self.book.of_job.get(job, job)

    def plan_of(self, job: int) -> PlanState | None:
        """The plan of the fleet that serves a job; None of one that rents nothing."""
        return self.plans.get(self.book.of_job.get(job, job))

    def schedule(self) -> None:
        """Call after a plan's `replan_t` has changed."""
        self.replan_t = min((plan.replan_t for plan in self.plans.values()), default=math.inf)

    def saved(self) -> SavedFleet:
        return SavedFleet(
            self.offers, list(self.machines.values()), self.markets, self.strangers, list(self.plans.values()),
            list(self.plans_due), self.next, self.priced_t, list(self.book.by_number.values()), self.book.of_job,
            self.ledger,
        )  # fmt: skip

    def restore(self, saved: SavedFleet) -> None:
        self.offers, self.markets, self.strangers = saved.offers, saved.markets, saved.strangers
        for machine in saved.machines:
            self.add(machine)
        for named in saved.named:
            self.book.add(named)
        for job, fleet in saved.of_job.items():
            self.book.enter(job, fleet)
        self.plans = {plan.fleet: plan for plan in saved.plans}
        self.plans_due = dict.fromkeys(saved.plans_due)
        self.next, self.priced_t, self.ledger = saved.next, saved.priced_t, saved.ledger
        self.schedule()
