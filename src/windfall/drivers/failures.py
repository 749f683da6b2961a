"""What can go wrong in the live driver, and the file that keeps a record on which the server stopped. Touches one file.

Fail-stop: a server that cannot go on says why and ends. What it has acknowledged is in the log; a restart goes on.
"""

from __future__ import annotations

import base64
import logging
import os
import time
import traceback
from pathlib import Path
from typing import Any

import msgspec

from windfall import __version__
from windfall.core.decisions import AnyDecision
from windfall.core.events import AnyEvent
from windfall.core.records import RecordOf, encode_record
from windfall.errors import Kind, WindfallError

log = logging.getLogger(__name__)


class Unwritable(WindfallError):
    """An event that the log cannot hold. It changed nothing."""

    kind = Kind.OURS
    code = "unwritable"


class Uncommitted(WindfallError):
    """It is not known to be durable, so it is not acknowledged. The same request may be made again."""

    kind = Kind.OURS
    code = "uncommitted"
    retryable = True


class ServerFailed(WindfallError):
    """The server cannot go on and stops. What it has acknowledged is kept."""

    kind = Kind.OURS
    code = "server-failed"


def crash_file(
    directory: Path, seq: int, event: AnyEvent, decided: AnyDecision | None, error: BaseException
) -> Path | None:
    """Keep the event on which the server stopped, for diagnosis. Returns the file; None if it cannot be written.

    `decided`: None if `decide` raised. The event is not in the log: a restart does not meet it again.
    """
    path = directory / f"crash-{seq}.json"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(_described(seq, event, decided, error))
    except OSError as failure:
        log.error("the event on which the server stopped could not be kept in %s: %s", path, failure)
        return None
    return path


def _described(seq: int, event: AnyEvent, decided: AnyDecision | None, error: BaseException) -> bytes:
    body: dict[str, Any] = {
        "seq": seq,
        "version": __version__,
        "written_t": time.time(),
        "error": repr(error),
        "traceback": traceback.format_exception(error),
        "event": _named(event),
        "decided": None if decided is None else _named(decided),
    }
    try:
        # The very bytes, so that the event can be decided on, or the record applied, again to find the cause.
        body["event_msgpack"] = base64.b64encode(msgspec.msgpack.encode(event)).decode()
        if decided is not None:
            body["record_msgpack"] = base64.b64encode(encode_record(RecordOf(seq, event, decided))).decode()
    except Exception as failure:
        body["not_encoded"] = repr(failure)
    try:
        return msgspec.json.format(msgspec.json.encode(body, enc_hook=repr))
    except Exception as failure:
        plain = {**body, "not_named": repr(failure), "event": repr(event), "decided": repr(decided)}
        return msgspec.json.format(msgspec.json.encode(plain, enc_hook=repr))


def _named(struct: msgspec.Struct) -> dict[str, Any]:
    """A struct with the names of its type and its fields; in the log it is an array."""
    return {"type": type(struct).__name__, **msgspec.structs.asdict(struct)}
