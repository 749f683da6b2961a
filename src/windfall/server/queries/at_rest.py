"""Jobs of a state on which no server runs, read from its log: nothing is started and nothing is written.

Touches the files of one state directory. What it cannot do (a database elsewhere, a log of an older format, a damaged
state) is left to a server, which does it or says what is wrong.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from windfall.api.answers import JobStatus
from windfall.api.market import LearnedOffer
from windfall.core.records import FORMAT, decode_record
from windfall.core.state.jobs.bags import Bag, blocked_tasks
from windfall.core.state.snapshot import load
from windfall.core.state.state import State
from windfall.drivers.clock import SteadyClock
from windfall.errors import WindfallError
from windfall.server.queries.by_reference import bag_of
from windfall.server.queries.downtime import Span, downtimes
from windfall.server.queries.one_job import job_status
from windfall.store.formats import format_at
from windfall.store.sqlite.looking import LookingStore

if TYPE_CHECKING:
    from windfall.store.contract import Loaded


class AtRest:
    """The jobs of a state as its log has them now. `downtimes` ends with the time since its last record."""

    def __init__(self, state: State, spans: list[Span]) -> None:
        self.state = state
        self.versions: dict[int, int] = {}
        self._read_t = SteadyClock(state.t)()
        self.downtimes = [*spans, (state.t, self._read_t)]

    def now(self) -> float:
        """When it was read."""
        return self._read_t

    def blocked(self, bag: Bag) -> frozenset[int]:
        return blocked_tasks(bag)

    def job(self, reference: str) -> JobStatus:
        """The status of one job by number, name or `last`. NotFound if there is none."""
        return job_status(self, bag_of(self.state, reference))

    def jobs(self) -> list[JobStatus]:
        """The status of every job, the newest first."""
        return [job_status(self, bag) for bag in reversed(self.state.bags.values())]

    def market(self) -> list[LearnedOffer]:
        """What was learned of each offer."""
        from windfall.server.queries.renting.market import market_rows  # not above: it loads the libraries of numbers

        return market_rows(self.state, self._read_t)


def at_rest(directory: Path) -> AtRest | None:
    """The jobs of a state directory; None if a server holds it or has to look itself."""
    try:
        store = LookingStore(directory)
    except (OSError, WindfallError, sqlite3.Error):
        return None
    try:
        state = _restored(store.load())
        return None if state is None else AtRest(state, downtimes(store))
    except Exception:  # whatever is wrong with it: a server finds the same, and says it
        return None
    finally:
        store.close()


def _restored(loaded: Loaded) -> State | None:
    """The newest snapshot and the records behind it; None if a server would have to repair or to translate them."""
    snapshot = loaded.snapshot
    if loaded.warnings or format_at(loaded.formats, 1 if snapshot is None else snapshot.seq) < FORMAT:
        return None
    state = State() if snapshot is None else load(snapshot.data)
    engine = None
    for _, data in loaded.records:
        if engine is None:  # after an end in good order there are none
            from windfall.core.engine import Engine

            engine = Engine()
        engine.apply(state, decode_record(data))
    return state
