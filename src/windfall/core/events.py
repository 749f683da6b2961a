"""What can happen: events, in the past tense, and the rules and settings that they bring. Pure data.

Events are arrays on the wire and in the log: field order is the format. New fields go to the end, with a default, so
that a newer version reads an older log.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from windfall.bounds import MAX_MEMORY_BYTES
from windfall.core.sites.instances import InstanceEnd, Resources, SiteRules, Wish
from windfall.core.state.hosts.pools import PoolRules
from windfall.core.state.renting.fleets import FleetRules
from windfall.planning.contract import Plan, PlanInputs
from windfall.planning.counts import CountSettings, PriceCounts, SeriesSource
from windfall.planning.offers import Offer
from windfall.timeouts.learning.memory import CountRules

IDLE_SLOTS, QUEUED = REPLICATION = ("idle-slots", "queued")
"""Where replicas come from: made for a host that asks and finds nothing unsent, or waiting in their bag's queue."""
Needs = tuple[tuple[str, int], ...]
"""(resource, thousandths of a unit)."""
Key = tuple[int, int, int]
"""(job, task, attempt): the fencing pair of an attempt, with its job."""


class TaskClass(Struct, frozen=True, array_like=True):
    """What tasks need and may cost, shared by all tasks of a class."""

    cpus: float = 1.0
    memory_bytes: int = 0
    memory_per_attempt: bool = False
    wall_s: float | None = None
    max_failures: int = 3
    max_losses: int = 20
    name: str = ""
    """Of a class that other jobs have too: what is learned of its run times, and its speed on an offer, go by it."""
    estimate_s: float | None = None
    """A first guess of the run time on a machine of speed 1."""
    estimate_is_exact: bool = False
    """The guess is the truth: nothing is learned (a simulation of known times)."""
    checkpoint_mb: float | None = None
    """It checkpoints, in files of this size; an attempt that moves goes on from there."""
    executable: str = ""
    """The program that its tasks run, for policies; empty where tasks differ."""
    fixed_memory: bool = False
    """A task that dies of too little memory is tried again with as much as before."""
    checkpoint_auto: bool = False
    """How often it saves is left to the engine (`core.renting.checkpoints`)."""
    needs: Needs = ()
    """Resources by name, in thousandths of a unit: of its host, or of the server (`Settings.resources`)."""
    container: bool = False
    """It runs in a container: its host must have an engine for these."""
    nodes: int = 0
    """Whole hosts of one pool that a task takes, all at once; 0: slots of one host (core.matching.gangs)."""
    checkpoint_s: float | None = None
    """How often it saves; None: that is not known, or left to the engine."""
    spread: float | None = None
    """The standard deviation of the logarithm of its run times, as its user says; 0.0: as estimated."""

    def memory_for(self, attempt: int) -> int:
        if not self.memory_per_attempt:
            return self.memory_bytes
        return min(self.memory_bytes * attempt, MAX_MEMORY_BYTES)


class JobRules(Struct, frozen=True, array_like=True):
    """The part of a job's specification that decisions depend on."""

    name: str
    owner: str = ""
    key: str = ""
    priority: float = 0.0
    max_failed_tasks: int | None = None
    streaming: bool = False
    deadline_s: float | None = None
    budget_microusd: int | None = None
    policies: dict[str, str] = {}
    attributes: dict[str, Any] = {}
    paused: bool = False
    rent_from: list[str] = []
    """Pools whose offers may be rented for this job, by its plan."""
    planner: str = ""
    confidence: float = 0.95
    workflow_class: str = ""
    """Jobs of one class have the same tasks in the same shape: what is learned or planned for one holds for all."""
    like: int = 0
    """The first job of the class, which brought the tasks; 0: this one has brought its own."""
    replication: str = IDLE_SLOTS
    max_replicas: int = 0
    """Replicas of one of its tasks at a time; 0: as many as the server allows."""
    fleet: str = ""
    """The named fleet that serves it; empty: if it may rent machines, one of its own."""
    quorum: int = 0
    """Owners of volunteers' hosts that must agree on a result; 0: it is not for volunteers."""
    data_gb: dict[str, float] = {}
    """Gigabytes that each of its machines fetches, by the region where they lie; empty text: not known."""
    task_data_gb: dict[str, float] = {}
    """Gigabytes that a task fetches and writes on average beside these, likewise."""


