"""What the server answers about rented machines, fleets, bills and plans. Pure. Names as in `windfall.api.answers`."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from windfall.api.answers import Alternative, Picture


class Stranger(TypedDict):
    """A machine at a provider that is not this server's, or was forgotten by it."""

    pool: str
    id: str
    about: str


class MachineBill(TypedDict):
    """One machine: how long it was held, the cycles that were begun, what they cost at the prices of their time."""

    machine: int
    pool: str
    offer: str
    market: str
    phase: str
    cause: str
    cores: int
    requested_s: float
    ready_s: float | None
    ended_s: float | None
    billed_s: float
    slept_s: float
    cycle_s: float
    cycles: int
    price_usd: float
    cost_microusd: int
    cost_usd: float


class JobMachineBill(MachineBill):
    """Of a shared machine, the share of one job; of its own ones that is all."""

    share_microusd: int
    share_usd: float


class BillSum(TypedDict):
    pool: str
    offer: NotRequired[str]
    """Of a sum by offer, as the next."""
    market: NotRequired[str]
    machines: int
    cycles: int
    billed_s: float
    cost_usd: float


class JobCost(TypedDict):
    """The ledger of a job: every machine with its cycles, and sums of these."""

    job: int
    name: str
    state: str
    fleet: str
    spent_usd: float
    budget_usd: float | None
    forecast_usd: float | None
    to_come_usd: float | None
    first_forecast_usd: float | None
    held_by_budget: bool
    after_stop_usd: float
    run_s: float
    paid_core_s: float
    machines: list[JobMachineBill]
    offers: list[BillSum]
    pools: list[BillSum]
    strangers: list[Stranger]


class FleetFacts(TypedDict):
    """What a fleet is told and what it has cost."""

    fleet: str
    number: int
    mode: str
    pools: list[str]
    planner: str
    created_s: float
    jobs_ever: int
    pending: int
    idle: int
    spent_usd: float
    idle_usd: float
    budget_usd: float | None
    budget_s: float | None
    budget_left_usd: float | None
    budget_since_s: float | None
    budget_until_s: float | None
    shares_pools_with: list[str]
    owner_shares: dict[str, float]
    owner_caps: dict[str, int]


class FleetRow(FleetFacts):
    """`jobs` and `machines`: how many there are now."""

    jobs: int
    machines: int


class Fleets(TypedDict):
    fleets: list[FleetRow]


class FleetJob(TypedDict):
    job: int
    name: str
    state: str
    owner: str
    total: int
    unfinished: int
    deadline_s: float | None


class JobPart(TypedDict):
    """What a job has used of a shared machine, and what it is charged for that."""

    job: int
    cost_usd: float
    used_s: float
    cycles_begun: int
    reserved: int


class SharedMachine(TypedDict):
    """`because`: why its offer was chosen, if its plan said so, then why each of the jobs is there, in their order."""

    machine: int
    offer: str
    there: bool
    jobs: list[JobPart]
    because: list[str]


class FleetMachine(MachineBill):
    jobs: list[JobPart]
    because: list[str]


class OneFleet(FleetRow):
    """`unfinished`: its first thousand jobs that have not ended; `there`: its machines."""

    unfinished: list[FleetJob]
    there: list[FleetMachine]
    plans: int
    because: list[str]
    refused: list[str]
    error: str
    look_again_s: float | None


class FleetJobCost(TypedDict):
    job: int
    name: str
    state: str
    cost_microusd: int
    cost_usd: float


class FleetCost(FleetFacts):
    """The bill of a fleet: by machine, and by job with what was idle; both add up to the same sum."""

    jobs: list[FleetJobCost]
    machines: list[MachineBill]
    spent_microusd: int
    idle_microusd: int
    after_stop_microusd: int
    """Of cycles that began after the provider had been told to stop the machine."""


class OfferRow(TypedDict):
    pool: str
    offer: str
    market: str
    cores: int
    memory_gb: float | None
    price_usd: float
    cycle_s: float
    lag_s: float
    limit: int | None
    speed: float | dict[str, float]
    minimum_s: float
    bills_boot: bool
    free_if_taken: bool
    free_if_taken_within_s: float
    when_taken: str
    interruptions_per_h: float | None
    resumes_per_h: float | None
    pool_limit: int | None
    gpus: int
    resources: dict[str, float]
    region: str
    data_usd_per_gb: float | dict[str, float]
    data_mb_per_s: float | dict[str, float] | None


