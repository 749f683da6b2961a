"""The clouds of a scenario: `[[cloud]]` and its offers, read and checked. Touches the series that they name."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

from msgspec import Struct

from windfall.errors import BadInput
from windfall.planning.offers import Offer
from windfall.resources import GPUS
from windfall.sim.clouds.market import LIKELY, Supply
from windfall.sim.inputs import schema, traces
from windfall.sim.inputs.laws import RandomLaw

FOR_EVER_S = 100 * 365 * 86400.0


class Cloud(Struct, frozen=True, kw_only=True):
    """Where machines are rented; keys as in `schema.CLOUD` and `schema.OFFER`."""

    name: str
    supplies: tuple[Supply, ...]
    heartbeat_s: float = inf
    poll_s: float = 10.0
    poll_max_s: float = 60.0
    limit: int = 0
    warm_up_s: float = 0.0


def read_cloud(raw: dict[str, Any], place: str, where: Path, data: Path | None) -> Cloud:
    """A cloud with its offers. BadInput names the place, the key and the allowed values."""
    offers = raw.get("offer", [])
    values = schema.read_table({key: value for key, value in raw.items() if key != "offer"}, schema.CLOUD, place)
    if not isinstance(offers, list) or not all(isinstance(offer, dict) for offer in offers) or not offers:
        raise _bad(f"{place}: there is no [[cloud.offer]]", "a cloud rents something: name, price_usd, market ...")
    if values["poll_s"] <= 0 or values["heartbeat_s"] <= 0:
        raise _bad(f"{place}: poll and heartbeat must be above zero", '"10s"')
    supplies = []
    for number, offer in enumerate(offers, 1):
        supplies.append(
            _supply(offer, values, f"{place}, offer {offer.get('name', number)}", where, data)
        )  # fmt: skip
    names = [supply.offer.name for supply in supplies]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise _bad(f"{place}: two offers are called '{twice}'", "names are unique")
    return Cloud(supplies=tuple(supplies), **values)


def _supply(raw: dict[str, Any], cloud: dict[str, Any], place: str, where: Path, data: Path | None) -> Supply:
    values = schema.read_table(raw, schema.OFFER, place)
    _check(values, raw, place)
    ticks = traces.availability(values["series"], f"{place}.series", where, data) if values["series"] else None
    prices = None
    if values["prices"]:
        prices = traces.prices(values["prices"], values["prices_of"], f"{place}.prices", where, data)
        values["price_usd"] = prices.usd_per_h[0] * values["cycle_s"] / 3600.0
    elif values["price_steps"]:
        prices = _stepwise(values["price_steps"], values["cycle_s"])
        values["price_usd"] = values["price_steps"][0][1]
    return Supply(
        offer=_offer(values, cloud, place),
        boot=values["boot"],
        refusals=values["refusals"],
        interruptions_per_h=values["interruptions_per_h"],
        life=values["life"],
        up=values["up"],
        down=values["down"],
        hibernated=values["hibernated"],
        once=values["once"],
        notice_s=values["notice_s"],
        ticks=ticks,
        prices=prices,
        begins=0.0 if values["price_steps"] else None,
        lives=values["lives"],
        orders=values["orders"],
        ends=values["ends"],
        news=values["news"],
    )


def _stepwise(steps: tuple[tuple[float, float], ...], cycle_s: float) -> traces.Prices:
    """Prices that hold from each moment on; the last one to the end of any run."""
    times, prices = zip(*steps, strict=True)
    return traces.Prices(times, tuple(price * 3600.0 / cycle_s for price in prices), FOR_EVER_S)


def _check(values: dict[str, Any], raw: dict[str, Any], place: str) -> None:
    """Check combinations of keys."""
    if not values["cores"] or not values["speed"] or not 0 < values["cycle_s"] < inf:
        raise _bad(f"{place}: cores, speed and cycle must be above zero", 'cores = 2, speed = 1.0, cycle = "1h"')
    if values["prices"] and values["price_steps"]:
        raise _bad(f"{place}.price_steps: there is a price series already", "give `prices` or `price_steps`")
    if values["market"] == "on-demand":
        wrong = [key for key in ("interruptions_per_h", "series", "up", "notice", "once") if key in raw]
        if wrong:
            raise _bad(f"{place}.{wrong[0]}: an on-demand machine is never interrupted", 'market = "spot"')
    if values["lives"] and (values["series"] or values["up"].kind != "never" or values["life"].kind != "never"):
        raise _bad(f"{place}.lives: there is a law of its interruptions already", "leave out series, up and life")
    if "price_usd" not in raw and not values["prices"] and not values["price_steps"]:
        raise _bad(f"{place}: the key 'price_usd' is missing", "price_usd = 0.10 (of one cycle), or prices")
    if values["series"] and values["up"].kind != "never":
        raise _bad(f"{place}.up: there is a series already", "give `series`, or `up` and `down`")
    if values["series"] and not values["limit"]:
        raise _bad(f"{place}.limit: a series needs a limit", "limit = 16: as many machines share its largest count")
    if values["up"].kind != "never" and values["down"].kind == "fixed" and not values["down"].parameters["value"]:
        raise _bad(f"{place}.down: capacity that comes and goes is away for some time", 'down = "30m"')


def _offer(values: dict[str, Any], cloud: dict[str, Any], place: str) -> Offer:
    speeds = values["speeds"]
    if not all(isinstance(speed, int | float) and speed > 0 for speed in speeds.values()):
        raise _bad(f"{place}.speeds: {speeds!r} cannot be", "{ blast = 1.4, fit = 0.9 }")
    hibernated = values["hibernated"]
    told = values["told"]
    return Offer(
        name=values["name"],
        price_usd=values["price_usd"],
        cores=values["cores"],
        memory_gb=values["memory_gb"] or inf,
        gpus=int(values["resources"].get(GPUS, 0)),
        resources={name: count for name, count in values["resources"].items() if name != GPUS},
        speed={"default": values["speed"]} | speeds if speeds else values["speed"],
        cycle_s=values["cycle_s"],
        lag_s=values["boot"].quantile()(LIKELY),
        market=values["market"],
        limit=values["limit"] or None,
        pool=cloud["name"],
        pool_limit=cloud["limit"] or None,
        minimum_s=values["minimum_s"],
        bills_boot=values["bills_boot"],
        free_if_taken=values["free_if_taken"],
        free_if_taken_within_s=values["free_if_taken_within_s"],
        when_taken=values["when_taken"],
        interruptions_per_h=values["interruptions_per_h"] if told else None,
        resumes_per_h=_per_hour(hibernated) if told else None,
    )


def _per_hour(law: RandomLaw) -> float:
    """Rate per hour of an exponential law with the same median."""
    middle_s = law.quantile()(0.5)
    if law.kind == "exponential":
        middle_s = law.parameters["mean"]
    return 0.0 if middle_s == inf else 3600.0 / max(middle_s, 1.0)


def _bad(message: str, hint: str) -> BadInput:
    return BadInput(message, hint=hint, code="bad-scenario")
