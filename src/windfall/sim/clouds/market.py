"""The market of one offer in a simulated cloud: capacity, interruptions and their lengths, prices. Pure.

A market has places, numbered from zero; a rented machine takes the lowest free one. Interruptions belong to places and
happen at fixed times, no matter who rents and when: a planner that rents earlier, later or more meets the same
interruptions (common random numbers). Only `life` counts from the start of a machine, because it is a law of its age;
it is drawn by place and by how often the place was rented before.
"""

from __future__ import annotations

from bisect import bisect_right
from heapq import heappop, heappush
from math import inf, log

from msgspec import Struct

from windfall.planning.offers import Offer
from windfall.sim.chance import Stream, stream
from windfall.sim.inputs.laws import NEVER, RandomLaw, fixed
from windfall.sim.inputs.traces import Prices, Series, Tides

LIKELY = 0.95
"""Quantile of the boot time that planners are told; with the median, half of the boots would be late."""


class Supply(Struct, frozen=True, kw_only=True):
    """The true behaviour of an offer. Planners are told `offer`; the rest they can only observe."""

    offer: Offer
    boot: RandomLaw = fixed(0.0)
    refusals: float = 0.0
    interruptions_per_h: float = 0.0
    """Rate of a Poisson process at every place."""
    life: RandomLaw = NEVER
    """Life of a machine from its start."""
    up: RandomLaw = NEVER
    down: RandomLaw = fixed(0.0)
    """Lengths of times with and without capacity, for all machines of the offer at once."""
    hibernated: RandomLaw = NEVER
    """How long a machine stays hibernated or stopped; with varying capacity, until there is capacity again."""
    once: bool = False
    notice_s: float = 0.0
    ticks: Series | None = None
    prices: Prices | None = None
    begins: float | None = None
    """Fraction of the series at which the run starts; None: another place for each seed."""
    lives: tuple[tuple[float, ...], ...] = ()
    """What became of the orders of a log, one after the other: boot, run, sleep, run ... seconds. Instead of all laws.

    A life that ends with a run was interrupted then; one that ends otherwise ran on. An infinite boot: refused."""
    orders: tuple[float, ...] = ()
    """Seconds that each of these orders took to be taken; a machine is billed from then on. None: at once."""
    ends: tuple[float, ...] = ()
    """Seconds that each of these orders took to end once it was given back. None: they end at once."""
    news: tuple[tuple[float, ...], ...] = ()
    """Seconds after which the server knew of each interruption of each of these orders. None: it knows at once."""


class Place(Struct):
    """One machine's place in the market while it is rented."""

    index: int
    turn: int
    interruptions: int = 0
    life: tuple[float, ...] = ()
    """Of a replayed log: its boot, run, sleep, run ... seconds."""
    order_s: float = 0.0
    """From the order to the beginning of the bill."""
    end_s: float = 0.0
    """From our giving it back to its end."""
    news: tuple[float, ...] = ()
    """From each interruption to the moment when the server knew of it."""

    @property
    def news_s(self) -> float:
        """The same for the next interruption."""
        return self.news[self.interruptions] if self.interruptions < len(self.news) else 0.0


class Poisson:
    """The times of one place's interruptions, generated on demand."""

    def __init__(self, rate_per_s: float, chance: Stream, place: int) -> None:
        self._rate, self._chance, self._place = rate_per_s, chance, place
        self._moments: list[float] = []

    def after(self, t: float) -> tuple[float, int]:
        """The first interruption after t, and its number."""
        moments = self._moments
        while not moments or moments[-1] <= t:
            gap = -log(1.0 - self._chance(self._place, len(moments))) / self._rate
            moments.append(round((moments[-1] if moments else 0.0) + gap, 6))
        at = bisect_right(moments, t)
        return moments[at], at


class Tide:
    """Varying capacity of a whole offer, by the laws `up` and `down`; starts at a random point of a stretch."""

    def __init__(self, supply: Supply, chance: Stream) -> None:
        self._up, self._down, self._chance = supply.up.quantile(), supply.down.quantile(), chance
        # Not at the start of a stretch: a first machine would then never meet a shortage.
        first = self._up(chance(0, 0))
        self._edges = [-round(first * chance(0, 1), 6)]
        self._edges.append(round(self._edges[0] + first, 6))

    def stretch(self, t: float) -> tuple[float, float]:
        """The stretch of capacity that holds t, or else the next one: (from, to)."""
        edges = self._edges
        while edges[-1] <= t or len(edges) % 2:
            number = len(edges)
            law = self._down if number % 2 == 0 else self._up
            edges.append(round(edges[-1] + max(1.0, law(self._chance(number, 0))), 6))
        at = bisect_right(edges, t)
        if at % 2:
            return edges[at - 1], edges[at]
        if at + 1 >= len(edges):
            return self.stretch(edges[at])
        return edges[at], edges[at + 1]


