"""`windfall change`: settings of a job that runs. Touches the terminal."""

from __future__ import annotations

from typing import Any

import click

from windfall.bags.units import parse_duration, parse_money
from windfall.cli.options import Place, json_option, literal, pairs, place_options, policy_options, policy_texts
from windfall.cli.show.output import print_json
from windfall.errors import BadInput


@click.command()
@click.argument("job")
@click.option("--pause/--unpause", "paused", default=None, help="Start nothing more; or go on.")
@click.option("--priority", type=float, metavar="P", help="Higher goes first.")
@click.option("--memory", metavar="SIZE", help="2G, or 2G*attempt.")
@click.option("--wall", metavar="TIME", help="Kill an attempt that takes longer.")
@click.option("--max-failures", type=int, metavar="N", help="Attempts that may fail, per task.")
@click.option("--max-losses", type=int, metavar="N", help="Attempts lost with their host, per task.")
@click.option("--max-failed-tasks", type=int, metavar="N", help="Stop the job when more tasks than this have failed.")
@click.option("--deadline", metavar="TIME", help="From its submission: 2h30m.")
@click.option("--budget", metavar="USD", help="Spend at most so many dollars.")
@policy_options
@click.option("--attribute", "attributes", multiple=True, metavar="K=V", help="For policies.")
@place_options
@json_option
def change(job: str, place: Place, as_json: bool, **said: Any) -> None:
    """Change a job that runs, at once. What runs already keeps what it began with. A policy set to '' goes away.

    \b
    Examples:
      windfall change last --memory 4G --priority 10
      windfall change sweep --pause
      windfall change sweep --require 'Host.Memory >= 8192' --replicate ''
    """
    body = _body(**said)
    if not body:
        raise BadInput("change what?", hint=f"try: windfall change {job} --priority 10 (see windfall change --help)")
    with place.open() as client:
        found = client.job(job)
        status = found.change(**body)
    if as_json:
        print_json(status)
    else:
        click.echo(f"job {found.id} '{found.name}': {', '.join(sorted(body))} changed; it is {status['state']}")


def _body(
    wall: str | None,
    deadline: str | None,
    budget: str | None,
    attributes: tuple[str, ...],
    **plain: Any,
) -> dict[str, Any]:
    texts = policy_texts(plain)
    body = {name: value for name, value in plain.items() if value is not None}
    if wall is not None:
        body["wall_s"] = parse_duration(wall, "--wall")
    if deadline is not None:
        body["deadline_s"] = parse_duration(deadline, "--deadline")
    if budget is not None:
        body["budget_usd"] = parse_money(budget, "--budget") / 1e6
    if texts:
        body["policies"] = {name: text or None for name, text in texts.items()}
    if attributes:
        body["attributes"] = {name: literal(text) for name, text in pairs(attributes, "--attribute").items()}
    return body
