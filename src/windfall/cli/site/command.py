"""`windfall site`: hosts that you own, filled with workers while they idle, given back when you need them.

Touches the terminal.
"""

from __future__ import annotations

import os
import secrets
import shlex
import sys
from typing import Any
from urllib.parse import quote

import click

from windfall.cli.options import BehindDashes, Place, json_option, place_options
from windfall.cli.show.output import moment, plural, print_json, print_table
from windfall.cli.site.explained import explained
from windfall.cli.site.rules import CHANGEABLE, DEFAULTS, body_of, rules_options
from windfall.client import Client
from windfall.errors import BadInput
from windfall.units import parse_duration, show_duration

Json = dict[str, Any]
POLL_S = 25.0


@click.group()
def site() -> None:
    """Sites: hosts that you own. Workers fill them; what you ask for runs at once, and workers make way.

    \b
    Examples:
      windfall site create lab --instance-vcpu 1 --instance-ram 1000
      windfall site agent --server URL --token-file FILE --vcpu 8 --ram 16000      (on each host)
      windfall site request --vcpu 4 --ram 8000 --for 2h -- ./serve --port 8000
      windfall site why last
    """


@site.command()
@click.argument("name")
@rules_options(DEFAULTS)
@place_options
@json_option
def create(name: str, place: Place, as_json: bool, **rules: Any) -> None:
    """Make a site, or give it rules anew: what is left out is the default. `site change` keeps it.

    \b
    Examples:
      windfall site create lab --instance-vcpu 1 --instance-ram 1000 --grace 30s
      windfall site create lab --instance-vcpu 1 --market --reserve 0.002 --bid 0.004
    """
    with place.open() as client:
        row = client.transport.post("/v1/sites", {"name": name, **body_of(rules)})
    if as_json:
        print_json(row)
        return
    click.echo(f"site {name}: instances of {_amounts(row['instance'])}, {row['grace_s']:g} s of grace")
    click.echo(f"  offer a host: windfall site agent --site {name} --server URL --token-file FILE --vcpu 8 --ram 16000")


@site.command()
@click.argument("name")
@rules_options({})
@place_options
@json_option
def change(name: str, place: Place, as_json: bool, **rules: Any) -> None:
    """Change what is named of a site's rules; everything else stays.

    \b
    Examples:
      windfall site change lab --limit 20 --grace 1m
      windfall site change lab --no-market --consolidate never
    """
    body = body_of(rules)
    if not body:
        raise BadInput("nothing is to be changed", hint="as in: windfall site change lab --limit 20")
    path = f"/v1/sites/{quote(name, safe='')}"
    with place.open() as client:
        before = client.transport.get(path)
        row = client.transport.post(f"{path}/change", body)
    if as_json:
        print_json(row)
        return
    changed = [key for key in CHANGEABLE if row[key] != before[key]]
    for key in changed:
        click.echo(f"site {name}: {key} is {_shown(row[key])}, was {_shown(before[key])}")
    if not changed:
        click.echo(f"site {name}: these are its rules already")


def _shown(value: object) -> str:
    return _amounts(value) if isinstance(value, dict) and value else "-" if value in (None, {}, []) else f"{value}"


@site.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
    options_metavar="[OPTIONS]",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def agent(arguments: tuple[str, ...]) -> None:
    """Offer this host to a site. `windfall site agent --help` shows the options."""
    from windfall.worker.site.main import main

    code = main(arguments, prog="windfall site agent")
    sys.stdout.flush()
    sys.stderr.flush()
    # As in worker.pyz: no thread in the middle of a request is worth waiting for.
    os._exit(code)


@site.command("list")
@place_options
@json_option
def list_(place: Place, as_json: bool) -> None:
    """List the sites: hosts, running instances, waiting requests."""
    with place.open() as client:
        rows = client.transport.get("/v1/sites")["sites"]
    if as_json:
        print_json({"sites": rows})
    elif not rows:
        click.echo("there are no sites.  try: windfall site create lab --instance-vcpu 1 --instance-ram 1000")
    else:
        heads = ["site", "hosts", "instance", "preemptible", "room for", "normal", "waiting"]
        names = ["preemptible", "room", "normal", "waiting"]
        print_table(
            heads,
            (
                [row["site"], row["hosts_live"], _amounts(row["instance"]), *(row[name] for name in names)]
                for row in rows
            ),
        )


