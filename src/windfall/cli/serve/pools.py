"""`windfall pool`: where hosts come from. Touches the terminal."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from windfall.cli.options import Place, json_option, place_options
from windfall.cli.show.output import note, print_json, print_table
from windfall.errors import BadInput
from windfall.units import parse_duration, show_duration, show_price

Json = dict[str, Any]


@click.group()
def pool() -> None:
    """Pools: where hosts come from. They are configured by `windfall server --pools pools.toml`.

    \b
    Examples:
      windfall pool list
      windfall pool info cluster
      windfall pool doctor cluster
      windfall pool machines
    """


@pool.command("list")
@place_options
@json_option
def list_(place: Place, as_json: bool) -> None:
    """List the pools: limits, running and wanted workers, and offers of machines."""
    with place.open() as client:
        pools, rented = client.pools(), client.machines(there=True)
    if as_json:
        print_json({"pools": pools, "offers": rented["offers"], "strangers": rented["strangers"]})
        return
    if not pools and not rented["offers"]:
        click.echo("no pools are configured: workers are started by hand.  try: windfall server --pools pools.toml")
    if pools:
        heads = ["pool", "kind", "limit", "running", "pending", "free slots", "wanted slots", "$ per hour", "remark"]
        names = ["pool", "kind", "limit", "running", "pending", "free_slots", "wanted_slots", "price_usd"]
        print_table(heads, ([*(row[name] for name in names), _remark(row)] for row in pools))
    if rented["offers"]:
        _print_offers(rented)
    _warn_of_strangers(rented["strangers"])


def _print_offers(rented: Json) -> None:
    def of(offer: Json) -> int:
        machines = rented["machines"]
        return sum((row["pool"], row["offer"]) == (offer["pool"], offer["offer"]) for row in machines)

    heads = ["pool", "offer", "market", "cores", "price", "boots in", "limit", "rented"]
    names = ["pool", "offer", "market", "cores"]
    print_table(
        heads,
        (
            [*(row[name] for name in names), show_price(row["price_usd"], row["cycle_s"]), show_duration(row["lag_s"]),
             row["limit"], of(row)]
            for row in rented["offers"]
        ),
    )  # fmt: skip


def _warn_of_strangers(strangers: list[Json]) -> None:
    for row in strangers:
        note(f"pool {row['pool']}: machine {row['id']} is not one of this server's: {row['about']}")


def _remark(row: Json) -> str:
    if row["closed_until"] is not None:
        left_s = row["closed_until"] - time.time()
        again = f"next try in {show_duration(left_s)}" if left_s > 0 else "a test is due"
        return f"failed {row['errors']} times, {again}: {row['last_error'][:80]}"
    return str(row["held_back"] or row["last_error"][:80])


@pool.command()
@click.argument("name")
@place_options
@json_option
def info(name: str, place: Place, as_json: bool) -> None:
    """Show one pool, and the hosts that came from it."""
    with place.open() as client:
        pools = {row["pool"]: row for row in client.pools()}
        hosts = [row for row in client.hosts() if row["pool"] == name]
        rented = client.machines(pool=name, there=True)
    if rented["offers"]:
        _print_rented(rented, as_json)
        return
    if name not in pools:
        raise BadInput(f"there is no pool '{name}'", hint="see them: windfall pool list", code="no-such-pool")
    row = pools[name]
    if as_json:
        print_json({**row, "hosts": hosts})
        return
    click.echo(f"pool {name}: {row['kind']}, {row['running']} running, {row['pending']} pending")
    for key, value in row.items():
        if key not in ("pool", "kind", "running", "pending") and value not in (None, ""):
            click.echo(f"  {key:<14} {value}")
    if remark := _remark(row):
        click.echo(f"  {remark}")
    here = [host for host in hosts if host["state"] != "gone"]
    if here:
        heads = ["host", "state", "slots", "held", "done", "failed", "lost"]
        print_table(heads, ([host[head] for head in heads] for host in here))


def _print_rented(rented: Json, as_json: bool) -> None:
    if as_json:
        print_json(rented)
        return
    _print_offers(rented)
    _print_machines(rented, everything=False)


def _print_machines(rented: Json, everything: bool) -> None:
    if rented["machines"]:
        heads = ["machine", "pool", "offer", "job", "phase", "tasks", "waiting", "held", "cycle ends in", "$", "remark"]
        print_table(heads, (_machine_cells(row) for row in rented["machines"]))
    else:
        click.echo("no machines are rented" + ("" if everything else ".  earlier ones: windfall pool machines --all"))
    _warn_of_strangers(rented["strangers"])


@pool.command()
@click.argument("name")
@click.option("--pools", "file", metavar="FILE", help="Examine a pool of this file, without a server.")
@click.option("--no-trial", is_flag=True, help="Start no worker on trial.")
@click.option("--wait", default="30s", show_default=True, metavar="T", help="Time within which that worker must come.")
@place_options
@json_option
def doctor(name: str, file: str | None, no_trial: bool, wait: str, place: Place, as_json: bool) -> None:
    """Say in plain words what is wrong with a pool, and what to do.

    Looks at credentials, versions and ways to the server; then starts a worker and ends it again.

    \b
    Examples:
      windfall pool doctor lab
      windfall pool doctor lab --pools pools.toml
    """
    wait_s = parse_duration(wait, "--wait")
    if file is None:
        with place.open() as client:
            found = client.doctor(name, not no_trial, wait_s)
    else:
        found = _examined(name, Path(file), not no_trial, wait_s)
    if as_json:
        print_json(found)
    else:
        for check in found["checks"]:
            click.echo(f"  {'WRONG' if check['error'] else 'ok':<6} {check['what']}")
            if check["error"]:
                click.echo(f"         {check['error']}")
                click.echo(f"         try: {check['hint']}" if check["hint"] else "", nl=bool(check["hint"]))
        click.echo(f"pool {name} works" if found["ok"] else f"pool {name} does not work yet")
    if not found["ok"]:
        raise SystemExit(1)


def _examined(name: str, file: Path, trial: bool, wait_s: float) -> Json:
    """The same with a server of its own, which ends with the examination."""
    import tempfile

    from windfall.client import Client
    from windfall.pools.config import read_pools
    from windfall.server import embedded

    pools = [pool for pool in read_pools(file) if pool.name == name]
    if not pools:
        raise BadInput(f"{file}: there is no pool '{name}' in it", hint="its name stands below [[pool]]")
    with (
        tempfile.TemporaryDirectory(prefix="windfall-doctor-") as folder,
        embedded.start(Path(folder) / "state", pools=pools) as server,
        Client(server.url, server.token) as client,
    ):
        return client.doctor(name, trial, wait_s)


@pool.command()
@click.argument("name", required=False, default="")
@click.option("--job", default="", metavar="JOB", help="Only those of this job.")
@click.option("--all", "all_", is_flag=True, help="Those that have ended, too.")
@place_options
@json_option
def machines(name: str, job: str, all_: bool, place: Place, as_json: bool) -> None:
    """List rented machines: what they do, what they have cost, and strangers found at the provider.

    \b
    Examples:
      windfall pool machines
      windfall pool machines cloud --all --json
    """
    with place.open() as client:
        rented = client.machines(pool=name, job=job, there=not all_)
    if as_json:
        print_json(rented)
        return
    _print_machines(rented, everything=all_)


def _machine_cells(row: Json) -> list[Any]:
    remark = row["error"] or row["cause"]
    if row["taken_in_s"] is not None:
        remark = f"will be taken in {show_duration(max(0.0, row['taken_in_s']))}"
    cycle = "-" if row["paid_for_s"] is None else show_duration(row["paid_for_s"])
    cells = [f"m{row['machine']}", row["pool"], row["offer"], row["job"], row["phase"], row["running"], row["waiting"]]
    return [*cells, show_duration(row["held_s"]), cycle, f"{row['cost_usd']:.4f}", remark]


@pool.command()
@click.argument("pool")
@click.argument("machine")
@click.argument("what", type=click.Choice(["hibernate", "resume", "terminate", "notice"]))
@place_options
@json_option
def poke(pool: str, machine: str, what: str, place: Place, as_json: bool) -> None:
    """Do to a machine of an emulated cloud what a provider would do.

    MACHINE is its number, as in m3 or 3, or its id there. `notice`: say that it will be taken, and take it then.

    \b
    Example:
      windfall pool poke cloud m1 hibernate
      windfall pool poke cloud m1 resume
    """
    with place.open() as client:
        done = client.poke(pool, machine, what)
    if as_json:
        print_json(done)
    else:
        click.echo(f"{done['id']}: {what}")
