"""Offers of an emulated cloud and how its machines are interrupted, from a [[pool]] of a pools.toml. Reads traces.

Times in the file are in the cloud's time. All other modules use real seconds, so offers are converted here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from windfall.bounds import MAX_SECONDS
from windfall.errors import BadInput
from windfall.planning.offers import Offer, PriceLaw
from windfall.pools.kinds import PoolConfig
from windfall.units import parse_duration
from windfall.workflows.offers import offer_from

HIBERNATE, TERMINATE = "hibernate", "terminate"
STARTS_S = 1.0
"""Real seconds that a worker takes to start after its machine has booted, at any time scale."""
LEAST_GAP_S = 1e-3
"""Between two ticks of a trace."""
_HINT = "see docs/howto/cloud.md"


class InterruptionLaw(Struct, frozen=True, forbid_unknown_fields=True):
    """How machines of an offer are interrupted: by Poisson rates, a trace, or (all zero) only by hand. Cloud time."""

    hibernations_per_h: float = 0.0
    resumes_per_h: float = 0.0
    terminations_per_h: float = 0.0
    """Applies to running and to hibernated machines."""
    trace: str = ""
    """A file {"metadata": {"gap_seconds": ...}, "data": [...]}: the number of machines available in each tick."""
    trace_from: int = 0
    """The tick at which the pool's first server started."""
    capacity_errors: float = 0.0
    """The share of starts that are refused although there is capacity."""
    price_changes_per_h: float = 0.0
    price_step: float = 0.0
    price_spread: float = 0.0
    """How its price moves: see planning.offers.PriceLaw."""


class Trace(Struct, frozen=True):
    """A series of availability, repeated without end. `gap_s` in real seconds."""

    gap_s: float
    counts: Sequence[int]
    first: int = 0

    def at(self, elapsed_s: float) -> int:
        return self.counts[(self.first + math.floor(elapsed_s / self.gap_s)) % len(self.counts)]


class Rented(Struct, frozen=True):
    """One offer in real seconds: what the engine is told, and what only the provider knows. Rates are per second."""

    offer: Offer
    boot_s: float = 0.0
    hibernations: float = 0.0
    resumes: float = 0.0
    terminations: float = 0.0
    trace: Trace | None = None
    capacity_errors: float = 0.0
    prices: PriceLaw | None = None


class Cloud(Struct, frozen=True):
    """A whole emulated provider, in real seconds."""

    name: str
    rented: tuple[Rented, ...]
    limit: int = 1000
    notice_s: float = 0.0
    seed: int = 0
    idle_exit_s: float = 3600.0
    unreachable_exit_s: float = 3600.0

    @property
    def offers(self) -> tuple[Offer, ...]:
        return tuple(rented.offer for rented in self.rented)


class CloudSettings(Struct, forbid_unknown_fields=True):
    """Fields of a [[pool]] of kind `emulated`."""

    offer: list[dict[str, Any]] = []
    """Its offers, each with a `law` that says how machines are interrupted."""
    time_scale: float = 1.0
    """Seconds of the cloud per real second."""
    notice: str | float = "0s"
    """Time between the notice and the interruption of a machine."""
    seed: int = 0


def cloud_of(pool: PoolConfig, where: str = "") -> Cloud:
    """The provider that a [[pool]] describes, with times in real seconds."""
    settings: CloudSettings = pool.settings
    rented = tuple(
        rented_from(table, pool.name, settings.time_scale, pool.base, f"{where}: offer {number}")
        for number, table in enumerate(settings.offer, 1)
    )
    rented = tuple(replace(each, offer=replace(each.offer, pool_limit=pool.most)) for each in rented)
    notice_s = parse_duration(settings.notice, "notice") / settings.time_scale
    return Cloud(pool.name, rented, pool.most, notice_s, settings.seed, pool.idle_exit_s, pool.unreachable_exit_s)


def check_cloud(pool: PoolConfig, where: str) -> None:
    scale = pool.settings.time_scale
    if not 1e-3 <= scale <= 1e6:
        raise BadInput(f"{where}: time_scale = {scale}", hint="as in 60: a minute of the cloud in a second")
    offers = cloud_of(pool, where).offers
    if not offers:
        raise BadInput(f"{where}: it rents nothing", hint="begin an offer with [[pool.offer]]; see docs/howto/cloud.md")
    names = [offer.name for offer in offers]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise BadInput(f"{where}: two offers are called '{twice}'", hint="give one of them another name")


