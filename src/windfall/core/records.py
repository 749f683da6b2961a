"""A record: an event and what was decided on it, as one line of the log. Pure data, and its bytes."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import astuple

from windfall.core.decisions import AnyDecision, Decision, HostAnswered
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
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)


_GIVEN = HostAnswered.__struct_fields__.index("assigned") + 1
_NOTHING_ELSE = astuple(HostAnswered(0))[_GIVEN:]


def encode_record(record: Record) -> bytes:
    """The bytes of a record. Fields at the end that have their defaults may be left out: an array may be short."""
    decided = record.decided
    if type(decided) is HostAnswered:
        # Half of all records. Nearly all of them only hand tasks out: 14 bytes of 98 less.
        values = astuple(decided)
        if values[_GIVEN:] == _NOTHING_ELSE:
            return _encoder.encode((record.seq, record.event, (HostAnswered.__name__, *values[:_GIVEN])))
    return _encoder.encode(record)


def decode_record(data: bytes) -> Record:
    return _decoder.decode(data)
