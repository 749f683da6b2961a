"""When no server ran on a state: from the last record before each start to that start. Reads the log only."""

from __future__ import annotations

from windfall.store.contract import Store

MOST_STARTS = 2000
"""Starts that are looked at, the newest: a state that has seen more is old, and so are their jobs."""
_PAGE = 1000
Span = tuple[float, float]


def downtimes(store: Store) -> list[Span]:
    """Spans of time (Unix seconds) without a server, in order."""
    starts: list[tuple[int, float]] = []
    after = 0
    while page := store.records(after, _PAGE, None, ("ServerStarted",)):
        starts += [(row.seq, row.t) for row in page]
        after = page[-1].seq
        if len(page) < _PAGE:
            break
    found: list[Span] = []
    for seq, t in starts[-MOST_STARTS:]:
        before = store.records(seq - 2, 1) if seq > 1 else []
        if before and before[0].seq < seq and before[0].t < t:
            found.append((before[0].t, t))
    return found


def within(spans: list[Span], start_t: float, end_t: float) -> float:
    """Seconds of `spans` between two moments."""
    return sum(max(0.0, min(end_t, to_t) - max(start_t, from_t)) for from_t, to_t in spans)
