"""`windfall token`: access tokens and their roles. Touches the terminal."""

from __future__ import annotations

import click

from windfall.cli.options import Place, json_option, place_options
from windfall.cli.show.output import moment, note, print_json, print_table
from windfall.client import Client
from windfall.client.local.server import LocalServer, state_location
from windfall.units import parse_duration

ROLES = ("submit", "worker", "read", "admin")


@click.group()
def token() -> None:
    """Access tokens of workers and people. A server stores only their hashes.

    \b
    Examples:
      windfall token create --role worker > worker.token
      windfall token list
    """


@token.command()
@click.option(
    "--role",
    type=click.Choice(ROLES),
    required=True,
    help="worker, submit, read or admin; see above.",
)
@click.option("--name", default="", help="Whose it is.")
@click.option("--user", default="", metavar="NAME", help="It sees and changes the jobs of this user alone.")
@click.option("--expires", metavar="TIME", help="Good for so long: 90d.  [default: until it is revoked]")
@place_options
@json_option
def create(role: str, name: str, user: str, expires: str | None, place: Place, as_json: bool) -> None:
    """Make a token. It is printed this once, alone, on standard output.

    \b
    Roles:
      worker   for workers: take tasks, send results; no more
      submit   for people and programs: submit, change, cancel and look at jobs
      read     for dashboards: look at everything, change nothing
      admin    for the operator: all of this, tokens, hosts and sites

    With --user, roles submit and read see one user's jobs; jobs that it submits are that user's.

    Works before the first start of a server too: a server that others can reach wants a token to be there.
    """
    with _client(place) as client:
        made = client.create_token(role, name, user, None if expires is None else parse_duration(expires, "--expires"))
    if as_json:
        print_json({**made, "role": role, "name": name})
        return
    click.echo(made["token"])
    note(f"role {role}, id {made['id']}; keep it: it is not shown again")


@token.command()
@click.argument("ident", metavar="ID")
@click.option("--grace", default="0s", show_default=True, metavar="TIME", help="How long the old token is good still.")
@place_options
@json_option
def rotate(ident: str, grace: str, place: Place, as_json: bool) -> None:
    """Make a token in the place of another one, which ends. It is printed this once, alone, on standard output.

    \b
    Examples:
      windfall token rotate 1f0c2a77 > laptop.token
      windfall token rotate 1f0c2a77 --grace 1h > cluster.token
    """
    with place.open() as client:
        made = client.rotate_token(ident, parse_duration(grace, "--grace"))
    if as_json:
        print_json(made)
        return
    click.echo(made["token"])
    note(f"id {made['id']} stands for {ident}; keep it: it is not shown again")


def _client(place: Place) -> Client:
    if place.address:
        return place.open()
    return Client(local=LocalServer(state_location(place.state), worker=False))


@token.command("list")
@place_options
@json_option
def list_(place: Place, as_json: bool) -> None:
    """List the tokens, without their secrets."""
    with place.open() as client:
        tokens = client.tokens()
    if as_json:
        print_json({"tokens": tokens})
    else:
        print_table(
            ["id", "role", "name", "user", "created", "expires"],
            (
                [
                    row["id"], row["role"], row["name"] or "-", row["user"] or "-", moment(row["created_s"]),
                    "-" if row["expires_s"] is None else moment(row["expires_s"]),
                ]
                for row in tokens
            ),
        )  # fmt: skip


@token.command()
@click.argument("ident", metavar="ID")
@place_options
@json_option
def revoke(ident: str, place: Place, as_json: bool) -> None:
    """Make a token worthless, at once."""
    with place.open() as client:
        client.revoke_token(ident)
    if as_json:
        print_json({"revoked": ident})
    else:
        click.echo(f"token {ident} is revoked")