class Bookkeeping(Struct, frozen=True, array_like=True):
    """Parameters of the arithmetic in `apply`. They are recorded, so that a replay counts as it was counted then."""

    latencies: CountRules = CountRules()
    run_times_kept: int = 500
    """Newest run times of a class of tasks: a quantile of 500 is as good as one of 500,000."""
    host_half_life_s: float = 3600.0
    """After this time a success or an error of a host counts half."""
    host_mean_over: int = 50
    """Results over which a host's mean turnaround fades."""
    turnaround_cells: int = 16
    """Cells of an octave in which a bag's turnarounds are counted."""
    together_s: float = 60.0
    """Machines that are reclaimed within this many seconds of each other count as one interruption."""
    ended_instances_kept: int = 1000
    """Instances of a site that have ended and are still remembered."""
    spells: CountSettings = CountSettings()
    """How the spells of spot offers are counted."""
    boots_kept: int = 20
    """Newest boots of an offer whose delays are remembered."""


class Settings(Struct, frozen=True, array_like=True):
    """What the operator sets for the whole server."""

    lease_s: float = 60.0
    """Silence after which a host's attempts are unknown; after as much again they are lost."""
    host_forget_s: float = 90 * 86400.0
    """Seconds since a host was last heard, after which one that has left is forgotten; infinity: never."""
    tail_enter: float = 1.0
    """A bag enters its tail when its unsent tasks are at most this many times the slots of the live hosts."""
    tail_leave: float | None = None
    """It leaves its tail again above this many times the slots; None: never."""
    max_replicas: int = 3
    """Of a task at the same time."""
    failover_pool: str = ""
    """The pool whose hosts get tasks that failed or were lost elsewhere; empty: none."""
    pools_after_s: float = 0.3
    """Seconds between a change of the demand and a review of the pools: connected hosts take what they can first."""
    bookkeeping: Bookkeeping = Bookkeeping()
    spread_bundles: bool = True
    """Near the end of a bag hosts hold no more than an equal share, and idle ones get what has not begun elsewhere."""
    replication: str = IDLE_SLOTS
    """Of jobs that do not say it themselves."""
    replication_cycle_s: float = 60.0
    """Seconds between two looks at the running tasks of a bag that queues its replicas."""
    resources: dict[str, int] = {}
    """Resources that are counted for the whole server, such as licences, in thousandths of a unit."""
    hosts_kept: int | None = 10_000
    """Hosts that have left: beyond this, those that were heard longest ago are forgotten. None: no limit."""


class Event(Struct, tag=True, array_like=True, gc=False):
    """Something that happened at `t`, the only clock there is."""

    t: float


class ServerStarted(Event):
    """A server took the state over; every host gets a whole lease again."""

    settings: Settings


class JobSubmitted(Event):
    rules: JobRules
    classes: list[TaskClass]


class TasksAdded(Event):
    job: int
    count: int
    klass: int = 0


class JobShaped(Event):
    """Makes a job without tasks a workflow: which task waits for which (windfall.graph). A known shape is named."""

    job: int
    shape: str
    offsets: bytes = b""
    children: bytes = b""


class JobSealed(Event):
    """The last task has been added; only now does a job that is not streaming start."""

    job: int


class JobChanged(Event):
    """`rules` replaces the job's rules; `klass` (if given) replaces its classes."""

    job: int
    rules: JobRules
    classes: list[TaskClass] | None = None


class JobCancelled(Event):
    job: int
    tasks: list[int] | None = None
    reason: str = ""


class JobRetried(Event):
    """Give tasks new attempts in place. None: every failed one (and, with `cancelled`, every cancelled one)."""

    job: int
    tasks: list[int] | None = None
    cancelled: bool = False


