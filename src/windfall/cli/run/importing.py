"""`windfall import`: job files from what other systems have. Touches the terminal and the files named."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from windfall.bags.sbatch import as_toml, read_sbatch
from windfall.cli.options import json_option
from windfall.cli.show.output import print_json
from windfall.client.local import here
from windfall.errors import BadInput

MOST_BYTES = 4 << 20


@click.group("import")
def import_group() -> None:
    """Make job files of what you have for other systems.

    \b
    Examples:
      windfall import sbatch array.sh
      windfall import sbatch array.sh -o array.toml && windfall run array.toml
    """


@import_group.command()
@click.argument("file")
@click.option("-o", "--out", metavar="FILE", help="Where to write the job file; standard output if not said.")
@click.option("--ignore", multiple=True, metavar="NAME", help="Leave a directive out that is not carried over.")
@json_option
def sbatch(file: str, out: str | None, ignore: tuple[str, ...], as_json: bool) -> None:
    """Make a job file of an array script of Slurm.

    Reads #SBATCH --array (with %N), --time, --mem, --mem-per-cpu, --cpus-per-task, --gres=gpu, --job-name, --output,
    --error, --chdir, --export and --no-requeue; what it cannot carry over is refused with its line. Tasks run the
    script itself and find SLURM_ARRAY_TASK_ID and its like.

    \b
    Examples:
      windfall import sbatch array.sh -o array.toml
      windfall import sbatch array.sh --ignore partition --json
    """
    found = read_sbatch(_text(file), file, str(here() / file), str(here()), frozenset(ignore))
    if as_json:
        print_json({"job": {**found.job, "env": found.env}, "slots": found.slots})
    if out is None:
        if not as_json:
            click.echo(as_toml(found), nl=False)
        return
    try:
        Path(out).write_text(as_toml(found))
    except OSError as error:
        raise BadInput(f"{out} cannot be written: {error.strerror}", hint="choose another file") from None
    if not as_json:
        slots = "" if found.slots is None else f"--slots {found.slots} "
        click.echo(f"wrote {out}.  try: windfall run {slots}{shlex.quote(out)}")


def _text(file: str) -> str:
    path = Path(file)
    try:
        if path.stat().st_size > MOST_BYTES:
            raise BadInput(f"{file} has more than {MOST_BYTES:,} bytes", hint="give a script of Slurm")
        return path.read_text()
    except UnicodeDecodeError:
        raise BadInput(f"{file} is no text", hint="give a script of Slurm") from None
    except OSError as error:
        raise BadInput(f"{file} cannot be read: {error.strerror}", hint="give a script of Slurm") from None
