"""`windfall cost`: what the machines of a job or a fleet have cost, and what is to come. Touches the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from windfall.api.renting import BillSum, JobCost, MachineBill
from windfall.cli.options import Place, json_option, place_options
from windfall.cli.show.money import over_budget_usd, over_words
from windfall.cli.show.output import moment, plural, print_json, print_table
from windfall.units import show_duration, show_price, show_usd

Json = dict[str, Any]
_SHOWN_MACHINES = 20


@click.command()
@click.argument("job", default="last")
@click.option("--all", "all_", is_flag=True, help="Every machine, however many there are.")
@click.option("--fleet", metavar="NAME", help="The bill of a fleet, by job, instead.")
@place_options
@json_option
def cost(job: str, all_: bool, fleet: str | None, place: Place, as_json: bool) -> None:
    """Show what a job has cost: by machine, offer and pool, against its budget, and what is expected to come.

    Every begun billing cycle counts in full, as the provider bills it; hibernated time is free. Jobs that share a
    fleet are charged their part of the cycles that they used; cycles that none used are charged to the fleet.

    \b
    Examples:
      windfall cost last
      windfall cost fit --json
      windfall cost --fleet night
    """
    if fleet is not None:
        _of_fleet(fleet, all_, place, as_json)
        return
    with place.open() as client:
        told = client.job(job).cost()
    if as_json:
        print_json(told)
        return
    click.echo(headline(told))
    if not told["machines"]:
        return
    if (share := _used(told)) is not None:
        used = f"{100 * share:.0f} %"
        click.echo(f"  tasks used {used} of the paid time; the rest was booting, waiting and lost attempts")
    heads = ["offer", "pool", "market", "machines", "billed cycles", "held", "$"]
    print_table(heads, (_offer_cells(row) for row in told["offers"]))
    click.echo()
    shown = told["machines"] if all_ else told["machines"][:_SHOWN_MACHINES]
    heads = ["machine", "offer", "from", "to", "held", "hibernated", "billed cycles", "price", "$", "end"]
    print_table(heads, (_machine_cells(row) for row in shown))
    if len(told["machines"]) > len(shown):
        click.echo(f"... and {len(told['machines']) - len(shown):,} more: --all")
    if over_usd := over_budget_usd(told):
        click.echo(f"  {over_words(over_usd, told)}")
    for row in told["strangers"]:
        click.echo(
            f"windfall: {row['pool']}: machine {row['id']} is not one of this server's: {row['about']}", err=True
        )


def _of_fleet(name: str, all_: bool, place: Place, as_json: bool) -> None:
    """The bill of a fleet: by job with what was idle, then by machine. Both columns add up to the same sum."""
    with place.open() as client:
        told = client.fleet_cost(name)
    if as_json:
        print_json(told)
        return
    click.echo(f"fleet '{name}': {show_usd(told['spent_usd'])} for {plural(len(told['machines']), 'machine')}")
    rows = [[row["job"], row["name"], row["state"], f"{row['cost_usd']:.6f}"] for row in told["jobs"]]
    idle = ["-", "(cycles that no job used)", "", f"{told['idle_usd']:.6f}"]
    sum_ = ["", "all", "", f"{told['spent_usd']:.6f}"]
    print_table(["job", "name", "state", "$"], [*(rows if all_ else rows[-_SHOWN_MACHINES:]), idle, sum_])
    if told["machines"]:
        click.echo()
        shown = told["machines"] if all_ else told["machines"][-_SHOWN_MACHINES:]
        heads = ["machine", "offer", "from", "to", "held", "hibernated", "billed cycles", "price", "$", "end"]
        print_table(heads, (_machine_cells(row) for row in shown))


def headline(told: JobCost) -> str:
    """Spent, budget, forecast: in one line."""
    name = f"job {told['job']} '{told['name']}'"
    if not told["machines"] and told["forecast_usd"] is None:
        return f"{name} has rented no machines: it has cost nothing"
    text = f"{name} ({told['state']}): {show_usd(told['spent_usd'])} for {plural(len(told['machines']), 'machine')}"
    if told["budget_usd"] is not None:
        text += f" of a budget of {show_usd(told['budget_usd'])}" + (
            ", which allows no further one" if told["held_by_budget"] else ""
        )
    to_come_usd, forecast_usd = told["to_come_usd"], told["forecast_usd"]
    if told["state"] not in ("done", "failed", "cancelled") and to_come_usd is not None and forecast_usd is not None:
        text += f"; about {show_usd(to_come_usd)} to come, {show_usd(forecast_usd)} in all"
    if told["first_forecast_usd"] is not None:
        text += f"   (first predicted: {show_usd(told['first_forecast_usd'])})"
    return text


def _used(told: JobCost) -> float | None:
    return min(1.0, told["run_s"] / told["paid_core_s"]) if told["paid_core_s"] else None


def _offer_cells(row: BillSum) -> list[Any]:
    return [
        row["offer"],
        row["pool"],
        row["market"],
        row["machines"],
        row["cycles"],
        show_duration(row["billed_s"]),
        _usd(row),
    ]


def _machine_cells(row: MachineBill) -> list[Any]:
    end = row["cause"] or row["phase"]
    price = show_price(row["price_usd"], row["cycle_s"])
    hibernated = show_duration(row["slept_s"]) if row["slept_s"] else "-"
    when = [moment(row["requested_s"]), moment(row["ended_s"]), show_duration(row["billed_s"]), hibernated]
    return [f"m{row['machine']}", row["offer"], *when, row["cycles"], price, _usd(row), end]


def _usd(row: Mapping[str, Any]) -> str:
    return f"{row.get('share_usd', row['cost_usd']):.4f}"
