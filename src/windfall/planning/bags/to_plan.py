"""Turn a planning pass into a plan: named queues, idle machines to stop, reasons and prices. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from windfall.planning.bags.packing import TOLERANCE_S, Item, existing, is_usable
from windfall.planning.bags.planning_pass import PlanningPass
from windfall.planning.bags.safety_net import SafetyNet
from windfall.planning.contract import ONDEMAND, SPOT, Machine, Phase, Plan, Rejected, Start

FEW_MACHINES, EARLY_PER_MACHINE_S, EARLY_SHARE = 50, 0.2, 1 / 50
"""In a large fleet, idle machines are stopped together with the first one if their cycles end at most this much later:
for each machine beyond the first ones, and at most this share of a cycle. One plan for each would be very many."""


def to_plan(
    decided: PlanningPass, safety_net: SafetyNet, at_risk: Sequence[Item], latest_t: float, forced: int
) -> Plan:
    """The plan of a finished pass.

    `at_risk`: tasks that the safety net must be able to rescue, which it is until `latest_t`. `forced`: on-demand
    machines that the safety net needs now.
    """
    snapshot, plan = decided.snapshot, Plan()
    queues, moves_t = _queues(decided)
    for bin in decided.bins:
        if bin.is_new:
            plan.start.append(Start(bin.name, bin.offer))
            plan.assign[bin.name] = queues.get(bin.name, [])
    for machine in snapshot.machines:
        queue = queues.get(machine.id, [])
        if queue != list(machine.waiting):
            plan.assign[machine.id] = queue
    if latest_t > snapshot.t:
        plan.replan_t = latest_t
    plan.replan_t = min(plan.replan_t, _queue_review_t(decided), moves_t)
    if decided.begin_by_t > snapshot.t + decided.margin_s:
        plan.replan_t = min(plan.replan_t, decided.begin_by_t)
    plan.spot_until_t = _spot_until_t(decided)
    _release(decided, plan, safety_net, at_risk)
    for hibernated in decided.left_hibernated:
        given_up_t = decided.hibernated_prices.give_up_t(hibernated.machine.offer)
        limit_t = min(hibernated.limit_t, max(given_up_t, snapshot.t + decided.margin_s))
        plan.replan_t = min(plan.replan_t, limit_t)
        plan.because.append(
            f"{hibernated.machine.id} is hibernated with {len(hibernated.items)} tasks; "
            f"they may wait there until {hibernated.limit_t:.0f}"
        )
    if decided.postponed:
        plan.replan_t = min(plan.replan_t, snapshot.t + decided.review_pause_s())
        count = sum(item.count for item in decided.postponed)
        plan.because.append(f"{count} tasks wait for spot capacity: on-demand machines would still be in time later")
    _explain(decided, plan, at_risk, latest_t, forced)
    return plan


def _queue_review_t(decided: PlanningPass) -> float:
    """The last moment at which tasks queued on an on-demand machine could move to a new one; infinite for never.

    Only tasks behind others, and only if their run time is uncertain: the ones before them may take too long.
    """
    waiting = {
        entry.item
        for bin in decided.bins
        if bin.offer.market == ONDEMAND
        for entry in bin.placed
        if entry.end_t - entry.start_t > decided.items[entry.item].task.seconds_on(bin.offer) + TOLERANCE_S
        or entry.start_t > max(decided.t, bin.since_t) + TOLERANCE_S
    }
    doubtful = [decided.items[place] for place in waiting if decided.items[place].slack_s > 0.0]
    moments = [decided.by_t - decided.margin_s - decided.safety_net.rescue_alone_s(item) for item in doubtful]
    return min((moment for moment in moments if moment > decided.t + decided.margin_s), default=math.inf)


def _queues(decided: PlanningPass) -> tuple[dict[str, list[int]], float]:
    """The task ids of each machine, in the order in which they are to begin, and when tasks next leave a hibernated
    machine.

    A task leaves it for another machine that runs only when a core is free there: until then it may still resume.
    """
    names = [list(item.ids) for item in decided.items]
    hibernated = _only_hibernated(decided)
    queues: dict[str, list[int]] = {}
    kept: dict[str, set[int]] = {}
    moves_t = math.inf
    for bin in decided.bins:
        queue: list[int] = []
        for entry in sorted(bin.placed, key=lambda entry: entry.start_t):
            ids = names[entry.item]
            may_stay = not bin.is_new and entry.start_t > decided.t + decided.margin_s
            for number in ids[: entry.count]:
                if may_stay and number in hibernated:
                    kept.setdefault(hibernated[number], set()).add(number)
                    moves_t = min(moves_t, entry.start_t)
                else:
                    queue.append(number)
            del ids[: entry.count]
        queues[bin.name] = queue
    for waiting in decided.left_hibernated:
        kept.setdefault(waiting.machine.id, set()).update(item.ids[0] for item in waiting.items)
    for machine in decided.snapshot.machines:
        if machine.id in kept:
            # In the order in which they were packed: another order may end in another billing cycle.
            queues[machine.id] = [number for number in machine.waiting if number in kept[machine.id]]
    return queues, moves_t


def _only_hibernated(decided: PlanningPass) -> dict[int, str]:
    """Tasks that run on hibernated machines, or are reserved for them, and run nowhere else, with the machine's id."""
    awake = {entry.task for machine in decided.awake.values() for entry in machine.running}
    machines = [machine for machine in decided.snapshot.machines if machine.phase is Phase.HIBERNATED]
    return {number: machine.id for machine in machines for number in machine.tasks() if number not in awake}


