"""`windfall archive`: a job in one file, to be kept when the server forgets it. Touches the state and the file."""

from __future__ import annotations

from pathlib import Path

import click

from windfall.cli.options import Place, json_option, place_options
from windfall.cli.show.output import busy, output_file, plural, print_json
from windfall.client.local.server import state_location
from windfall.client.results import ENDED
from windfall.errors import BadInput
from windfall.units import show_bytes


@click.command()
@click.argument("job")
@click.option(
    "-o", "--out", callback=output_file, required=True, metavar="FILE", help="Ends with .tar.gz, .tar.xz or .tar.zst."
)
@click.option("--no-files", is_flag=True, help="Without input and output files.")
@place_options
@json_option
def archive(job: str, out: str, no_files: bool, place: Place, as_json: bool) -> None:
    """Write a job that has ended to one file: its specification, tasks, results and files, and the log.

    The file can be named wherever a state can: --state FILE, or `simulate --replay FILE`. It holds no token. Of other
    jobs it holds what the log says (numbers, hosts, run times), and neither commands nor results. Needs the state
    itself, not only the address of its server.

    \b
    Examples:
      windfall archive sweep -o sweep.tar.gz
      windfall report sweep --state sweep.tar.gz
    """
    if place.address:
        raise BadInput("an archive is made where the state is", hint="type it there, with --state STATE")
    with place.open() as client:
        status = client.job(job).status()
    if status["state"] not in ENDED:
        raise BadInput(f"job {status['job']} '{status['name']}' has not ended", hint=f"windfall wait {status['job']}")
    from windfall.upkeep.archiving import archive as write

    with busy("writing"):
        made = write(state_location(place.state), status["job"], Path(out), not no_files)
    if as_json:
        print_json({"job": status["job"], "archive": out, "bytes": made.bytes, "files": made.files})
    else:
        what = f"{plural(made.outputs, 'result')}, {plural(made.files, 'file')}, {show_bytes(made.bytes)}"
        click.echo(f"{out}: job {status['job']} '{status['name']}', {what}")
        click.echo(f"  look at it: windfall report {status['job']} --state {out}")
