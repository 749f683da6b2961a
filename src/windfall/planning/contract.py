"""The contract of every planner: a snapshot of one fleet in, a plan out. Types only. Pure.

A fleet is the machines that one planner plans and the jobs that they serve: one job's own, or named and shared.

A planner is a function of the snapshot alone: the same snapshot gives the same plan. It is called when something that
matters has happened (a machine started, hibernated, resumed, ended or was refused; tasks came back; a machine has no
more work) and at the `replan_t` of its last plan. The engine validates the plan against the state of that moment, so a
plan that is out of date does no harm.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Protocol

from msgspec import Struct, field
from msgspec.structs import astuple, replace

from windfall.planning.counts import SpellCounts
from windfall.planning.offers import Offer
from windfall.planning.room import Room, room_in

# Time to store or restore a checkpoint, as HADS's authors measured it.
CHECKPOINT_S = 13.0
CHECKPOINT_S_PER_MB = 0.04

SPOT, ONDEMAND = "spot", "on-demand"
BAG, WORKFLOW, FLEET = "bag", "workflow", "fleet"
"""What a planner plans: one bag, one workflow, or the jobs of a named fleet."""
SET_MARK = "/"
"""In a label of a machine: before it, the name of the machines that are rented together or not at all."""


class Phase(StrEnum):
    """The states of a machine in HADS, and `PENDING`: requested and not ready."""

    PENDING = "pending"
    BUSY = "busy"
    IDLE = "idle"
    HIBERNATED = "hibernated"


class Task(Struct, frozen=True, gc=False):
    """One task. `runtime_s` is the quantile of its run time at the job's confidence, `mean_s` the expected one.

    All seconds are on a machine of speed 1. `saved_s`: progress in its checkpoint.
    """

    id: int
    runtime_s: float
    memory_gb: float = 0.0
    task_class: str = ""
    checkpoint_mb: float | None = None
    saved_s: float = 0.0
    mean_s: float | None = None
    cores: int = 1
    job: int = 0
    deadline_t: float = math.inf
    """Of its job."""
    resources: tuple[tuple[str, float], ...] = ()
    """Units of resources of its machine that it needs, by name; those that the whole server has are not among them."""
    save_every_s: float | None = None
    """How often a task that checkpoints saves; None: that is not known."""
    nodes: int = 0
    """Whole machines of one pool that it takes at once; 0: cores of one machine."""

    def fits(self, offer: Offer) -> bool:
        """Whether a machine of this offer has the cores, the memory and the resources."""
        return self.cores <= offer.cores and self.memory_gb <= offer.memory_gb and offer.has(self.resources)

    def seconds_on(self, offer: Offer) -> float:
        """Seconds on a machine of this offer, from its checkpoint if that is quicker than from its start."""
        speed, runtime_s = offer.speed_for(self.task_class), self.runtime_s
        if self.checkpoint_mb is None or self.saved_s <= 0.0:
            return runtime_s / speed
        restore_s = CHECKPOINT_S + CHECKPOINT_S_PER_MB * self.checkpoint_mb
        return min(runtime_s / speed, restore_s + max(0.0, runtime_s - self.saved_s) / speed)


class Columns(Struct, frozen=True):
    """Tasks that are like one but for their ids and run times. Of thousands, the server makes no objects."""

    like: Task
    ids: list[int]
    kinds: list[int]
    """Of each task, the place of its run times in `times`."""
    times: list[tuple[float, float]]
    """Pairs of `runtime_s` and `mean_s`, each of some task."""

    def tasks(self) -> dict[int, Task]:
        """The tasks by their ids, in this order."""
        _, _, memory_gb, name, checkpoint_mb, saved_s, _, cores, job, deadline_t, resources, save_s, nodes = astuple(
            self.like
        )
        times = self.times
        return {
            id_: Task(
                id_, times[kind][0], memory_gb, name, checkpoint_mb, saved_s, times[kind][1], cores, job, deadline_t,
                resources, save_s, nodes,
            )
            for id_, kind in zip(self.ids, self.kinds, strict=True)
        }  # fmt: skip


class Group(Struct, frozen=True):
    """`count` equal, unassigned tasks; `task` stands for each of them and has the id -1."""

    task: Task
    count: int


class Backlog(Struct, frozen=True):
    """About `count` tasks like this one, of jobs that are not shown one by one because others are due before them."""

    task: Task
    count: float


class Running(Struct, frozen=True, gc=False):
    """A task that runs, or is hibernated with its machine, and the seconds it still takes there."""

    task: int
    left_s: float


class Machine(Struct, frozen=True, kw_only=True):
    """A rented machine. `waiting`: its queue of reserved tasks, those among them that run on free hosts until it comes
    to them. `paid_until_t`: the end of its billing cycle."""

    id: str
    offer: Offer
    phase: Phase
    ready_t: float = 0.0
    running: tuple[Running, ...] = ()
    waiting: tuple[int, ...] = ()
    paid_until_t: float = math.inf
    hibernated_since_t: float | None = None
    noticed_t: float | None = None
    """When the provider gave notice that it will reclaim the machine."""
    up_since_t: float | None = None
    """Since when it has been up without a break: the time it has survived lowers the estimated hazard rate."""
    is_taken: bool = True
    """Whether the provider has taken the order."""
    is_recalled: bool = False
    """Its worker was told to save what runs there and to end."""
    again: tuple[int, ...] = ()
    """Tasks that run elsewhere and will get a second attempt here."""

    def tasks(self) -> tuple[int, ...]:
        """Its tasks: running, then waiting."""
        return (*(entry.task for entry in self.running), *self.waiting)


class Market(Struct, frozen=True, kw_only=True):
    """What all jobs have seen of one offer: seconds up and hibernated, and counts of what the provider did."""

    up_s: float = 0.0
    reclaimed: int = 0
    """Machines that the provider terminated."""
    hibernated: int = 0
    resumed: int = 0
    hibernated_s: float = 0.0
    refused: int = 0
    refused_t: float | None = None
    """When a start was last refused for want of capacity."""
    started_t: float | None = None
    """When a machine last started."""
    spells: int = 0
    """Interruptions, those that came together counted once."""
    counts: SpellCounts | None = None
    """Ends of spells and hours by age and hour of the day; None: only the totals above are known."""
    imported: SpellCounts | None = None
    """The same from published series, which the totals above do not hold."""


class Job(Struct, frozen=True):
    """A job of the fleet that is planned, and what distinguishes it from the others."""

    number: int
    deadline_t: float
    submitted_t: float = 0.0
    is_workflow: bool = False
    priority: float = 0.0
    owner: str = ""
    total: int = 0
    """Tasks, finished ones included."""
    kind: int = 0
    """Its class in this snapshot: jobs of one class have the same shape, needs and time."""
    per_hour: float = 0.0
    """Jobs of this class that arrive in an hour, by those of the last hours, or minutes if these differ."""
    usual_per_hour: float = 0.0
    """The same by those of the last hours alone."""


class Later(Struct, frozen=True):
    """A machine that the plan intends to rent at `at_t`, for these tasks in this order."""

    label: str
    offer: Offer
    at_t: float
    tasks: tuple[int, ...]


class BudgetPeriod(Struct, frozen=True):
    """A budget that is renewed: `usd` in each `length_s`; the present period ends at `until_t`."""

    usd: float
    length_s: float
    until_t: float


class Snapshot(Struct, frozen=True, kw_only=True):
    """Everything a planner knows at one moment: unfinished tasks, machines, offers.

    `tasks` holds every unfinished task of a job that the planner names (`names_up_to`). In a larger job it holds those
    that run or are reserved, and `groups` the rest. An offer that is refused has as its `limit` the machines we have.
    """

    t: float
    deadline_t: float
    tasks: dict[int, Task]
    machines: tuple[Machine, ...]
    offers: tuple[Offer, ...]
    groups: tuple[Group, ...] = ()
    markets: dict[str, Market] = {}
    """By `Offer.key`."""
    begun_t: float = 0.0
    """When the job was submitted."""
    spent_usd: float = 0.0
    """What its machines have cost so far, begun billing cycles in full."""
    budget_usd: float | None = None
    confidence: float = 0.95
    after: dict[int, tuple[int, ...]] = {}
    """In a workflow: the unfinished parents of each task that has any."""
    total: int = 0
    """How many tasks the job has, finished ones included."""
    is_workflow: bool = False
    run_time_quantile: float | None = None
    """The quantile of run times that `Task.runtime_s` is; None: that of `confidence`."""
    last_later: tuple[Later, ...] = ()
    """What the last plan intended to rent later and has not rented yet."""
    jobs: tuple[Job, ...] = ()
    """The jobs of the fleet that have not ended, the earliest deadline first."""
    is_fleet: bool = False
    """A named fleet is planned, and not one job."""
    owner_shares: dict[str, float] = {}
    """By owner, the weight of its jobs where the fleet cannot run all at once; 1 for those that are not named."""
    owner_caps: dict[str, int] = {}
    """By owner, the cores that its tasks hold or have reserved at most."""
    budget_period: BudgetPeriod | None = None
    """Of a named fleet with a budget. `budget_usd` is then what it may have cost at the end of the present period."""
    backlog: tuple[Backlog, ...] = ()
    """Work of a named fleet with very many jobs that no task of `tasks` is part of."""
    columns: tuple[Columns, ...] = ()
    """Instead of `tasks`, on the way to a planner: see `whole`."""

    def whole(self) -> Snapshot:
        """As a planner is shown it: every task is an object."""
        if not self.columns:
            return self
        tasks: dict[int, Task] = {}
        for each in self.columns:
            tasks |= each.tasks()
        return replace(self, tasks=tasks, columns=())

    @property
    def kind(self) -> str:
        """Which table of planners is asked."""
        return FLEET if self.is_fleet else WORKFLOW if self.is_workflow else BAG

    def left_of(self, offer: Offer) -> int:
        """How many more machines of this offer may be started, if none of the other offers of its pool are."""
        return self.room().of(offer)

    def room(self) -> Room:
        """How many more machines may be started."""
        rented = ((machine.offer, machine.phase is not Phase.HIBERNATED) for machine in self.machines)
        return room_in(self.offers, rented, self.unfinished)

    @property
    def unfinished(self) -> int:
        waiting = sum(group.count for group in self.groups) + sum(math.ceil(each.count) for each in self.backlog)
        return len(self.tasks) + sum(len(each.ids) for each in self.columns) + waiting


class PlanInputs(Struct, frozen=True, array_like=True):
    """What a planner was shown, in a few numbers: kept with its plan for those who ask later why it chose that."""

    unfinished: int = 0
    total: int = 0
    running: int = 0
    """Tasks that run, or are hibernated with their machines."""
    core_s: float = 0.0
    """Seconds of unfinished tasks at speed 1 times their cores, at the quantile that the planner counts with."""
    longest_s: float = 0.0
    """Of the longest unfinished task."""
    deadline_t: float = math.inf
    spent_usd: float = 0.0
    budget_usd: float | None = None
    confidence: float = 0.0
    machines: dict[str, int] = {}
    """By phase."""
    offers: list[tuple[str, float, int | None]] = []
    """(pool/offer, dollars a cycle, most machines or None), the cheapest core first, at most `MOST_OFFERS`."""
    jobs: int = 0
    """Of a named fleet: its jobs that have not ended."""


MOST_OFFERS = 12
"""Offers that are kept with a plan."""


def inputs_of(snapshot: Snapshot) -> PlanInputs:
    tasks = [(task, 1) for task in snapshot.tasks.values()] + [(group.task, group.count) for group in snapshot.groups]
    core_s = [task.runtime_s * task.cores * count for task, count in tasks]
    longest_s = [task.runtime_s for task, _ in tasks]
    for each in snapshot.columns:
        by_kind = [runtime_s * each.like.cores for runtime_s, _ in each.times]
        core_s += [by_kind[kind] for kind in each.kinds]
        longest_s += [runtime_s for runtime_s, _ in each.times]
    phases: dict[str, int] = {}
    for machine in snapshot.machines:
        phases[machine.phase.value] = phases.get(machine.phase.value, 0) + 1
    offers = sorted(
        snapshot.offers, key=lambda offer: (offer.price_usd / max(offer.cycle_s * offer.cores, 1e-9), offer.key)
    )
    return PlanInputs(
        unfinished=snapshot.unfinished,
        total=snapshot.total,
        running=sum(len(machine.running) for machine in snapshot.machines),
        core_s=math.fsum(core_s),
        longest_s=max(longest_s, default=0.0),
        deadline_t=snapshot.deadline_t,
        spent_usd=snapshot.spent_usd,
        budget_usd=snapshot.budget_usd,
        confidence=snapshot.confidence,
        machines=phases,
        offers=[(offer.key, offer.price_usd, offer.limit) for offer in offers[:MOST_OFFERS]],
        jobs=len(snapshot.jobs) if snapshot.is_fleet else 0,
    )


class Start(Struct, frozen=True, omit_defaults=True):
    """Rent one machine of this offer; `label` is its name until it has one."""

    label: str
    offer: Offer
    because: str = ""
    """Why this offer, where the planner says it of each machine."""


class Rejected(Struct, frozen=True):
    """An alternative that was considered, and the job's cost with it."""

    what: str
    cost_usd: float


