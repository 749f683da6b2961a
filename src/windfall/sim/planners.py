"""The planners of bags by name, as scenarios choose them. Pure."""

from __future__ import annotations

import math

from windfall.planning import bags
from windfall.planning.contract import ONDEMAND, Phase, Plan, Planner, Snapshot, Start


class _OnDemand:
    """Stands in until planning.bags is there."""

    names_tasks = False

    def __call__(self, snapshot: Snapshot) -> Plan:
        offers = [offer for offer in snapshot.offers if offer.market == ONDEMAND]
        idle = [machine.id for machine in snapshot.machines if machine.phase is Phase.IDLE]
        if not offers or not snapshot.unfinished:
            return Plan(stop=idle)
        offer = min(offers, key=lambda offer: offer.price_usd / offer.cores)
        work_s = sum(task.runtime_s for task in snapshot.tasks.values())
        work_s += sum(group.task.runtime_s * group.count for group in snapshot.groups)
        left_s = max(1.0, snapshot.deadline_t - snapshot.t - offer.lag_s)
        slots = sum(machine.offer.cores for machine in snapshot.machines if machine.phase is not Phase.HIBERNATED)
        count = min(snapshot.left_of(offer), math.ceil((1.3 * work_s / left_s - slots) / offer.cores))
        return Plan(start=[Start(f"new-{number}", offer) for number in range(max(0, count))])


PLANNERS: dict[str, Planner] = {"on-demand": _OnDemand()} | bags.PLANNERS
