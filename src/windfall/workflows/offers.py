"""Read offers.toml: what may be rented, at which price. Touches: that one file."""

from __future__ import annotations

import math
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec

from windfall.errors import BadInput
from windfall.planning.offers import Offer, PriceLaw
from windfall.resources import GPUS, check_whole
from windfall.workflows.read import read_bytes

MOST_CHANGES_PER_H = 3600.0
MARKETS = ("on-demand", "spot")
HINT = (
    "fields: name, cores, memory_gb, speed, price_usd, cycle_s, lag_s, market, limit, minimum_s, bills_boot, "
    "free_if_taken, free_if_taken_within_s, when_taken, interruptions_per_h, resumes_per_h, price_moves, gpus, "
    "resources, region, data_usd_per_gb, data_mb_per_s; see examples/offers.toml"
)


def read_offers(path: str | Path) -> tuple[Offer, ...]:
    """The offers of a file, each checked; BadInput names the file, the offer and the field."""
    path = Path(path)
    text = read_bytes(path, "a file of [[offer]] tables, such as examples/offers.toml")
    try:
        document = tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: not TOML: {error}", hint=HINT) from None
    tables = document.get("offer")
    if not isinstance(tables, list) or not tables:
        raise BadInput(f"{path}: there is no [[offer]] table", hint=HINT)
    offers = tuple(offer_from(table, f"{path}: offer[{i}]") for i, table in enumerate(tables))
    names = [offer.name for offer in offers]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise BadInput(f"{path}: offer[{i}] has the same name as offer[{names.index(name)}]: '{name}'", hint=HINT)
    return offers


def offer_from(table: Any, place: str) -> Offer:
    """One table, checked; BadInput names the field, `place` says where the table is."""
    fields = Offer.__struct_fields__
    if not isinstance(table, dict):
        raise BadInput(f"{place} is not a table", hint=HINT)
    if isinstance(table.get("name"), str):
        place += f" '{table['name']}'"
    for field in table:
        if field not in fields:
            near = get_close_matches(field, fields, n=1)
            raise BadInput(f"{place} has no field '{field}'", hint=f"did you mean '{near[0]}'?" if near else HINT)
    try:
        offer = msgspec.convert(table, Offer)
    except msgspec.ValidationError as error:
        raise BadInput(f"{place}: {error}", hint=HINT) from None
    speeds = offer.speed.values() if isinstance(offer.speed, dict) else [offer.speed]
    moves = offer.price_moves
    rules = (
        ("price_usd", 0 <= offer.price_usd < math.inf, "a price from 0 up, per billing cycle"),
        ("cores", offer.cores >= 1, "at least 1"),
        ("memory_gb", offer.memory_gb > 0, "more than 0"),
        ("speed", all(0 < speed < math.inf for speed in speeds), "more than 0"),
        ("cycle_s", 1e-3 <= offer.cycle_s < math.inf, "seconds, more than 0"),
        ("lag_s", 0 <= offer.lag_s < math.inf, "seconds from 0 up"),
        ("market", offer.market in MARKETS, " or ".join(MARKETS)),
        ("price_moves", moves is None or _is_price_law(moves), "changes_per_h, step (up to 1) and spread, from 0 up"),
        ("gpus", 0 <= offer.gpus <= 1024, "a number from 0 to 1024"),
        ("start_usd", offer.start_usd == 0.0, "left out: it follows from data_usd_per_gb and the job"),
        ("data_usd_per_gb", _all_in(offer.data_usd_per_gb, 0.0), "dollars from 0 up, or a table of them by region"),
        ("data_mb_per_s", _all_in(offer.data_mb_per_s, 1e-6), "more than 0, or a table of numbers by region"),
        (
            "pool_limit",
            offer.pool_limit is None or offer.pool_limit >= 0,
            "a number of machines from 0 up, or left out",
        ),
        ("limit", offer.limit is None or offer.limit >= 0, "a number of machines from 0 up, or left out"),
    )
    for field, holds, wanted in rules:
        if not holds:
            raise BadInput(f"{place}: {field} is {getattr(offer, field)!r}", hint=f"it must be {wanted}")
    if GPUS in offer.resources:
        raise BadInput(f"{place}: resources: GPUs have a field of their own", hint="write gpus = 1")
    check_whole(offer.resources, f"{place}: resources")
    return offer


def _all_in(table: float | dict[str, float] | None, least: float) -> bool:
    values = table.values() if isinstance(table, dict) else [] if table is None else [table]
    return all(least <= value < math.inf for value in values)


def _is_price_law(moves: PriceLaw) -> bool:
    return 0 <= moves.changes_per_h <= MOST_CHANGES_PER_H and 0 <= moves.step <= 1 and 0 <= moves.spread <= 3
