"""How many more machines a plan may start: of each offer, and of all offers of a pool together. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from windfall.planning.offers import Offer


def market_key(offer: Offer) -> tuple[str, str]:
    """What identifies an offer: one type may be on offer in both markets under one name."""
    return offer.key, offer.market


class Room:
    """Machines that may still be started. Taking one of an offer takes it from the whole pool."""

    __slots__ = ("_of_offer", "_of_pool")

    def __init__(self, of_offer: dict[tuple[str, str], int], of_pool: dict[str, int]) -> None:
        self._of_offer, self._of_pool = of_offer, of_pool

    def of(self, offer: Offer) -> int:
        """How many more of this offer, its pool's other offers left as they are."""
        return max(0, int(min(self.of_offer(offer), self._of_pool.get(offer.pool, math.inf))))

    def of_offer(self, offer: Offer) -> int:
        """How many more by the limit of the offer itself, whatever its pool's limit."""
        return self._of_offer.get(market_key(offer), 0)

    def take(self, offer: Offer, count: int = 1) -> None:
        self._of_offer[market_key(offer)] = self.of_offer(offer) - count
        if offer.pool in self._of_pool:
            self._of_pool[offer.pool] -= count

    def close(self, keys: Iterable[tuple[str, str]]) -> None:
        """Start no more of these (`market_key`)."""
        self._of_offer.update(dict.fromkeys(keys, 0))

    def narrow(self, pool: str, most: int) -> None:
        """Start at most this many more of all offers of a pool together."""
        self._of_pool[pool] = min(most, self._of_pool.get(pool, most))

    def copy(self) -> Room:
        return Room(dict(self._of_offer), dict(self._of_pool))


def room_in(offers: Iterable[Offer], rented: Iterable[tuple[Offer, bool]], most: int) -> Room:
    """The room beside what is rented: offers, and whether the machine is awake.

    An offer without a limit has room for `most` more. Hibernated machines take no room of their pool: a pool full of
    them could rescue none of their tasks. One that resumes may exceed the limit for a while.
    """
    offers, rented = list(offers), list(rented)
    used = Counter(market_key(offer) for offer, _ in rented)
    used_of_pool = Counter(offer.pool for offer, is_awake in rented if is_awake)
    of_offer = {
        market_key(offer): max(0, (most if offer.limit is None else offer.limit) - used[market_key(offer)])
        for offer in offers
    }
    limits = pool_limits(offers)
    return Room(of_offer, {pool: max(0, limit - used_of_pool[pool]) for pool, limit in limits.items()})


def pool_limits(offers: Iterable[Offer]) -> dict[str, int]:
    """Most machines of all offers together, by pool; pools without such a limit are left out."""
    return {offer.pool: offer.pool_limit for offer in offers if offer.pool_limit is not None}
