"""Servers as the compute API shows them: phase, since when, whose. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from windfall.pools.contract import ENDED, FAILED, HIBERNATED, PENDING, RELEASED, RUNNING, TAKEN

STATE, POOL, HOST = "windfall:state", "windfall:pool", "windfall:host"
"""Metadata of a server: the id of the state, the pool, and the name under which its worker asks for work."""
EVICTED, EVICTED_FOR = "windfall:evicted_at_t", "windfall:evicted_for"
"""Metadata that the scheduler of `windfall-nova` gives a victim."""
_PHASES = {
    "BUILD": PENDING, "REBUILD": PENDING, "ACTIVE": RUNNING, "PASSWORD": RUNNING, "REBOOT": RUNNING,
    "HARD_REBOOT": RUNNING, "MIGRATING": RUNNING, "RESIZE": RUNNING, "VERIFY_RESIZE": RUNNING, "RESCUE": RUNNING,
    "UNKNOWN": RUNNING, "PAUSED": HIBERNATED, "SUSPENDED": HIBERNATED, "SHELVED": HIBERNATED,
    "SHELVED_OFFLOADED": HIBERNATED, "SHUTOFF": ENDED, "ERROR": ENDED, "DELETED": ENDED, "SOFT_DELETED": ENDED,
}  # fmt: skip
Json = Mapping[str, Any]


class Sighted(Struct, frozen=True):
    """One server."""

    id: str
    phase: str
    owner: str
    pool: str
    host: str
    status: str = ""
    created_t: float = 0.0
    launched_t: float | None = None
    """From when on it runs, if it does."""
    changed_t: float | None = None
    flavor: str = ""
    taken_at_t: float | None = None
    evicted_for: str = ""
    fault: str = ""
    scheduling: bool = False
    """Nova has not chosen a host yet."""
    deleting: bool = False


def time_of(text: Any) -> float | None:
    """Nova writes times in UTC, with or without a Z."""
    try:
        return datetime.fromisoformat(str(text).removesuffix("Z")).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def sighted(row: Json) -> Sighted:
    """A server of GET /servers/detail."""
    metadata = row.get("metadata") or {}
    status = str(row.get("status", ""))
    phase = _PHASES.get(status, PENDING)
    fault = row.get("fault") or {}
    return Sighted(
        id=str(row["id"]),
        phase=phase,
        owner=str(metadata.get(STATE, "")),
        pool=str(metadata.get(POOL, "")),
        host=str(metadata.get(HOST, "")),
        status=status,
        created_t=time_of(row.get("created")) or 0.0,
        launched_t=time_of(row.get("OS-SRV-USG:launched_at")),
        changed_t=time_of(row.get("updated")) if phase in (HIBERNATED, ENDED) else None,
        flavor=str((row.get("flavor") or {}).get("original_name", "")),
        taken_at_t=_number(metadata.get(EVICTED)),
        evicted_for=str(metadata.get(EVICTED_FOR, "")),
        fault=str(fault.get("message", "")),
        scheduling=phase == PENDING and row.get("OS-EXT-STS:task_state") in (None, "scheduling"),
        deleting=row.get("OS-EXT-STS:task_state") in ("deleting", "soft-deleting"),
    )


def _number(text: Any) -> float | None:
    try:
        found = float(text)
    except (TypeError, ValueError):
        return None
    return found if 0 < found < 1e12 else None


class Ending(Struct):
    """How a server ended. Nova forgets deleted servers, so the pool keeps this."""

    id: str
    host: str
    since_t: float
    cause: str
    about: str
    seen_t: float = 0.0


def ending_of(row: Sighted, actions: Sequence[Json] | None, user: str, released: bool, now: float) -> Ending:
    """Of a server that is gone. `actions`: what was done to it, the newest first; None if Nova does not say.

    A deletion by anybody but ourselves is a loss: an eviction by the scheduler, or an operator's.
    """
    deletion = next((one for one in actions or () if one.get("action") in ("delete", "forceDelete")), None)
    at_t = (time_of(deletion.get("start_time")) if deletion else None) or now
    if released:
        return Ending(row.id, row.host, at_t, RELEASED, "", now)
    if row.taken_at_t is not None:
        about = f"evicted for server {row.evicted_for}" if row.evicted_for else "evicted"
        return Ending(row.id, row.host, at_t, TAKEN, about, now)
    if deletion is not None and deletion.get("user_id") == user:
        return Ending(row.id, row.host, at_t, RELEASED, "deleted by a user of the project", now)
    return Ending(row.id, row.host, at_t, TAKEN, "deleted by the cloud", now)


def failure_of(row: Sighted, words: str, now: float) -> Ending:
    """Of a server in error, or one that is off. `words`: the worker's last ones."""
    since_t = row.changed_t or now
    if row.status == "ERROR":
        return Ending(row.id, row.host, since_t, FAILED, row.fault or "the server is in error", now)
    if row.taken_at_t is not None:
        about = f"evicted for server {row.evicted_for}" if row.evicted_for else "evicted"
        return Ending(row.id, row.host, since_t, TAKEN, about, now)
    in_order = "ended with code 0;" in words or not words
    return Ending(row.id, row.host, since_t, RELEASED if in_order else FAILED, words, now)