@site.command()
@click.argument("name", required=False, default="")
@place_options
@json_option
def info(name: str, place: Place, as_json: bool) -> None:
    """Show one site, host by host and instance by instance."""
    row = _one(name, place, "info")
    if as_json:
        print_json(row)
        return
    click.echo(
        f"site {row['site']}: {plural(row['hosts_live'], 'host')}, "
        f"{plural(row['preemptible'], 'preemptible instance')} of "
        f"{_amounts(row['instance'])} (room for {row['room']} more), {row['normal']} normal, {row['waiting']} waiting"
    )
    for host in row["hosts"]:
        used = ", ".join(f"{host['used'][key]:g}/{amount:g} {key}" for key, amount in host["capacity"].items())
        tags = f"  [{' '.join(host['tags'])}]" if host["tags"] else ""
        click.echo(f"{host['host']}: {host['state']}, {used}, seen {show_duration(host['seen_s_ago'])} ago{tags}")
        for one in host["instances"]:
            what = "worker" if one["preemptible"] else shlex.join(one["command"])
            click.echo(f"  {one['name']:<12} {one['state']:<8} {_amounts(one['resources']):<24} {what[:60]}")


def _one(name: str, place: Place, command: str) -> Json:
    """The site of this name, or the only one."""
    with place.open() as client:
        if not name:
            rows = client.transport.get("/v1/sites")["sites"]
            if len(rows) != 1:
                raise BadInput(f"there are {len(rows)} sites", hint=f"name one: windfall site {command} NAME")
            name = rows[0]["site"]
        row: Json = client.transport.get(f"/v1/sites/{quote(name, safe='')}")
    return row


@site.command()
@click.argument("name", required=False, default="")
@place_options
@json_option
def explain(name: str, place: Place, as_json: bool) -> None:
    """Say what a site does beside making way (market, consolidation, ends of what does not pay), and why it did it.

    \b
    Examples:
      windfall site explain lab
      windfall site explain --json
    """
    row = _one(name, place, "explain")
    if as_json:
        print_json(row)
        return
    for line in explained(row):
        click.echo(line)


@site.command(cls=BehindDashes)
@click.option("--site", "name", default="", metavar="NAME", help="The site.  [default: the only one]")
@click.option("--vcpu", type=float, default=1.0, show_default=True, metavar="N", help="Cores.")
@click.option("--ram", type=float, metavar="MB", help="Memory; more than that ends the command.")
@click.option("--disk", type=float, metavar="GB", help="Disk.")
@click.option("--resource", "others", multiple=True, metavar="NAME=AMOUNT", help="Anything else. Repeatable.")
@click.option("--for", "for_", metavar="TIME", help="End it after: 90s, 35m, 2h.")
@click.option("--queue/--refuse", default=True, show_default=True, help="What to do where it does not fit.")
@click.option("--tag", "tags", multiple=True, metavar="K=V", help="Only hosts with this tag. Repeatable.")
@click.option("--env", multiple=True, metavar="K=V", help="Set a variable. Repeatable.")
@click.option("--cwd", metavar="DIR", help="Working directory on the host.  [default: a fresh one]")
@click.option("--grace", default="10s", show_default=True, metavar="TIME", help="From SIGTERM to SIGKILL.")
@click.option("--bid", type=float, metavar="USD", help="Bid for an hour: preemptible, as the site's market says.")
@click.option("--wait", is_flag=True, help="Wait for its end and show what it wrote; the exit code says how it went.")
@place_options
@json_option
def request(name: str, template: list[str], place: Place, wait: bool, as_json: bool, **said: Any) -> None:
    """Run a command on the site at once; workers make way if they must.

    With --bid it is preemptible: it starts when the price allows, and ends when the price is above its bid.

    \b
    Examples:
      windfall site request --vcpu 4 --ram 8000 --for 2h -- ./serve --port 8000
      windfall site request --vcpu 2 --bid 0.01 -- ./render all
      windfall site request --vcpu 2 --refuse --wait -- make bench
    """
    if not template:
        raise BadInput("there is no command", hint="it stands behind --, as in: -- ./serve --port 8000")
    body = {
        "site": name,
        "resources": _resources(said),
        "command": template,
        "for_s": parse_duration(said["for_"], "--for") if said["for_"] else None,
        "queue": said["queue"],
        "tags": list(said["tags"]),
        "env": dict(_pair(text, "--env") for text in said["env"]),
        "cwd": said["cwd"],
        "grace_s": parse_duration(said["grace"], "--grace"),
        "key": secrets.token_hex(8),
        "bid_usd": said["bid"],
    }
    with place.open() as client:
        row = client.transport.post("/v1/site/requests", body)
        if wait and row["state"] != "refused":
            row = _until_ended(client, row)
            _show_output(client, row, as_json)
    if as_json:
        print_json(row)
    elif not wait or row["state"] == "refused":
        _show(row)
    if row["state"] == "refused" or (wait and row["cause"] != "done"):
        sys.exit(1)


