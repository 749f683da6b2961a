"""The bill of every machine, computed from the log alone and independently of the engine."""

from __future__ import annotations

import math

from windfall.core.decisions import PlanTaken
from windfall.core.events import (
    MachineEnded,
    MachineHibernated,
    MachineRefused,
    MachineResumed,
    MachineStarted,
    PricesReported,
)


def recounted(records, end):
    """What every machine owes, from the log alone, with arithmetic of its own."""
    offers, runs, since, ended, refused, prices = {}, {}, {}, {}, set(), []
    for record in records:
        event = record.event
        if isinstance(record.decided, PlanTaken):
            offers |= {number: offer for number, _, offer in record.decided.started}
        if isinstance(event, MachineStarted):
            since[event.machine], runs[event.machine] = event.at, []
        elif isinstance(event, MachineHibernated):
            runs[event.machine].append((since.pop(event.machine), event.at))
        elif isinstance(event, MachineResumed):
            since[event.machine] = event.at
        elif isinstance(event, MachineRefused):
            refused.add(event.machine)
        elif isinstance(event, MachineEnded):
            ended[event.machine] = event.cause
            if event.machine in since:
                runs[event.machine].append((since.pop(event.machine), event.at))
        elif isinstance(event, PricesReported):
            prices += [(event.t, name, price) for name, price in event.prices]
    return {
        number: 0 if number in refused else owed(offer, runs[number], ended.get(number), prices)
        for number, offer in offers.items()
    }


def owed(offer, runs, cause, prices):
    """Cycle by cycle: the price that holds when it begins."""
    held, total, begun = 0.0, 0, 0
    lasts = max(math.fsum(end - start for start, end in runs), offer.minimum_s)
    cycles = max(1, math.ceil(lasts / offer.cycle_s - 1e-9))
    if cause == "taken" and offer.free_if_taken:
        cycles = math.floor(lasts / offer.cycle_s + 1e-9)
    moments = []
    for start, end in runs:
        while begun * offer.cycle_s < held + (end - start) - 1e-6:
            moments.append(start + begun * offer.cycle_s - held)
            begun += 1
        held += end - start
    moments = (moments or [runs[0][0]])[:cycles] if cycles else []
    moments += [moments[0]] * (cycles - len(moments)) if moments else []
    for moment in moments:
        holds = [price for t, name, price in prices if name == offer.name and t <= moment + 1e-9]
        total += round((holds[-1] if holds else offer.price_usd) * 1e6)
    return total
