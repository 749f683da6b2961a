"""What the API server answers: the fields of its objects that matter here, and its errors. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, field

from windfall.pools.contract import CREDENTIALS, INVALID, QUOTA, TRANSIENT, PoolError
from windfall.pools.starting.shipped import one_line

T = TypeVar("T")
CONFLICT, NOT_FOUND, GONE = 409, 404, 410
_MOST_CHARACTERS = 600


class _Read(Struct, rename="camel"):
    """Null stands for absent in some answers; all fields here have defaults."""


class OwnerReference(_Read):
    name: str = ""
    uid: str = ""


class Metadata(_Read):
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] = field(default_factory=list)

    def annotation(self, name: str) -> str:
        return (self.annotations or {}).get(name, "")

    def label(self, name: str) -> str:
        return (self.labels or {}).get(name, "")

    @property
    def is_deleting(self) -> bool:
        return self.deletion_timestamp is not None

    @property
    def created_t(self) -> float:
        return unix_t(self.creation_timestamp)


class Condition(_Read):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None

    @property
    def holds(self) -> bool:
        return self.status == "True"


class JobStatus(_Read):
    conditions: list[Condition] | None = None

    def condition(self, type: str) -> Condition | None:
        return _holding(self.conditions, type)


class Job(_Read):
    metadata: Metadata = field(default_factory=Metadata)
    status: JobStatus = field(default_factory=JobStatus)


class Waiting(_Read):
    reason: str = ""
    message: str = ""


class Terminated(_Read):
    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    finished_at: str | None = None


class ContainerState(_Read):
    waiting: Waiting | None = None
    terminated: Terminated | None = None


class ContainerStatus(_Read):
    state: ContainerState = field(default_factory=ContainerState)


class PodStatus(_Read):
    phase: str = ""
    reason: str = ""
    message: str = ""
    start_time: str | None = None
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None

    def condition(self, type: str) -> Condition | None:
        return _holding(self.conditions, type)

    @property
    def container(self) -> ContainerState:
        return self.container_statuses[0].state if self.container_statuses else ContainerState()


class Pod(_Read):
    metadata: Metadata = field(default_factory=Metadata)
    status: PodStatus = field(default_factory=PodStatus)

    @property
    def job(self) -> OwnerReference:
        references = self.metadata.owner_references
        return references[0] if references else OwnerReference()


class Event(_Read):
    reason: str = ""
    message: str = ""


class Listed(_Read):
    """A page of a list: the objects are decoded by their type later."""

    metadata: ListMetadata = field(default_factory=lambda: ListMetadata())
    items: list[msgspec.Raw] = field(default_factory=list)


class ListMetadata(Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = field(default="", name="continue")


class Change(Struct):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


class Status(_Read):
    """The API's own words about a failed call."""

    message: str = ""
    reason: str = ""
    code: int = 0


def _holding(conditions: list[Condition] | None, type: str) -> Condition | None:
    return next((one for one in conditions or [] if one.type == type and one.holds), None)


def decoded(raw: bytes | msgspec.Raw, type: type[T]) -> T | PoolError:
    try:
        return msgspec.json.decode(raw, type=type)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return PoolError(f"the API server's answer cannot be read: {error}", INVALID)


def unix_t(stamp: str | None) -> float:
    """Unix seconds of `2026-11-16T16:04:36Z`; 0 for none."""
    if not stamp:
        return 0.0
    try:
        return datetime.fromisoformat(stamp.replace("Z", "+00:00")).astimezone(UTC).timestamp()
    except ValueError:
        return 0.0


# --- errors ----------------------------------------------------------------------------------------------------------


class ApiError(PoolError, frozen=True):
    """A PoolError with the code of HTTP."""

    code: int = 0
    """0 if there was no answer."""


def failure(code: int, body: bytes, retry_after: str = "") -> ApiError:
    """The error of an answer that is none, in the API's own words."""
    words = decoded(body, Status)
    message = words.message if isinstance(words, Status) else ""
    text = one_line(message or body[:200].decode(errors="replace"))[:_MOST_CHARACTERS]
    retry_after_s = float(retry_after) if retry_after.isdigit() else 0.0
    return ApiError(text or f"the API server answered {code}", kind_of(code, message), retry_after_s, code)


def kind_of(code: int, message: str) -> str:
    if code == 401:
        return CREDENTIALS
    if code == 403:
        return _kind_of_refusal(message)
    if code in (408, 429) or code >= 500:
        return TRANSIENT
    # A namespace that is being deleted is for good; two writers at once are not.
    return TRANSIENT if code == CONFLICT else INVALID


def _kind_of_refusal(message: str) -> str:
    """403 is said for three different things: quotas, missing rights, and what an admission plug-in refuses."""
    text = message.lower()
    if "exceeded quota" in text or "quota evaluation" in text:
        return QUOTA
    if "status unknown for quota" in text:
        return TRANSIENT
    if " cannot " in text and " resource " in text:
        return CREDENTIALS
    return INVALID


def body_of(value: Any) -> bytes:
    return msgspec.json.encode(value)
