"""`windfall pool`: where hosts come from. Touches the terminal."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from windfall.api.answers import PoolRow, RentingPool
from windfall.api.renting import MachineRow, Machines, OfferRow, Stranger
from windfall.api.small import PoolFindings
from windfall.cli.options import Place, json_option, place_options
from windfall.cli.show.output import moment, note, print_json, print_table
from windfall.client import Client
from windfall.client.local.server import LocalServer, here, state_location
from windfall.errors import BadInput
from windfall.units import parse_duration, show_duration, show_price

Json = dict[str, Any]
_REMOVE_S = 60.0
"""Seconds that `pool remove --now` waits for the last worker to end."""


@click.group()
def pool() -> None:
    """Pools: where hosts come from. A file names them (`windfall server --pools pools.toml`), or `pool add`.

    \b
    Examples:
      windfall pool add lab kind=ssh 'hosts=["node1", "node2"]'
      windfall pool list
      windfall pool doctor lab
      windfall pool drain lab
    """


@pool.command("list")
@place_options
@json_option
def list_(place: Place, as_json: bool) -> None:
    """List the pools: limits, running and wanted workers, and offers of machines."""
    with place.open() as client:
        states, rented = client.pool_states(), client.machines(there=True)
    pools: Sequence[Mapping[str, Any]] = states["pools"]
    renting = states["renting"]
    if as_json:
        told = {"pools": pools, "renting": renting, "offers": rented["offers"], "strangers": rented["strangers"]}
        print_json(told)
        return
    if not pools and not renting and rented["offers"]:
        click.echo("no pools are configured now; machines were rented here by these offers:")
    elif not pools and not renting:
        click.echo("no pools are configured: workers are started by hand.  try: windfall pool add here limit=4")
    if pools:
        heads = ["pool", "kind", "limit", "running", "pending", "free slots", "wanted slots", "$ per hour", "remark"]
        names = ["pool", "kind", "limit", "running", "pending", "free_slots", "wanted_slots", "price_usd"]
        print_table(heads, ([*(row[name] for name in names), _remark(row)] for row in pools))
    if rented["offers"]:
        _print_offers(rented)
    for row in renting:
        if remark := _mode(row):
            click.echo(f"pool {row['pool']}: {remark}")
    _warn_of_strangers(rented["strangers"])


def _print_offers(rented: Machines) -> None:
    def of(offer: OfferRow) -> int:
        machines = rented["machines"]
        return sum((row["pool"], row["offer"]) == (offer["pool"], offer["offer"]) for row in machines)

    heads = ["pool", "offer", "market", "cores", "price", "boots in", "limit", "rented"]
    print_table(
        heads,
        (
            [row["pool"], row["offer"], row["market"], row["cores"], show_price(row["price_usd"], row["cycle_s"]),
             show_duration(row["lag_s"]), row["limit"], of(row)]
            for row in rented["offers"]
        ),
    )  # fmt: skip


def _warn_of_strangers(strangers: list[Stranger]) -> None:
    for row in strangers:
        note(f"pool {row['pool']}: machine {row['id']} is not one of this server's: {row['about']}")


def _mode(row: Mapping[str, Any]) -> str:
    """What an operator has said about a pool; empty if it is open."""
    if row["mode"] == "open":
        return ""
    since_s = max(0.0, time.time() - row["mode_since_s"])
    return f"{row['mode']} for {show_duration(since_s)}" + (f": {row['reason']}" if row["reason"] else "")


def _remark(row: Mapping[str, Any]) -> str:
    if mode := _mode(row):
        return mode
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
        states = client.pool_states()
        hosts: list[Mapping[str, Any]] = [row for row in client.hosts() if row["pool"] == name]
        rented = client.machines(pool=name, there=True)
    renting = next((row for row in states["renting"] if row["pool"] == name), None)
    if renting is not None:
        _print_rented(renting, rented, as_json)
        return
    row = next((row for row in states["pools"] if row["pool"] == name), None)
    if row is None:
        raise BadInput(f"there is no pool '{name}'", hint="see them: windfall pool list", code="no-such-pool")
    if as_json:
        print_json({**row, "hosts": hosts})
        return
    click.echo(f"pool {name}: {row['kind']}, {row['running']} running, {row['pending']} pending")
    left_out = ("pool", "kind", "running", "pending", "never_came", "mode", "mode_since_s", "reason")
    for key, value in row.items():
        if key not in left_out and value not in (None, "", False):
            click.echo(f"  {key:<14} {value}")
    if remark := _remark(row):
        click.echo(f"  {remark}")
    if living := [host for host in hosts if host["state"] != "gone"]:
        heads = ["host", "state", "slots", "held", "done", "failed", "lost"]
        print_table(heads, ([host[head] for head in heads] for host in living))
    _print_never_came(row)


def _print_never_came(row: Mapping[str, Any]) -> None:
    """The last words of what was started and never asked for work, the newest first."""
    if row["never_came"]:
        click.echo("started, and ended before they reached the server:")
    for one in reversed(row["never_came"]):
        click.echo(f"  {moment(one['at_s'])}  {one['host']}: {one['said']}")


def _print_rented(row: Mapping[str, Any], rented: Machines, as_json: bool) -> None:
    if as_json:
        print_json({**row, **rented, "machines_there": row["machines"]})
        return
    click.echo(f"pool {row['pool']}: {row['kind']}, {row['machines']} machines, {row['pending']} pending")
    if remark := _mode(row):
        click.echo(f"  {remark}")
    _print_offers(rented)
    _print_machines(rented, everything=False)
    _print_never_came(row)


def _print_machines(rented: Machines, everything: bool) -> None:
    if rented["machines"]:
        heads = ["machine", "pool", "offer", "job", "phase", "tasks", "waiting", "held", "cycle ends in", "$", "remark"]
        print_table(heads, (_machine_cells(row) for row in rented["machines"]))
    else:
        click.echo("no machines are rented" + ("" if everything else ".  earlier ones: windfall pool machines --all"))
    _warn_of_strangers(rented["strangers"])


@pool.command()
@click.argument("what", metavar="FILE|NAME")
@click.argument("fields", nargs=-1, metavar="[NAME... | FIELD=VALUE...]")
@place_options
@json_option
def add(what: str, fields: tuple[str, ...], place: Place, as_json: bool) -> None:
    """Add pools to a server, for good: its state keeps them, and every server on it opens them.

    \b
    FILE.toml [NAME...]       the pools of a file, or those of them that are named
    NAME [FIELD=VALUE...]     one pool by its fields, as they would stand in a file

    \b
    Examples:
      windfall pool add pools.toml
      windfall pool add here limit=4 slots=2
      windfall pool add lab kind=ssh 'hosts=["node1", "me@node2"]'
    """
    is_file = what.endswith(".toml") or Path(what).is_file()
    entries = _of_file(Path(what), fields) if is_file else [_of_fields(what, fields)]
    base = Path(what).resolve().parent if is_file else here()
    with _client(place) as client:
        names = client.add_pools(entries, str(base))
    if as_json:
        print_json({"added": names})
    else:
        for name in names:
            click.echo(f"pool {name} is added.  try: windfall pool doctor {name}{place.words}")


def _of_file(file: Path, names: tuple[str, ...]) -> list[Json]:
    """The entries of a pools.toml, checked here so that an error names the file."""
    from windfall.pools.config import read_pools

    read = [pool.name for pool in read_pools(file)]
    if unknown := next((name for name in names if name not in read), None):
        raise BadInput(f"{file}: there is no pool '{unknown}' in it", hint=f"its pools: {', '.join(read)}")
    entries: list[Json] = tomllib.loads(file.read_text())["pool"]
    return [entry for entry in entries if not names or entry["name"] in names]


def _of_fields(name: str, fields: tuple[str, ...]) -> Json:
    """An entry from FIELD=VALUE; a value is TOML, or else a text."""
    entry: Json = {"name": name}
    for field in fields:
        key, equals, value = field.partition("=")
        if not equals or not key.replace("_", "").isalnum():
            raise BadInput(f"'{field}' is not of the form FIELD=VALUE", hint="as in: windfall pool add here limit=4")
        try:
            entry[key] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            entry[key] = value
    return entry


def _client(place: Place) -> Client:
    """Pools may be added before the first start of a server, so the state may be new."""
    if place.address:
        return place.open()
    return Client(local=LocalServer(state_location(place.state), worker=False))


_WHY = click.option("--reason", default="", metavar="TEXT", help="Shown in lists and explanations.")


@pool.command()
@click.argument("name")
@_WHY
@place_options
@json_option
def pause(name: str, reason: str, place: Place, as_json: bool) -> None:
    """Start nothing new in a pool; its workers and machines go on.

    \b
    Examples:
      windfall pool pause cloud --reason 'maintenance until noon'
      windfall pool resume cloud
    """
    with place.open() as client:
        row = client.tell_pool(name, "pause", reason)
    _answer(row, f"pool {name} starts nothing more until: windfall pool resume {name}{place.words}", as_json)


@pool.command()
@click.argument("name")
@place_options
@json_option
def resume(name: str, place: Place, as_json: bool) -> None:
    """Use a pool again that was paused or drained.

    \b
    Examples:
      windfall pool resume cloud
      windfall pool resume cloud --json
    """
    with place.open() as client:
        row = client.tell_pool(name, "resume")
    _answer(row, f"pool {name} is used again", as_json)


@pool.command()
@click.argument("name")
@_WHY
@place_options
@json_option
def drain(name: str, reason: str, place: Place, as_json: bool) -> None:
    """Give the hosts of a pool nothing more; workers and machines end when they have done what they hold.

    \b
    Examples:
      windfall pool drain lab
      windfall pool drain lab --reason 'to be reinstalled' --json
    """
    with place.open() as client:
        row = client.tell_pool(name, "drain", reason)
    there = row.get("running", row.get("machines", 0))
    _answer(row, f"pool {name} gets no more work; what is there ({there}) ends when it is done", as_json)


@pool.command()
@click.argument("name")
@click.option("--now", is_flag=True, help="End its workers and machines at once; their tasks run elsewhere.")
@place_options
@json_option
def remove(name: str, now: bool, place: Place, as_json: bool) -> None:
    """Take a pool away that was added by `pool add`. Refused while something of it is there.

    \b
    Examples:
      windfall pool remove lab
      windfall pool remove lab --now
    """
    with place.open() as client:
        until = time.monotonic() + _REMOVE_S
        while (done := client.remove_pool(name, now))["left"] and time.monotonic() < until:
            note(f"pool {name}: {done['left']}")
    if as_json:
        print_json(done)
    elif done["removed"]:
        click.echo(f"pool {name} is removed")
    else:
        click.echo(f"pool {name} is removed when the last of it has ended: {done['left']}")


def _answer(row: PoolRow | RentingPool, sentence: str, as_json: bool) -> None:
    if as_json:
        print_json(row)
    else:
        click.echo(sentence)


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
      windfall pool doctor cluster
      windfall pool doctor cluster --pools pools.toml
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


def _examined(name: str, file: Path, trial: bool, wait_s: float) -> PoolFindings:
    """The same with a server of its own, which ends with the examination."""
    import tempfile

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


def _machine_cells(row: MachineRow) -> list[Any]:
    remark = row["error"] or row["cause"]
    if row["taken_in_s"] is not None:
        remark = f"will be reclaimed in {show_duration(max(0.0, row['taken_in_s']))}"
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

    MACHINE is its number, as in m3 or 3, or its id there. `notice`: announce that it will be reclaimed, and reclaim it
    then.

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
