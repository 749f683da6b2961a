"""The rules of a site, checked wherever they come from: a pools.toml, a request or a scenario. Pure."""

from __future__ import annotations

from math import isfinite

from windfall.core.sites.instances import SiteRules
from windfall.core.sites.scratch import COSTS
from windfall.errors import BadInput
from windfall.placement.hosts.weighers import WEIGHER_NAMES
from windfall.placement.model import LARGEST_AMOUNT

MOST_RESOURCES = 64
MOST_TAGS, LONGEST_TAG = 64, 256
LARGEST_MULTIPLIER = 1e9


def check_amounts(amounts: dict[str, float], where: str) -> dict[str, float]:
    """Check amounts of resources; BadInput names the invalid one."""
    if not amounts:
        raise BadInput(f"{where}: names no resource", hint="as in vcpu = 1, ram_mb = 1000")
    if len(amounts) > MOST_RESOURCES:
        raise BadInput(f"{where}: {len(amounts)} resources", hint=f"at most {MOST_RESOURCES}")
    for name, amount in amounts.items():
        if not name or not isfinite(amount) or not 0 < amount <= LARGEST_AMOUNT:
            raise BadInput(f"{where}.{name}: {amount:g}", hint=f"a positive number, at most {LARGEST_AMOUNT:g}")
    return amounts


def check_site(rules: SiteRules, where: str) -> SiteRules:
    """Return the rules; BadInput says what is wrong with them."""
    check_amounts(rules.instance, f"{where}: instance")
    if rules.cost not in COSTS:
        raise BadInput(f"{where}: there is no cost '{rules.cost}'", hint=f"costs are: {', '.join(COSTS)}")
    _check_weighers(rules.weighers, where)
    if len(rules.only_tags) > MOST_TAGS or not all(0 < len(tag) <= LONGEST_TAG for tag in rules.only_tags):
        raise BadInput(f"{where}: only_tags", hint=f"at most {MOST_TAGS} tags of at most {LONGEST_TAG} characters")
    for tag in rules.only_tags:
        if tag.find("=") < 1:
            raise BadInput(f"{where}: only_tags: '{tag}' is no tag of a host", hint="as in disk=ssd")
    _check_review(rules, where)
    for name, value, least, most in (
        ("limit", rules.limit, 1, 100_000),
        ("grace", rules.grace_s, 0, 86_400),
        ("idle_exit", rules.idle_exit_s, 1, 1e9),
        ("price", rules.price_usd, 0, 1e6),
        ("per_minute", rules.per_minute, 0.01, 1e6),
        ("reserve", rules.review.reserve_usd, 0, 1e6),
        ("bid", rules.review.bid_usd, 0, 1e6),
        ("consolidate", rules.review.consolidate_s or 0.0, 0, 1e9),
        ("power", rules.review.power_usd, 0, 1e6),
        ("review", rules.review.every_s, 1, 86_400),
        ("cycle", rules.review.cycle_s, 1, 1e9),
    ):
        if not least <= value <= most:
            raise BadInput(f"{where}: {name} = {value:g}", hint=f"it is a number from {least:g} to {most:g}")
    return rules


def _check_review(rules: SiteRules, where: str) -> None:
    review = rules.review
    if not review.market and (review.reserve_usd or review.bid_usd):
        raise BadInput(f"{where}: reserve and bid belong to a market", hint="switch it on: market = true, or --market")
    if review.market and not rules.instance.get("vcpu"):
        raise BadInput(f"{where}: the market counts vCPUs, and an instance has none", hint="instance = {vcpu = 1}")
    if review.power_usd and not (review.market or rules.price_usd):
        hint = "say what an instance earns an hour: price = 0.01, or let the market say it"
        raise BadInput(f"{where}: power without a price: no instance would ever pay", hint=hint)


def _check_weighers(weighers: dict[str, float], where: str) -> None:
    for name, multiplier in weighers.items():
        if name not in WEIGHER_NAMES:
            raise BadInput(f"{where}: there is no weigher '{name}'", hint=f"weighers are: {', '.join(WEIGHER_NAMES)}")
        if not abs(multiplier) <= LARGEST_MULTIPLIER:
            hint = f"a number from -{LARGEST_MULTIPLIER:g} to {LARGEST_MULTIPLIER:g}"
            raise BadInput(f"{where}: the weigher {name} = {multiplier:g}", hint=hint)
