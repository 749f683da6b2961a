"""A provider in memory that misbehaves, and a pool of it as the keepers see it. Touches nothing.

In MOODS, its pool still keeps what the contract promises: a call that failed may be repeated, and what was started
twice is ended twice. In LIES and LOSES it breaks the promises themselves: then the keeper answers for what becomes of
the machines (tests/contract/test_machine_pool.py, tests/unit/drivers/test_misbehaving_cloud.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import cycle
from random import Random
from typing import TypeVar

from msgspec.structs import replace

from tests.support.clouds.providers import Account, FakeCloud
from windfall.drivers.keepers.answers import guarded
from windfall.drivers.keepers.supply import OrderedWorkers
from windfall.pools.contract import ENDED, TRANSIENT, Check, Order, PoolError, Seen

SLOW, FAILS, RAISES, UNHEARD, SHUFFLES, TWICE = "slow", "fails", "raises", "unheard", "shuffles", "twice"
MOODS = (SLOW, FAILS, RAISES, UNHEARD, SHUFFLES, TWICE)
LIES, LOSES = "lies", "loses"
TRIES = 5
T = TypeVar("T")
Rows = list[Seen]  # `list` is also the name of a method
Checks = list[Check]


class MisbehavingCloud(FakeCloud):
    """It misbehaves in about every other call, never in three in a row, in the moods that it is given by turns.

    `unheard`: the call is carried out, and its answer is lost. `twice`: an order starts two machines of one name.
    `lies`: a list leaves out half of what is there. `loses`: a machine is gone without a word.
    """

    def __init__(self, account: Account, owner: str, moods: tuple[str, ...]) -> None:
        super().__init__(account, owner)
        self._moods, self._turns, self._random = moods, cycle(moods), Random(1)
        self._in_a_row = 0

    def start(self, order: Order) -> str | PoolError:
        return self._badly(lambda: self._started(order))

    def stop(self, id: str, gently: bool = False) -> PoolError | None:
        return self._badly(lambda: FakeCloud.stop(self, id, gently))

    def list(self) -> Rows | PoolError:
        return self._badly(lambda: FakeCloud.list(self), shuffles=True)

    def doctor(self) -> Checks | PoolError:
        return self._badly(lambda: FakeCloud.doctor(self))

    def _badly(self, call: Callable[[], T], shuffles: bool = False) -> T | PoolError:
        bad = self._in_a_row < 2 and self._random.random() < 0.5
        self._in_a_row = self._in_a_row + 1 if bad else 0
        mood = next(self._turns) if bad else ""
        if mood == SLOW:
            time.sleep(0.01)
        if mood == RAISES:
            raise RuntimeError("a bug of the provider")
        if mood == FAILS:
            return PoolError("not now", TRANSIENT)
        if mood == LOSES and (
            mine := [id for id, (owner, *_) in self.account.machines.items() if owner == self._owner]
        ):
            self.forget(self._random.choice(mine))
        answer = call()
        if shuffles and SHUFFLES in self._moods:
            self._random.shuffle(answer)
        if shuffles and mood == LIES:
            answer = [row for row in answer if self._random.random() < 0.5]
        return PoolError("timed out", TRANSIENT) if mood == UNHEARD else answer

    def _started(self, order: Order) -> str | PoolError:
        known = {*self.account.machines}
        id = FakeCloud.start(self, order)
        if TWICE in self._moods and isinstance(id, str) and id not in known:
            owner, offer, seen = self.account.machines[id]
            self.account.machines[f"{id}-again"] = (owner, offer, replace(seen, id=f"{id}-again"))
        return id


class KeptPool:
    """A pool as its keeper uses it: calls are guarded and repeated after a transient error, a name is stopped whole."""

    def __init__(self, cloud: MisbehavingCloud) -> None:
        self.offers, self.interval_s = cloud.offers, cloud.interval_s
        self._cloud, self._source = cloud, OrderedWorkers("p", 2, cloud)

    def start(self, order: Order) -> str | PoolError:
        return self._patiently(lambda: self._source.order(order))

    def stop(self, id: str, gently: bool = False) -> PoolError | None:
        """All that bear its name, whatever the provider says: what is still listed is stopped again."""
        shown = self.list()
        self._patiently(self._source.list)
        host = None if isinstance(shown, PoolError) else next((row.host for row in shown if row.id == id), None)
        if host is None:
            return self._patiently(lambda: self._source.end_id(id, gently))
        self._source.end(host, gently)
        return None

    def list(self) -> Rows | PoolError:
        """Of two that bear one name, the first; it has ended when both have."""
        rows = self._patiently(self._source.rows)
        if isinstance(rows, PoolError):
            return rows
        shown: dict[str, Seen] = {}
        for row in rows:
            other = shown.get(row.host or row.id, row)
            first, living = min(row, other, key=lambda each: len(each.id)), row if other.phase == ENDED else other
            shown[row.host or row.id] = replace(living, id=first.id)
        return [*shown.values()]

    def doctor(self) -> Checks | PoolError:
        return self._patiently(lambda: guarded(self._cloud.doctor))

    def close(self) -> None:
        self._cloud.close()

    def _patiently(self, call: Callable[[], T]) -> T | PoolError:
        for _ in range(TRIES):
            answer = call()
            if not isinstance(answer, PoolError) or answer.kind != TRANSIENT:
                break
        return answer
