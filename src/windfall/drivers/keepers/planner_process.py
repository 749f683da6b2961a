"""The process in which planners run: snapshots in, plans out, over two pipes. Touches standard input and output."""

from __future__ import annotations

import os
import signal
import struct
import sys
from typing import IO

import msgspec
from msgspec import Struct

from windfall.errors import BadInput
from windfall.planning.contract import Plan, Snapshot

_HEAD = struct.Struct("<I")


class Question(Struct):
    planner: str
    snapshot: Snapshot


class Answer(Struct):
    plan: Plan | None = None
    error: str = ""


def names_up_to(name: str, kind: str) -> float:
    """Up to how many tasks a planner names. One that is not known names none: the fallback will answer for it."""
    from windfall.planning.registry import planner_named

    try:
        return planner_named(name, kind).names_up_to
    except BadInput:
        return 0.0


def think(name: str, snapshot: Snapshot) -> Plan:
    from windfall.planning.registry import planner_named

    return planner_named(name, snapshot.kind)(snapshot.whole())


def send(pipe: IO[bytes], message: Question | Answer) -> None:
    body = memoryview(_frame(msgspec.msgpack.encode(message)))
    while body:
        body = body[os.write(pipe.fileno(), body) :]


def _frame(body: bytes) -> bytes:
    return _HEAD.pack(len(body)) + body


class Reader:
    """One message, as it comes."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._data = bytearray()

    def more(self) -> bytes | None:
        """Read what there is; the message once it is whole. EOFError if there will be no more."""
        data = os.read(self._pipe.fileno(), 1 << 20)
        if not data:
            raise EOFError("it ended")
        self._data += data
        if len(self._data) < _HEAD.size or len(self._data) < _HEAD.size + _HEAD.unpack_from(self._data)[0]:
            return None
        return bytes(self._data[_HEAD.size :])


def main() -> None:
    """Until the pipe is closed: the server is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # typed at a terminal, it is meant for the server
    questions, answers = os.fdopen(os.dup(0), "rb", 0), os.fdopen(os.dup(1), "wb", 0)
    os.dup2(2, 1)  # what a planner prints is no answer
    send(answers, Answer())
    while True:
        reader = Reader(questions)
        try:
            while (body := reader.more()) is None:
                pass
        except EOFError:
            return
        send(answers, _answer(msgspec.msgpack.decode(body, type=Question)))


def _answer(question: Question) -> Answer:
    try:
        return Answer(think(question.planner, question.snapshot))
    except BadInput as error:
        return Answer(error=error.message)
    except Exception as error:
        return Answer(error=repr(error)[:500])


if __name__ == "__main__":
    main()
    sys.exit(0)
