"""A decision at the desk as a plan: queues by name, idle machines to end, and why, in words and prices. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from windfall.planning.bags.packing import TOLERANCE_S, Item, is_awake
from windfall.planning.bags.planning_pass import Desk
from windfall.planning.bags.safety_net import Net
from windfall.planning.contract import ONDEMAND, SPOT, Machine, Phase, Plan, Rejected, Start


def written(desk: Desk, net: Net, at_risk: Sequence[Item], latest_t: float, forced: int) -> Plan:
    """The decision as a plan."""
    snapshot, plan = desk.snapshot, Plan()
    queues = _queues(desk)
    for bin in desk.bins:
        if bin.is_new:
            plan.start.append(Start(bin.name, bin.offer))
            plan.assign[bin.name] = queues.get(bin.name, [])
    for machine in snapshot.machines:
        queue = queues.get(machine.id, [])
        if queue != list(machine.waiting):
            plan.assign[machine.id] = queue
    if latest_t > snapshot.t:
        plan.replan_t = latest_t
    plan.replan_t = min(plan.replan_t, _queues_late_t(desk))
    plan.spot_until_t = _spot_until_t(desk)
    _release(desk, plan, net, at_risk)
    for sleeper in desk.waits:
        limit_t = min(sleeper.limit_t, max(desk.prices.gives_up_t(), snapshot.t + desk.margin_s))
        plan.replan_t = min(plan.replan_t, limit_t)
        plan.because.append(
            f"{sleeper.machine.id} sleeps with {len(sleeper.items)} tasks; they may wait until {sleeper.limit_t:.0f}"
        )
    if desk.put_off:
        plan.replan_t = min(plan.replan_t, snapshot.t + desk.pause_s())
        count = sum(item.count for item in desk.put_off)
        plan.because.append(f"{count} tasks wait for spot machines to be had again: on-demand is in time later, too")
    _explain(desk, plan, net, at_risk, latest_t, forced)
    return plan


def _queues_late_t(desk: Desk) -> float:
    """The last moment at which what waits behind others on demand could be moved, should those take too long."""
    waiting = {
        entry.item
        for bin in desk.bins
        if bin.offer.market == ONDEMAND
        for entry in bin.placed
        if entry.end_t - entry.start_t > desk.items[entry.item].task.seconds_on(bin.offer) + TOLERANCE_S
        or entry.start_t > max(desk.t, bin.since_t) + TOLERANCE_S
    }
    # Where no doubt is left nobody can be late.
    doubtful = [desk.items[place] for place in waiting if desk.items[place].slack_s > 0.0]
    moments = [desk.by_t - desk.margin_s - desk.net.alone_s(item) for item in doubtful]
    return min((moment for moment in moments if moment > desk.t + desk.margin_s), default=math.inf)


def _queues(desk: Desk) -> dict[str, list[int]]:
    """By machine: its tasks by name, in the order in which they are to begin."""
    names = [list(item.ids) for item in desk.items]
    queues: dict[str, list[int]] = {}
    for bin in desk.bins:
        queue: list[int] = []
        for entry in sorted(bin.placed, key=lambda entry: entry.start_t):
            ids = names[entry.item]
            queue += ids[: entry.count]
            del ids[: entry.count]
        queues[bin.name] = queue
    for sleeper in desk.waits:
        running = {entry.task for entry in sleeper.machine.running}
        queues[sleeper.machine.id] = [i.ids[0] for i in sleeper.items if i.ids[0] not in running]
    return queues


def _release(desk: Desk, plan: Plan, net: Net, at_risk: Sequence[Item]) -> None:
    """Idle machines end just before their next cycle, unless the net hangs on them."""
    used = {bin.name for bin in desk.bins if bin.placed}
    for machine in desk.snapshot.machines:
        if machine.running or machine.id in used or not is_awake(machine) or machine.phase is Phase.PENDING:
            continue
        if machine.offer.market == SPOT and _would_strand(desk, machine):
            plan.stop.append(machine.id)
            plan.because.append(f"{machine.id} ends: no task that it might take could be rescued from there in time")
            continue
        at_t = machine.paid_until_t - min(desk.margin_s, machine.offer.cycle_s / 10.0)
        if at_t > desk.t + 1e-6:
            plan.replan_t = min(plan.replan_t, at_t)
            continue
        without = [bin for bin in net.bins if bin.name != machine.id]
        if machine.offer.market == ONDEMAND and at_risk:
            rest = Net(desk.snapshot, without, desk.left, desk.margin_s)
            if not rest.holds(at_risk, desk.t + desk.margin_s):
                plan.because.append(f"{machine.id} is idle and stays: the net hangs on it")
                continue
            # Without it the net is cut sooner.
            plan.replan_t = min(plan.replan_t, max(rest.latest_t(at_risk), desk.t + desk.margin_s))
        net.bins = without
        plan.stop.append(machine.id)
        plan.because.append(f"{machine.id} is idle and its cycle ends")


def _spot_until_t(desk: Desk) -> float:
    """The last moment at which a task without a name, taken by a spot machine, could still be rescued from there.

    No such moment where on-demand cannot do all that is left in time anyway: late is better than never.
    """
    spot = [offer for offer in desk.snapshot.offers if offer.market == SPOT]
    items = [item for item in desk.items if not item.ids]
    if desk.late or any(desk.stranded) or not desk.net.offers:
        return math.inf
    return min((item.due_t - item.task.seconds_on(offer) for item in items for offer in spot), default=math.inf)


def _would_strand(desk: Desk, machine: Machine) -> bool:
    """Tasks without names are taken by any machine that is idle: also by one from which they could not be rescued."""
    items = [item for item in desk.items if not item.ids]
    return bool(items) and all(desk.t + item.task.seconds_on(machine.offer) > item.due_t for item in items)


def _explain(desk: Desk, plan: Plan, net: Net, at_risk: Sequence[Item], latest_t: float, forced: int) -> None:
    snapshot = desk.snapshot
    ends = [bin.end_t() for bin in desk.bins] + [
        snapshot.t + entry.left_s for machine in desk.awake.values() for entry in machine.running
    ]
    finish_t = max((end_t for end_t in ends if math.isfinite(end_t)), default=snapshot.t)
    if desk.put_off and math.isfinite(latest_t):
        finish_t = max(finish_t, latest_t)
    plan.predicted_finish_t = finish_t
    plan.predicted_cost_usd = snapshot.spent_usd + desk.cost_usd()
    if plan.start:
        kinds: dict[str, int] = {}
        for start in plan.start:
            kind = f"{start.offer.name} ({start.offer.market})"
            kinds[kind] = kinds.get(kind, 0) + 1
        text = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        plan.because.append(f"start {text}: the cheapest room for {sum(i.count for i in desk.items)} tasks")
    if forced:
        plan.because.append(f"{forced} on-demand machines because the net demands them now")
    if math.isfinite(latest_t):
        plan.because.append(f"should all spot vanish, on-demand could still do the rest until {latest_t:.0f}")
    elif at_risk:
        plan.because.append("on-demand alone could not do the rest in time any more")
    if any(desk.stranded):
        plan.because.append(f"{sum(desk.stranded)} tasks fit on no machine that can be had")
    plan.rejected += [Rejected(r.what, (plan.predicted_cost_usd or 0.0) + r.cost_usd) for r in desk.rejected]
