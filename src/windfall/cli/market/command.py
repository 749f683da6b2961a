"""`windfall market`: what was learned of offers. Touches the terminal and the files that are named."""

from __future__ import annotations

import time
from pathlib import Path
from shlex import quote
from typing import Any

import click

from windfall.api.market import ByAge, ByHour, LearnedOffer
from windfall.cli.options import Place, json_option, place_options
from windfall.cli.show.output import plot_file, plural, print_json, print_table, wrote
from windfall.client.local.server import jobs_at_rest, state_location
from windfall.errors import BadInput
from windfall.units import show_duration, show_price, show_usd

Json = dict[str, Any]
BAR = 24
"""Characters of the longest bar."""


@click.group()
def market() -> None:
    """What was learned of spot offers: how often they are refused and interrupted, and what that rests on.

    It is kept in the state, across jobs and servers, and plans use it.

    \b
    Examples:
      windfall market show
      windfall market import trace.json --offer cloud/spot
    """


@market.command()
@click.argument("offer", required=False)
@click.option("--plot", metavar="FILE", callback=plot_file, help="Draw the rates by age and by hour.")
@place_options
@json_option
def show(offer: str | None, plot: str | None, place: Place, as_json: bool) -> None:
    """Show what was learned of all offers, or of one (POOL/OFFER or OFFER) by age of a spell and hour of the day.

    \b
    Examples:
      windfall market show
      windfall market show cloud/spot --plot spot.png
    """
    rows = _rows(place)
    if offer is not None:
        rows = [row for row in rows if offer in (f"{row['pool']}/{row['offer']}", row["offer"])]
        if not rows:
            raise BadInput(f"nothing is known of an offer '{offer}'", hint="see them: windfall market show")
    if as_json:
        print_json({"offers": rows})
    elif not rows:
        click.echo("no offer is known: no pool that rents machines was opened.  try: windfall help pools")
    else:
        _print_totals(rows)
        for row in rows if offer is not None else []:
            _print_one(row)
    if plot:
        from windfall.figures.market import market_picture
        from windfall.figures.saved import save

        save(market_picture([row for row in rows if row["by_age"]]), plot)
        wrote(plot)


def _rows(place: Place) -> list[LearnedOffer]:
    """From the server, or from the log of a state on which none runs."""
    resting = None if place.address else jobs_at_rest(state_location(place.state))
    if resting is not None:
        return resting.market()
    with place.open() as client:
        return client.market()


def _print_totals(rows: list[LearnedOffer]) -> None:
    heads = ["offer", "market", "price", "launches", "refused", "notices", "reclaimed", "hibernated", "resumed", "up",
             "imported", "interrupted per hour"]  # fmt: skip
    print_table(
        heads,
        (
            [f"{row['pool']}/{row['offer']}", row["market"], _price(row), row["launches"], row["refused"],
             row["notices"], row["reclaimed"], row["hibernated"], row["resumed"],
             show_duration(row["up_s"]), _imported(row), _rate(row)]
            for row in rows
        ),
    )  # fmt: skip


def _price(row: LearnedOffer) -> str | None:
    return None if row["price_usd"] is None else _of_cycle(row["price_usd"], row["cycle_s"])


def _of_cycle(usd: float, cycle_s: float | None) -> str:
    """The price of a billing cycle; how long that was is not known once its pool is gone."""
    return f"{show_usd(usd)} per cycle" if cycle_s is None else show_price(usd, cycle_s)


def _imported(row: LearnedOffer) -> str | None:
    hours = sum(source["up_h"] for source in row["sources"])
    return f"{hours:,.0f} h" if row["sources"] else None


def _rate(row: LearnedOffer) -> str | None:
    if row["interrupted_per_h"] is None:
        return None
    told = "" if row["told_per_h"] is None else f" (told {_per_h(row['told_per_h'])})"
    return f"{_per_h(row['interrupted_per_h'])}{told}"


def _per_h(rate: float) -> str:
    """`0.451`; a rate of thousands an hour, as of an emulated cloud in a hurry, as `1,800`."""
    return f"{rate:.3g}" if rate < 999.5 else f"{rate:,.0f}"


