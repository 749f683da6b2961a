"""SCS for one workflow planned at once: its deadline assignment, EDF per type, consolidation before renting. Pure.

The control loop for a stream of workflows is in `stream.control`; this is its result if every task is known at once.
"""

from __future__ import annotations

from windfall.planning.workflow.methods.assign import assign
from windfall.planning.workflow.methods.fleet import Fleet, Option, place_all
from windfall.planning.workflow.methods.timeline import Timeline, to_plan
from windfall.planning.workflow.model import Plan, Problem


def scs(problem: Problem) -> Plan:
    """Tasks by due time: on the bundled machine, else in paid time of its type, of another type, else in new time."""
    wish = assign(problem)

    def choose(fleet: Fleet, task: int, ready: int, due: int) -> Option | None:
        partner = wish.bundled_with[task]
        return _choose(fleet, task, ready, due, wish.offer_of[task], fleet.where[partner] if partner >= 0 else None)

    fleet = place_all(problem, wish.due, wish.due, choose)
    return to_plan(problem, fleet.machines, "scs")


def _choose(fleet: Fleet, task: int, ready: int, due: int, offer: int, bundled: Timeline | None) -> Option | None:
    if bundled is not None and bundled.offer == offer:
        option = fleet.on_machine(bundled, task, ready, due)
        if option is not None:
            return option
    live = [o for m in fleet.near(ready) if (o := fleet.on_machine(m, task, ready, due)) is not None]
    own = min((o for o in live if o.offer == offer), key=lambda o: (o.cost, o.end), default=None)
    if own is not None and own.cost <= 0:
        return own
    paid = min((o for o in live if o.cost <= 0), key=lambda o: o.end, default=None)
    if paid is not None:
        return paid
    new = fleet.on_new(offer, task, ready, due)
    return min((o for o in (own, new) if o is not None), key=lambda o: (o.cost, o.end), default=None)
