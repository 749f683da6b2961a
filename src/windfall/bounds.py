"""How large anything may be that comes over the wire or from a file: one place, a sentence each. Pure.

Whatever becomes an event is bounded first, so that no message can make `decide` or `apply` raise, and no number
outgrows the column, the log or the snapshot that keeps it. docs/reference/http-api.md lists the same limits.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from windfall.errors import BadInput

# --- numbers ----------------------------------------------------------------------------------------------------------

MAX_INTEGER = 1 << 53
"""Ids, counters, offsets and sizes: the largest that every reader of JSON keeps exact."""
MAX_SECONDS = 1e9
MAX_SPREAD = 3.0
"""Of the logarithm of run times: nine of ten lie within a factor of 140 of the median."""
"""Any duration: 31 years."""
MAX_AMOUNT = 1e15
"""Ranks, priorities and numbers that users give to attributes and tags, and the same below zero."""
MAX_MEMORY_BYTES = 1 << 46
"""Memory of a task or a host, 64 TiB: `MAX_HELD` times as much still fits into 63 bits."""
MIN_MEMORY_BYTES = 1 << 20
"""Memory of a task, 1 MiB: a process hardly starts with less, and fewer bytes are a unit left out."""
MAX_CPUS = 1 << 16
"""Cores of a task, cores and slots of a host."""
MAX_SPEED = 1e6
"""Speed of a host; the reference machine has 1."""
MAX_TRIES = 1_000_000
"""`max_failures` and `max_losses` of a task; its counters have 32 bits."""
MAX_MICROUSD = 10**15
"""A budget or a price: a billion dollars."""
MAX_TASKS = 100_000_000
"""Tasks of a job."""

MAX_ARGUMENT_BYTES = (128 << 10) - 1
"""One argument of a command: Linux starts no process with a longer one."""

# --- texts and lists --------------------------------------------------------------------------------------------------

MAX_NAME_CHARS = 200
"""Names of jobs, hosts, owners, pools, attributes, tags."""
MAX_TEXT_CHARS = 10_000
"""Values of attributes and tags, policies, reasons, lines that say why."""
MAX_PATH_CHARS = 4096
"""The name of a file below an attempt's directory."""
MAX_ATTRIBUTES = 256
"""Attributes or tags of one job or host, and the entries of a list in a host's ad."""
MAX_CLASSES = 10_000
"""Task classes of one job."""
MAX_RESOURCES = 32
"""Different resources of one task, host or server."""
MAX_NODES = 1000
"""Whole hosts of one task: they are looked for among the live hosts of a pool whenever one of them asks."""
MAX_UNITS = 1000
"""Units of one resource of a task, a host or a server."""

# --- one exchange -----------------------------------------------------------------------------------------------------

MAX_BODY_BYTES = 64 << 20
"""The body of any request but a blob."""
MAX_HEAD_BYTES = 64 << 10
"""Request line and headers of a request."""
HEAD_PATIENCE_S = 20.0
"""How long a peer may take for the head of a request, from its first byte or from the connection on."""
PAUSE_PATIENCE_S = 75.0
"""How long a peer may pause within the body of a request, or leave an answer unread."""
MAX_INSTANCE_BYTES = 256 << 10
"""Command and environment of an instance of a site: they are in memory, and an answer to its agent holds those of all
that begin on a host."""
MAX_AD_BYTES = 32 << 10
"""The ad of a host as JSON; ours have about 600."""
MAX_LEAVING_CHARS = 500
"""Of why a host says that it leaves: the rest is cut, because it is kept while the host is remembered."""
MAX_DEPTH = 32
"""Levels of lists and objects in the JSON of a body; ours have at most eight."""
MAX_DEPTH_EVER = 500
"""More than this no operator can allow: decoders give up a little above."""
MAX_DECOMPRESSED_BYTES = 68 << 20
"""What one packed part of a body may become: a chunk of tasks, which ends with one task of at most 64 MiB."""
MAX_ANSWER_BYTES = 16 << 20
"""Tasks that one exchange hands out, in bytes; the rest follows in the next one."""
MAX_ANSWER_BYTES_EVER = 60 << 20
"""More than this no operator can allow: a worker reads no header above 64 MiB (windfall.wire.frames)."""
MAX_RESULTS = 10_000
"""Results of one exchange, and rows of any other list in it."""
MAX_WANT = 10_000
"""Tasks that one exchange hands out; a worker that wants more asks again."""
MAX_HELD = 1 << 16
"""Attempts that one host holds; beyond that it is given nothing more."""
MAX_REPLICAS = 1000
"""Replicas of one task at a time that a job or a server may ask for."""
MAX_OUTPUT_FILES = 100_000
"""Output files of one attempt."""
MAX_WAIT_S = 30.0
"""How long an answer is held back while there is nothing to say."""

