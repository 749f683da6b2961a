"""Short answers of the server: to a submission, about commands and classes of workflows, tokens, its health. Pure."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from windfall.api.asking import Admission


class Submitted(TypedDict):
    """`known`: this very job was submitted before. `admission`: what its fleet said of its deadline."""

    job: int
    known: bool
    total: int
    admission: NotRequired[Admission]


class Total(TypedDict):
    """How many tasks the job has now."""

    total: int


class Forgotten(TypedDict):
    forgotten: int
    name: str
    tasks: int


class ParametersDigest(TypedDict):
    tasks: int
    sha256: str


class Rendered(TypedDict):
    """What a task runs."""

    task: int
    argv: list[str] | None
    params: str | dict[str, str] | None
    stdin: str | None
    env: dict[str, str]
    cwd: str | None
    overrides: Any


class Rows(TypedDict):
    """Lists in the order that the summary names. `next`: `after` of the next page, null on the last one."""

    rows: list[list[Any]]
    next: int | None


class EventRow(TypedDict):
    """A record of the log: what happened and what was decided."""

    seq: int
    t: float
    type: str
    job: int | None
    event: Any
    decided: Any


class Events(TypedDict):
    """`next`: the last record that was looked at, which is `after` of the next page."""

    events: list[EventRow]
    next: int


class GraphTask(TypedDict):
    task: int
    name: str
    state: str
    blocked: bool
    parents_left: int
    parents: list[int]
    start_s: float | None
    end_s: float | None


WorkflowGraph = TypedDict(
    "WorkflowGraph", {"job": int, "name": str, "state": str, "class": str, "tasks": list[GraphTask]}
)
WorkflowClass = TypedDict(
    "WorkflowClass", {"class": str, "job": int, "tasks": int, "jobs": int, "running": int, "failed": int}
)
OneClass = TypedDict("OneClass", {"class": str, "job": int, "tasks": int, "spec": dict[str, Any]})


class Classes(TypedDict):
    classes: list[WorkflowClass]


class AddedPools(TypedDict):
    added: list[str]


class RemovedPool(TypedDict):
    """`left`: what is there still."""

    pool: str
    removed: bool
    left: str


class PoolCheck(TypedDict):
    """What was looked at, what is wrong (empty: nothing), and what to do about it."""

    what: str
    error: str
    hint: str


class PoolFindings(TypedDict):
    pool: str
    ok: bool
    checks: list[PoolCheck]


class Examined(PoolFindings):
    """`waits`: the worker that was started on trial is yet to come."""

    waits: bool


class Poked(TypedDict):
    pool: str
    id: str
    what: str


class ListedToken(TypedDict):
    id: str
    role: str
    name: str
    created_s: float
    expires_s: float | None
    user: str | None


class Tokens(TypedDict):
    tokens: list[ListedToken]
