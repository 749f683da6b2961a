"""A record: an event and what was decided on it, as one line of the log. Pure data, and its bytes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import astuple

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


def _short(plain: Decision, last: str) -> tuple[tuple[str], int, tuple[object, ...]]:
    """The tag of a decision, how many of its fields are always written, up to `last`, and the others' defaults."""
    given = plain.__struct_fields__.index(last) + 1
    return (type(plain).__name__,), given, astuple(plain)[given:]


_SHORT: dict[type[Decision], tuple[tuple[str], int, tuple[object, ...]]] = {
    HostAnswered: _short(HostAnswered(0), "assigned"),
    ResultsJudged: _short(ResultsJudged([]), "observed"),
}
"""Nearly all records: most of them only hand tasks out, or accept results. 14 bytes of 98 less, and 5 of 100."""


def encode_record(record: Record) -> bytes:
    """The bytes of a record. Fields at the end that have their defaults may be left out: an array may be short."""
    decided = record.decided
    known = _SHORT.get(type(decided))
    if known is not None:
        tag, given, defaults = known
        values = astuple(decided)
        if values[given:] == defaults:
            return _encode((record.seq, record.event, tag + values[:given]))
    return _encode(record)


def decode_record(data: bytes) -> Record:
    return _decoder()(data)
