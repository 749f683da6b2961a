"""Until when the safety net holds after a planning pass, the limits of pools considered. Pure.

In a pool with a limit, spot machines may hold the places that a rescue needs. They leave them when they are reclaimed
or hibernated. So the net holds without more machines if all work on spot ends while a rescue in these places would
still be in time. Otherwise on-demand machines take their places before spot machines do.
"""

from __future__ import annotations

import math

from msgspec import Struct
from msgspec.structs import replace

from windfall.planning.bags.packing import Bin, Item, is_usable
from windfall.planning.bags.planning_pass import PlanningPass
from windfall.planning.bags.safety_net import SafetyNet, price_usd
from windfall.planning.bags.shared_queue import run_times
from windfall.planning.contract import ONDEMAND, SPOT, Phase, Plan
from windfall.planning.room import room_in

EPSILON_S = 1e-6


class Cover(Struct):
    """The safety net after a pass, the tasks that it must be able to rescue, and until when it is."""

    safety_net: SafetyNet
    at_risk: list[Item]
    latest_t: float
    is_late: bool = False
    """Some tasks can no longer be rescued in time, or only if that begins at once."""
    _rescuable: Cover | None = None

    def lost_at(self, at_t: float) -> int:
        """How many tasks would be late if a rescue began at that moment."""
        return sum(self.safety_net.rescue(self.at_risk, at_t)[1])

    def rescuable(self) -> Cover:
        """The same for the tasks that can still be rescued."""
        if self._rescuable is None:
            at_risk = self.safety_net.rescuable(self.at_risk)
            self._rescuable = replace(self, at_risk=at_risk, latest_t=self.safety_net.latest_t(at_risk))
        return self._rescuable


def covered(decided: PlanningPass) -> Cover:
    """The cover of a finished pass."""
    now_t, at_risk = decided.t + EPSILON_S, decided.at_risk()
    cover = Cover(decided.safety_net_after(), at_risk, math.inf)
    cover.latest_t = cover.safety_net.latest_t(at_risk)
    if cover.latest_t > now_t:
        return cover
    if has_pool_limits(decided):
        freed = safety_net_without_spot(decided)
        freed_t = freed.latest_t(at_risk)
        if freed_t > now_t and spot_work_ends_t(decided) <= freed_t:
            return Cover(freed, at_risk, freed_t)
    cover.is_late = True
    return cover


def early_rescue_usd(decided: PlanningPass) -> float:
    """Expected dollars for a rescue that begins before new spot machines have ended their first tasks.

    The price of a whole rescue at the last safe moment, times the share of first tasks that still run then. The share
    follows the law of run times: it falls smoothly as the deadline moves away.
    """
    new = [bin for bin in decided.bins if bin.is_new and bin.offer.market == SPOT and bin.placed]
    safety_net, at_risk = decided.safety_net_after(), decided.at_risk()
    latest_t = safety_net.latest_t(at_risk)
    if not new or not decided.t < latest_t < math.inf:
        return 0.0
    share = math.fsum(_still_runs(decided, bin, latest_t) for bin in new) / len(new)
    return share * price_usd(safety_net.rescue(at_risk, latest_t)[0], latest_t) if share > 0.0 else 0.0


def _still_runs(decided: PlanningPass, bin: Bin, at_t: float) -> float:
    """The chance that the first task of a machine still runs at that moment."""
    first, snapshot = bin.placed[0], decided.snapshot
    item = decided.items[first.item]
    law = run_times(
        item.task.seconds_on(bin.offer), item.quantile_s(bin.offer), snapshot.run_time_quantile or snapshot.confidence
    )
    return 1.0 - law.share_within(at_t - first.start_t)


def make_room(decided: PlanningPass, plan: Plan) -> None:
    """Stop idle spot machines whose places in a full pool a rescue needs now; it begins when they have ended."""
    if not has_pool_limits(decided) or plan.start:
        return
    opened, _ = safety_net_without_spot(decided).rescue(decided.at_risk(), decided.t)
    wanted = {bin.offer.pool for bin in opened if decided.left.of(bin.offer) <= 0}
    for machine in decided.snapshot.machines:
        is_idle = is_usable(machine) and not machine.running and machine.phase is not Phase.PENDING
        if machine.offer.market == SPOT and machine.offer.pool in wanted and is_idle and machine.id not in plan.stop:
            plan.assign[machine.id] = []
            plan.stop.append(machine.id)
            plan.because.append(f"{machine.id} is stopped: a rescue on demand needs its place in the pool")


def has_pool_limits(decided: PlanningPass) -> bool:
    """Whether machines of both markets share the limit of a pool."""
    return any(offer.pool_limit is not None for offer in decided.safety_net.offers)


def safety_net_without_spot(decided: PlanningPass) -> SafetyNet:
    """The safety net as it will be once every spot machine has left its place in its pool."""
    snapshot = decided.snapshot
    rented = [(m.offer, True) for m in snapshot.machines if m.offer.market == ONDEMAND]
    room = room_in(snapshot.offers, rented, snapshot.unfinished)
    bins = [bin for bin in decided.bins if bin.offer.market == ONDEMAND]
    for bin in bins:
        if bin.is_new:
            room.take(bin.offer)
    return SafetyNet(snapshot, bins, room, decided.margin_s)


def spot_work_ends_t(decided: PlanningPass) -> float:
    """When all tasks on spot machines have ended, at the quantile of the job's confidence; -inf without any."""
    spot = [m for m in decided.snapshot.machines if m.offer.market == SPOT and m.phase is not Phase.HIBERNATED]
    ends_t = [decided.t + entry.left_s for machine in spot for entry in machine.running]
    ends_t += [
        entry.end_t + decided.items[entry.item].slack_s / decided.prices.speed(bin.offer)
        for bin in decided.bins
        if bin.offer.market == SPOT
        for entry in bin.placed
    ]
    return max(ends_t, default=-math.inf)
