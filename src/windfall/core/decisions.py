"""What is decided on an event: decisions. `apply` follows them and chooses nothing. Pure data.

Decisions are arrays in the log: field order is the format. New fields go to the end, with a default, so that a newer
version reads an older log.
"""

from __future__ import annotations

from math import inf

from msgspec import Struct

from windfall.core.events import Key
from windfall.core.sites.instances import Placement
from windfall.core.state.hosts.learned import Advice
from windfall.core.state.hosts.pools import Ask, Breaker, Flow
from windfall.planning.offers import Offer
from windfall.quick import quickly_set

Units = tuple[tuple[str, int, int], ...]
"""(resource, index of the unit on its host, thousandths of it). The index -1: counted for the whole server."""
Stop = tuple[int, str]
"""A job that is stopped, and why."""
# What is made of one result.
ACCEPTED, RETRIED, FAILED_FOR_GOOD, REQUEUED, LOST_FOR_GOOD, STALE, WASTE, DROPPED, OTHERS_RUN, RETURNED = range(10)
VOTED, PART, GROWN = 10, 11, 12
VERDICT_NAMES = (
    "accepted", "retried", "failed", "requeued", "lost", "stale", "waste", "dropped", "others run", "returned",
    "waits for others to agree", "waits for the other hosts of its task", "retried with more memory",
)  # fmt: skip


@quickly_set
class Assigned(Struct, array_like=True, gc=False):
    """`count` tasks from `first` on, all as attempt number `attempt`; given up at `deadline` if there is one."""

    job: int
    first: int
    count: int
    attempt: int
    deadline: float | None = None
    why: int = 0
    checkpoint_s: float | None = None
    """How often to save, where the job leaves that to the engine."""
    units: Units = ()
    """Units of resources that the one task of this piece gets."""


FRESH, AGAIN, DEADLINE_REPLICA, TAIL_REPLICA, TEST, MEMBER, SECOND_ATTEMPT = range(7)
WHY_NAMES = (
    "first attempt", "tried again", "replaces a silent attempt", "replica in the tail", "test of a host",
    "one host of several", "second attempt: the plan asked for it",
)  # fmt: skip


class GangFormed(Struct, array_like=True, gc=False):
    """A task takes whole hosts: the one of rank 0 runs attempt `first`, the next one `first + 1`, and so on."""

    job: int
    task: int
    first: int
    hosts: list[int]
    """Their numbers, by rank."""
    units: list[Units] = []
    """Units of resources that each gets; empty: the task needs none."""

    def part(self, rank: int) -> Assigned:
        """What the host of this rank is given."""
        units = self.units[rank] if self.units else ()
        return Assigned(self.job, self.task, 1, self.first + rank, None, MEMBER, None, units)


class Decision(Struct, tag=True, array_like=True, gc=False):
    """What was decided; `apply` follows it without looking again."""


class Nothing(Decision):
    """There was nothing to decide."""


class JobTaken(Decision):
    job: int
    known: bool = False
    """The submission key has been seen before; `job` is the job it made."""


class TasksTaken(Decision):
    first: int


class Lessons(Struct, array_like=True, gc=False):
    """What is learned from attempts that are given up. A place counts the losses of the decision, in their order."""

    silences: list[tuple[int, float]] = []
    """(place, seconds): its latency is at least that."""
    interrupted: list[tuple[int, float]] = []
    """(place, seconds at speed 1): its task takes longer than that."""
    advice: list[Advice] = []


class Checked(Struct, array_like=True, gc=False):
    """A volunteer's host whose result was confirmed (1), contradicted (-1) or accepted as it was (0)."""

    host: int
    verdict: int
    granted_s: float = 0.0
    """Processor seconds that it is credited."""


@quickly_set
class ResultsJudged(Decision):
    """The verdicts, and what else follows from the results.

    What is seldom there is a tuple: the empty one is always the same, an empty list would be made for each decision.
    """

    verdicts: list[int]
    observed: list[int] = []
    """Places of the results whose latencies are learned from."""
    ran: tuple[tuple[int, float], ...] = ()
    """(place, seconds at speed 1 or multiples of the estimate) of results whose run times are learned from."""
    replan: tuple[int, ...] = ()
    """Jobs to replan because the estimate of their run times has changed enough."""
    stopped: tuple[Stop, ...] = ()
    advice: tuple[Advice, ...] = ()
    memory: tuple[tuple[int, int], ...] = ()
    """(place, bytes) of results that died of too little memory, and what their tasks get from now on."""
    checked: tuple[Checked, ...] = ()
    """What accepted results say about hosts of volunteers."""