class MachineRow(TypedDict):
    """`job` of a machine that one job rents, `fleet` of a shared one. `sleeps` is the former name of `hibernations`."""

    machine: int
    pool: str
    id: str
    offer: str
    market: str
    job: int | None
    fleet: str
    phase: str
    running: int
    waiting: int
    requested_s: float
    ready_s: float | None
    ended_s: float | None
    held_s: float
    paid_for_s: float | None
    cost_usd: float
    hibernations: int
    sleeps: int
    taken_in_s: float | None
    cause: str
    error: str


class Offered(TypedDict):
    offers: list[OfferRow]
    strangers: list[Stranger]


class Machines(Offered):
    """The newest first. `resources`: what the server itself has to share out, such as licences."""

    machines: list[MachineRow]
    resources: dict[str, float]


class MachinePictures(TypedDict):
    """Time zero of the pictures is `since_s`."""

    pictures: list[Picture]
    since_s: float
    machines: int


class BilledJob(TypedDict):
    job: int
    name: str
    state: str
    usd: float
    budget_usd: float | None
    forecast_usd: float | None


class IdleFleet(TypedDict):
    fleet: str
    idle_usd: float


class BilledPool(TypedDict):
    pool: str
    usd: float


class BilledDay(TypedDict):
    day: str
    usd: float


class WastePart(TypedDict):
    what: str
    core_s: float
    usd: float


class Waste(TypedDict):
    """What the paid time of a job, or of a fleet, went into. `job` is null of a fleet."""

    job: int | None
    fleet: str
    name: str
    usd: float
    paid_core_s: float
    attempts_lost: int
    replicas: int
    parts: list[WastePart]


class BilledMonth(TypedDict):
    """Machines that ended in a month (UTC, as in 2026-11), or are there now."""

    month: str
    usd: float


class Bills(TypedDict):
    """What everything costs, with the bills of forgotten jobs. `counted`: the number of machines in the
    sums, the newest ones; `days` and `waste` have no part of forgotten jobs."""

    total_usd: float
    machines: int
    counted: int
    jobs: list[BilledJob]
    fleets: list[IdleFleet]
    pools: list[BilledPool]
    months: list[BilledMonth]
    days: list[BilledDay]
    waste: list[Waste]
    pictures: list[Picture]


class StartedMachine(TypedDict):
    machine: int
    offer: str
    price_usd: float


class SeenOffer(TypedDict):
    offer: str
    price_usd: float
    limit: int | None


class Inputs(TypedDict):
    """What a planner was shown when it made a plan."""

    unfinished: int
    total: int
    running: int
    core_s: float
    longest_s: float
    deadline_s: float | None
    spent_usd: float
    budget_usd: float | None
    confidence: float
    machines: dict[str, int]
    offers: list[SeenOffer]
    jobs: int


class PlanFacts(TypedDict):
    """One plan as it was made: what was done, why, what was not done, and what else was thought of."""

    t: float
    started: list[StartedMachine]
    stopped: list[int]
    because: list[str]
    refused: list[str]
    error: str
    inputs: Inputs | None
    cost_usd: float | None
    finish_s: float | None
    rejected: list[Alternative]


class PlanTold(PlanFacts):
    """`moved`: tasks that were taken from machines that hibernate."""

    moved: list[int]


class PastPlan(PlanTold):
    """`seq`: the number of its record."""

    seq: int
    job: int | None
    fleet: str


class Decision(PlanFacts):
    """`moved`: how many tasks were taken from machines that hibernate."""

    seq: int
    job: int | None
    fleet: str
    moved: int


class Outcome(TypedDict):
    """What the first plan of a job predicted and what is known now."""

    name: str
    state: str
    planner: str
    deadline_s: float | None
    finished_s: float | None
    spent_usd: float | None
    first_forecast_usd: float | None
    first_finish_s: float | None
    finish_s: float | None


class Decisions(TypedDict):
    """The newest first. `jobs`: by number. `next`: `before` of the next page, null on the last one."""

    decisions: list[Decision]
    next: int | None
    jobs: dict[str, Outcome]
