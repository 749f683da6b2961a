"""`windfall timeout show`: what a server has learned about silence, pool by pool. Touches the terminal."""

from __future__ import annotations

from typing import Any

import click

from windfall.cli.options import Place, json_option, place_options
from windfall.cli.show.output import print_json, print_table
from windfall.units import show_duration

Json = dict[str, Any]


@click.command()
@click.argument("pool", required=False)
@place_options
@json_option
def show(pool: str | None, place: Place, as_json: bool) -> None:
    """Show the timeouts that a server has learned, of one POOL or of all.

    An attempt that stays silent for longer is given up and its task goes to another host; a result that comes after
    all still counts. A bag's own policy `Deadline` goes before.

    \b
    Example:
      windfall timeout show
    """
    with place.open() as client:
        document = client.transport.get("/v1/timeouts", pool=pool)
    if as_json:
        print_json(document)
        return
    rows = document["timeouts"]
    if not rows:
        where = f"of pool '{pool}' " if pool else ""
        click.echo(
            f"nothing {where}has come back yet; until then the prior holds: {show_duration(document['prior_s'])}"
        )
        return
    print_table(
        ["pool", "bag", "timeout", "basis", "finished", "running", "lost", "95 % within", "why"],
        ([
            row["pool"], row["bag"], show_duration(row["timeout_s"]), row["basis"],
            row["finished"], row["running"], row["given_up"],
            "-" if row["latency_95_s"] is None else show_duration(row["latency_95_s"]), row["because"],
        ] for row in rows),
    )  # fmt: skip
