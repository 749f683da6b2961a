"""`windfall fleet`: rented machines that several jobs share. Touches the terminal."""

from __future__ import annotations

import math
from typing import Any

import click

from windfall.api.renting import FleetJob, FleetMachine, FleetRow
from windfall.cli.jobs.explain import sharing_lines
from windfall.cli.options import Place, json_option, place_options
from windfall.cli.show.output import moment, note, plural, print_json, print_table
from windfall.errors import BadInput
from windfall.units import parse_rate, show_duration, show_rate, show_usd

Json = dict[str, Any]


@click.group()
def fleet() -> None:
    """Fleets: rented machines that several jobs with deadlines share, under one planner.

    \b
    Examples:
      windfall fleet create night --pool cloud --budget 20/h
      windfall submit tasks.txt --fleet night --deadline 2h
      windfall fleet info night
      windfall cost --fleet night
    """


@fleet.command()
@click.argument("name")
@click.option("--pool", "pools", multiple=True, required=True, metavar="NAME", help="Rent from this pool. Repeatable.")
@click.option("--planner", default="", metavar="NAME", help="windfall, scs, greedy or gain.  [default: windfall]")
@click.option(
    "--budget", metavar="USD/TIME", help="Spend at most this: 20/h, 400/day, 9000/month.  [default: no limit]"
)
@click.option("--share", "shares", multiple=True, metavar="OWNER=N", help="Weight of an owner's jobs (1).  Repeatable.")
@click.option(
    "--cap", "caps", multiple=True, metavar="OWNER=CORES", help="Most cores of an owner at once.  Repeatable."
)
@place_options
@json_option
def create(
    name: str, pools: tuple[str, ...], planner: str, budget: str | None, shares: tuple[str, ...],
    caps: tuple[str, ...], place: Place, as_json: bool,
) -> None:  # fmt: skip
    """Create a fleet. It rents nothing before a job names it.

    Shares count while the fleet cannot run at once all that could run.

    \b
    Examples:
      windfall fleet create evening --pool cloud
      windfall fleet create day --pool cloud --budget 20/h --planner scs
      windfall fleet create both --pool cloud --share ana=3 --cap bo=16
    """
    microusd, period_s = (None, None) if budget is None else parse_rate(budget, "--budget")
    with place.open() as client:
        budget_usd = None if microusd is None else microusd / 1e6
        told = client.create_fleet(
            name, list(pools), planner=planner, budget_usd=budget_usd, budget_s=period_s,
            owner_shares={owner: 1.0 if math.isnan(n) else n for owner, n in _by_owner(shares, "--share").items()},
            owner_caps=_whole(_by_owner(caps, "--cap")),
        )  # fmt: skip
    if as_json:
        print_json(told)
        return
    click.echo(f"fleet '{name}' is there: windfall submit ... --fleet {name} --deadline 2h")
    for other in told["shares_pools_with"]:
        note(f"fleet '{other}' rents from the same pool: the limits of its offers are for both together")


def _by_owner(entries: tuple[str, ...], option: str) -> dict[str, float]:
    """OWNER=N, where `none` (only of `change`) is said as not a number."""
    found: dict[str, float] = {}
    for entry in entries:
        owner, equals, text = entry.rpartition("=")
        try:
            number = math.nan if text == "none" else float(text)
        except ValueError:
            number = -1.0
        if not equals or number <= 0 or math.isinf(number) or (option == "--cap" and number % 1 > 0):
            raise BadInput(f"{option} {entry}: it takes an owner and a number above 0", hint=f"{option} ana=4")
        found[owner] = number
    return found


def _whole(numbers: dict[str, float]) -> dict[str, int]:
    if missing := next((owner for owner, number in numbers.items() if math.isnan(number)), None):
        raise BadInput(f"--cap {missing}=none: a new fleet has no caps", hint="leave it out")
    return {owner: int(number) for owner, number in numbers.items()}


def _or_none(numbers: dict[str, float]) -> dict[str, float | None]:
    return {owner: None if math.isnan(number) else number for owner, number in numbers.items()}


@fleet.command()
@click.argument("name")
@click.option("--planner", metavar="NAME", help="windfall, scs, greedy or gain.")
@click.option("--budget", metavar="USD/TIME|none", help="Spend at most this: 20/h, 400/day; none: no limit.")
@click.option(
    "--share", "shares", multiple=True, metavar="OWNER=N|none", help="Weight of an owner's jobs.  Repeatable."
)
@click.option("--cap", "caps", multiple=True, metavar="OWNER=CORES|none", help="Most cores of an owner.  Repeatable.")
@place_options
@json_option
def change(
    name: str, planner: str | None, budget: str | None, shares: tuple[str, ...], caps: tuple[str, ...],
    place: Place, as_json: bool,
) -> None:  # fmt: skip
    """Change the planner, the budget, shares or caps of a fleet. What is not said stays.

    \b
    Examples:
      windfall fleet change night --budget 30/h --cap bo=8 --share ana=none
      windfall fleet change night --planner scs
    """
    changes: Json = {} if planner is None else {"planner": planner}
    if budget == "none":
        changes["no_budget"] = True
    elif budget is not None:
        microusd, period_s = parse_rate(budget, "--budget")
        changes |= {"budget_usd": microusd / 1e6, "budget_s": period_s}
    if shares:
        changes["owner_shares"] = _or_none(_by_owner(shares, "--share"))
    if caps:
        limits = _or_none(_by_owner(caps, "--cap"))
        changes["owner_caps"] = {owner: None if cap is None else int(cap) for owner, cap in limits.items()}
    if not changes:
        raise BadInput("nothing to change was said", hint=f"windfall fleet change {name} --budget 30/h")
    with place.open() as client:
        told = client.change_fleet(name, **changes)
    if as_json:
        print_json(told)
    else:
        click.echo(f"fleet '{name}' is changed; the next plan keeps to it")


