"""How often the tasks that a host is given should save their progress. Pure: decides, changes nothing.

The same law of availability as in plans: the interval follows from the offer's hazard rates at the ages that the task
will meet.
"""

from __future__ import annotations

from collections.abc import Callable

from windfall.core.decisions import Assigned
from windfall.core.renting.runtimes import Outlook, unit_of
from windfall.core.state.hosts.hosts import Host
from windfall.core.state.renting.fleet import HIBERNATED, MachineState, awake_since
from windfall.core.state.state import State
from windfall.numeric import Floats
from windfall.planning.contract import SPOT


def set_intervals(state: State, host: Host, machine: MachineState | None, assigned: list[Assigned], t: float) -> None:
    """Fill in the interval of tasks that leave it to the engine. Others keep what their job says."""
    rates: Callable[[Floats], Floats] | None = None
    for piece in assigned:
        bag = state.bags[piece.job]
        index = bag.class_of(piece.first)
        rules = bag.classes[index]
        if not rules.checkpoint_auto or rules.checkpoint_mb is None:
            continue
        from windfall.planning import checkpoints  # not above: only jobs that checkpoint need the library of numbers

        rates = rates or _rates(state, machine, t)
        outlook = Outlook(state, bag, index, bag.rules.confidence, t)
        speed = float(host.ad.get("speed") or 1.0) if machine is None else machine.offer.speed_for(rules.name)
        run_s = max(1.0, outlook.mean_s * unit_of(bag, piece.first) / max(speed, 1e-6))
        every_s = checkpoints.best_interval_s(checkpoints.save_s(rules.checkpoint_mb), run_s, rates)
        piece.checkpoint_s = float(f"{every_s:.2g}")  # tasks of one interval share a specification at the worker


def _rates(state: State, machine: MachineState | None, t: float) -> Callable[[Floats], Floats]:
    """Hazard rates per second ahead, of a spot machine by what was learned of its offer."""
    from windfall.planning.checkpoints import LOSSES_PER_H, constant

    if machine is None or machine.offer.market != SPOT:
        return constant(LOSSES_PER_H)
    from windfall.planning.spot.live import Learner, with_machines

    pool = machine.offer.pool
    there = [one for one in state.fleet.there.values() if one.offer.pool == pool and one.offer.market == SPOT]
    # Hours of on-demand machines say nothing of how often spot is interrupted.
    spot = {offer.key for offer in state.fleet.offers.get(pool, ()) if offer.market == SPOT}
    spot |= {one.offer.key for one in there}
    markets = {key: seen.market() for key, seen in state.fleet.markets.items() if key in spot}
    up = [(one.offer.key, awake_since(one)) for one in there if one.phase != HIBERNATED]
    return Learner(with_machines(markets, up, [], t), t=t).rates(machine.offer).ahead
