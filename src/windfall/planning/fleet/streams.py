"""What a fleet would cost in an hour if one more kind of job came again and again. Pure.

By the rates of its classes, as the planner chooses its types of machines (`mix`): idle parts of cycles included.
"""

from __future__ import annotations

from msgspec import Struct

from windfall.planning.contract import Snapshot
from windfall.planning.fleet.admission import NewJob
from windfall.planning.fleet.deadlines import kind_of
from windfall.planning.fleet.mix import JobKind, best_for, bill_of, can_be_in_time, kinds_of
from windfall.planning.fleet.model import Waiting, Work, fits


class StreamPrice(Struct, frozen=True):
    """Dollars an hour with and without the stream, and by offer the machines that would be rented on average."""

    per_hour: float
    before_usd: float
    after_usd: float
    machines: dict[str, float]
    beyond_limits: tuple[str, ...] = ()
    """Offers whose limits are below that."""

    @property
    def each_usd(self) -> float:
        """What one of its jobs adds."""
        return max(0.0, self.after_usd - self.before_usd) / self.per_hour


def price_stream(snapshot: Snapshot, new: NewJob, per_hour: float) -> StreamPrice | None:
    """None if such a job cannot keep its deadline on machines that are rented for it."""
    work = Work(snapshot)
    if not all(any(fits(task, offer) for offer in work.offers) for task in new.tasks):
        return None
    kinds = tuple(kind_of(Waiting(task.id, task, 0, ())) for task in new.tasks)
    edges = tuple((parent, task) for task, parents in new.after.items() for parent in parents)
    known = kinds_of(work)
    before_usd = bill_of(known, work.offers) if known else 0.0
    kind = JobKind(kinds, edges, new.deadline_s, per_hour)
    if not can_be_in_time(kind, work.offers):
        return None
    wanted = (*known, kind)
    after_usd = bill_of(wanted, work.offers)
    mix = best_for(wanted, work.offers)
    pairs = [(offer, machines) for offer, machines in zip(work.offers, mix.machines, strict=True) if machines > 0]
    beyond = tuple(offer.name for offer, machines in pairs if offer.most is not None and machines > offer.most)
    return StreamPrice(per_hour, before_usd, after_usd, {offer.name: machines for offer, machines in pairs}, beyond)
