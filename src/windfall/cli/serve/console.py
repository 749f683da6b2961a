"""`windfall console`: the address of the server's web pages, with a link that signs in once. Touches the server."""

from __future__ import annotations

import webbrowser

import click

from windfall.cli.options import Place, json_option, place_options
from windfall.cli.show.output import note, print_json
from windfall.client.local.server import running_server, state_location
from windfall.errors import Unreachable
from windfall.units import show_duration


@click.command()
@click.option("--open", "open_", is_flag=True, help="Open it in a browser.")
@place_options
@json_option
def console(open_: bool, place: Place, as_json: bool) -> None:
    """Print a link to the console: the web pages of a running server.

    The link signs its first user in with your token's rights, for five minutes. The pages are also at the server's
    address; there they ask for a token (windfall token create --role read).

    \b
    Examples:
      windfall console
      windfall console --server http://head-node:7272 --token-file worker.token
    """
    if not place.address and running_server(state_location(place.state).directory) is None:
        raise Unreachable(
            f"no server runs on {state_location(place.state)}", hint="start one: windfall server, then again"
        )
    with place.open() as client:
        made = client.transport.post("/v1/console/links")
        url = f"{client.transport.url}/#signin={made['code']}"
    if as_json:
        print_json({"url": url, "role": made["role"], "life_s": made["life_s"]})
    else:
        click.echo(url)
        note(f"signs in once, with role {made['role']}, within {show_duration(made['life_s'])}")
    if open_ and not webbrowser.open(url):
        note("no browser could be opened here: copy the link")