@quickly_set
class HostAnswered(Decision):
    host: int
    repeat: bool = False
    lost: list[tuple[int, int, int, int]] = []
    """(job, task, attempt, verdict) of attempts lost with an earlier boot or a leaving host."""
    assigned: list[Assigned] = []
    cancel: list[Key] = []
    refused: str = ""
    tails: tuple[tuple[int, bool], ...] = ()
    """Jobs that enter or leave their tail phase with this answer."""
    probation: tuple[float, str] | None = None
    """The host gets nothing until this time, for this reason."""
    test: bool = False
    """What is assigned is a test: the host was on probation."""
    tell: bool = False
    """The host shall say what it is and holds. Numbers were skipped, so the log was cut off behind an answer that it
    saw; or it was forgotten while it was away."""
    stop: str = ""
    """Why the worker shall end, if it shall."""
    stopped: tuple[Stop, ...] = ()
    lessons: Lessons | None = None
    tested_until: float | None = None
    """The next test of a host that is being tested, should this one fail."""
    breaker: Breaker | None = None
    """How far the host's pool is trusted from now on, if that changes."""
    given_back: int = 0
    """The machine of this host, which ends because its pool is drained and it holds nothing more."""
    hand_back: tuple[Key, ...] = ()
    """Attempts that it returns if they have not begun: another host is idle."""
    taken_back: tuple[tuple[int, int, int, int], ...] = ()
    """(host, job, task, attempt) of what other hosts are asked to return, for this one is idle."""
    gang: GangFormed | None = None
    """The hosts that a task takes from now on; this host is one of them."""
    begin: tuple[Key, ...] = ()
    """Attempts of several hosts that begin now: every host of the task holds its own."""
    all_joined: Key | None = None
    """The attempt that this host takes with this answer, if it is the last host of its task to do so."""
    is_another: bool = False
    """Another worker has taken the name: it cannot say how attempts of the one before ended."""


class TasksChosen(Decision):
    """The tasks that a cancellation or a retry is about."""

    tasks: list[int]
    stopped: list[Stop] = []


class JobSettled(Decision):
    """What follows from a job's rules once its tasks are there, or once the rules have changed."""

    planned: bool = False
    """Machines may be rented for it from now on."""
    replan_t: float | None = None
    """Its first plan waits until then: free hosts may take its tasks before."""
    stopped: list[Stop] = []
    fleet: int = 0
    """The named fleet that it enters."""


class PoolJudged(Decision):
    """How far a pool that has answered is trusted from now on; None: as before."""

    breaker: Breaker | None = None


class PoolSettled(Decision):
    """What becomes of a pool whose mode has changed."""

    stopped: list[int] = []
    """Machines that end now."""
    freed: list[int] = []
    """Machines that finish what they run; what waits for them may run elsewhere."""
    withdrawn: list[int] = []
    """Requests for workers that are taken back."""
    refused: str = ""
    """Why nothing is done, if so."""


class OfferJudged(Decision):
    """Refusals of an offer in a row; several at once are one answer."""

    refusals: int = 0


class TimeJudged(Decision):
    """What silence and expired deadlines have come to."""

    unknown: list[int] = []
    lost_hosts: list[int] = []
    lost: list[tuple[int, int, int, int]] = []
    expired: list[tuple[int, int, int, int]] = []
    stopped: list[Stop] = []
    lessons: Lessons | None = None
    """Its places count `lost` and then `expired`."""
    given_back: list[int] = []
    """Machines that end before a billing cycle that would exceed the budget of their job."""
    replicated: list[tuple[int, list[int]]] = []
    """(job, tasks of which one more replica enters the queue) of jobs whose replication cycle is over."""
    renewed: list[int] = []
    """Hosts of volunteers, which may be silent for days: their leases begin anew."""
    forgotten: list[tuple[int, str, str | None]] = []
    """Hosts that have left long ago, or were too many; the pool and the owner under which their work is counted."""
    forget_t: float | None = None
    """When to look again for hosts to forget; None: this decision did not look."""
    forget_beyond: int = 0
    """Look earlier if more hosts than this have left by then."""


