"""`windfall pool`: where hosts come from. Touches the terminal."""

from __future__ import annotations

import time
from typing import Any

import click

from windfall.cli.options import Place, json_option, place_options
from windfall.cli.output import print_json, print_table, span
from windfall.errors import BadInput

Json = dict[str, Any]


@click.group()
def pool() -> None:
    """Pools: where hosts come from. They are configured by `windfall server --pools pools.toml`.

    \b
    Examples:
      windfall pool list
      windfall pool info cluster
    """


@pool.command("list")
@place_options
@json_option
def list_(place: Place, as_json: bool) -> None:
    """List the pools: what they may give, what they give, what is missing."""
    with place.open() as client:
        pools = client.pools()
    if as_json:
        print_json({"pools": pools})
    elif not pools:
        click.echo("no pools are configured: workers are started by hand.  try: windfall server --pools pools.toml")
    else:
        heads = ["pool", "kind", "limit", "running", "pending", "free slots", "wanted slots", "$ per hour", "remark"]
        names = ["pool", "kind", "limit", "running", "pending", "free_slots", "wanted_slots", "price_usd"]
        print_table(heads, ([*(row[name] for name in names), _remark(row)] for row in pools))


def _remark(row: Json) -> str:
    if row["closed_until"] is not None:
        left_s = row["closed_until"] - time.time()
        again = f"next try in {span(left_s)}" if left_s > 0 else "a test is due"
        return f"failed {row['errors']} times, {again}: {row['last_error'][:80]}"
    return row["held_back"] or row["last_error"][:80]


@pool.command()
@click.argument("name")
@place_options
@json_option
def info(name: str, place: Place, as_json: bool) -> None:
    """Show one pool, and the hosts that came from it."""
    with place.open() as client:
        pools = {row["pool"]: row for row in client.pools()}
        hosts = [row for row in client.hosts() if row["pool"] == name]
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
