"""Windfall's own planner of bags: the cheapest machines with which the deadline is still safe. Pure.

A planning pass (`planning_pass`) chooses the machines. A task on a hibernated machine stays there while that is
expected to cost less than starting it again. The result must pass the safety net (`safety_net`): if it does not,
on-demand machines are added until it does. The plan asks to be replanned before the safety net could fail.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec.structs import replace

from windfall.planning.bags.cover import EPSILON_S, Cover, covered, early_rescue_usd, make_room
from windfall.planning.bags.feasibility import attainable, promised_deadline_t
from windfall.planning.bags.packing import MAX_TASKS_PACKED_EXACTLY, Item, fill, fresh, ondemand_offers
from windfall.planning.bags.planning_pass import PlanningPass
from windfall.planning.bags.second_attempts import add_second_attempts
from windfall.planning.bags.serial import plan_serial
from windfall.planning.bags.to_plan import to_plan
from windfall.planning.contract import ONDEMAND, SPOT, Plan, Rejected, Snapshot
from windfall.planning.offers import Offer

NOTHING_LEFT = "every task is done or left to free hosts"
"""Why all machines go back: a snapshot does not hold what is left to free hosts."""


class Windfall:
    """The planner. It names tasks where the snapshot does, and counts them where the snapshot has groups."""

    names_up_to = 2_000.0

    def __init__(
        self, pass_type: type[PlanningPass] = PlanningPass, market: str | None = None, margin_s: float = 5.0
    ) -> None:
        """`market`: rent in this one only. `margin_s`: plan to be done that much before the deadline."""
        self.pass_type, self.market, self.margin_s = pass_type, market, margin_s

    def __call__(self, snapshot: Snapshot) -> Plan:
        snapshot, margin_s = bounded(snapshot), self.margin_s
        if len(snapshot.groups) > 1:
            # Unassigned tasks are taken in any order: the last to begin may be the longest.
            margin_s += max(group.task.runtime_s for group in snapshot.groups)
        if self.market is not None:
            snapshot = replace(snapshot, offers=tuple(o for o in snapshot.offers if o.market == self.market))
        if not snapshot.unfinished:
            return Plan(stop=[machine.id for machine in snapshot.machines], because=[NOTHING_LEFT])
        if self.pass_type is PlanningPass and self.market is None:
            serial = plan_serial(snapshot, margin_s)
            if serial is not None:
                return serial
        asked, snapshot = snapshot, attainable(snapshot, margin_s)
        # A job that runs is planned although its deadline has become impossible: late is better than never.
        forced: list[Offer] = []
        while True:
            decided = self._decided(snapshot, margin_s, forced)
            whole = cover = covered(decided)
            if cover.is_late and not _crowds_out(decided):
                # For tasks that are late even if a rescue begins now, it gains nothing.
                cover = cover.rescuable()
            more = None if cover.latest_t > snapshot.t + EPSILON_S else _cheapest_rescue(decided, cover.at_risk)
            if more is None:
                plan = self._covered_plan(decided, whole, len(forced))
                if self.pass_type is PlanningPass and self.market is None:
                    add_second_attempts(plan, decided, asked)
                return self._with_promise(plan, decided, asked)
            # One at a time at first, then half as many again: a large bag would need thousands of rounds.
            forced += [more] * min(max(1, len(forced) // 2), _room_for_rescue(decided, more))

    def _covered_plan(self, decided: PlanningPass, cover: Cover, forced: int) -> Plan:
        """The plan of a pass to which no machine can be added.

        If the time for a rescue has come, tasks stay in the queues of on-demand machines, or all go to such machines,
        where that saves some.
        """
        soon_t = decided.t + decided.margin_s
        if cover.is_late and self.market != SPOT:
            queued = self._queued_pass(decided, ())
            lost = cover.lost_at(soon_t)
            for other in (queued, self._rescue_pass(decided)):
                if not any(other.shortfall()) and (its := covered(other)).lost_at(soon_t) < lost:
                    decided, cover, lost = other, its, its.lost_at(soon_t)
        if cover.is_late:
            cover = cover.rescuable()
        plan = to_plan(decided, cover.safety_net, cover.at_risk, cover.latest_t, forced)
        if cover.is_late and self.market != SPOT:
            make_room(decided, plan)
        return plan

    def _queued_pass(self, decided: PlanningPass, forced: Sequence[Offer]) -> PlanningPass:
        """A pass that keeps the queues of on-demand machines as they are."""
        first = decided.first
        if forced or first.queued is None:
            queued = self.pass_type(decided.snapshot, decided.margin_s, forced, decided)
            queued.decide(as_queued=True)
            if forced:
                return queued
            first.queued = queued
        return first.queued

    def _rescue_pass(self, decided: PlanningPass) -> PlanningPass:
        """A pass in which every task that does not run goes to an on-demand machine."""
        first = decided.first
        if first.rescue is None:
            first.rescue = self.pass_type(decided.snapshot, decided.margin_s, (), decided)
            first.rescue.decide_rescue()
        return first.rescue

    def _with_promise(self, plan: Plan, decided: PlanningPass, snapshot: Snapshot) -> Plan:
        """The plan; before anything is rented it says if the deadline cannot be promised, and which one could be."""
        is_kept = decided.snapshot is snapshot and not any(decided.shortfall())
        if snapshot.machines or snapshot.spent_usd > 0.0 or is_kept:
            return plan
        promised_t = promised_deadline_t(snapshot, self.margin_s)
        if promised_t is not None and promised_t > snapshot.deadline_t:
            plan.promised_t = promised_t
            plan.because.insert(
                0,
                f"the deadline cannot be promised with a chance of {snapshot.confidence:.0%}: "
                f"it would have to be open until {plan.promised_t:.0f}",
            )
        return plan

    def _decided(self, snapshot: Snapshot, margin_s: float, forced: Sequence[Offer]) -> PlanningPass:
        """The best of up to five passes: buying the cheapest machine each time is not always the cheapest in total."""
        decided = self.pass_type(snapshot, margin_s, forced)
        decided.decide()
        if decided.bought_usd <= 0.0 and not decided.late:
            return decided
        other = self.pass_type(snapshot, margin_s, forced, decided)
        other.decide(in_need=decided.late > 0)
        tried = [decided, other]
        if 0 < sum(len(machine.waiting) for machine in decided.awake.values()) <= MAX_TASKS_PACKED_EXACTLY:
            # A new layout may need a machine more than the queues of the last plan.
            packed = self.pass_type(snapshot, margin_s, forced, decided)
            packed.decide(in_need=decided.late > 0, as_packed=True)
            tried.append(packed)
        if any(other.shortfall()):
            # The queues of the last plan may fit although a new layout does not.
            tried.append(self._queued_pass(decided, forced))
            if self.market != SPOT:
                tried.append(self._rescue_pass(decided))
        best = min(tried, key=lambda decided: (*decided.shortfall(), round(decided.cost_usd(), 9)))
        return best if self.pass_type is not PlanningPass else self._or_ondemand(best, snapshot, margin_s, forced)

    def _or_ondemand(
        self, decided: PlanningPass, snapshot: Snapshot, margin_s: float, forced: Sequence[Offer]
    ) -> PlanningPass:
        """A pass that buys on-demand only, if it is expected to cost less; else the given one, with that price."""
        if all(bin.offer.market == ONDEMAND for bin in decided.bins if bin.is_new):
            return decided
        ondemand = self.pass_type(snapshot, margin_s, forced, decided)
        ondemand.ondemand_only = True
        ondemand.decide()
        if any(ondemand.shortfall()):
            return decided
        spot_usd, ondemand_usd = decided.cost_usd() + early_rescue_usd(decided), ondemand.cost_usd()
        if not any(decided.shortfall()) and spot_usd <= ondemand_usd:
            decided.rejected = [Rejected("all on-demand", ondemand_usd - spot_usd)]
            return decided
        ondemand.rejected = [Rejected("spot first", spot_usd - ondemand_usd)]
        return ondemand


def bounded(snapshot: Snapshot) -> Snapshot:
    """The same snapshot with a deadline: a job without one gets a day and 20 times its longest task."""
    if math.isfinite(snapshot.deadline_t):
        return snapshot
    longest_s = max(
        [task.runtime_s for task in snapshot.tasks.values()] + [g.task.runtime_s for g in snapshot.groups] + [1.0]
    )
    lag_s = max((offer.lag_s for offer in snapshot.offers), default=0.0)
    return replace(snapshot, deadline_t=snapshot.t + 86_400.0 + 20.0 * (lag_s + longest_s))


def _room_for_rescue(decided: PlanningPass, offer: Offer) -> int:
    """How many more of an offer may start if spot machines that are not rented yet leave their room in the pool."""
    return min(decided.left.of_offer(offer), decided.room_before.of(offer))


def _crowds_out(decided: PlanningPass) -> bool:
    """Whether spot machines that this pass rents take the last places of a pool."""
    offers = decided.safety_net.offers
    return any(decided.left.of(o) <= 0 < min(decided.left.of_offer(o), decided.room_before.of(o)) for o in offers)


def _cheapest_rescue(decided: PlanningPass, at_risk: Sequence[Item]) -> Offer | None:
    """The cheapest on-demand offer that rescues some task in time; None if none does or no more can be started."""
    urgent = [i for i in at_risk if decided.safety_net.rescue_alone_s(i) + decided.t >= decided.by_t - 1e-6]
    critical = urgent or at_risk[:1]
    for offer in ondemand_offers(decided.snapshot):
        if _room_for_rescue(decided, offer) > 0 and fill(
            fresh("", offer, decided.t, math.inf), critical, [1] * len(critical), decided.by_t
        ):
            return offer
    return None