# --- blobs ------------------------------------------------------------------------------------------------------------

MAX_BLOB_BYTES = 64 << 30
"""One input or output file, unless the operator says otherwise (`windfall server --max-blob`)."""
MAX_UPLOADS = 32
"""Blobs that are received at the same time; the next sender is told to come back (503, Retry-After)."""

# --- types ------------------------------------------------------------------------------------------------------------

Count = Annotated[int, Meta(ge=0, le=MAX_INTEGER)]
Number = Annotated[int, Meta(ge=1, le=MAX_INTEGER)]
Integer = Annotated[int, Meta(ge=-MAX_INTEGER, le=MAX_INTEGER)]
Tries = Annotated[int, Meta(ge=0, le=MAX_TRIES)]
TaskCount = Annotated[int, Meta(ge=0, le=MAX_TASKS)]
Slots = Annotated[int, Meta(ge=0, le=MAX_CPUS)]
Exit = Annotated[int, Meta(ge=-(1 << 31), le=(1 << 32) - 1)]
"""Exit codes of processes: some systems have unsigned ones."""
Seconds = Annotated[float, Meta(ge=0.0, le=MAX_SECONDS)]
Ago = Annotated[float, Meta(ge=-MAX_SECONDS, le=MAX_SECONDS)]
"""A duration by a worker's clock, which may have been set back: below zero it counts as none."""
Amount = Annotated[float, Meta(ge=-MAX_AMOUNT, le=MAX_AMOUNT)]
Name = Annotated[str, Meta(max_length=MAX_NAME_CHARS)]
Text = Annotated[str, Meta(max_length=MAX_TEXT_CHARS)]
FileName = Annotated[str, Meta(max_length=MAX_PATH_CHARS)]
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Mode = Annotated[int, Meta(ge=0, le=0o777)]

Scalar = bool | Integer | Amount | Text | None
Tags = Annotated[dict[Name, Scalar], Meta(max_length=MAX_ATTRIBUTES)]
Attributes = Annotated[dict[Name, bool | Amount | Text], Meta(max_length=MAX_ATTRIBUTES)]
"""Of a job, for policies."""
Scalars = Annotated[list[Scalar], Meta(max_length=MAX_ATTRIBUTES)]
AdValue = bool | Integer | Amount | Text | None | Scalars | Tags
Ad = Annotated[dict[Name, AdValue], Meta(max_length=MAX_ATTRIBUTES)]
"""What a host says of itself: free attributes, none deeper than one list or table."""

UnitsByName = Annotated[dict[Name, Annotated[int, Meta(ge=0, le=MAX_UNITS)]], Meta(max_length=MAX_RESOURCES)]
"""Units of resources that a host has."""
T = TypeVar("T")


class KnownAd(msgspec.Struct):
    """The attributes of a host's ad that decisions depend on; others are only shown."""

    name: Name | None = None
    cpus: Annotated[float, Meta(ge=0.0, le=MAX_CPUS)] | None = None
    memory_mb: Annotated[int, Meta(ge=0, le=MAX_MEMORY_BYTES >> 20)] | None = None
    os: Name | None = None
    arch: Name | None = None
    pool: Name | None = None
    slots: Slots | None = None
    speed: Annotated[float, Meta(ge=0.0, le=MAX_SPEED)] | None = None
    tags: Tags | None = None
    lifetime_s: Ago | None = None
    round_trip_s: Seconds | None = None
    machine: Count | None = None
    resources: UnitsByName | None = None
    containers: Name | None = None
    address: Name | None = None
    isolation: Name | None = None


def read_json(data: bytes | memoryview, type_: type[T], what: str) -> T:
    """A JSON message as a typed value; BadInput, in whatever way it is broken."""
    try:
        return msgspec.json.decode(data, type=type_)
    except BROKEN as error:
        raise broken(error, what) from None


def convert(value: Any, type_: type[T], what: str) -> T:
    """A decoded message as a typed value; BadInput names the field that does not fit."""
    try:
        return msgspec.convert(value, type_)
    except BROKEN as error:
        raise broken(error, what) from None


BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a decoder raises for bytes that are no message: not JSON, not UTF-8, nested too deep, not of the type."""


def broken(error: Exception, what: str) -> BadInput:
    """Why a message cannot be read, as a text for its sender."""
    if isinstance(error, RecursionError):
        return BadInput(f"{what}: nested too deep", hint="no message has more than a few levels")
    if isinstance(error, UnicodeDecodeError):
        return BadInput(f"{what}: not UTF-8 ({error.reason} at byte {error.start})")
    return BadInput(f"{what}: {error}")
