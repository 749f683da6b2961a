"""How many machines a fleet can use where its tasks need what the whole server counts, such as licences. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from msgspec.structs import replace

from windfall.core.state.jobs.bags import Bag
from windfall.core.state.state import State
from windfall.planning.offers import Offer


def at_once(state: State, bags: list[Bag]) -> int | None:
    """Tasks of these jobs that may run at the same time; None: some of them need nothing of the server.

    What other jobs use of it is not subtracted: it comes back when their tasks end.
    """
    there = state.settings.resources
    if not there or not bags:
        return None
    most = 0
    for bag in bags:
        for rules in bag.classes:
            shares = [there[name] // need for name, need in rules.needs if name in there and need > 0]
            if not shares:
                return None
            most = max(most, min(shares))
    return most


def limited(state: State, bags: list[Bag], offers: list[Offer], mine_of: Mapping[str, tuple[int, int]]) -> list[Offer]:
    """The offers with limits by what the server counts: the tasks of further machines would wait for licences.

    `mine_of`: machines of an offer, and of its pool, that the fleet has; these stay.
    """
    tasks = at_once(state, bags)
    if tasks is None:
        return offers
    most = [useful_machines(bags, offer, tasks) for offer in offers]
    found = []
    for offer, useful in zip(offers, most, strict=True):
        mine, mine_of_pool = mine_of[offer.key]
        of_pool = max(each for other, each in zip(offers, most, strict=True) if other.pool == offer.pool)
        limit, pool_limit = max(mine, useful), max(mine_of_pool, of_pool)
        found.append(
            replace(
                offer,
                limit=limit if offer.limit is None else min(limit, offer.limit),
                pool_limit=pool_limit if offer.pool_limit is None else min(pool_limit, offer.pool_limit),
            )
        )
    return found


def useful_machines(bags: list[Bag], offer: Offer, tasks: int) -> int:
    """Machines of an offer that this many tasks at once fill, the widest task counted."""
    widest = max(max(1, ceil(rules.cpus)) for bag in bags for rules in bag.classes)
    return ceil(tasks / max(1, offer.cores // widest))
