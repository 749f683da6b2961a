"""What peers may ask of one server: limits that its operator sets, and how much is under way. Touches nothing.

What a type holds (names, lists, the widths of columns) is fixed: windfall.bounds.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from windfall import bounds
from windfall.errors import BadInput, WindfallError
from windfall.units import parse_bytes, parse_duration
from windfall.wire import OLDEST, VERSION

RETRY_AFTER_S = 2


class TooBusy(WindfallError):
    """Enough is under way at the moment."""

    code = "too-busy"
    retryable = True
    retry_after_s = RETRY_AFTER_S


class TooLarge(BadInput):
    """Over its limit: `limit` bytes."""

    code = "too-large"

    def __init__(self, message: str, *, limit: int = bounds.MAX_BODY_BYTES, hint: str = "") -> None:
        super().__init__(message, hint=hint or f"at most {limit:,} bytes")
        self.limit = limit


class Limits(Struct, frozen=True, kw_only=True):
    """Each can be set: `windfall server --limit NAME=VALUE`, with `-` for `_` and without the unit."""

    head_bytes: int = bounds.MAX_HEAD_BYTES
    """Request line and headers of a request."""
    head_time_s: float = bounds.HEAD_PATIENCE_S
    """How long a peer may take for them, from the connection or the first byte on."""
    pause_s: float = bounds.PAUSE_PATIENCE_S
    """How long a peer may pause within a body, or leave an answer unread."""
    body_bytes: int = bounds.MAX_BODY_BYTES
    """The body of any request but a blob."""
    bodies_bytes: int = 8 * bounds.MAX_BODY_BYTES
    """Bodies of all open requests together: they are in memory."""
    unread_bytes: int = 8 * bounds.MAX_BODY_BYTES
    """Answers of all connections together that their peers have not taken: beyond it the slowest ones are ended."""
    decompressed_bytes: int = bounds.MAX_DECOMPRESSED_BYTES
    """What one packed part of a body may become: a chunk of tasks, or the shape of a workflow."""
    depth: int = bounds.MAX_DEPTH
    """Levels of lists and objects in the JSON of a body."""
    number: int = bounds.MAX_INTEGER
    """Any number in the JSON of a body, and the same below zero."""
    protocol: int = OLDEST
    """The oldest version of the protocol that workers may speak: from 2 on no host is served without its secret."""
    requests: int = 50_000
    """Open requests. A worker that waits for tasks has one open."""
    heads_bytes: int = bounds.MAX_BODY_BYTES
    """Heads, and small exchanges, of all connections together whose senders are not known yet."""
    hosts: int = 250_000
    """Hosts that are there, of workers and agents: one more is told to come back later."""
    ad_bytes: int = bounds.MAX_AD_BYTES
    """What one host says of itself: it is kept in memory, also for a while after the host has left."""
    tasks: int = bounds.MAX_WANT
    """Tasks that one exchange hands out."""
    answer_bytes: int = bounds.MAX_ANSWER_BYTES
    """The same in bytes, with the specifications of their jobs. One task is handed out however large it is."""
    results: int = bounds.MAX_RESULTS
    """Results of one exchange."""
    job_tasks: int = bounds.MAX_TASKS
    """Tasks of one job."""
    uploads: int = bounds.MAX_UPLOADS
    """Blobs that are received at the same time."""
    blob_bytes: int = bounds.MAX_BLOB_BYTES
    """One input or output file."""
    job_blobs_bytes: int = bounds.MAX_INTEGER
    """Input files of one job together."""
    all_blobs_bytes: int = bounds.MAX_INTEGER
    """All files that the server keeps."""


DEFAULTS = Limits()


def _option(field: str) -> str:
    return field.removesuffix("_bytes").removesuffix("_s").replace("_", "-")


_RANGES = {
    "protocol": (OLDEST, VERSION),
    "tasks": (1, bounds.MAX_WANT),
    "results": (1, bounds.MAX_RESULTS),
    "job_tasks": (1, bounds.MAX_TASKS),
    "depth": (8, bounds.MAX_DEPTH_EVER),
    "number": (1 << 31, bounds.MAX_INTEGER),
    "decompressed_bytes": (1 << 20, bounds.MAX_DECOMPRESSED_BYTES),
    "answer_bytes": (1, bounds.MAX_ANSWER_BYTES_EVER),
}
"""Least and most of limits that what is stored, or the protocol, narrows. None is so low that honest workers stop."""

NAMES = {_option(field): field for field in Limits.__struct_fields__}
"""Fields by what operators call them."""


def read_limits(pairs: Iterable[str], limits: Limits | None = None) -> Limits:
    """Limits as an operator gives them, NAME=VALUE each. BadInput names the pair that cannot be."""
    found: dict[str, int | float] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        field = NAMES.get(name)
        if field is None or not equals:
            raise BadInput(f"--limit {pair}: no such limit", hint=f"as in body=128M; limits are: {', '.join(NAMES)}")
        where, value = f"--limit {name}", 0.0
        if field.endswith("_bytes"):
            value = parse_bytes(text, where)
        elif field.endswith("_s"):
            value = parse_duration(text, where)
        elif text.isdecimal() and len(text) <= 12:
            value = int(text)
        else:
            raise BadInput(f"--limit {pair}: not a whole number")
        if value < 1:
            raise BadInput(f"--limit {pair}: at least 1")
        found[field] = value
    defaults = limits or DEFAULTS
    made = Limits(**{field: found.get(field, getattr(defaults, field)) for field in Limits.__struct_fields__})
    if made.bodies_bytes < made.body_bytes:
        raise BadInput(f"--limit bodies={made.bodies_bytes} is less than one body may have, {made.body_bytes}")
    for field, (least, most) in _RANGES.items():
        if not least <= getattr(made, field) <= most:
            raise BadInput(f"--limit {_option(field)}={getattr(made, field)}: from {least:,} to {most:,}")
    return made


class Intake:
    """The requests of a server that are under way, and the bytes of their bodies that are in memory."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.open = 0
        self.held_bytes = 0

    def reading(self) -> Reading:
        """Begin a request; TooBusy if there are enough. Its `end` has to be called."""
        if self.open >= self.limits.requests:
            raise TooBusy(f"{self.open:,} requests are open", hint=f"ask again in {RETRY_AFTER_S} s, and fewer at once")
        self.open += 1
        return Reading(self)


class Reading:
    """One request whose body is read."""

    __slots__ = ("_intake", "size")

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self.size = 0

    @property
    def limits(self) -> Limits:
        return self._intake.limits

    def take(self, count: int) -> None:
        """A piece of the body has come. TooLarge, or TooBusy if it would be too much together with others'."""
        limits, intake = self._intake.limits, self._intake
        if self.size + count > limits.body_bytes:
            raise TooLarge(f"a body of more than {limits.body_bytes:,} bytes", limit=limits.body_bytes)
        if intake.held_bytes + count > limits.bodies_bytes:
            raise TooBusy(
                f"the bodies of open requests have {intake.held_bytes:,} bytes",
                hint=f"send it again in {RETRY_AFTER_S} s, in smaller parts if it is large",
            )
        self.size += count
        intake.held_bytes += count

    def end(self) -> None:
        self._intake.open -= 1
        self._intake.held_bytes -= self.size
