"""A record: an event and what was decided on it, as one line of the log. Pure data, and its bytes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from windfall.core.decisions import AnyDecision, Decision, HostAnswered, ResultsJudged
from windfall.core.events import AnyEvent, Event

FORMAT = 2
"""Of records and snapshots. Raise it when a version before cannot read them; core.formats reads the older ones.

2: records hold every choice, and Settings the parameters of the bookkeeping.
"""
E = TypeVar("E", bound=Event)
D = TypeVar("D", bound=Decision)


class RecordOf(Struct, Generic[E, D], array_like=True, gc=False):
    """One line of the log: the event and what was decided on it."""

    seq: int
    event: E
    decided: D


Record = RecordOf[AnyEvent, AnyDecision]
"""A record of any event."""
_encode = msgspec.msgpack.Encoder().encode


@cache
def _decoder() -> Callable[[bytes], Record]:
    """Made when the first record is read: a state that was left in good order has a snapshot and needs none."""
    return msgspec.msgpack.Decoder(Record).decode


def _short_answer(decided: HostAnswered) -> tuple[object, ...] | None:
    """The fields that are always written, if all others have their defaults; so does nearly every answer."""
    if (
        decided.cancel or decided.refused or decided.tails or decided.probation or decided.test or decided.tell
        or decided.stop or decided.stopped or decided.lessons or decided.tested_until is not None or decided.breaker
        or decided.given_back or decided.hand_back or decided.taken_back or decided.gang or decided.begin
        or decided.all_joined or decided.is_another
    ):  # fmt: skip
        return None
    return ("HostAnswered", decided.host, decided.repeat, decided.lost, decided.assigned)


def _short_verdicts(decided: ResultsJudged) -> tuple[object, ...] | None:
    if (
        decided.ran or decided.replan or decided.stopped or decided.advice or decided.memory or decided.checked
    ):  # fmt: skip
        return None
    return ("ResultsJudged", decided.verdicts, decided.observed)


_SHORT: dict[type[Decision], Callable[[Any], tuple[object, ...] | None]] = {
    HostAnswered: _short_answer,
    ResultsJudged: _short_verdicts,
}
"""Nearly all records: most of them only hand tasks out, or accept results. 14 bytes of 98 less, and 5 of 100."""


def encode_record(record: Record) -> bytes:
    """The bytes of a record. Fields at the end that have their defaults may be left out: an array may be short."""
    decided = record.decided
    shorten = _SHORT.get(type(decided))
    short = None if shorten is None else shorten(decided)
    return _encode(record) if short is None else _encode((record.seq, record.event, short))


def decode_record(data: bytes) -> Record:
    return _decoder()(data)
