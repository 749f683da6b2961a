"""Answers to questions that change nothing: other deadlines, one more job of a fleet, a policy on trial. Pure."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from windfall.api.answers import Picture


class MeanAndRange(TypedDict):
    """`low` and `high` hold the next run as often as `holds` of the row says."""

    mean: float
    low: float
    high: float


class FinishRange(TypedDict):
    """The same of finishes. `high` is null where that range holds runs that never end."""

    mean: float
    low: float
    high: float | None


class ForecastRow(TypedDict):
    """One deadline. Only `possible` ones have figures."""

    deadline_s: float
    possible: bool
    cost_usd: NotRequired[MeanAndRange]
    finish_s: NotRequired[FinishRange | None]
    holds: NotRequired[float]
    met: NotRequired[int]
    runs: NotRequired[int]
    machines: NotRequired[int]
    planned_for_s: NotRequired[float]


class Forecasts(TypedDict):
    """Simulated runs under each deadline. `earliest_s` is null if some task fits on no machine. `bundle` is the number
    of tasks that were simulated as one."""

    earliest_s: float | None
    bundle: int
    deadlines: list[ForecastRow]


class WhatIf(Forecasts):
    """`deadline_s`: the job's own, from now on. `picture` is null if no deadline is possible."""

    name: str
    deadline_s: float | None
    picture: Picture | None


class Stream(TypedDict):
    """What the fleet costs if such a job comes again and again. Figures are there only if all would be `in_time`."""

    in_time: bool
    per_hour: NotRequired[float]
    before_usd: NotRequired[float]
    after_usd: NotRequired[float]
    each_usd: NotRequired[float]
    machines: NotRequired[dict[str, float]]
    beyond_limits: NotRequired[list[str]]


class Verdict(TypedDict):
    """What the planner found. `finish_s` and `earliest_s` count from now."""

    holds: bool
    met: bool
    finish_s: float | None
    extra_usd: float
    over_budget_usd: float
    budget_usd: float | None
    earliest_s: float | None
    without_limits_usd: float | None
    fits_nowhere: bool
    late_others: list[int]


class AdmissionFigures(Verdict):
    """`others_late`: how many, where `late_others` may not name them."""

    fleet: str
    deadline_s: float
    tasks: int
    others_late: int
    stream: Stream | None


class Admission(AdmissionFigures):
    """Whether a fleet would keep the deadline of one more job. `says` is empty if it `holds`."""

    says: list[str]


class PolicyFinding(TypedDict):
    """One thing to change (`error`) or to look at (`warning`), at an offset of the policy's text."""

    level: str
    policy: str
    offset: int
    where: str
    message: str
    hint: str


class TriedClause(TypedDict):
    text: str
    ok: bool | None
    detail: str


class TriedHost(TypedDict):
    """`matches` is null of a policy that is no condition, such as a rank."""

    host: str
    pool: str
    matches: bool | None
    value: bool | int | float | str | None
    clauses: list[TriedClause]


class TriedPolicy(TypedDict):
    """A policy tried with a job (null: there is none) on the first hosts that are there."""

    policy: str
    job: int | None
    findings: list[PolicyFinding]
    hosts: list[TriedHost]
    matching: int
    tried: int
    hosts_live: int


class OpenClass(TypedDict):
    """Unfinished tasks of one class, `of` all; seconds are those of a machine of speed 1."""

    tasks: int
    of: int
    estimate_s: float | None
    run_times_s: list[float]
    memory_bytes: int
    cpus: float
    resources: dict[str, float]
    of_server: dict[str, float]
    spread: float | None


OpenTask = TypedDict(
    "OpenTask", {"class": int, "estimate_s": float | None, "cpus": float, "memory_bytes": int, "open": bool}
)


class OpenGraph(TypedDict):
    """Edges are pairs of a task and one that waits for it."""

    tasks: list[OpenTask]
    edges: list[list[int]]


class PriceMoves(TypedDict):
    """Changes per hour, and the deviation of one step and of all prices, both of the logarithm."""

    changes_per_h: float
    step: float
    spread: float


class KnownOffer(TypedDict):
    """An offer as a planner knows it, with the rates that were learned of it."""

    name: str
    pool: str
    market: str
    price_usd: float
    cycle_s: float
    cores: int
    memory_gb: float | None
    speed: float | dict[str, float]
    lag_s: float
    limit: int | None
    pool_limit: int | None
    minimum_s: float
    bills_boot: bool
    free_if_taken: bool
    free_if_taken_within_s: float
    when_taken: str
    interruptions_per_h: float | None
    resumes_per_h: float | None
    price_moves: PriceMoves | None
    gpus: int
    resources: dict[str, float]
    region: str
    data_usd_per_gb: float | dict[str, float]
    data_mb_per_s: float | dict[str, float] | None
    start_usd: float


class Unfinished(TypedDict):
    """What is left of a job and what may be rented for it: enough to simulate the rest. `deadline_in_s` counts from now
    on, `deadline_s` from its submission."""

    job: int
    name: str
    state: str
    workflow: bool
    planner: str
    confidence: float
    deadline_in_s: float | None
    deadline_s: float | None
    spent_usd: float
    budget_usd: float | None
    budget_left_usd: float | None
    machines: int
    classes: list[OpenClass]
    graph: OpenGraph | None
    free_slots: list[int]
    of_server: dict[str, float]
    offers: list[KnownOffer]
