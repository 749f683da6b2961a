"""Providers of machines for tests: one in memory that does as it is told, and the emulated one in a directory."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import msgspec
from msgspec.structs import replace

from windfall.planning.offers import Offer
from windfall.pools.contract import (
    ENDED,
    FAILED,
    HIBERNATED,
    INVALID,
    PENDING,
    RELEASED,
    RUNNING,
    TAKEN,
    Check,
    Order,
    PoolError,
    Seen,
)
from windfall.pools.emulated.cloud import EmulatedPool, Machine
from windfall.pools.emulated.config import Cloud, Rented
from windfall.pools.kinds import Place
from windfall.pools.starting.process_tree import find

SPOT = Offer(name="spot", price_usd=0.03, cores=2, market="spot", pool="cloud", when_taken="hibernate", limit=3)
STEADY = Offer(name="steady", price_usd=0.1, cores=2, pool="cloud")
OFFERS = (SPOT, STEADY)
NOTICE_S = 5.0


class Account:
    """What the provider in memory has; pools of several servers may look at one."""

    def __init__(self) -> None:
        self.machines: dict[str, tuple[str, str, Seen]] = {}
        """(owner, offer, as its owner sees it) by id."""
        self.now = 1000.0
        self.numbers = count(1)


Rows = list[Seen]  # `list` is also the name of a method
Checks = list[Check]


class FakeCloud:
    """A provider in memory: time stands still, a machine boots when it is looked at, and nothing else happens."""

    interval_s = 0.05

    def __init__(self, account: Account, owner: str = "me", offers: tuple[Offer, ...] = OFFERS) -> None:
        self.offers = offers
        self.account, self._owner = account, owner
        self.orders: list[Order] = []
        self.stops: list[str] = []
        self.error: PoolError | None = None

    def start(self, order: Order) -> str | PoolError:
        self.orders.append(order)
        for id, (owner, _, seen) in self.account.machines.items():
            if owner == self._owner and seen.host == order.host:
                return id
        if self.error is not None:
            return self.error
        offer = next((offer for offer in self.offers if order.offer and offer.name == order.offer.name), None)
        if offer is None:
            return PoolError("there is no such offer", INVALID)
        held = [entry for entry in self.account.machines.values() if entry[2].phase != ENDED and entry[1] == offer.name]
        if offer.limit is not None and len(held) >= offer.limit:
            return PoolError("no capacity")
        id = f"i-{next(self.account.numbers)}"
        seen = Seen(id, PENDING, self.account.now, order.host)
        self.account.machines[id] = (self._owner, offer.name, seen)
        return id

    def stop(self, id: str, gently: bool = False) -> None:
        self.stops.append(id)
        owner, _, seen = self.account.machines.get(id, ("", "", None))
        if seen is not None and owner == self._owner and seen.phase != ENDED:
            self.tell(id, phase=ENDED, cause=RELEASED)

    def list(self) -> Rows:
        shown = []
        for id, (owner, _, seen) in [*self.account.machines.items()]:
            shown.append(seen if owner == self._owner else replace(seen, host=None, about=f"of {owner}"))
            if seen.phase == PENDING:
                self.tell(id, phase=RUNNING)
        return shown

    def doctor(self) -> Checks:
        return [Check("it is in memory")]

    def close(self) -> None:
        pass

    def tell(self, id: str, **changes: object) -> None:
        """Have something happen to a machine."""
        owner, offer, seen = self.account.machines[id]
        self.account.machines[id] = (owner, offer, replace(seen, **{"since_t": self.account.now, **changes}))

    def poke(self, id: str, what: str) -> None:
        changes: dict[str, dict[str, object]] = {
            "hibernate": {"phase": HIBERNATED},
            "resume": {"phase": RUNNING},
            "terminate": {"phase": ENDED, "cause": TAKEN},
            "notice": {"taken_at_t": self.account.now + NOTICE_S},
            "fail": {"phase": ENDED, "cause": FAILED},
        }
        self.tell(id, **changes[what])

    def forget(self, id: str) -> None:
        """The machine is gone without a word."""
        del self.account.machines[id]


def emulated(directory: Path, owner: str = "me", notice_s: float = NOTICE_S) -> EmulatedPool:
    """An emulated cloud whose workers ask a server that is not there."""
    cloud = Cloud("cloud", tuple(Rented(offer) for offer in OFFERS), notice_s=notice_s)
    (directory / "token").write_text("wf_x_y")
    return EmulatedPool(cloud, Place("http://127.0.0.1:9", directory / "token", directory / "account"), owner)


def sweep(state: Path) -> int:
    """Kill what emulated clouds below a state directory left behind, and say how many machines that were."""
    left = [
        tree
        for path in state.glob("cloud/*/*/machine.json")
        if (kept := msgspec.json.decode(path.read_bytes(), type=Machine))
        and (tree := find(kept.pid, kept.born, path.parent.resolve()))
    ]
    for tree in left:
        tree.kill()
    return len(left)
