"""The options of `site create` and `site change`, and the body that they make. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from windfall.cli.site.place import multipliers
from windfall.placement.hosts.weighers import WEIGHER_NAMES

Json = dict[str, Any]
Command = Callable[..., Any]

DEFAULTS: Json = {
    "limit": 1000, "grace": "10s", "cost": "work", "idle_exit": "1m", "price": 0.0, "market": False, "reserve": 0.0,
    "bid": 0.0, "power": 0.0, "review": "1m", "cycle": "1h",
}  # fmt: skip
"""Of a new site. Where a site is changed there are none: what is not named stays."""
KEYS = {
    "limit": "limit", "grace": "grace", "cost": "cost", "idle_exit": "idle_exit", "price": "price_usd",
    "market": "market", "reserve": "reserve_usd", "bid": "bid_usd", "consolidate": "consolidate", "power": "power_usd",
    "review": "review", "cycle": "cycle",
}  # fmt: skip
"""Option: key of the body."""
ANY_TAG = "any"
"""Takes back what `--only-tag` said before."""
INSTANCE = {"instance_vcpu": "vcpu", "instance_ram": "ram_mb", "instance_disk": "disk_gb"}
CHANGEABLE = (
    "instance", "limit", "grace_s", "cost", "idle_exit_s", "price_usd", "weighers", "only_tags", "market",
    "reserve_usd", "bid_usd", "consolidate_s", "power_usd", "review_s", "cycle_s",
)  # fmt: skip
"""Keys of a site's row that are rules."""


def rules_options(defaults: Json) -> Callable[[Command], Command]:
    """All rules of a site as options, with these defaults."""

    def option(name: str, help: str, **more: Any) -> Command:
        key = name.removeprefix("--").replace("-", "_")
        if key in defaults:
            more |= {"default": defaults[key], "show_default": True}
        return click.option(name, help=help, **more)

    weighers = f"How hosts are ranked: {', '.join(WEIGHER_NAMES)}. Repeatable.  [default: cheapest=1]"
    options = [
        option("--instance-vcpu", "Cores of a preemptible instance.", type=float, required=bool(defaults), metavar="N"),
        option("--instance-ram", "Its memory.", type=float, metavar="MB"),
        option("--instance-disk", "Its disk.", type=float, metavar="GB"),
        option("--limit", "Preemptible instances at most.", type=int, metavar="N"),
        option("--grace", "From the notice to the kill.", metavar="TIME"),
        option("--cost", "What an eviction costs: work (that is lost), period, count or revenue.", metavar="NAME"),
        option("--idle-exit", "Instances end after this idle time.", metavar="TIME"),
        option("--price", "What an instance costs per hour.", type=float, metavar="USD"),
        click.option("--weigher", "weighers", multiple=True, metavar="NAME[=N]", help=weighers),
        click.option(
            "--only-tag", "only_tags", multiple=True, metavar="K=V",
            help="Preemptible instances on hosts with it; any: on all. Repeatable.",
        ),
        click.option(
            "--market/--no-market", default=defaults.get("market"),
            help="Preemptible instances bid; those that bid less than the price end.",
        ),
        option("--reserve", "Least price of an hour of one vCPU.", type=float, metavar="USD"),
        option("--bid", "What a worker bids for an hour.", type=float, metavar="USD"),
        option("--consolidate", "Empty hosts where that loses at most this much work; or never.", metavar="TIME"),
        option("--power", "Cost of a host's hour; what does not pay ends.", type=float, metavar="USD"),
        option("--review", "How often these three are looked at.", metavar="TIME"),
        option("--cycle", "Billing cycle of an instance, from its start.", metavar="TIME"),
    ]  # fmt: skip

    def decorate(command: Command) -> Command:
        for one in reversed(options):
            command = one(command)
        return command

    return decorate


def body_of(rules: Json) -> Json:
    """The body of a request, with what was named."""
    amounts = {INSTANCE[name]: rules[name] for name in INSTANCE if rules[name] is not None}
    body = {key: rules[name] for name, key in KEYS.items() if rules[name] is not None}
    if amounts:
        body["instance"] = amounts
    if rules["weighers"]:
        body["weighers"] = multipliers(rules["weighers"])
    if rules["only_tags"]:
        body["only_tags"] = [] if rules["only_tags"] == (ANY_TAG,) else list(rules["only_tags"])
    return body
