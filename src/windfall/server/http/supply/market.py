"""What was learned of offers, over HTTP: shown, and published series added to it."""

from __future__ import annotations

import asyncio
from shlex import quote
from typing import Annotated

from msgspec import Meta, Struct
from starlette.requests import Request

from windfall.api.market import ImportedSeries, Learned
from windfall.bounds import Name
from windfall.core.events import SeriesImported
from windfall.errors import BadInput
from windfall.planning.contract import SPOT
from windfall.planning.counts import CLASSES, DAY_H, PriceCounts, SeriesSource
from windfall.planning.offers import Offer
from windfall.server.http.bodies import typed_body
from windfall.server.service import NotFound, Service

PLACES = 2 * CLASSES * DAY_H
MAX_SOURCES = 100
Place = Annotated[int, Meta(ge=0, lt=PLACES)]
Sum = Annotated[float, Meta(ge=0.0, le=1e15)]
Hours = Annotated[float, Meta(ge=0.0, le=1e7)]


class PricesBody(Struct):
    """Prices per hour of a series: time for which each held, and sums over it."""

    changes: Annotated[int, Meta(ge=0, le=1_000_000_000)]
    held_s: Annotated[float, Meta(gt=0.0, le=1e10)]
    sum_usd: Sum
    squares_usd: Sum
    low_usd: Sum
    high_usd: Sum
    log_squares: Sum = 0.0


class ImportBody(Struct):
    """`POST /v1/market`: one published series of one offer."""

    offer: Name
    source: Name
    digest: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    hours: Hours = 0.0
    ends: Hours = 0.0
    cells: Annotated[list[tuple[Place, Hours, Hours]], Meta(max_length=PLACES)] = []
    prices: PricesBody | None = None


async def show(service: Service, request: Request) -> tuple[int, Learned]:
    """What was learned of each offer."""
    from windfall.server.queries.renting.market import market_rows

    await service.driver.settled()
    return 200, {"offers": await asyncio.to_thread(market_rows, service.state, service.driver.clock())}


async def import_(service: Service, request: Request) -> tuple[int, ImportedSeries]:
    """Add a series to what is known of an offer, once."""
    from windfall.planning.spot.published import per_cycle

    body = await typed_body(request, ImportBody)
    offer = _offer(service, body.offer)
    seen = service.state.fleet.markets.get(offer.key)
    sources = [] if seen is None else seen.sources
    if any(source.digest == body.digest for source in sources):
        hint = f"see it: windfall market show {quote(offer.key)}"
        raise BadInput(f"{body.source} is known of {offer.key} already", hint=hint, code="imported-already")
    if len(sources) >= MAX_SOURCES:
        raise BadInput(f"{offer.key} has {len(sources)} imported series", hint="more would change nothing")
    if not body.source.isprintable():
        raise BadInput("the name of a source has only printable characters")
    prices, told = None, body.prices
    if told is not None:
        if told.changes > told.held_s:
            raise BadInput("prices: more than one change a second", hint="check held_s, the seconds that they cover")
        per_hour = PriceCounts(
            told.changes, told.held_s, told.sum_usd, told.squares_usd, told.low_usd, told.high_usd,
            log_squares=told.log_squares,
        )  # fmt: skip
        prices = per_cycle(per_hour, offer.cycle_s)
    source = SeriesSource(body.source, body.digest, body.hours, body.ends, 0 if told is None else told.changes)
    await service.driver.submit([SeriesImported(service.driver.clock(), offer.key, source, body.cells, prices)])
    return 201, {"offer": offer.key, "source": body.source, "up_h": body.hours, "interruptions": body.ends}


def _offer(service: Service, name: str) -> Offer:
    """A spot offer by POOL/OFFER, or by its name alone if only one pool has it."""
    offers = [offer for each in service.state.fleet.offers.values() for offer in each]
    found = [offer for offer in offers if name in (offer.key, offer.name)]
    spot = [offer for offer in found if offer.market == SPOT]
    if len(spot) == 1:
        return spot[0]
    known = ", ".join(sorted(offer.key for offer in offers if offer.market == SPOT)[:8])
    hint = f"spot offers: {known}" if known else "offers are known once their pool was opened: windfall pool add"
    if spot:
        raise BadInput(f"several pools offer '{name}'", hint=hint, code="no-such-offer")
    if found:
        raise BadInput(f"'{name}' is on demand: it is not interrupted", hint=hint, code="no-such-offer")
    raise NotFound(f"there is no offer '{name}'", hint=hint, code="no-such-offer")
