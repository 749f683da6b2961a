"""What is sent to the server: read into these by the server, made of these by the Python client. Pure.

Whatever comes from outside is bounded here (`windfall.bounds`) before anybody looks at it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from windfall.bags.outline import Outline
from windfall.bags.spec import bad_field
from windfall.bounds import (
    BROKEN,
    MAX_MICROUSD,
    MAX_REPLICAS,
    MAX_RESOURCES,
    MAX_TASKS,
    Amount,
    Attributes,
    Count,
    Name,
    Seconds,
    TaskCount,
    Text,
    Tries,
    broken,
)

TaskList = Annotated[list[Count], Meta(max_length=MAX_TASKS)]
Share = Annotated[float, Meta(gt=0.0, le=1e6)]
Cap = Annotated[int, Meta(ge=1, le=1_000_000)]
Shares = Annotated[dict[Name, Share], Meta(max_length=1000)]
Caps = Annotated[dict[Name, Cap], Meta(max_length=1000)]


class SubmitBody(Struct):
    """`POST /v1/jobs`."""

    spec: msgspec.Raw
    count: TaskCount = 0
    seal: bool = False
    shape: list[str] | None = None
    estimates: str | None = None
    late: Literal["accept", "tell", "reject"] = "accept"
    """A job in a fleet: whether the fleet is asked if it is in time, and whether the job is rejected if not."""
    outline: Outline | None = None
    """What it is asked. It follows from a range with an estimate."""


class CancelBody(Struct):
    """`POST /v1/jobs/JOB/cancel`; without `tasks` the whole job is meant."""

    tasks: TaskList | None = None
    reason: Text | None = None


class RetryBody(Struct):
    """`POST /v1/jobs/JOB/retry`; without `tasks` all that failed are meant."""

    tasks: TaskList | None = None
    cancelled: bool = False
    memory: Name | Count | None = None


class Changes(Struct, kw_only=True, forbid_unknown_fields=True):
    """What may be changed on a job that runs. What is not named stays as it is."""

    priority: Amount | UnsetType = UNSET
    paused: bool | UnsetType = UNSET
    memory: Name | Count | UnsetType | None = UNSET
    wall_s: Seconds | UnsetType | None = UNSET
    max_failures: Tries | UnsetType = UNSET
    max_losses: Tries | UnsetType = UNSET
    max_failed_tasks: TaskCount | UnsetType | None = UNSET
    policies: dict[Name, Text | None] | UnsetType = UNSET
    deadline_s: Seconds | UnsetType | None = UNSET
    budget_usd: Annotated[float, Meta(ge=0, le=MAX_MICROUSD / 1000000.0)] | Name | UnsetType | None = UNSET
    attributes: Attributes | UnsetType = UNSET
    replication: Literal["idle-slots", "queued"] | UnsetType = UNSET
    max_replicas: Annotated[int, Meta(ge=1, le=MAX_REPLICAS)] | UnsetType = UNSET
    fixed_memory: bool | UnsetType = UNSET
    resources: Annotated[dict[Name, Amount], Meta(max_length=MAX_RESOURCES)] | UnsetType = UNSET
    confidence: Annotated[float, Meta(gt=0.0, lt=1.0)] | UnsetType = UNSET


def read_changes(body: bytes) -> Changes:
    """The changes that somebody asks for; an error names the field, and what it may be."""
    return _changes(lambda: msgspec.json.decode(body, type=Changes))


def changes_from(said: dict[str, Any]) -> Changes:
    """The same from keywords of Python."""
    return _changes(lambda: msgspec.convert(said, Changes))


def _changes(read: Callable[[], Changes]) -> Changes:
    try:
        return read()
    except msgspec.ValidationError as error:
        raise bad_field(error, "the change", Changes.__struct_fields__) from None
    except BROKEN as error:
        raise broken(error, "the body") from None


class TokenBody(Struct):
    """`POST /v1/tokens`."""

    role: Name
    name: Name = ""
    user: Name = ""
    life_s: Seconds | None = None


class RotateBody(Struct):
    """`POST /v1/tokens/ID/rotate`."""

    grace_s: Seconds = 0.0


class HostBody(Struct):
    """`POST /v1/hosts/NAME/block`, `unblock` and `drain`."""

    reason: Text | None = None
    for_s: Seconds | None = None


class AddBody(Struct):
    """`POST /v1/pools`: pools as they would stand below [[pool]], and the folder from which their paths are meant."""

    pools: Annotated[list[dict[str, Any]], Meta(min_length=1, max_length=100)]
    base: Text = ""


class SwitchBody(Struct):
    """`POST /v1/pools/NAME/pause`, `resume` and `drain`."""

    reason: Text = ""


class RemoveBody(Struct):
    """`DELETE /v1/pools/NAME`."""

    now: bool = False
    wait_s: Annotated[float, Meta(ge=0.0, le=20.0)] = 10.0


class FrontBody(Struct, forbid_unknown_fields=True):
    """`POST /v1/pools/NAME/front/WHAT`: what is said to the front of a pool of volunteers."""

    account: Count = 0
    name: Name = ""
    uses: Annotated[int, Meta(ge=1, le=10_000)] = 1
    shows_name: bool = False
    while_busy: bool = False


class DoctorBody(Struct):
    """`POST /v1/pools/NAME/doctor`."""

    trial: Annotated[str, Meta(pattern="^[a-z0-9]{0,16}$")] = ""
    """Start a worker and end it again; the same word waits on for the same worker. Empty: start none."""
    wait_s: Annotated[float, Meta(ge=0.0, le=20.0)] = 10.0
    """Seconds to wait for that worker before this answers."""
    last: bool = True
    """It is an error if the worker has not come by then; else ask again."""


class FleetBody(Struct, forbid_unknown_fields=True):
    """`POST /v1/fleets`."""

    name: Name
    pools: Annotated[list[Name], Meta(min_length=1, max_length=100)]
    planner: Name = ""
    budget_usd: Annotated[float, Meta(gt=0.0, le=MAX_MICROUSD / 1e6)] | None = None
    budget_s: Annotated[float, Meta(ge=60.0, le=366 * 86400.0)] = 3600.0
    owner_shares: Shares = {}
    owner_caps: Caps = {}


class FleetChangeBody(Struct, forbid_unknown_fields=True):
    """`POST /v1/fleets/FLEET/change`: what is left out stays. A share or a cap of None takes back what was said."""

    planner: Name | None = None
    budget_usd: Annotated[float, Meta(gt=0.0, le=MAX_MICROUSD / 1e6)] | None = None
    budget_s: Annotated[float, Meta(ge=60.0, le=366 * 86400.0)] | None = None
    no_budget: bool = False
    owner_shares: Annotated[dict[Name, Share | None], Meta(max_length=1000)] = {}
    owner_caps: Annotated[dict[Name, Cap | None], Meta(max_length=1000)] = {}