@fleet.command("list")
@place_options
@json_option
def list_(place: Place, as_json: bool) -> None:
    """List the fleets: jobs, machines, money."""
    with place.open() as client:
        rows = client.fleets()
    if as_json:
        print_json({"fleets": rows})
        return
    if not rows:
        click.echo("there are no fleets.  try: windfall fleet create night --pool cloud")
        return
    heads = ["fleet", "mode", "planner", "pools", "jobs", "machines", "idle", "spent", "of it idle", "budget"]
    print_table(heads, (_cells(row) for row in rows))


def _cells(row: FleetRow) -> list[Any]:
    return [
        row["fleet"],
        row["mode"],
        row["planner"],
        ", ".join(row["pools"]),
        row["jobs"],
        row["machines"],
        row["idle"],
        show_usd(row["spent_usd"]),
        show_usd(row["idle_usd"]),
        _budget(row),
    ]


def _budget(row: FleetRow) -> str:
    usd, every_s = row["budget_usd"], row["budget_s"]
    return "-" if usd is None or every_s is None else show_rate(usd, every_s)


@fleet.command()
@click.argument("name")
@place_options
@json_option
def info(name: str, place: Place, as_json: bool) -> None:
    """Show one fleet: its jobs, its machines and which jobs share them, and its last plan."""
    with place.open() as client:
        told = client.fleet(name)
    if as_json:
        print_json(told)
        return
    click.echo(
        f"fleet '{name}' ({told['mode']}), planner {told['planner']}: {plural(told['jobs'], 'job')}, "
        f"{plural(told['machines'], 'machine')}, {show_usd(told['spent_usd'])} spent, "
        f"{show_usd(told['idle_usd'])} of it for cycles that no job used"
    )
    if told["budget_left_usd"] is not None:
        left = f"{show_usd(told['budget_left_usd'])} is left until {moment(told['budget_until_s'])}"
        click.echo(f"  budget      {_budget(told)}; {left}")
    for owner in sorted({*told["owner_shares"], *told["owner_caps"]}):
        cap = told["owner_caps"].get(owner)
        limit = "" if cap is None else f", at most {plural(cap, 'core')}"
        click.echo(f"  owner       {owner}: share {told['owner_shares'].get(owner, 1.0):g}{limit}")
    for line in told["because"]:
        click.echo(f"  planned     {line}")
    for line in [*told["refused"], *([told["error"]] if told["error"] else [])]:
        click.echo(f"  refused     {line}")
    if told["unfinished"]:
        heads = ["job", "name", "state", "owner", "unfinished", "of", "deadline"]
        print_table(heads, map(_job, told["unfinished"]))
    if told["there"]:
        print_table(["machine", "offer", "phase", "held", "$", "jobs"], (_machine(row) for row in told["there"]))
    for line in sharing_lines([row for row in told["there"] if len(row["jobs"]) > 1]):
        click.echo(line)


def _job(row: FleetJob) -> list[Any]:
    said = [row["job"], row["name"], row["state"], row["owner"], row["unfinished"], row["total"]]
    return [*said, moment(row["deadline_s"])]


def _machine(row: FleetMachine) -> list[Any]:
    jobs = ", ".join(f"{part['job']} ({show_usd(part['cost_usd'])})" for part in row["jobs"][:8])
    more = f" and {len(row['jobs']) - 8} more" if len(row["jobs"]) > 8 else ""
    held = show_duration(row["billed_s"])
    return [f"m{row['machine']}", row["offer"], row["phase"], held, f"{row['cost_usd']:.4f}", (jobs + more) or "-"]


def _told(name: str, action: str, place: Place, as_json: bool, done: str) -> None:
    with place.open() as client:
        told = client.tell_fleet(name, action)
    if as_json:
        print_json(told)
    else:
        click.echo(f"fleet '{name}' {done}")


@fleet.command()
@click.argument("name")
@place_options
@json_option
def pause(name: str, place: Place, as_json: bool) -> None:
    """Rent nothing more; machines that are there go on."""
    _told(name, "pause", place, as_json, "rents nothing more; windfall fleet resume opens it again")


@fleet.command()
@click.argument("name")
@place_options
@json_option
def resume(name: str, place: Place, as_json: bool) -> None:
    """Open a fleet again that was paused or drained."""
    _told(name, "resume", place, as_json, "is open")


@fleet.command()
@click.argument("name")
@place_options
@json_option
def drain(name: str, place: Place, as_json: bool) -> None:
    """Take no more jobs, finish those that are there, give all machines back."""
    _told(name, "drain", place, as_json, "takes no more jobs; its machines go when its jobs have ended")


@fleet.command()
@click.argument("name")
@place_options
@json_option
def delete(name: str, place: Place, as_json: bool) -> None:
    """Delete a fleet whose jobs have all ended; its machines are given back and its bill is kept."""
    with place.open() as client:
        told = client.delete_fleet(name)
    if as_json:
        print_json(told)
    else:
        click.echo(f"fleet '{name}' is deleted; it has cost {show_usd(told['spent_usd'])}")
