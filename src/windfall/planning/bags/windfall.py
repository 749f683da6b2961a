"""Windfall's own planner of bags: the cheapest machines that leave a way out. Pure: a snapshot in, a plan out.

What is rented and what waits for what is decided at the desk (`bag_desk`). A task that sleeps with its machine is
waited for while that is cheaper than to begin again. Whatever comes out must pass the safety net (`bag_net`); if it
does not, on-demand machines are started until it does, and the plan looks again before the net could be cut.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec.structs import replace

from windfall.planning.bags.packing import Item, fill, fresh, ondemand_offers
from windfall.planning.bags.planning_pass import Desk
from windfall.planning.bags.safety_net import ident, price_usd
from windfall.planning.bags.to_plan import written
from windfall.planning.contract import ONDEMAND, SPOT, Plan, Rejected, Snapshot
from windfall.planning.offers import Offer


class Windfall:
    """The planner: with names where the snapshot has them, in numbers where it has groups."""

    names_up_to = 2_000.0

    def __init__(self, desk: type[Desk] = Desk, market: str | None = None, margin_s: float = 5.0) -> None:
        self.desk, self.market, self.margin_s = desk, market, margin_s

    def __call__(self, snapshot: Snapshot) -> Plan:
        snapshot, margin_s = bounded(snapshot), self.margin_s
        if len(snapshot.groups) > 1:
            # Tasks without names are taken in any order: the last to begin may be the longest.
            margin_s += max(group.task.runtime_s for group in snapshot.groups)
        if self.market is not None:
            snapshot = replace(snapshot, offers=tuple(o for o in snapshot.offers if o.market == self.market))
        if not snapshot.unfinished:
            return Plan(stop=[machine.id for machine in snapshot.machines], because=["nothing is left to do"])
        # A job that runs is never refused: late is better than never. Who wants to know before calls check_possible.
        forced: list[Offer] = []
        while True:
            desk = self._decided(snapshot, margin_s, forced)
            net, at_risk = desk.netted(), desk.at_risk()
            latest_t = net.latest_t(at_risk)
            if math.isinf(latest_t) and at_risk:
                at_risk = net.rescuable(at_risk)
                latest_t = net.latest_t(at_risk)
            more = None if latest_t > snapshot.t + 1e-6 else _cheapest_rescue(desk, at_risk)
            if more is None:
                return written(desk, net, at_risk, latest_t, len(forced))
            # One by one while they are few, then by armfuls.
            forced += [more] * min(max(1, len(forced) // 2), desk.left[ident(more)])

    def _decided(self, snapshot: Snapshot, margin_s: float, forced: Sequence[Offer]) -> Desk:
        """Buying the cheapest piece each time is not always the cheapest whole, nor in time: some ways are tried."""
        desk = self.desk(snapshot, margin_s, forced)
        desk.decide()
        if desk.bought_usd <= 0.0 and not desk.late:
            return desk
        other = self.desk(snapshot, margin_s, forced, desk)
        other.decide(in_need=desk.late > 0)
        tried = [desk, other]
        if any(other.shortfall()):
            # What was laid out once and fitted may be a layout that is not found again.
            tried.append(self.desk(snapshot, margin_s, forced, desk))
            tried[-1].decide(as_queued=True)
        best = min(tried, key=lambda desk: (*desk.shortfall(), round(desk.cost_usd(), 9)))
        return best if self.desk is not Desk else self._or_sure(best, snapshot, margin_s, forced)

    def _or_sure(self, desk: Desk, snapshot: Snapshot, margin_s: float, forced: Sequence[Offer]) -> Desk:
        """On-demand alone for what is to be bought, where that is expected to cost less; else its price is told."""
        if all(bin.offer.market == ONDEMAND for bin in desk.bins if bin.is_new):
            return desk
        sure = self.desk(snapshot, margin_s, forced, desk)
        sure.sure_only = True
        sure.decide()
        if any(sure.shortfall()):
            return desk
        spot_usd, sure_usd = desk.cost_usd() + _net_usd(desk), sure.cost_usd()
        if any(desk.shortfall()) or spot_usd <= sure_usd:
            desk.rejected = [Rejected("all on on-demand machines now", sure_usd - spot_usd)]
            return desk
        sure.rejected = [Rejected("spot machines first", spot_usd - sure_usd)]
        return sure


def _net_usd(desk: Desk) -> float:
    """What the net costs where it would have to be let down before the first task on a new spot machine has ended."""
    new = [bin for bin in desk.bins if bin.is_new and bin.offer.market == SPOT and bin.placed]
    ends_t = [
        entry.start_t + desk.items[entry.item].task.seconds_on(bin.offer) for bin in new for entry in bin.placed[:1]
    ]
    net, at_risk = desk.netted(), desk.at_risk()
    latest_t = net.latest_t(at_risk)
    if not ends_t or not desk.t < latest_t < min(ends_t):
        return 0.0
    return price_usd(net.rescue(at_risk, latest_t)[0], latest_t)


def bounded(snapshot: Snapshot) -> Snapshot:
    """A job without a deadline is planned as if it had a distant one: cheapest first, in no hurry."""
    if math.isfinite(snapshot.deadline_t):
        return snapshot
    longest_s = max(
        [task.runtime_s for task in snapshot.tasks.values()] + [g.task.runtime_s for g in snapshot.groups] + [1.0]
    )
    lag_s = max((offer.lag_s for offer in snapshot.offers), default=0.0)
    return replace(snapshot, deadline_t=snapshot.t + 86_400.0 + 20.0 * (lag_s + longest_s))


def _cheapest_rescue(desk: Desk, at_risk: Sequence[Item]) -> Offer | None:
    """The next machine that the net needs now, or None where it holds or nothing more can be had that is in time."""
    critical = [item for item in at_risk if desk.net.alone_s(item) + desk.t >= desk.by_t - 1e-6] or at_risk[:1]
    for offer in ondemand_offers(desk.snapshot):
        if desk.left[ident(offer)] > 0 and fill(
            fresh("", offer, desk.t, math.inf), critical, [1] * len(critical), desk.by_t
        ):
            return offer
    return None