class ClientsAsked(Decision):
    """Workers to ask of pools, and the matching of waiting tasks with pools that this follows from."""

    asks: list[Ask] = []
    flow: Flow = []
    look_t: float = inf
    """The next review of the pools if nothing changes."""


class SiteSettled(Decision):
    """What becomes of the instances of a site, and of the attempts on those that have ended."""

    number: int = 0
    """The request that this is about; one that was known already keeps its number."""
    placed: list[Placement] = []
    denied: list[tuple[int, list[str]]] = []
    """Requests for which there is no room, and why."""
    returned: list[int] = []
    """Requests that were placed on a host which goes, and had not begun: they wait again."""
    ended: list[tuple[int, str, str]] = []
    """(instance, cause, text) of those whose end will not be reported."""
    lost: list[tuple[int, int, int, int]] = []
    """(job, task, attempt, verdict) of what the workers that ended had in hand."""
    silent: list[str] = []
    gone: list[str] = []
    repeat: bool = False
    refused: str = ""
    stopped: list[Stop] = []
    lessons: Lessons | None = None
    leaving: list[tuple[int, str]] = []
    """Preemptible instances that a review tells to leave, and why."""
    price_usd: float | None = None
    """The price of an hour of one vCPU, if the market was cleared."""
    review_t: float | None = None
    """When the next review is due; None: as before."""


class PlanTaken(Decision):
    """What of a plan is carried out. Machines to start and to stop follow from it."""

    started: list[tuple[int, str, Offer]] = []
    """(machine, the plan's label, offer)."""
    stopped: list[int] = []
    queues: list[tuple[int, list[int]]] = []
    """The whole queue of every machine that changes."""
    moved: list[tuple[int, int, int, int]] = []
    """(job, task, attempt, verdict) of attempts that are given up on hibernated machines; their tasks start again."""
    refused: list[str] = []
    """What of it is not carried out, and why."""
    not_before_t: float = -inf
    """The earliest time of the next plan of this job: changes often come many at once."""
    replan_t: float = inf
    """When the job is planned again although nothing has happened."""
    lessons: Lessons | None = None
    recalled: list[int] = []
    """Machines whose tasks save and wait again; then the machines end."""
    again: list[tuple[int, list[int]]] = []
    """(machine, tasks): second attempts of tasks that run elsewhere, the whole list of every machine that changes."""
    beside: list[tuple[int, list[int]]] = []
    """(machine, tasks): those of its `queues` that run on free hosts and go on there: it begins second attempts."""
    collects_until_t: float = -inf
    """Until then changes that the plan's safety net covers cause no plan by themselves: in a large fleet there are
    very many."""


class MachineSettled(Decision):
    lost: list[tuple[int, int, int, int]] = []
    """(job, task, attempt, verdict) of attempts lost with the machine."""
    cause: str = ""
    """Why it ended: it decides the bill."""
    stopped: list[Stop] = []
    lessons: Lessons | None = None


class FleetSettled(Decision):
    """The number of a new fleet; or what follows from a change of one."""

    number: int = 0
    stopped: list[int] = []
    """Machines that are given back."""
    refused: str = ""


class JobLetGo(Decision):
    """The job is forgotten; or why it is not."""

    refused: str = ""
    share_microusd: int = 0
    """Of a job in a named fleet: what it is charged for the machines of the fleet."""


class CheckpointKept(Decision):
    """How much of a task a checkpoint holds, in seconds at speed 1; one of an unknown attempt is not kept."""

    saved_s: float
    kept: bool = True


AnyDecision = (
    Nothing
    | JobTaken
    | TasksTaken
    | ResultsJudged
    | HostAnswered
    | TasksChosen
    | JobSettled
    | PoolJudged
    | PoolSettled
    | OfferJudged
    | TimeJudged
    | ClientsAsked
    | SiteSettled
    | PlanTaken
    | MachineSettled
    | CheckpointKept
    | FleetSettled
    | JobLetGo
)
