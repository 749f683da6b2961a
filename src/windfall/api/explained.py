"""What the server answers to why: why a job or a task waits, the story of a task, failures in groups. Pure."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from windfall.api.answers import JobMoney, JobPlan
from windfall.api.renting import PastPlan, SharedMachine, Stranger


class WhyNot(TypedDict):
    """What keeps hosts from a task. `missing`: by how much the nearest of them falls short."""

    what: str
    clause: str
    hosts: int
    detail: str
    example: str
    missing: float | None


class PoolOutlook(TypedDict):
    pool: str
    what: str


class NamedTask(TypedDict):
    task: int
    name: str


Waiting = TypedDict(
    "Waiting",
    {
        "waits": bool, "stuck": bool, "because": str, "hosts": int, "willing": NotRequired[int],
        "reasons": list[WhyNot], "nearest": NotRequired[str], "pools": list[PoolOutlook],
        "parents": NotRequired[list[NamedTask]], "blocked_by": NotRequired[list[NamedTask]],
        "machine": NotRequired[int], "look_again_s": NotRequired[float | None], "try": list[str],
    },
)  # fmt: skip
"""Why a job or a task waits. `parents` and `blocked_by` of a task of a workflow, `machine` of a reserved one."""

Blocked = TypedDict("Blocked", {"tasks": int, "by": str, "try": str})
"""Of an ended workflow: the number of tasks that could never start, and the failed tasks before them."""

MemoryOfClass = TypedDict(
    "MemoryOfClass",
    {"class": str, "asked_bytes": int | None, "peak_bytes": int, "attempts": int, "because": str, "try": str},
)
"""What was asked for, the most that an attempt took, and advice where that is far less."""


class Timeout(TypedDict):
    """When silence counts as a loss. A `basis` of `policy` comes with `because` alone."""

    basis: str
    because: str
    pool: NotRequired[str]
    bag: NotRequired[str]
    timeout_s: NotRequired[float]
    law: NotRequired[str]
    samples: NotRequired[int]
    finished: NotRequired[int]
    running: NotRequired[int]
    given_up: NotRequired[int]
    lost: NotRequired[float]
    expected_s: NotRequired[float | None]
    half_s: NotRequired[float | None]
    double_s: NotRequired[float | None]
    latency_95_s: NotRequired[float | None]


class Timeouts(TypedDict):
    timeouts: list[Timeout]
    prior_s: float
    floor_s: float
    cap_s: float


class Step(TypedDict):
    """What happened to an attempt of a task: it was sent, a result came, it was given up."""

    t: float
    what: str
    attempt: NotRequired[int]
    host: NotRequired[str | None]
    why: NotRequired[str]
    deadline: NotRequired[float | None]
    cause: NotRequired[str]
    exit_code: NotRequired[int | None]
    run_s: NotRequired[float]
    rss_bytes: NotRequired[int]
    text: NotRequired[str]
    last_line: NotRequired[str]
    then: NotRequired[str]
    reason: NotRequired[str]


class Explained(TypedDict):
    """Of a job: from `running` to `strangers`; of a task (`task` is its number): `story` and what stands before it."""

    job: int
    name: str
    task: int | None
    state: str
    waiting: NotRequired[Waiting]
    timeouts: list[Timeout]
    running: NotRequired[int]
    blocked: NotRequired[Blocked]
    policies: NotRequired[dict[str, str]]
    memory: NotRequired[list[MemoryOfClass]]
    money: NotRequired[JobMoney | None]
    plan: NotRequired[JobPlan | None]
    sharing: NotRequired[list[SharedMachine]]
    last_plans: NotRequired[list[PastPlan]]
    strangers: NotRequired[list[Stranger]]
    task_name: NotRequired[str]
    because: NotRequired[str]
    running_on: NotRequired[list[str]]
    story: NotRequired[list[Step]]


class Group(TypedDict):
    """Failures that are alike. `final`: of tasks that have failed, and not of attempts that were repeated."""

    cause: str
    exit_code: int | None
    count: int
    tasks: list[int]
    last_line: str
    text: str
    stderr_tail: str
    example: int
    final: bool
    compared: bool
    names: NotRequired[list[str | None]]
    """Of a workflow: of the listed tasks."""


class Groups(TypedDict):
    """`complete`: whether all were compared."""

    groups: list[Group]
    complete: bool
