"""Machines as the EC2 API shows them: phase, since when, why they ended. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from windfall.pools.contract import ENDED, FAILED, HIBERNATED, PENDING, RELEASED, RUNNING, TAKEN

STATE, POOL, HOST = "windfall:state", "windfall:pool", "windfall:host"
"""Tags of a machine: the id of the state, the pool, and the name under which its worker asks for work."""
NOTICE_S = 120.0
"""Seconds between the notice of an interruption and the interruption."""
PERSISTENT = "persistent"
BY_ITSELF = "Client.InstanceInitiatedShutdown"
_BY_US = "Client.UserInitiatedShutdown"
_TAKEN = "Server.SpotInstanceTermination"
_PHASES = {
    "pending": PENDING, "running": RUNNING, "shutting-down": ENDED, "terminated": ENDED,
    "stopping": HIBERNATED, "stopped": HIBERNATED,
}  # fmt: skip
_MARKED = ("marked-for-termination", "marked-for-stop", "marked-for-hibernation")
_TIME = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")
_WORDS = "windfall: "
Json = Mapping[str, Any]


class Sighted(Struct, frozen=True):
    """One instance, with what its spot request says."""

    id: str
    region: str
    phase: str
    owner: str
    pool: str
    host: str
    type: str = ""
    launched_t: float = 0.0
    changed_t: float | None = None
    """When its phase began, if EC2 says so."""
    cause: str = ""
    about: str = ""
    taken_at_t: float | None = None
    request: str = ""
    """Its spot request; empty for one on demand."""
    persistent: bool = False
    request_open: bool = False
    """The request would start it, or another one, again."""
    by_itself: bool = False
    """It shut itself down."""
    left_a_disk: bool = False
    """It did, and is stopped instead of terminated."""


def tags_of(row: Json) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in row.get("Tags") or ()}


def sighted(row: Json, request: Json | None, region: str) -> Sighted:
    """An instance of `describe_instances`, and its row of `describe_spot_instance_requests`, if it has one."""
    tags, request = tags_of(row), request or {}
    phase = _PHASES.get(row["State"]["Name"], PENDING)
    reason = row.get("StateReason") or {}
    status = request.get("Status") or {}
    by_itself = reason.get("Code") == BY_ITSELF
    if by_itself and phase == HIBERNATED:
        phase = ENDED  # its worker has ended; what is left of it is a disk
    launched = row.get("LaunchTime")
    return Sighted(
        id=row["InstanceId"],
        region=region,
        phase=phase,
        owner=tags.get(STATE, ""),
        pool=tags.get(POOL, ""),
        host=tags.get(HOST, ""),
        type=row.get("InstanceType", ""),
        launched_t=launched.timestamp() if launched is not None else 0.0,
        changed_t=_changed_t(phase, row, status),
        cause=_cause(reason.get("Code", ""), status.get("Code", "")) if phase == ENDED else "",
        about=_about(phase, reason),
        taken_at_t=_taken_at_t(phase, status),
        request=row.get("SpotInstanceRequestId", ""),
        persistent=request.get("Type") == PERSISTENT,
        request_open=request.get("State") in ("open", "active"),
        by_itself=by_itself and phase == ENDED,
        left_a_disk=by_itself and row["State"]["Name"] in ("stopping", "stopped"),
    )


def _changed_t(phase: str, row: Json, status: Json) -> float | None:
    """When the phase began: by the reason of the transition, or by the status of the spot request."""
    if phase in (PENDING, RUNNING):
        return None
    if found := _TIME.search(row.get("StateTransitionReason") or ""):
        return datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()
    if str(status.get("Code", "")).startswith(("instance-terminated", "instance-stopped", "instance-hibernated")):
        at: datetime | None = status.get("UpdateTime")
        return None if at is None else at.timestamp()
    return None


def _cause(reason: str, status: str) -> str:
    if reason == _TAKEN or (status.startswith("instance-terminated") and status != "instance-terminated-by-user"):
        return TAKEN
    if reason == _BY_US:
        return RELEASED
    return "" if reason in ("", BY_ITSELF) else FAILED


def _about(phase: str, reason: Json) -> str:
    if phase != ENDED or reason.get("Code") in (None, "", _BY_US):
        return ""
    return str(reason.get("Message") or reason["Code"])


def _taken_at_t(phase: str, status: Json) -> float | None:
    if phase != RUNNING or status.get("Code") not in _MARKED:
        return None
    at: datetime | None = status.get("UpdateTime")
    return None if at is None else at.timestamp() + NOTICE_S


def worker_words(console: str) -> str:
    """What the worker and the script around it wrote to the console of a machine."""
    return "\n".join(line for line in console.splitlines() if _WORDS in line)


def failed(words: str) -> bool:
    """Whether a worker that ended so failed: the last line names its exit code, or says that it did not come."""
    last = words.splitlines()[-1] if words else ""
    return bool(last) and "ended with code 0;" not in last
