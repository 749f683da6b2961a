"""A record: an event and what was decided on it, as one line of the log. Pure data, and its bytes."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

from windfall.core.decisions import AnyDecision, Decision
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


def encode_record(record: Record) -> bytes:
    return _encoder.encode(record)


def decode_record(data: bytes) -> Record:
    return _decoder.decode(data)