class JobForgotten(Event):
    """Somebody wants a job that has ended to be no more: neither in the state nor in the store."""

    job: int


class Result(Struct, array_like=True, gc=False):
    """How one attempt ended, on the server's clock.

    From `start` to `end` is how long it ran: time that its host stood still is not in it, and moves `start` on.
    """

    job: int
    task: int
    attempt: int
    cause: int
    exit: int | None
    start: float
    end: float
    cpu_s: float = 0.0
    rss_bytes: int = 0
    digest: str = ""
    """What a success left, as a hash that equal results share; only of jobs with a quorum."""


class ResultsReported(Event):
    """No two results of one event are of the same task."""

    host: str
    results: list[Result]


class HostAsked(Event):
    """A host is alive and would take `want` tasks. `n` numbers its exchanges within a boot."""

    host: str
    boot: str
    n: int
    want: int
    slots: int
    ad: dict[str, Any] | None = None
    leaving: str | None = None
    holds: list[Key] | None = None
    """Everything that the host has, if it was asked: what we believe it has and it has not is lost."""
    room: int = 0
    """Tasks that it could hold ready beyond `want`, if the server hands out ahead."""
    secret: str = ""
    """The hash of the secret that the host shows from now on; empty: as before."""


class HostBlocked(Event):
    host: str
    reason: str
    until: float | None = None


class HostUnblocked(Event):
    host: str


class HostDrained(Event):
    """The host finishes what it has and gets nothing more."""

    host: str


class HostsEnded(Event):
    """A pool shows that these workers have ended: (host, why). What they held is lost before their leases end."""

    pool: str
    hosts: list[tuple[str, str]]


class TimerFired(Event):
    """The wake-up time that the engine asked for has come."""


class PoolsConfigured(Event):
    """These are the pools now; one that was there before keeps its record."""

    pools: list[PoolRules]


class OverlayDue(Event):
    """Time to see whether workers are missing."""


class PoolAnswered(Event):
    """A pool said what came of a request for `count` workers; or, later, that they ended before they came."""

    pool: str
    count: int
    error: str = ""
    ask: int = 0
    """The number of the request that this answers; 0 for workers that ended later."""
    said: list[tuple[str, str]] = []
    """(host, last words) of workers that ended before they came."""


class PoolCounted(Event):
    """A pool was looked at: how many of its workers have been started and have not asked for work yet."""

    pool: str
    pending: int


class PoolAdded(Event):
    """A pool was added to this state: `entry` is its settings as JSON, `base` the folder that paths in it are from."""

    pool: str
    entry: str
    base: str = ""


class PoolSwitched(Event):
    """An operator has opened, paused, drained or ended a pool."""

    pool: str
    mode: str
    reason: str = ""


class PoolRemoved(Event):
    """A pool that was added shall be no more."""

    pool: str


class SiteCreated(Event):
    """There is a site of this name, and these are its rules now."""

    rules: SiteRules


class SiteHostReported(Event):
    """The agent of a host is alive: what it has started and what has ended since. `n` numbers within a boot.

    `capacity` and `tags` at the first report of a boot, else None.
    """

    site: str
    host: str
    boot: str
    n: int
    capacity: Resources | None = None
    tags: list[str] | None = None
    started: list[tuple[int, float]] = []
    ended: list[InstanceEnd] = []
    leaving: str | None = None
    secret: str = ""
    """The hash of the secret that the host shows from now on; empty: as before."""


class InstanceRequested(Event):
    """Somebody wants a command run on the site: a normal request, or a bid in its market."""

    site: str
    wish: Wish


class InstancesWanted(Event):
    """The overlay wants `count` more preemptible instances."""

    site: str
    count: int


class InstanceCancelled(Event):
    site: str
    number: int
    reason: str = ""


class SiteLooked(Event):
    """Time to see whether agents have fallen silent, and to review what runs where that is due."""

    site: str


class TasksEstimated(Event):
    """Estimated run time of each task of a job on a machine of speed 1: 32-bit floats, one per task."""

    job: int
    seconds: bytes