def rented_from(table: Any, pool: str, scale: float, base: Path, where: str) -> Rented:
    """One [[pool.offer]], checked; trace files are relative to `base`."""
    if not isinstance(table, dict):
        raise BadInput(f"{where} is not a table", hint=_HINT)
    plain = {key: value for key, value in table.items() if key != "law"}
    offer = offer_from(plain, where)
    where = f"{where} '{offer.name}'"
    try:
        law = msgspec.convert(table.get("law", {}), InterruptionLaw)
    except msgspec.ValidationError as error:
        fields = ", ".join(InterruptionLaw.__struct_fields__)
        raise BadInput(f"{where}: law: {error}", hint=f"what it may say: {fields}") from None
    _check(offer, law, where)
    trace = _trace(base / law.trace, law.trace_from, scale, f"{where}: law: trace") if law.trace else None
    per_s = scale / 3600.0
    return Rented(
        in_real_time(offer, pool, scale),
        offer.lag_s / scale,
        law.hibernations_per_h * per_s,
        law.resumes_per_h * per_s,
        law.terminations_per_h * per_s,
        trace,
        law.capacity_errors,
        _prices(law, scale),
    )


def _prices(law: InterruptionLaw, scale: float) -> PriceLaw | None:
    if not law.price_changes_per_h:
        return None
    return PriceLaw(changes_per_h=law.price_changes_per_h * scale, step=law.price_step, spread=law.price_spread)


def _faster(rate: float | dict[str, float] | None, scale: float) -> float | dict[str, float] | None:
    if rate is None:
        return None
    return {region: each * scale for region, each in rate.items()} if isinstance(rate, dict) else rate * scale


def in_real_time(offer: Offer, pool: str, scale: float) -> Offer:
    """The offer in real seconds: times are divided by the scale, rates multiplied; the price of a cycle stays."""
    moves = offer.price_moves
    return replace(
        offer,
        pool=pool,
        lag_s=offer.lag_s / scale + STARTS_S,
        cycle_s=offer.cycle_s / scale,
        minimum_s=offer.minimum_s / scale,
        data_mb_per_s=_faster(offer.data_mb_per_s, scale),
        free_if_taken_within_s=offer.free_if_taken_within_s / scale,
        interruptions_per_h=None if offer.interruptions_per_h is None else offer.interruptions_per_h * scale,
        resumes_per_h=None if offer.resumes_per_h is None else offer.resumes_per_h * scale,
        price_moves=None if moves is None else replace(moves, changes_per_h=moves.changes_per_h * scale),
    )


def _check(offer: Offer, law: InterruptionLaw, where: str) -> None:
    for name in ("hibernations_per_h", "resumes_per_h", "terminations_per_h"):
        if not 0 <= getattr(law, name) < math.inf:
            raise BadInput(f"{where}: law: {name} = {getattr(law, name)}", hint="a rate from 0 up")
    if not (0 <= law.price_changes_per_h <= 3600 and 0 <= law.price_step <= 1 and 0 <= law.price_spread <= 3):
        said = f"price_changes_per_h = {law.price_changes_per_h}, step {law.price_step}, spread {law.price_spread}"
        raise BadInput(f"{where}: law: {said}", hint="0 to 3600 changes, a step of 0 to 1, a spread of 0 to 3")
    if law.price_changes_per_h and not (law.price_step and law.price_spread):
        raise BadInput(f"{where}: law: prices that change need a step", hint="say price_step and price_spread")
    if not 0 <= law.capacity_errors <= 1:
        raise BadInput(f"{where}: law: capacity_errors = {law.capacity_errors}", hint="a share from 0 to 1")
    if offer.when_taken not in (HIBERNATE, TERMINATE):
        raise BadInput(f"{where}: when_taken = '{offer.when_taken}'", hint=f"here it is {HIBERNATE} or {TERMINATE}")
    takes = law.hibernations_per_h or law.terminations_per_h or law.trace
    if takes and offer.market != "spot":
        raise BadInput(f"{where}: only spot machines are taken", hint='say market = "spot", or leave `law` out')
    if law.hibernations_per_h and offer.when_taken != HIBERNATE:
        raise BadInput(f"{where}: it hibernates machines but does not say so", hint=f'say when_taken = "{HIBERNATE}"')
    if law.trace and (law.hibernations_per_h or law.resumes_per_h or law.terminations_per_h):
        raise BadInput(f"{where}: law: a trace and rates", hint="give one of them")


def _trace(path: Path, first: int, scale: float, where: str) -> Trace:
    try:
        document = json.loads(path.read_text())
        gap_s, counts = float(document["metadata"]["gap_seconds"]), [int(count) for count in document["data"]]
    except OSError as error:
        raise BadInput(f"{where}: {path}: {error.strerror}", hint="paths are relative to pools.toml") from None
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        hint = 'it holds {"metadata": {"gap_seconds": 300}, "data": [4, 4, 3, ...]}'
        raise BadInput(f"{where}: {path} is not an availability series ({error!r})", hint=hint) from None
    if not counts or min(counts) < 0 or not LEAST_GAP_S <= gap_s <= MAX_SECONDS:
        hint = f"gap_seconds from {LEAST_GAP_S:g} to {MAX_SECONDS:g}"
        raise BadInput(f"{where}: {path}: a series needs counts from 0 up and a gap of some seconds", hint=hint)
    return Trace(gap_s / scale, counts, first)