class Market:
    """One offer's machines in one run."""

    def __init__(self, supply: Supply, cloud: str, seed: int) -> None:
        self.supply, self.offer = supply, supply.offer
        self._streams = {
            what: stream(seed, f"cloud/{cloud}/{self.offer.name}/{what}")
            for what in ("boot", "gap", "life", "asleep", "refusal", "tide")
        }
        self._boot, self._life = supply.boot.quantile(), supply.life.quantile()
        self._hibernated = supply.hibernated.quantile()
        self._turns: list[int] = []
        self._free: list[int] = []
        self._points: dict[int, Poisson] = {}
        self._tide = Tide(supply, self._streams["tide"]) if supply.up.kind != "never" else None
        # Each seed starts at another place of the series; zones of one cloud were recorded together and stay aligned.
        self.offset = stream(seed, f"cloud/{cloud}/series")(0) if supply.begins is None else supply.begins
        self._ticks = Tides(supply.ticks, self.offset) if supply.ticks is not None else None
        self._asked = 0

    # --- capacity -----------------------------------------------------------------------------------------------------

    def rent(self, t: float) -> Place | None:
        """The lowest free place with capacity, or None."""
        self._asked += 1
        lives, orders, ends = self.supply.lives, self.supply.orders, self.supply.ends
        # More orders than the log has: they begin again with the first.
        life = lives[(self._asked - 1) % len(lives)] if lives else ()
        if life and life[0] == inf:
            return None
        if self.supply.refusals and self._streams["refusal"](self._asked) < self.supply.refusals:
            return None
        limit = self.offer.limit
        if not self._free:
            if limit is not None and len(self._turns) >= limit:
                return None
            self._free.append(len(self._turns))
            self._turns.append(0)
        index = self._free[0]
        if self._stretch(index, t)[0] > t:
            return None
        heappop(self._free)
        self._turns[index] += 1
        order_s, end_s = ((times[(self._asked - 1) % len(times)] if times else 0.0) for times in (orders, ends))
        late = self.supply.news
        news = late[(self._asked - 1) % len(late)] if late else ()
        return Place(index, self._turns[index], life=life, order_s=order_s, end_s=end_s, news=news)

    def give_back(self, place: Place) -> None:
        heappush(self._free, place.index)

    def boot_s(self, place: Place) -> float:
        if place.life:
            return place.life[0]
        return self._boot(self._streams["boot"](place.index, place.turn))

    def _stretch(self, index: int, t: float) -> tuple[float, float]:
        """(from, to) of the place's stretch of capacity that contains t, else of the next one."""
        if self._tide is not None:
            return self._tide.stretch(t)
        if self._ticks is None or self.supply.ticks is None:
            return 0.0, inf
        return self._ticks.stretch(self.supply.ticks.level(index, self.offer.limit or 1), t)

    # --- interruptions ------------------------------------------------------------------------------------------------

    def taken_t(self, place: Place, since_t: float) -> float:
        """When a machine that runs since `since_t` will be interrupted."""
        supply = self.supply
        if place.life:
            spell = 1 + 2 * place.interruptions
            return since_t + place.life[spell] if spell < len(place.life) else inf
        if supply.once and place.interruptions:
            return inf
        at = self._stretch(place.index, since_t)[1]
        if supply.interruptions_per_h:
            at = min(at, self._poisson(place.index).after(since_t)[0])
        if supply.life.kind != "never":
            at = min(at, since_t + self._life(self._draw("life", place)))
        return at

    def spells(self, index: int, until_s: float) -> tuple[list[tuple[float, float, bool]], bool]:
        """Spells (from, to, interrupted) of a place up to a moment, whether it is rented or not.

        The second value says whether machines there also end by a law of their age, which the spells do not show.
        """
        found, t = [], 0.0
        while t < until_s:
            from_s, to_s = self._stretch(index, t)
            from_s = max(t, from_s)
            if self.supply.interruptions_per_h:
                to_s = min(to_s, self._poisson(index).after(from_s)[0])
            if from_s >= until_s:
                break
            found.append((from_s, min(to_s, until_s), to_s < until_s))
            t = to_s
        return found, self.supply.life.kind != "never"

    def back_t(self, place: Place, t: float) -> float:
        """When a machine that was interrupted at t resumes."""
        if place.life:
            sleep = 2 + 2 * place.interruptions
            return t + place.life[sleep] if sleep < len(place.life) else inf
        if self._tide is not None or self.supply.ticks is not None:
            start, _ = self._stretch(place.index, t)
            if start > t:
                return start
        if self.supply.interruptions_per_h and self.supply.life.kind == "never":
            # Drawn by the number of the interruption, so that it does not depend on the machine.
            number = self._poisson(place.index).after(t - 1e-6)[1]
            return t + self._hibernated(self._streams["asleep"](place.index, number))
        return t + self._hibernated(self._draw("asleep", place))

    def _draw(self, what: str, place: Place) -> float:
        return self._streams[what](place.index, place.turn * 1024 + place.interruptions)

    def _poisson(self, index: int) -> Poisson:
        found = self._points.get(index)
        if found is None:
            rate = self.supply.interruptions_per_h / 3600.0
            found = self._points[index] = Poisson(rate, self._streams["gap"], index)
        return found

    # --- prices -------------------------------------------------------------------------------------------------------

    def price_usd(self, t: float) -> float:
        """The price of a cycle that begins at t."""
        prices = self.supply.prices
        return self.offer.price_usd if prices is None else prices.at(t, self.offset) * self.offer.cycle_s / 3600.0

    def next_price_t(self, t: float) -> float:
        """When the price changes next."""
        return inf if self.supply.prices is None else self.supply.prices.next_t(t, self.offset)
