"""Choose spot, on-demand or nothing, tick by tick, for work on one machine. Pure: availability in, a market out.

Work that keeps its progress must be done by a deadline. A spot machine is cheap and may vanish, an on-demand one is
expensive and stays; every start and every change of market costs `changeover_ticks` of paid time without progress.

The safety net is `guarded`: a choice after which on-demand could no longer meet the deadline is replaced by on-demand.
It depends on no estimate, so no wrong estimate can break it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from msgspec import Struct


class Market(StrEnum):
    """Where the next tick is spent."""

    IDLE = "idle"
    SPOT = "spot"
    ONDEMAND = "ondemand"


class Terms(Struct, frozen=True, kw_only=True):
    """The work, its deadline and the prices. Times are in ticks of `tick_s` seconds, prices in dollars an hour."""

    work_ticks: int
    deadline_ticks: int
    changeover_ticks: int
    tick_s: float
    spot_usd: float
    ondemand_usd: float


class State(Struct, frozen=True):
    """The work at the beginning of a tick: ticks `left`, and `warming`, what is left of the machine's changeover."""

    tick: int
    left: int
    market: Market = Market.IDLE
    warming: int = 0


class Planner(Protocol):
    """Plans one piece of work from its terms, what it has observed and the state.

    Each tick calls `observe`, then `choose`. Ticks before the start, if known, are only observed.
    """

    def observe(self, available: bool) -> None: ...

    def choose(self, state: State) -> Market: ...


def begin(terms: Terms) -> State:
    return State(tick=0, left=terms.work_ticks)


def advance(terms: Terms, state: State, choice: Market) -> State:
    """The state after one tick spent in the chosen market."""
    if choice is Market.IDLE:
        return State(state.tick + 1, state.left)
    warming = state.warming if choice is state.market else terms.changeover_ticks
    if warming:
        return State(state.tick + 1, state.left, choice, warming - 1)
    return State(state.tick + 1, state.left - 1, choice)


def slack(terms: Terms, state: State) -> int:
    """Ticks that may still pass without progress before the deadline is missed."""
    return terms.deadline_ticks - state.tick - state.left


def rescue_ticks(terms: Terms, state: State) -> int:
    """Ticks without progress if on-demand took over from here and kept the work to its end."""
    if state.left == 0:
        return 0
    return state.warming if state.market is Market.ONDEMAND else terms.changeover_ticks


def is_safe(terms: Terms, state: State, choice: Market) -> bool:
    """Whether on-demand could still meet the deadline after this tick if spot never came back."""
    after = advance(terms, state, choice)
    return slack(terms, after) >= rescue_ticks(terms, after)


def guarded(terms: Terms, state: State, available: bool, wish: Market) -> Market:
    """The wish if it is available and safe, else on-demand."""
    if wish is Market.SPOT and not available:
        return Market.ONDEMAND
    return wish if is_safe(terms, state, wish) else Market.ONDEMAND


class OnDemand:
    """On-demand from the first tick to the last."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms

    def observe(self, available: bool) -> None:
        """Does nothing: availability of spot does not matter here."""

    def choose(self, state: State) -> Market:
        return Market.ONDEMAND


class _UntilUnsafe:
    """Follows `wish` until that is no longer safe, then uses on-demand to the end."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.available = False
        self.gave_up = False

    def observe(self, available: bool) -> None:
        self.available = available

    def wish(self, state: State) -> Market:
        raise NotImplementedError

    def choose(self, state: State) -> Market:
        wish = self.wish(state)
        self.gave_up = self.gave_up or not is_safe(self.terms, state, wish)
        return Market.ONDEMAND if self.gave_up else wish


class Greedy(_UntilUnsafe):
    """Spot until the last safe moment, then on-demand to the end."""

    def wish(self, state: State) -> Market:
        return Market.SPOT if self.available else Market.IDLE


class UniformProgress(_UntilUnsafe):
    """Uniform Progress ("Can't Be Late", NSDI 2024): never fall behind constant progress towards the deadline."""

    def wish(self, state: State) -> Market:
        terms = self.terms
        ahead = terms.work_ticks - state.left - terms.work_ticks * state.tick / terms.deadline_ticks
        # Go back to spot only with a lead of two changeovers, against flapping.
        if state.market is Market.ONDEMAND and ahead < 2 * terms.changeover_ticks:
            return Market.ONDEMAND
        if self.available:
            return Market.SPOT
        return Market.ONDEMAND if ahead < 0 else Market.IDLE


def price_usd(terms: Terms, counts: dict[Market, int]) -> float:
    """Dollars for the ticks spent in each market."""
    hours = terms.tick_s / 3600.0
    return hours * (counts[Market.SPOT] * terms.spot_usd + counts[Market.ONDEMAND] * terms.ondemand_usd)