class Moves(Struct, omit_defaults=True):
    """Tasks that a plan moves from one machine to another, by where they go, and spot machines that steal tasks."""

    to_idle: int = 0
    to_busy: int = 0
    to_new: int = 0
    thieves: int = 0


class Plan(Struct, kw_only=True):
    """What to do now and when to plan again. `assign` holds the whole queue of every machine whose queue changes.

    An unassigned task may be taken by any machine of the job. A task on a hibernated machine that is assigned to
    another one is given up there and starts again. One that runs on a free host goes on there, and begins on the
    machine as well.
    """

    start: list[Start] = field(default_factory=list)
    stop: list[str] = field(default_factory=list)
    assign: dict[str, list[int]] = field(default_factory=dict)
    replan_t: float = field(default=math.inf, name="look_again_t")  # as logs and `windfall events` call it
    """When to plan again if nothing happens before."""
    spot_until_t: float = math.inf
    """From then on a spot machine begins only tasks that are reserved for it."""
    because: list[str] = field(default_factory=list)
    predicted_finish_t: float | None = None
    predicted_cost_usd: float | None = None
    """Of the whole job, what is spent already included."""
    rejected: list[Rejected] = field(default_factory=list)
    later: list[Later] = field(default_factory=list)
    """What it intends to rent later. The next snapshot shows it (`last_later`); nothing is promised."""
    moves: Moves = field(default_factory=Moves)
    """Counted for reports; `assign` is what is carried out. Only HADS fills it in."""
    promised_t: float | None = None
    """If a first plan cannot promise the deadline: the nearest one that on-demand machines alone keep with the job's
    confidence."""
    only_reserved: bool = False
    """Machines begin only tasks that are reserved for them."""
    recall: list[str] = field(default_factory=list)
    """Machines whose tasks, all of which checkpoint, save their progress and wait again; then the machines end."""
    again: dict[str, list[int]] = field(default_factory=dict)
    """Second attempts: by machine, tasks that run elsewhere and shall also begin there. The first result counts. Holds
    the whole list of every machine whose list changes."""
    in_order: bool = False
    """A machine begins its reserved tasks in the order of its queue: one that waits for a parent, or for a second core,
    holds up those behind it. False: a free core takes the first that may begin."""


class Planner(Protocol):
    """Jobs of up to `names_up_to` unfinished tasks come with every task by id, larger ones in groups."""

    names_up_to: float

    def __call__(self, snapshot: Snapshot) -> Plan: ...
