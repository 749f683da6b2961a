"""What rented machines cost, counted again from the log of events alone, by other code than the engine's."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from windfall.core.decisions import PlanTaken
from windfall.core.events import (
    HostAsked,
    MachineEnded,
    MachineHibernated,
    MachineRefused,
    MachineResumed,
    MachineStarted,
    PlanProposed,
)
from windfall.core.records import Record, decode_record
from windfall.store import open_store

# Times are floats: what is over by less than a billionth of a cycle is their rounding.
_SLACK = Fraction(1, 10**9)


class Bill:
    """One machine: the stretches of time for which it is paid."""

    def __init__(self, offer) -> None:
        self.offer = offer
        self.stretches: list[tuple[float, float]] = []
        self.on_since: float | None = None
        self.hibernated = self.ended = self.refused = self.taken = False

    def on(self, at: float) -> None:
        if not self.ended and self.on_since is None:
            self.on_since = at

    def off(self, at: float) -> None:
        if self.on_since is not None:
            self.stretches.append((self.on_since, max(at, self.on_since)))
            self.on_since = None

    def microusd(self) -> int:
        if self.refused:
            return 0
        held = sum((Fraction(end) - Fraction(start) for start, end in self.stretches), Fraction(0))
        held = max(held, Fraction(self.offer.minimum_s))
        cycles = held / Fraction(self.offer.cycle_s)
        whole = int(cycles + _SLACK)
        begun = whole + (cycles - whole > _SLACK)
        price = round(self.offer.price_usd * 1_000_000)
        return price * (whole if self.taken and self.offer.free_if_taken else max(1, begun))


def bills(records: list[Record]) -> dict[int, Bill]:
    """The bill of every machine that was ever ordered. All of them must have ended."""
    found: dict[int, Bill] = {}
    hosts: dict[str, int] = {}
    for record in records:
        event = record.event
        if isinstance(event, PlanProposed) and isinstance(record.decided, PlanTaken):
            for number, _, offer in record.decided.started:
                found[number] = Bill(offer)
                hosts[f"{offer.pool}-m{number}"] = number
        elif isinstance(event, HostAsked):
            if (bill := found.get(hosts.get(event.host, 0))) is not None:
                _asked(bill, event)
        elif (bill := found.get(getattr(event, "machine", 0))) is not None and not bill.ended:
            _happened(bill, event)
    assert all(bill.ended for bill in found.values()), "machines are left"
    return found


def _asked(bill: Bill, event: HostAsked) -> None:
    """Its worker has asked: the machine is up, and has resumed if it counted as hibernated."""
    if bill.ended:
        return
    bill.hibernated = False
    bill.on(event.t)


def _happened(bill: Bill, event) -> None:
    if isinstance(event, MachineStarted) and bill.offer.bills_boot and not bill.hibernated:
        bill.on(event.at)
    elif isinstance(event, MachineHibernated):
        bill.hibernated = True
        bill.off(event.at)
    elif isinstance(event, MachineResumed) and bill.hibernated:
        bill.hibernated = False
        bill.on(event.at)
    elif isinstance(event, MachineEnded):
        bill.off(event.at)
        bill.ended, bill.taken = True, event.cause == "taken"
    elif isinstance(event, MachineRefused):
        bill.ended = bill.refused = True


def records_of(state: Path) -> list[Record]:
    """The whole log of a state directory whose server has stopped."""
    store, found, after = open_store(state), [], 0
    try:
        while rows := store.records(after, 1000):
            found += [decode_record(row.data) for row in rows]
            after = rows[-1].seq
    finally:
        store.close()
    return found
