"""Tasks of a workflow that take several whole machines: a set of machines is planned as one machine. Pure.

For each kind of such tasks and each on-demand offer that suits it there is one more offer: a set, which costs as much
as its machines together, runs one such task at a time and nothing else. Planners see sets and single machines alike.
`bundled` makes that view of a snapshot, `unbundled` turns a plan for it into machines again.

Where machines are limited, sets get a part of them, and other tasks at least one: machines of a full pool that wait for
each other would block the workflow. No machine of a set has tasks reserved: the engine starts a task of several
machines when enough of them are idle. Spot is not used for sets: a lost machine would take the others' work with it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from windfall.planning.contract import ONDEMAND, SET_MARK, Later, Machine, Phase, Plan, Snapshot, Start, Task
from windfall.planning.offers import GIB, Offer
from windfall.planning.room import market_key
from windfall.planning.workflow.model import NoOffer, Workflow

Resources = tuple[tuple[str, float], ...]


class Kind(Struct, frozen=True, order=True):
    """What tasks of several machines need: how many, and cores, memory and resources of each."""

    nodes: int
    cores: int
    memory_gb: float
    resources: Resources = ()

    @property
    def mark(self) -> Resources:
        """What such a task needs of a set, and no single machine has."""
        return ((f"{self.nodes} x {self.cores} cores, {self.memory_gb:g} GB, {self.resources}", 1.0),)

    def fits(self, offer: Offer) -> bool:
        """Whether machines of this offer may be a set for such tasks."""
        holds = self.cores <= offer.cores and self.memory_gb <= offer.memory_gb and offer.has(self.resources)
        return holds and offer.market == ONDEMAND


class SetOffer(Offer, frozen=True, kw_only=True):
    """Machines of one offer, rented together. `limit` counts sets."""

    single: Offer
    kind: Kind

    def has(self, needs: Resources) -> bool:
        """Whether it is a set for these tasks; single tasks have no place there."""
        return needs == self.kind.mark


class Bundled(Struct, frozen=True):
    """A snapshot in which sets stand for their machines, and those machines by the name of the set."""

    snapshot: Snapshot
    members: dict[str, tuple[str, ...]]
    spare: dict[tuple[str, str], list[str]]
    """Machines in no set that are free to join one, by `market_key`."""


def kind_of(task: Task) -> Kind:
    return Kind(task.nodes, task.cores, task.memory_gb, task.resources)


def bundled(snapshot: Snapshot) -> Bundled | None:
    """The snapshot with sets; None if no task takes several machines."""
    wide = {name: task for name, task in snapshot.tasks.items() if task.nodes}
    if not wide:
        return None
    kinds = {name: kind_of(task) for name, task in wide.items()}
    others = [task for name, task in snapshot.tasks.items() if name not in wide]
    shares = _Shares(list(wide.values()), others)
    tasks = {name: _as_one(task) if name in wide else task for name, task in snapshot.tasks.items()}
    intended = {name for entry in snapshot.last_later for name in entry.tasks}
    running = {entry.task for machine in snapshot.machines for entry in machine.running}
    waiting = [name for name in wide if name not in running and name not in intended]
    sets = _Sets(snapshot, kinds, waiting)
    return Bundled(
        replace(
            snapshot,
            tasks=tasks,
            offers=shares.of_all(snapshot.offers, sorted(set(kinds.values()))),
            machines=(*sets.singles, *sets.made),
            last_later=tuple(_later_set(entry, kinds) for entry in snapshot.last_later if entry.tasks),
        ),
        sets.members,
        sets.spare(),
    )


def _as_one(task: Task) -> Task:
    """The task as it is planned on a set."""
    return replace(task, cores=1, memory_gb=0.0, resources=kind_of(task).mark)


def _later_set(entry: Later, kinds: dict[int, Kind]) -> Later:
    kind = next((kinds[name] for name in entry.tasks if name in kinds), None)
    return entry if kind is None else replace(entry, offer=set_of(entry.offer, kind))


def set_of(offer: Offer, kind: Kind, limit: int | None = None, pool_limit: int | None = None) -> SetOffer:
    """A set of this offer; the limits count sets."""
    values = {name: getattr(offer, name) for name in Offer.__struct_fields__}
    rate = offer.interruptions_per_h
    return SetOffer(
        **values | {
            "name": f"{kind.nodes} x {offer.name}", "pool": f"{offer.pool} (sets)", "cores": 1, "memory_gb": math.inf,
            "price_usd": offer.price_usd * kind.nodes, "start_usd": offer.start_usd * kind.nodes, "limit": limit,
            "pool_limit": pool_limit, "interruptions_per_h": None if rate is None else rate * kind.nodes,
        },
        single=offer, kind=kind,
    )  # fmt: skip


class _Shares:
    """How limited machines are divided between sets and single machines: by the work of each."""

    def __init__(self, wide: Sequence[Task], others: Sequence[Task]) -> None:
        self.widest = max(task.nodes for task in wide)
        self.wanted = len(wide)
        self.wide_s = math.fsum(task.nodes * task.runtime_s for task in wide)
        self.other_core_s = math.fsum(task.cores * task.runtime_s for task in others)
        self.kept = 1 if others else 0

    def sets(self, most: int, cores: int) -> int:
        """How many sets this number of machines gives: at least one if a machine is left for other tasks."""
        possible = min(self.wanted, max(0, most - self.kept) // self.widest)
        if not possible:
            return 0
        other_s = self.other_core_s / max(1, cores)
        share = self.wide_s / max(self.wide_s + other_s, 1e-9)
        return min(possible, max(1, math.floor(share * most / self.widest)))

    def of_all(self, offers: Sequence[Offer], kinds: Sequence[Kind]) -> tuple[Offer, ...]:
        """The offers with their limits for single machines, and sets for each kind of tasks."""
        able = [offer for offer in offers if any(kind.fits(offer) for kind in kinds)]
        by_offer = {market_key(offer): self._of(offer.limit, offer.cores) for offer in able}
        by_pool = {offer.pool: self._of(offer.pool_limit, offer.cores) for offer in able}
        singles = [
            replace(
                offer,
                limit=self._left(offer.limit, by_offer.get(market_key(offer))),
                pool_limit=self._left(offer.pool_limit, by_pool.get(offer.pool)),
            )
            for offer in offers
        ]
        sets = [
            set_of(offer, kind, by_offer[market_key(offer)], by_pool[offer.pool])
            for kind in kinds
            for offer in able
            if kind.fits(offer) and 0 not in (by_offer[market_key(offer)], by_pool[offer.pool])
        ]
        return (*singles, *sets)

    def _of(self, most: int | None, cores: int) -> int | None:
        return None if most is None else self.sets(most, cores)

    def _left(self, most: int | None, sets: int | None) -> int | None:
        return most if most is None or sets is None else most - sets * self.widest


class _Sets:
    """Sets among the machines of a snapshot: those that run one task, and free ones that could."""

    def __init__(self, snapshot: Snapshot, kinds: dict[int, Kind], waiting: Sequence[int]) -> None:
        self.tasks, self.made = snapshot.tasks, list[Machine]()
        self.members: dict[str, tuple[str, ...]] = {}
        self._loads: dict[str, float] = {}
        taken: set[str] = set()
        by_task: dict[int, list[Machine]] = {}
        for machine in snapshot.machines:
            for entry in machine.running:
                if entry.task in kinds:
                    by_task.setdefault(entry.task, []).append(machine)
        for name, machines in by_task.items():
            taken.update(self._make(machines, kinds[name]))
        free = [machine for machine in snapshot.machines if machine.id not in taken and _is_free(machine)]
        free.sort(key=lambda machine: (machine.ready_t, machine.id))
        wanted = Counter(kinds[name] for name in waiting)
        for kind in sorted(wanted):
            for _ in range(wanted[kind]):
                machines = _first_set(free, kind)
                if not machines:
                    break
                used = self._make(machines, kind)
                free = [machine for machine in free if machine.id not in used]
        self._free = free
        self._queue(kinds, waiting)
        grouped = {name for names in self.members.values() for name in names}
        self.singles = [machine for machine in snapshot.machines if machine.id not in grouped]

    def _make(self, machines: Sequence[Machine], kind: Kind) -> set[str]:
        first, names = machines[0], tuple(machine.id for machine in machines)
        phases = {machine.phase for machine in machines}
        name = "+".join(names)
        self.members[name] = names
        self._loads[name] = max((entry.left_s for entry in first.running), default=0.0)
        self.made.append(
            replace(
                first,
                id=name,
                offer=set_of(first.offer, kind),
                phase=Phase.PENDING if Phase.PENDING in phases else first.phase,
                ready_t=max(machine.ready_t for machine in machines),
                paid_until_t=min(machine.paid_until_t for machine in machines),
            )
        )
        return set(names)

    def _queue(self, kinds: dict[int, Kind], waiting: Sequence[int]) -> None:
        """Each waiting task goes to the set of its kind with the least to do."""
        queues: dict[str, list[int]] = {machine.id: [] for machine in self.made}
        for name in waiting:
            able = [machine for machine in self.made if _kind(machine) == kinds[name]]
            if able:
                least = min(able, key=lambda machine: (self._loads[machine.id], machine.id))
                queues[least.id].append(name)
                self._loads[least.id] += self.tasks[name].seconds_on(least.offer)
        self.made = [replace(machine, waiting=tuple(queues[machine.id])) for machine in self.made]

    def spare(self) -> dict[tuple[str, str], list[str]]:
        found: dict[tuple[str, str], list[str]] = {}
        for machine in self._free:
            found.setdefault(market_key(machine.offer), []).append(machine.id)
        return found


def _kind(machine: Machine) -> Kind | None:
    return machine.offer.kind if isinstance(machine.offer, SetOffer) else None


def _is_free(machine: Machine) -> bool:
    """Whether a machine may join a set: nothing runs there or waits for it, and it stays."""
    stays = machine.phase is not Phase.HIBERNATED and machine.noticed_t is None and not machine.is_recalled
    return stays and not machine.running and not machine.waiting and machine.offer.market == ONDEMAND


def _first_set(free: Sequence[Machine], kind: Kind) -> list[Machine]:
    """The first free machines of one offer that are a set for this kind; none if there are too few."""
    by_offer: dict[tuple[str, str], list[Machine]] = {}
    for machine in free:
        if kind.fits(machine.offer):
            found = by_offer.setdefault(market_key(machine.offer), [])
            found.append(machine)
            if len(found) == kind.nodes:
                return found
    return []


def unbundled(plan: Plan, view: Bundled) -> Plan:
    """A plan for the view as a plan for machines: sets are started, kept and stopped as the machines that they are."""
    new = {start.label for start in plan.start if isinstance(start.offer, SetOffer)}
    spare = {key: list(names) for key, names in view.spare.items()}
    for names in spare.values():
        names[:] = [name for name in names if not plan.assign.get(name)]
    starts: list[Start] = []
    joined: set[str] = set()
    for start in plan.start:
        if not isinstance(start.offer, SetOffer):
            starts.append(start)
            continue
        nodes, single = start.offer.kind.nodes, start.offer.single
        there = spare.get(market_key(single), [])
        used, there[:] = there[:nodes], there[nodes:]
        joined.update(used)
        starts += [
            Start(f"{start.label}{SET_MARK}{place}", single, start.because) for place in range(nodes - len(used))
        ]
    plan.start = starts
    plan.assign = {
        label: names for label, names in plan.assign.items() if label not in new and label not in view.members
    }
    plan.stop = [name for label in plan.stop if label not in joined for name in view.members.get(label, (label,))]
    plan.later = [single for entry in plan.later for single in _later_singles(entry)]
    # A free machine of a set must not begin a task that is meant for a machine which comes later.
    plan.only_reserved = True
    return plan


def _later_singles(entry: Later) -> Iterable[Later]:
    if not isinstance(entry.offer, SetOffer):
        return (entry,)
    single = entry.offer.single
    return (
        Later(
            f"{entry.label}{SET_MARK}{place}" if place else entry.label,
            single,
            entry.at_t,
            () if place else entry.tasks,
        )
        for place in range(entry.offer.kind.nodes)
    )


def with_sets(workflow: Workflow, offers: tuple[Offer, ...]) -> tuple[Workflow, tuple[Offer, ...]]:
    """A workflow and offers with sets, for a plan of its own; raises NoOffer if no offer has enough machines."""
    if not any(workflow.nodes):
        return workflow, offers
    tasks = [
        Task(
            number, workflow.runtime_s[number], workflow.memory_bytes[number] / GIB, cores=workflow.cores[number],
            resources=workflow.resources_of(number), nodes=workflow.nodes[number],
        )
        for number in range(workflow.graph.tasks)
    ]  # fmt: skip
    wide = [task for task in tasks if task.nodes]
    others = [task for task in tasks if not task.nodes]
    kinds = sorted({kind_of(task) for task in wide})
    found = _Shares(wide, others).of_all(offers, kinds)
    for task in wide:
        mark = kind_of(task).mark
        if not any(offer.has(mark) for offer in found if isinstance(offer, SetOffer)):
            beside = " beside one for the other tasks" if others else ""
            need = f"{task.nodes} on-demand machines of one offer at once{beside}, each with {task.cores} cores"
            raise NoOffer(task.id, f"{need} and {task.memory_gb:.3g} GB")
    planned = [_as_one(task) if task.nodes else task for task in tasks]
    return replace(
        workflow,
        cores=[task.cores for task in planned],
        memory_bytes=[round(task.memory_gb * GIB) for task in planned],
        resources=[task.resources for task in planned],
        nodes=[],
    ), found