def _release(decided: PlanningPass, plan: Plan, safety_net: SafetyNet, at_risk: Sequence[Item]) -> None:
    """Stop idle machines just before their next billing cycle, unless the safety net needs them."""
    used = {bin.name for bin in decided.bins if bin.placed}
    many_s = EARLY_PER_MACHINE_S * max(0, len(decided.snapshot.machines) - FEW_MACHINES)
    for machine in decided.snapshot.machines:
        early_s = min(many_s, EARLY_SHARE * machine.offer.cycle_s)
        if machine.running or machine.id in used or not is_usable(machine) or machine.phase is Phase.PENDING:
            continue
        if machine.offer.market == SPOT and _only_strands(decided, machine):
            plan.stop.append(machine.id)
            plan.because.append(
                f"{machine.id} is stopped: a task that it began now and lost could not be rescued in time"
            )
            continue
        at_t = machine.paid_until_t - min(decided.margin_s, machine.offer.cycle_s / 10.0)
        if at_t - early_s > decided.t + 1e-6:
            plan.replan_t = min(plan.replan_t, at_t)
            continue
        without = [bin for bin in safety_net.bins if bin.name != machine.id]
        if machine.offer.market == ONDEMAND and at_risk:
            rest = SafetyNet(decided.snapshot, without, decided.left, decided.margin_s)
            if not rest.holds(at_risk, decided.t + decided.margin_s):
                plan.because.append(
                    f"{machine.id} is idle but kept: without it, on-demand machines could not meet the deadline"
                )
                continue
            # Without this machine the last moment for a rescue comes sooner.
            plan.replan_t = min(plan.replan_t, max(rest.latest_t(at_risk), decided.t + decided.margin_s))
        safety_net.bins = without
        plan.stop.append(machine.id)
        plan.because.append(f"{machine.id} is idle and its billing cycle ends")


def _spot_until_t(decided: PlanningPass) -> float:
    """The last moment at which a spot machine may begin an unassigned task: one lost later could not be rescued.

    Infinite if the deadline is missed anyway: late is better than never.
    """
    spot = [offer for offer in decided.snapshot.offers if offer.market == SPOT]
    items = [item for item in decided.items if not item.ids]
    if decided.late or any(decided.stranded) or not decided.safety_net.offers:
        return math.inf
    return min((item.due_t - item.task.seconds_on(offer) for item in items for offer in spot), default=math.inf)


def _only_strands(decided: PlanningPass, machine: Machine) -> bool:
    """Whether every unassigned task that this idle spot machine could take is beyond rescue from there."""
    items = [item for item in decided.items if not item.ids]
    return bool(items) and all(decided.t + item.task.seconds_on(machine.offer) > item.due_t for item in items)


def _running_usd(decided: PlanningPass) -> float:
    """Dollars for the billing cycles that tasks which run now are expected to begin."""
    return math.fsum(
        (existing(machine, decided.snapshot).keep_t - machine.paid_until_t) / machine.offer.cycle_s
        * machine.offer.price_usd
        for machine in decided.awake.values()
        if machine.running and math.isfinite(machine.paid_until_t)
    )  # fmt: skip


def _explain(decided: PlanningPass, plan: Plan, at_risk: Sequence[Item], latest_t: float, forced: int) -> None:
    """Fill in the predictions, the reasons and the rejected alternatives."""
    snapshot = decided.snapshot
    ends = [bin.end_t() for bin in decided.bins] + [
        snapshot.t + entry.left_s for machine in decided.awake.values() for entry in machine.running
    ]
    finish_t = max((end_t for end_t in ends if math.isfinite(end_t)), default=snapshot.t)
    if decided.postponed and math.isfinite(latest_t):
        finish_t = max(finish_t, latest_t)
    plan.predicted_finish_t = finish_t
    plan.predicted_cost_usd = snapshot.spent_usd + decided.cost_usd() + _running_usd(decided)
    if plan.start:
        kinds: dict[str, int] = {}
        for start in plan.start:
            kinds[start.offer.name] = kinds.get(start.offer.name, 0) + 1
        text = ", ".join(f"{count} '{name}' machine{'s' * (count != 1)}" for name, count in kinds.items())
        plan.because.append(f"rent {text}: the cheapest way to run {_tasks(sum(i.count for i in decided.items))}")
    if forced:
        plan.because.append(f"{forced} on-demand machines start now: without them the safety net would not hold")
    if math.isfinite(latest_t):
        plan.because.append(
            f"safe until {latest_t:.0f}: if all spot machines vanish before then, on-demand still finishes in time"
        )
    elif at_risk:
        plan.because.append("on-demand machines alone can no longer meet the deadline")
    if any(decided.stranded):
        stranded = sum(decided.stranded)
        plan.because.append(f"{_tasks(stranded)} fit{'s' * (stranded == 1)} on no machine that can be rented")
    plan.rejected += [Rejected(r.what, (plan.predicted_cost_usd or 0.0) + r.cost_usd) for r in decided.rejected]


def _tasks(count: int) -> str:
    return f"{count} task{'s' * (count != 1)}"
