"""Latencies from a Windfall state: what its log says of attempts that came back and of those given up. Reads the log.

A latency is the time from handing an attempt out to its result, good or bad, less the time that it ran. An attempt
that was given up, or was still out at the end of the log, waited at least that long: a censored observation.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from windfall.core.decisions import HostAnswered, TimeJudged
from windfall.core.events import HostAsked, Key, ResultsReported
from windfall.core.records import Record, decode_record
from windfall.core.state.jobs.causes import CANCEL, LOSS_CODES
from windfall.errors import BadInput
from windfall.store import open_store
from windfall.store.location import DATABASES, shown

SHORTEST_S = 1e-3


class Latency(Struct, frozen=True):
    """One attempt: how long, whether it was cut short there, its pool, and when it was sent."""

    seconds: float
    censored: bool
    pool: str
    sent: float


def is_state(path: str) -> bool:
    return path.startswith(DATABASES) or (Path(path) / "windfall.db").is_file()


def read_log(path: str) -> Iterator[Record]:
    store = open_store(path)
    try:
        after = 0
        while rows := store.records(after, 5000):
            yield from (decode_record(row.data) for row in rows)
            after = rows[-1].seq
    finally:
        store.close()


def latencies(records: Iterator[Record], path: str) -> list[Latency]:
    """Every attempt in the order of sending."""
    out: dict[Key, tuple[float, str]] = {}
    pools: dict[str, str] = {}
    found: list[Latency] = []
    last = 0.0

    def ended(key: Key, t: float, run_s: float, censored: bool) -> None:
        sent = out.pop(key, None)
        if sent is not None:
            found.append(Latency(max(SHORTEST_S, t - sent[0] - run_s), censored, sent[1], sent[0]))

    for record in records:
        event, decided = record.event, record.decided
        last = max(last, event.t)
        if isinstance(event, HostAsked) and isinstance(decided, HostAnswered):
            if event.ad is not None:
                pools[event.host] = str(event.ad.get("pool") or "default")
            for loss in decided.lost:
                ended(loss[:3], event.t, 0.0, censored=True)
            for piece in decided.assigned:
                for task in range(piece.first, piece.first + piece.count):
                    out[piece.job, task, piece.attempt] = (event.t, pools.get(event.host, "default"))
        elif isinstance(event, ResultsReported):
            for result in event.results:
                cut_short = result.cause in LOSS_CODES or result.cause == CANCEL
                key = (result.job, result.task, result.attempt)
                ended(key, result.end, result.end - result.start, censored=cut_short)
        elif isinstance(decided, TimeJudged):
            for loss in (*decided.lost, *decided.expired):
                ended(loss[:3], event.t, 0.0, censored=True)
    for key in list(out):
        ended(key, last, 0.0, censored=True)
    if not found:
        raise BadInput(f"{shown(path)}: no attempt has been handed out yet", hint="run something first, or give a file")
    return sorted(found, key=lambda latency: latency.sent)
