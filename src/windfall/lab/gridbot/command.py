"""`windfall lab gridbot`: GridBot's figures 5 to 9, its replication table and its rival, run again.

Touches: the folder --out.
"""

from __future__ import annotations

import os
from pathlib import Path

import click
import msgspec

from windfall.cli.processes import processes
from windfall.cli.show.output import console, folder_option, note
from windfall.figures.sheet import Line, Panel, sheet
from windfall.figures.sheet import write as write_svg
from windfall.lab.gridbot.experiments import EXPERIMENTS
from windfall.lab.gridbot.finding import Finding, Means


@click.command("gridbot")
@click.argument("names", nargs=-1, type=click.Choice(list(EXPERIMENTS)), metavar="[EXPERIMENT]...")
@click.option(
    "--scale", type=click.FloatRange(0.005, 1), default=0.1, show_default=True, help="Share of the paper's size."
)
@click.option("--seeds", type=click.IntRange(1), default=5, show_default=True, help="Runs of each experiment.")
@click.option("--jobs", type=click.IntRange(1), default=None, metavar="P", help="Runs at a time; default: all cores.")
@folder_option()
@click.option("--list", "listed", is_flag=True, help="Name the experiments.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(
    names: tuple[str, ...], scale: float, seeds: int, jobs: int | None, out: Path, listed: bool, as_json: bool
) -> None:
    """Run GridBot's experiments again with the real engine in a simulated world, beside the paper's figures.

    Hosts and tasks are a tenth of the paper's by default; run times, waits and deadlines are as they are. With so few
    hosts seeds differ more, and statements that come out at full size may not. --scale 1 is the full size (minutes per
    experiment).

    \b
    Examples:
      windfall lab gridbot table --seeds 5
      windfall lab gridbot --scale 1
    """
    if listed:
        for name, experiment in EXPERIMENTS.items():
            click.echo(f"{name:<9} {(experiment.__doc__ or '').splitlines()[0] if experiment.__doc__ else ''}")
        return
    out.mkdir(parents=True, exist_ok=True)
    found = []
    screen = console()
    with processes(jobs or os.cpu_count() or 1, jobs) as executor, screen.status("gridbot") as status:
        means = Means(scale, seeds, executor, lambda text: status.update(f"gridbot: {text}"))
        for name in names or EXPERIMENTS:
            finding = EXPERIMENTS[name](means)
            write(finding, out, scale)
            found.append(finding)
            if not as_json:
                click.echo(as_markdown(finding, scale))
    if as_json:
        click.echo(_encoded([_plain(finding, scale) for finding in found]).decode())
    else:
        note(f"written to {out}/gridbot-*.md, .svg and .json")


def as_markdown(finding: Finding, scale: float) -> str:
    lines = [f"## {finding.title}", "", f"Scale {scale:g}. {finding.assumed}", ""]
    lines += ["| " + " | ".join(finding.heads) + " |", "|" + "---|" * len(finding.heads)]
    lines += ["| " + " | ".join(row) + " |" for row in finding.rows]
    lines += ["", *(_statement(finding, scale, *claim) for claim in finding.claims), ""]
    return "\n".join(lines)


def _statement(finding: Finding, scale: float, claim: str, holds: bool | None) -> str:
    line = f"- {said(holds)}: {claim}"
    return f"{line}. Why: {why(finding, claim, scale)}" if holds is not None and not holds else line


def why(finding: Finding, claim: str, scale: float) -> str:
    small = f"hosts and tasks are {scale:g} of the paper's; whether it comes out with all of them, --scale 1 says"
    return finding.reasons.get(claim, small if scale < 1 else "the cause was not found")


def said(holds: bool | None) -> str:
    """Whether a statement of the paper came out."""
    return "not checked" if holds is None else "reproduced" if holds else "**not reproduced**"


def _plain(finding: Finding, scale: float) -> dict[str, object]:
    return {
        "experiment": finding.name,
        "scale": scale,
        "claims": [
            {
                "claim": claim,
                "holds": None if holds is None else bool(holds),
                "why": why(finding, claim, scale) if holds is not None and not holds else None,
            }
            for claim, holds in finding.claims
        ],
        "data": finding.data,
    }


def _encoded(document: object) -> bytes:
    """JSON, with numpy's numbers as plain numbers."""
    return msgspec.json.encode(document, enc_hook=float)


def write(finding: Finding, out: Path, scale: float) -> None:
    (out / f"gridbot-{finding.name}.md").write_text(as_markdown(finding, scale))
    (out / f"gridbot-{finding.name}.json").write_bytes(msgspec.json.format(_encoded(_plain(finding, scale)), indent=1))
    if finding.curves:
        lines = [
            Line(x=[float(at) for at in x], y=[float(value) for value in y], name=label, hue=hue)
            for hue, (label, (x, y)) in enumerate(finding.curves.items())
        ]
        panel = Panel(lines=lines, x_name=finding.axes.get("xlabel", ""), y_name=finding.axes.get("ylabel", ""))
        write_svg(out / f"gridbot-{finding.name}.svg", sheet([panel], finding.title, title=finding.title))