class OffersConfigured(Event):
    """This is what a pool rents now."""

    pool: str
    offers: list[Offer]


class PricesReported(Event):
    """Prices of a cycle in dollars, by the name of the offer. They hold for cycles that begin from now on."""

    pool: str
    prices: list[tuple[str, float]]
    since_t: float | None = None
    """When they took effect, if that was earlier than now: a provider's history is read now and then."""


class SeriesImported(Event):
    """A published series of an offer was read: (place, ends, hours) of its spells, and its prices of a cycle."""

    offer: str
    """`Offer.key`."""
    source: SeriesSource
    cells: list[tuple[int, float, float]]
    """Places as in `planning.counts`; the command that read the series has weighted them."""
    prices: PriceCounts | None = None


class PlanProposed(Event):
    """A planner has looked at the state as it was at `seq`; `error`: it failed, and another stepped in.

    `job` is the number of the fleet that is planned: that of a job, if the fleet is its own.
    """

    job: int
    seq: int
    plan: Plan
    error: str = ""
    inputs: PlanInputs | None = None
    """What the planner was shown; None where none was asked, and in older logs."""


class MachineStarted(Event):
    """The provider has taken the order: it boots, and is called `id` there. `at`: the provider's time."""

    machine: int
    id: str
    at: float


class MachineRefused(Event):
    """It could not be had. `capacity`: the provider refused it, and its offer is left alone for a while."""

    machine: int
    error: str
    capacity: bool = True


class MachineNoticed(Event):
    """The provider gave notice that it will reclaim the machine at `until`."""

    machine: int
    until: float


class MachineHibernated(Event):
    machine: int
    at: float


class MachineResumed(Event):
    machine: int
    at: float


class MachineEnded(Event):
    """It is no more: given back by us ("released"), reclaimed by the provider ("taken"), or "failed".

    An empty cause: the provider does not show it any more, and the engine says why.
    """

    machine: int
    at: float
    cause: str
    about: str = ""
    """Its last words, as far as the provider shows them."""


class StrangersSeen(Event):
    """Machines that exist at the provider and are not ours, or ours and forgotten: (id, what is known of it)."""

    pool: str
    strangers: list[tuple[str, str]]


class FleetCreated(Event):
    """There is a fleet of this name, and nothing in it yet."""

    rules: FleetRules


class FleetChanged(Event):
    """A fleet was opened, paused, drained or deleted, or has other rules; None: the same as before."""

    fleet: int
    mode: str | None = None
    rules: FleetRules | None = None


class CheckpointSaved(Event):
    """A task's progress is safe: seconds of it, on a machine of speed 1; in this blob, if it is a live one."""

    job: int
    task: int
    attempt: int
    saved_s: float
    blob: str = ""
    run_s: float | None = None
    """How long the attempt has run; where that is given, `saved_s` follows from it and is not told."""
    host: str = ""
    """Who says so; empty: the driver itself."""


AnyEvent = (
    ServerStarted
    | JobSubmitted
    | TasksAdded
    | JobShaped
    | JobSealed
    | JobChanged
    | JobCancelled
    | JobRetried
    | ResultsReported
    | HostAsked
    | HostBlocked
    | HostUnblocked
    | HostDrained
    | HostsEnded
    | TimerFired
    | PoolsConfigured
    | OverlayDue
    | PoolAnswered
    | PoolCounted
    | PoolAdded
    | PoolSwitched
    | PoolRemoved
    | SiteCreated
    | SiteHostReported
    | InstanceRequested
    | InstancesWanted
    | InstanceCancelled
    | SiteLooked
    | TasksEstimated
    | OffersConfigured
    | PricesReported
    | PlanProposed
    | MachineStarted
    | MachineRefused
    | MachineNoticed
    | MachineHibernated
    | MachineResumed
    | MachineEnded
    | StrangersSeen
    | CheckpointSaved
    | SeriesImported
    | FleetCreated
    | FleetChanged
    | JobForgotten
)
