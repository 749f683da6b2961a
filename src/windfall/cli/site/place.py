"""`windfall place`: where a request goes and who makes way, from two JSON files. Reads files, changes nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from windfall.errors import BadInput
from windfall.placement import GROUPS, Cost, Count, Period, Request, Revenue, Scheduler, SetCost, Site, Work
from windfall.placement import parse as reading
from windfall.placement.evictions.costs import MICRO
from windfall.placement.explain import per_host, shown_cost, why
from windfall.placement.hosts.weighers import CHEAPEST, WEIGHER_NAMES
from windfall.placement.scheduler import Weighed
from windfall.units import show_duration

EXAMPLE = 'for example: Host.Free.ram_mb > 4000 && member("ssd", Host.Tags)'
# `decide` needs the best host only; to weigh all of a large site for the runners-up could take many times longer.
FULLY_WEIGHED = 256


def costs(period_s: float, search_limit: int) -> Mapping[str, Cost | SetCost]:
    period_us = round(period_s * MICRO)
    return {
        "period": Period(period_us),
        "count": Count(),
        "revenue": Revenue(period_us),
        "work": Work(),
        "groups": msgspec.structs.replace(GROUPS, limit=search_limit),
    }


@click.group()
def place() -> None:
    """Place normal and preemptible instances on the hosts you own.

    A normal request may evict preemptible instances: the cheapest set that frees enough, on the host where that set
    costs least. A preemptible request only takes what is free.
    """


def options(command: Callable[..., None]) -> Callable[..., None]:
    """What `decide` and `explain` share."""
    for option in reversed(
        (
            click.option("--hosts", "hosts_file", required=True, metavar="FILE", help="Hosts, as JSON; - reads stdin."),
            click.option("--request", "request_file", required=True, metavar="FILE", help="The request, as JSON."),
            click.option(
                "--cost",
                type=click.Choice(["period", "count", "revenue", "work", "groups"]),
                default="period",
                show_default=True,
                help="What an eviction costs: the consumed part of the billed period, the number of victims, the "
                "money that cannot be billed, the work since the last checkpoint, or the groups that lose a member.",
            ),
            click.option(
                "--weigher",
                "weighers",
                multiple=True,
                metavar="NAME[=MULTIPLIER]",
                help=f"How hosts are ranked; repeat to combine. {', '.join(WEIGHER_NAMES)}.  [default: cheapest=1]",
            ),
            click.option(
                "--period",
                "period_s",
                type=click.FloatRange(min=0.001, max=1e9),
                default=3600.0,
                show_default=True,
                help="Length of the billed period, in seconds.",
            ),
            click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Decides ties."),
            click.option(
                "--search-limit",
                type=click.IntRange(min=1),
                default=GROUPS.limit,
                show_default=True,
                help="Sets to look at per host, for costs that are not additive (groups).",
            ),
            click.option("--json", "as_json", is_flag=True, help="One JSON document."),
        )
    ):
        command = option(command)
    return command


@place.command()
@options
def decide(as_json: bool, **given: Any) -> None:
    """Name the host for a request, and the instances to evict there.

    \b
    hosts.json    [{"name": "a", "capacity": {"vcpu": 8, "ram_mb": 16000},
                    "instances": [{"id": "p1", "preemptible": true, "run_s": 5760,
                                   "resources": {"vcpu": 2, "ram_mb": 4000}}]}]
    request.json  {"preemptible": false, "resources": {"vcpu": 8, "ram_mb": 8000}}

    \b
    windfall place decide --hosts hosts.json --request request.json --json
    {"host": "a", "victims": ["p1"], "cost": 2160, "why": [...]}

    Nothing that fits, even after eviction, gives {"host": null, "why": [...]}. A cost is in seconds, dollars or
    a number, after --cost.
    """
    scheduler, request, weighed = _weigh(**given, weights_up_to=FULLY_WEIGHED)
    decision, reasons = weighed.decision, why(scheduler, request, weighed)
    if decision.victims and scheduler.cost.name == "revenue" and not _priced(scheduler.site):
        reasons.append(
            "no instance has a price_usd_per_h: each is taken to pay for its share, 1 USD/h for a whole host"
        )
    if as_json:
        document: dict[str, object] = {"host": decision.host}
        if decision.host is not None:
            document |= {"victims": list(decision.victims), "cost": shown_cost(scheduler.cost, decision.cost)}
        click.echo(msgspec.json.encode(document | {"why": reasons}))
        return
    click.echo(f"host: {decision.host or 'none'}")
    if decision.victims:
        click.echo(f"evict: {' '.join(decision.victims)}")
    for reason in reasons:
        click.echo(f"  {reason}")


@place.command()
@options
def explain(as_json: bool, **given: Any) -> None:
    """Show for every host the filter that refused it, or its weights and victims.

    \b
    windfall place explain --hosts hosts.json --request request.json
    """
    scheduler, request, weighed = _weigh(**given)
    rows = per_host(scheduler, weighed)
    if as_json:
        document = {"host": weighed.decision.host, "why": why(scheduler, request, weighed), "hosts": rows}
        click.echo(msgspec.json.encode(document))
        return
    _table(rows, list(scheduler.weighers), f"cost ({scheduler.cost.unit})")


@place.command()
@click.option("--hosts", "hosts_file", required=True, metavar="FILE", help="Hosts, as JSON; - reads stdin.")
@click.option(
    "--max-moves", type=click.IntRange(min=0), default=1_000, show_default=True, help="Move no more than this."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def consolidate(hosts_file: str, max_moves: int, as_json: bool) -> None:
    """Plan moves of preemptible instances that empty hosts. Every move fits at its turn.

    \b
    windfall place consolidate --hosts hosts.json
    """
    from windfall.placement.evictions.consolidate import consolidate as plan_moves

    plan = plan_moves(Site(reading.hosts(_document(hosts_file), hosts_file)), max_moves)
    if as_json:
        click.echo(msgspec.json.encode(plan))
        return
    for move in plan.moves:
        click.echo(f"move {move.instance} from {move.source} to {move.target}")
    click.echo(
        f"{len(plan.moves)} moves empty {len(plan.emptied)} hosts" + "".join(f" {name}" for name in plan.emptied)
    )


@place.command()
@click.option("--hosts", "hosts_file", required=True, metavar="FILE", help="Hosts, as JSON; - reads stdin.")
@click.option("--bids", "bids_file", required=True, metavar="FILE", help="Waiting bids, as a JSON list of instances.")
@click.option(
    "--reserve",
    "reserve_usd",
    type=click.FloatRange(min=0, max=1e6),
    default=0.0,
    show_default=True,
    help="The lowest price, in USD per unit and hour.",
)
@click.option("--unit", default="vcpu", show_default=True, help="The resource that a price is for.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def market(hosts_file: str, bids_file: str, reserve_usd: float, unit: str, as_json: bool) -> None:
    """Clear the market of preemptible instances once: the price, who starts, who ends.

    \b
    windfall place market --hosts hosts.json --bids bids.json --reserve 0.01
    bids.json  [{"id": "w1", "resources": {"vcpu": 2}, "bid_usd_per_h": 0.05}]

    Running preemptible instances take part if they have a bid_usd_per_h.
    """
    from windfall.placement.evictions.market import clear

    hosts = reading.hosts(_document(hosts_file), hosts_file)
    bids = reading.bids(_document(bids_file), hosts, bids_file)
    site = Site(hosts)
    if unit not in site.resources:
        raise BadInput(f"--unit {unit}: no host has this resource", hint=f"choose from: {', '.join(site.resources)}")
    cleared = clear(site, bids, round(reserve_usd * 1e6), unit)
    price_usd = cleared.price_microusd_per_h / 1e6
    if as_json:
        document = {
            "price_usd_per_h": price_usd,
            "unit": unit,
            "admitted": [{"id": identity, "host": host} for identity, host in cleared.admitted],
            "terminated": cleared.terminated,
            "waiting": cleared.waiting,
        }
        click.echo(msgspec.json.encode(document))
        return
    click.echo(f"price: {price_usd:g} USD per {unit} and hour")
    for identity, host in cleared.admitted:
        click.echo(f"  start {identity} on {host}")
    for title, ids in (("end", cleared.terminated), ("waits", cleared.waiting)):
        if ids:
            click.echo(f"  {title} {' '.join(ids)}")


@place.command()
@click.option("--hosts", "hosts_file", required=True, metavar="FILE", help="Hosts, as JSON; - reads stdin.")
@click.option("--request", "request_file", required=True, metavar="FILE", help="The request to expect, as JSON.")
@click.option("--copies", type=click.IntRange(min=1), default=1, show_default=True, help="How many of them.")
@click.option(
    "--within",
    "horizon_s",
    type=click.FloatRange(min=0, max=1e9),
    default=3600.0,
    show_default=True,
    help="Seconds until they come.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def headroom(hosts_file: str, request_file: str, copies: int, horizon_s: float, as_json: bool) -> None:
    """Plan terminations at the end of billed hours, so that requests to come find room without evictions.

    \b
    windfall place headroom --hosts hosts.json --request request.json --copies 2 --within 3600
    """
    from windfall.placement.evictions.proactive import headroom as plan_ends

    hosts = reading.hosts(_document(hosts_file), hosts_file)
    request = reading.request(_document(request_file), hosts, request_file)
    plan = plan_ends(Site(hosts), request, copies, 0.0, horizon_s)
    if as_json:
        click.echo(msgspec.json.encode({"possible": plan is not None, "terminate": plan or ()}))
        return
    if plan is None:
        within = show_duration(horizon_s)
        click.echo(f"room for {copies} cannot be had within {within} by terminations at the end of an hour")
        return
    for one in plan:
        click.echo(f"end {one.instance} on {one.host} in {show_duration(one.at_s)}")
    click.echo(f"then there is room for {copies}")


def _weigh(
    hosts_file: str,
    request_file: str,
    cost: str,
    weighers: tuple[str, ...],
    period_s: float,
    seed: int,
    search_limit: int,
    weights_up_to: float = float("inf"),
) -> tuple[Scheduler, Request, Weighed]:
    import numpy as np

    hosts = reading.hosts(_document(hosts_file), hosts_file)
    request = reading.request(_document(request_file), hosts, request_file)
    ranked = multipliers(weighers) or {CHEAPEST: 1.0}
    if cost == "revenue" or "revenue" in ranked:
        reading.require_prices(hosts, hosts_file)
    predicate = _compiled(request.expression, request_file) if request.expression else None
    function = costs(period_s, search_limit)[cost]
    scheduler = Scheduler(Site(hosts), function, ranked, np.random.default_rng(seed))
    lay_open = scheduler.weigh if len(hosts) <= weights_up_to else scheduler.outline
    return scheduler, request, lay_open(request, predicate=predicate)


def _priced(site: Site) -> bool:
    return any(instance.price_usd_per_h is not None for host in site.hosts for instance in host.instances)


def _document(file: str) -> Any:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{file}: {error.strerror or error}", hint="check the path; nothing was decided") from None
    except UnicodeDecodeError:
        raise BadInput(f"{file}: not UTF-8 text") from None
    return reading.document(text, file)


def multipliers(given: tuple[str, ...]) -> dict[str, float]:
    """Weighers as they are typed, NAME or NAME=NUMBER."""
    result: dict[str, float] = {}
    for item in given:
        name, _, factor = item.partition("=")
        if name not in WEIGHER_NAMES:
            raise BadInput(f"--weigher {item}: no weigher '{name}'", hint=f"choose from: {', '.join(WEIGHER_NAMES)}")
        if name in result:
            raise BadInput(f"--weigher {item}: '{name}' is given twice")
        try:
            result[name] = float(factor) if "=" in item else 1.0
        except ValueError:
            result[name] = float("nan")
        if not abs(result[name]) < 1e9:
            raise BadInput(f"--weigher {item}: the multiplier must be a number", hint=f"for example: {name}=2.5")
    return result


def _compiled(expression: str, file: str) -> Callable[[Mapping[str, object]], str]:
    """A ClassAd expression as a predicate. Undefined and error refuse a host and are named, never taken for true."""
    from classad2 import ClassAd, ClassAdException, ExprTree

    from windfall.policy.names import REFUSED
    from windfall.policy.syntax import SyntaxFault, parse, position, straighten, walk

    where = f"{file}: request.expression"
    try:
        node = parse(expression)
        tree = ExprTree(straighten(expression))
    except SyntaxFault as fault:
        raise BadInput(f"{where}: {position(expression, fault.offset)}: {fault.message}", hint=fault.hint) from None
    except ClassAdException:
        raise BadInput(f"{where}: the ClassAd library cannot read it", hint=EXAMPLE) from None
    for part in walk(node):
        if part.kind == "call" and part.op.lower() in REFUSED:
            hint = "the same hosts and request must give the same answer"
            raise BadInput(f"{where}: {position(expression, part.start)}: {part.op}() is refused", hint=hint)

    def why_not(scope: Mapping[str, object]) -> str:
        ad = ClassAd(dict(scope))
        ad["Verdict"] = tree
        value = ad.eval("Verdict")
        return "" if value is True else f"{expression} is {getattr(value, 'name', str(value)).lower()}"

    return why_not


def _table(rows: list[dict[str, Any]], weighers: list[str], cost_title: str) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in ("host", "weight", *weighers, "evicts", cost_title, "refused"):
        table.add_column(title, justify="left" if title in ("host", "evicts", "refused") else "right", overflow="fold")
    for row in rows:
        if row["refused_by"]:
            blanks = [""] * (len(weighers) + 3)
            table.add_row(row["host"], *blanks, f"{row['refused_by']}: {row['reason']}")
            continue
        weights = [
            f"{row['weights'][name]['normalised']:.3f} x {row['weights'][name]['multiplier']:g}" for name in weighers
        ]
        mark = " <-" if row["chosen"] else ""
        table.add_row(
            row["host"] + mark, f"{row['weight']:.3f}", *weights, " ".join(row["victims"]), f"{row['cost']:g}", ""
        )
    Console(width=None if sys.stdout.isatty() else 160).print(table)
