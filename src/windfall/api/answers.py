"""What the server answers, as the Python client returns it: plain dictionaries with known keys. Pure.

Seconds ending in `_s` are Unix seconds or durations, as the sentence beside them says; dollars end in `_usd`.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict


class TaskCounts(TypedDict):
    total: int
    waiting: int
    running: int
    done: int
    failed: int
    cancelled: int


JobWorkflow = TypedDict("JobWorkflow", {"class": str, "edges": int, "held": int, "blocked": int})


class OfferCount(TypedDict):
    offer: str
    market: str
    there: int
    rented: int


class JobMachines(TypedDict):
    """Machines of a job: `there` are up or on their way, `rented` are all that there ever were."""

    rented: int
    there: int
    pending: int
    hibernated: int
    idle: int
    last_refusal: str
    offers: list[OfferCount]


class JobMoney(TypedDict):
    """Begun billing cycles count in full. `forecast_usd`: in the end, by the plan of now."""

    spent_usd: float
    budget_usd: float | None
    forecast_usd: float | None
    first_forecast_usd: float | None
    held_by_budget: bool
    after_stop_usd: float
    machines: JobMachines


class Alternative(TypedDict):
    what: str
    cost_usd: float | None


class JobPlan(TypedDict):
    planner: str
    fleet: str
    plans: int
    planned_s: float | None
    look_again_s: float | None
    first_finish_s: float | None
    cost_usd: float | None
    finish_s: float | None
    rejected: list[Alternative]
    because: list[str]
    refused: list[str]
    error: str


class JobStatus(TypedDict):
    """One job in one look. `version` rises with every change; ask for a newer one to wait for news."""

    job: int
    name: str
    owner: str
    state: str
    tasks: TaskCounts
    attempts: int
    parts: int
    """Attempts that were further hosts of a task that takes several at once."""
    waste: int
    submitted_s: float
    finished_s: float | None
    changed_s: float
    elapsed_s: float
    down_s: float
    mean_run_s: float | None
    peak_memory_bytes: int | None
    priority: float
    tail: bool
    stopped: str
    causes: dict[str, int]
    deadline_s: float | None
    hosts: int
    slots: int
    version: int
    workflow: JobWorkflow | None
    money: JobMoney | None
    plan: JobPlan | None


class Jobs(TypedDict):
    """The newest first. `next`: `before` of the next page, null on the last one."""

    jobs: list[JobStatus]
    next: int | None
    total: int


class TaskRow(TypedDict):
    """One task. Times are of the last attempt that ended."""

    task: int
    state: str
    attempts: int
    attempt: int | None
    failures: int
    losses: int
    host: str | None
    start_s: float | None
    end_s: float | None
    exit_code: int | None
    cause: str | None
    name: NotRequired[str | None]
    """Of a workflow, as the next two."""
    parents_left: NotRequired[int]
    blocked: NotRequired[bool]
    hosts: NotRequired[list[str]]
    """Of a task that runs, as the next."""
    sent_s: NotRequired[float]


class Tasks(TypedDict):
    """In the order of their numbers. `next`: `after` of the next page, null on the last one."""

    tasks: list[TaskRow]
    next: int | None


class VolunteerRecord(TypedDict):
    """What a host of a volunteer has earned, and what others' results have said of its own."""

    credit: float
    confirmed_in_a_row: float
    contradicted: float


class HostRow(TypedDict):
    """`error_rate` and `loss_rate` fade with time; `ad` is what the host says of itself."""

    host: str
    state: str
    pool: str
    slots: int
    held: int
    joined_s: float
    seen_s_ago: float
    left: str
    done: int
    failed: int
    lost: int
    error_rate: float
    loss_rate: float
    turnaround_s: float | None
    suspicion: str
    probation_until: float | None
    blocked: str
    blocked_until: float | None
    draining: bool
    volunteer: VolunteerRecord | None
    ad: dict[str, Any]


class OneHost(HostRow):
    """`holding`: its first hundred attempts, as JOB.TASK#ATTEMPT."""

    holding: list[str]


class HostCounts(TypedDict):
    live: int
    unknown: int
    slots: int
    total: int


class ForgottenHosts(TypedDict):
    """Hosts of a pool that left long ago and are forgotten, and what they did together."""

    pool: str
    hosts: int
    done: int
    failed: int
    lost: int


class Hosts(TypedDict):
    """`next`: `after` of the next page; null on the last one, and without a limit."""

    hosts: list[HostRow]
    next: str | None
    counts: HostCounts
    forgotten: list[ForgottenHosts]


class NeverCame(TypedDict):
    """What was started at a provider and never asked for work, and what it said last."""

    at_s: float | None
    host: str
    said: str


class PoolMode(TypedDict):
    """What an operator has said about a pool. `added`: while the server ran, and not in its file."""

    mode: str
    mode_since_s: float | None
    reason: str
    added: bool


class PoolRow(PoolMode):
    """A pool that is asked for workers. `limit` and `per_minute` are null where workers join by themselves."""

    pool: str
    kind: str
    limit: int | None
    slots: int
    price_usd: float
    per_minute: float | None
    running: int
    busy_slots: int
    free_slots: int
    pending: int
    wanted_slots: int
    held_back: str
    errors: int
    last_error: str
    closed_until: float | None
    never_came: list[NeverCame]


class RentingPool(PoolMode):
    """A pool that rents machines for plans."""

    pool: str
    kind: str
    machines: int
    pending: int
    never_came: list[NeverCame]


class Pools(TypedDict):
    pools: list[PoolRow]
    renting: list[RentingPool]


class JobPool(TypedDict):
    """What a pool did for a job."""

    pool: str
    tasks_done: int
    attempts_lost: int
    hosts: int
    run_s: float
    tasks_per_s: float | None
    machines: int
    cost_usd: float


class JobPools(TypedDict):
    job: int
    name: str
    pools: list[JobPool]


class Picture(TypedDict):
    """A key and an SVG as `html`, and `says`, the same in one sentence, for those who do not see it. One with `wide`
    needs the whole width of a page."""

    name: str
    html: str
    says: str
    wide: NotRequired[str]


class Pictures(TypedDict):
    job: int
    name: str
    pictures: list[Picture]


class Cancelled(TypedDict):
    job: int
    cancelled: int


class Retried(TypedDict):
    job: int
    retried: int


class NewToken(TypedDict):
    """`token` is shown this once; `id` names it from then on."""

    token: str
    id: str


class Revoked(TypedDict):
    revoked: str