def _print_one(row: LearnedOffer) -> None:
    """One offer: by age, by hour of the day, prices, what is interrupted with it, and where it is from."""
    if row["by_age"]:
        _print_by_age(row["by_age"])
        _print_by_hour(row["by_hour"])
    capacity = row["capacity"]
    if capacity["state"] != "unknown":
        ago = show_duration(capacity["seen_s_ago"])
        click.echo(f"capacity: {capacity['state']} for {show_duration(capacity['since_s'])}, last seen {ago} ago")
    if prices := row["prices"]:
        mean, low, high = (
            _of_cycle(usd, row["cycle_s"]) for usd in (prices["mean_usd"], prices["low_usd"], prices["high_usd"])
        )
        spread = 100 * prices["spread_usd"] / prices["mean_usd"] if prices["mean_usd"] else 0.0
        watched = show_duration(prices["watched_s"])
        click.echo(
            f"prices: {mean} on average ({low} to {high}, a spread of {spread:.0f} %), "
            f"{plural(prices['changes'], 'change')} in {watched}"
        )
    for other, times in row["together"].items():
        click.echo(f"interrupted together with {other}: {plural(times, 'time')}")
    for source in row["sources"]:
        click.echo(
            f"imported: {source['source']} ({source['up_h']:,.1f} h up, {source['interruptions']:,.1f} interruptions, "
            f"{plural(source['price_changes'], 'change')} of price)"
        )


def _print_by_age(rows: list[ByAge]) -> None:
    most = max(row["interrupted_per_h"] for row in rows) or 1.0
    heads = ["age", "interrupted per hour", "", "interruptions", "hours up", "comes back per hour", "returns",
             "hours absent"]  # fmt: skip
    print_table(
        heads,
        (
            [_age(row), f"{row['interrupted_per_h']:.3f}", "#" * round(BAR * row["interrupted_per_h"] / most),
             f"{row['ends']:.1f}", f"{row['up_h']:.1f}", f"{row['returns_per_h']:.3f}", f"{row['returns']:.1f}",
             f"{row['absent_h']:.1f}"]
            for row in rows
        ),
    )  # fmt: skip


def _age(row: ByAge) -> str:
    since = show_duration(row["from_s"]) if row["from_s"] else "0"
    return f"{since} to {show_duration(row['to_s'])}" if row["to_s"] is not None else f"over {since}"


def _print_by_hour(rows: list[ByHour]) -> None:
    seen = [row for row in rows if row["up_h"] > 0.0 or row["ends"] > 0.0]
    alike = {(round(row["ends"], 6), round(row["up_h"], 6)) for row in rows}
    if not seen or len(alike) == 1:  # series without times count for every hour alike
        return
    heads = ["hour (UTC)", "interruptions", "hours up"]
    print_table(heads, ([f"{row['hour']:02d}:00", f"{row['ends']:.1f}", f"{row['up_h']:.1f}"] for row in seen))


@market.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--offer", required=True, metavar="POOL/OFFER", help="The spot offer that the series is of.")
@click.option("--of", default="", metavar="ZONE/TYPE", help="Which prices, in a file with those of several types.")
@click.option("--since", metavar="TIME", help="When a series without times begins, as in 2022-10-26T22:05Z.")
@place_options
@json_option
def import_(file: Path, offer: str, of: str, since: str | None, place: Place, as_json: bool) -> None:
    """Read a published series of availability, lives or prices into what is known of a spot offer.

    Formats: docs/howto/market.md. A series counts for at most 200 hours, and once.

    \b
    Examples:
      windfall market import trace.json --offer cloud/spot
      windfall market import prices.csv --offer cloud/spot --of us-east-1a/m5.large
    """
    from windfall.cli.market.files import read_series

    read = read_series(file, of, None if since is None else _since(since))
    published = read.published
    body: Json = {
        "offer": offer, "source": f"{file.name}{f' ({of})' if of else ''}"[-200:], "digest": read.digest,
        "hours": published.hours, "ends": published.ends, "cells": published.cells,
    }  # fmt: skip
    if (prices := published.prices) is not None:
        names = ("changes", "held_s", "sum_usd", "squares_usd", "low_usd", "high_usd", "log_squares")
        body["prices"] = {name: getattr(prices, name) for name in names}
    with place.open() as client:
        told = client.import_series(body)
    if as_json:
        print_json(told | {"what": read.what})
    elif prices is not None:
        click.echo(f"{told['offer']}: {plural(prices.changes, 'change')} of price in {show_duration(prices.held_s)}")
    else:
        click.echo(f"{told['offer']}: {published.ends:,.1f} interruptions in {published.hours:,.1f} h up")
    if not as_json:
        click.echo(f"  see: windfall market show {quote(told['offer'])}{place.words}")


def _since(text: str) -> float:
    from datetime import UTC, datetime

    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadInput(f"--since: '{text}' is no time", hint="as in 2022-10-26T22:05Z") from None
    found = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if not 0.0 <= found <= time.time():
        raise BadInput(f"--since: {text} is not in the past", hint="the beginning of the published series")
    return found
