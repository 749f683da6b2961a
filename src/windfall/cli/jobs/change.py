"""`windfall change`: settings of a job that runs. Touches the terminal."""

from __future__ import annotations

import time
from typing import Any

import click

from windfall.cli.options import Place, json_option, literal, pairs, place_options, policy_options, policy_texts
from windfall.cli.show.output import deadline_words, print_json
from windfall.errors import BadInput
from windfall.resources import GPUS, read_pairs
from windfall.units import parse_deadline, parse_duration, parse_money, show_duration


@click.command()
@click.argument("job")
@click.option("--pause/--unpause", "paused", default=None, help="Start no more tasks; or start them again.")
@click.option("--priority", type=float, metavar="P", help="Higher goes first.")
@click.option("--memory", metavar="SIZE", help="2G, or 2G*attempt.")
@click.option("--fixed-memory/--growing-memory", default=None, help="Too little memory: try with as much, or more.")
@click.option("--gpus", type=float, metavar="N", help="GPUs per task; 0: none.")
@click.option(
    "--resource", "resources", multiple=True, metavar="NAME=N", help="Units per task; 0: none of it. Repeatable."
)
@click.option("--wall", metavar="TIME", help="Kill an attempt that takes longer.")
@click.option("--max-failures", type=int, metavar="N", help="Attempts that may fail, per task.")
@click.option("--max-losses", type=int, metavar="N", help="Attempts lost with their host, per task.")
@click.option("--max-failed-tasks", type=int, metavar="N", help="Stop the job when more tasks than this have failed.")
@click.option("--replication", type=click.Choice(["idle-slots", "queued"]), help="Where its replicas come from.")
@click.option("--max-replicas", type=int, metavar="N", help="Replicas of a task at a time.")
@click.option("--deadline", metavar="TIME", help="2h30m after its submission, or a clock time: 18:00.")
@click.option("--budget", metavar="USD", help="Spend at most this many dollars.")
@click.option("--confidence", type=float, metavar="P", help="Wanted chance of being in time.")
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
    deadline = said.pop("deadline")
    body = _body(**said)
    if not body and deadline is None:
        raise BadInput("change what?", hint=f"try: windfall change {job} --priority 10 (see windfall change --help)")
    with place.open() as client:
        found = client.job(job)
        if deadline is not None:
            body["deadline_s"] = _deadline_s(deadline, found.status()["submitted_s"])
        status = found.change(**body)
    if as_json:
        print_json(status)
    else:
        changed = ", ".join(sorted(name.removesuffix("_s").removesuffix("_usd") for name in body))
        due = ""
        if "deadline_s" in body:
            due = "; deadline " + ("none" if status["deadline_s"] is None else deadline_words(status["deadline_s"]))
        click.echo(f"job {found.id} '{found.name}' is {status['state']}; changed: {changed}{due}")


def _deadline_s(text: str, submitted_s: float) -> float:
    """Seconds from the submission. A duration counts from there, too: it says how long the whole job may take."""
    now_s = time.time()
    said = parse_deadline(text, now_s, field="--deadline")
    if said.clock_t is not None:
        return said.clock_t - submitted_s
    if submitted_s + said.in_s <= now_s:
        ago = show_duration(now_s - submitted_s - said.in_s)
        hint = f"it was submitted {show_duration(now_s - submitted_s)} ago; try: --deadline 18:00, or a longer duration"
        raise BadInput(f"--deadline {text}: {text} after the submission was {ago} ago", hint=hint)
    return said.in_s


def _body(
    wall: str | None,
    budget: str | None,
    confidence: float | None,
    attributes: tuple[str, ...],
    gpus: float | None,
    resources: tuple[str, ...],
    **plain: Any,
) -> dict[str, Any]:
    texts = policy_texts(plain)
    body = {name: value for name, value in plain.items() if value is not None}
    if wall is not None:
        body["wall_s"] = parse_duration(wall, "--wall")
    if budget is not None:
        body["budget_usd"] = parse_money(budget, "--budget") / 1e6
    if confidence is not None:
        if not 0 < confidence < 1:
            raise BadInput(f"--confidence {confidence:g}: a share between 0 and 1", hint="as in: --confidence 0.99")
        body["confidence"] = confidence
    if texts:
        body["policies"] = {name: text or None for name, text in texts.items()}
    if resources or gpus is not None:
        body["resources"] = read_pairs(resources) | ({} if gpus is None else {GPUS: gpus})
    if attributes:
        body["attributes"] = {name: literal(text) for name, text in pairs(attributes, "--attribute").items()}
    return body