def _resources(said: Json) -> dict[str, float]:
    found = {"vcpu": said["vcpu"], "ram_mb": said["ram"], "disk_gb": said["disk"]}
    amounts = {name: amount for name, amount in found.items() if amount is not None}
    for text in said["others"]:
        resource, value = _pair(text, "--resource")
        try:
            amounts[resource] = float(value)
        except ValueError:
            raise BadInput(f"--resource {text}: '{value}' is not a number", hint="as in gpu=1") from None
    return amounts


def _pair(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise BadInput(f"{option} {text}: not of the form NAME=VALUE")
    return name, value


def _until_ended(client: Client, row: Json) -> Json:
    while row["state"] not in ("ended", "refused"):
        row = client.transport.get(f"/v1/site/requests/{row['name']}", wait_s=POLL_S)
    return row


def _show_output(client: Client, row: Json, as_json: bool) -> None:
    found = client.transport.frame(f"/v1/site/requests/{row['name']}/output")
    stdout = bytes(found.take(found.header["n_stdout"]))
    stderr = bytes(found.take(found.header["n_stderr"]))
    if as_json:
        row |= {"stdout": stdout.decode(errors="replace"), "stderr": stderr.decode(errors="replace")}
        return
    click.echo(stdout, nl=False)
    click.echo(stderr, nl=False, err=True)
    if row["cause"] != "done":
        click.echo(f"windfall: {row['name']} on {row['host']}: {row['cause']}, {row['text']}", err=True)


@site.command()
@click.option("--site", "name", default="", metavar="NAME", help="Of one site only.")
@click.option("--in", "state", metavar="STATE", help="Only: waiting, placed, running, leaving, ended, refused.")
@place_options
@json_option
def requests(name: str, state: str | None, place: Place, as_json: bool) -> None:
    """List the requests, the newest first."""
    with place.open() as client:
        rows = client.transport.get("/v1/site/requests", site=name or None, state=state)["requests"]
    if as_json:
        print_json({"requests": rows})
    elif not rows:
        click.echo("there are no requests.  try: windfall site request --vcpu 1 -- COMMAND")
    else:
        heads = ["request", "state", "host", "resources", "asked", "evicted", "end", "command"]
        print_table(
            heads,
            (
                [
                    row["name"],
                    row["state"],
                    row["host"],
                    _amounts(row["resources"]),
                    moment(row["asked_s"]),
                    len(row["victims"]),
                    row["cause"] or "",
                    shlex.join(row["command"])[:50],
                ]
                for row in rows
            ),
        )


@site.command()
@click.argument("reference", metavar="REQUEST")
@place_options
@json_option
def why(reference: str, place: Place, as_json: bool) -> None:
    """Why a request went where it went, or why it waits. REQUEST is a name such as lab-17, or `last`."""
    with place.open() as client:
        row = client.transport.get(f"/v1/site/requests/{quote(reference, safe='')}")
    if as_json:
        print_json(row)
    else:
        _show(row)


@site.command()
@click.argument("reference", metavar="REQUEST")
@place_options
@json_option
def output(reference: str, place: Place, as_json: bool) -> None:
    """What a request wrote, once it has ended (the head and the tail if it was much)."""
    with place.open() as client:
        row = client.transport.get(f"/v1/site/requests/{quote(reference, safe='')}")
        _show_output(client, row, as_json)
    if as_json:
        print_json(row)


@site.command()
@click.argument("reference", metavar="REQUEST")
@click.option("--reason", default="", metavar="TEXT", help="To be remembered.")
@place_options
@json_option
def cancel(reference: str, reason: str, place: Place, as_json: bool) -> None:
    """Take a request back, or end what runs (SIGTERM, its grace time, SIGKILL)."""
    with place.open() as client:
        row = client.transport.post(f"/v1/site/requests/{quote(reference, safe='')}/cancel", {"reason": reason})
    if as_json:
        print_json(row)
    else:
        click.echo(f"{row['name']}: {row['state']}")


def _show(row: Json) -> None:
    words = {
        "waiting": "waits",
        "refused": "is refused",
        "placed": f"starts on {row['host']}",
        "running": f"runs on {row['host']}",
        "leaving": f"is ending on {row['host']}",
        "ended": f"has ended ({row['cause']})" + (f" on {row['host']}" if row["host"] else ""),
    }
    click.echo(f"{row['name']} ({_amounts(row['resources'])}) {words[row['state']]}")
    if row["text"]:
        click.echo(f"  {row['text']}")
    for line in row["why"]:
        click.echo(f"  {line}")
    if row["placed_s"] is not None and row["started_s"] is not None:
        waited_s = max(0.0, row["started_s"] - row["placed_s"])
        click.echo(
            f"  started {show_duration(waited_s)} after it was placed (grace of its victims: {row['grace_s']:g} s)"
        )


def _amounts(resources: dict[str, float]) -> str:
    return ", ".join(f"{amount:g} {name}" for name, amount in resources.items())
