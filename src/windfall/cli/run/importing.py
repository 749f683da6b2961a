"""`windfall import`: job and workflow files from what other systems have. Touches the terminal and files named."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from windfall import files
from windfall.bags.sbatch import as_toml, read_sbatch
from windfall.cli.options import json_option
from windfall.cli.show.output import output_file, plural, print_json
from windfall.client.local.server import here
from windfall.errors import BadInput

MOST_BYTES = 4 << 20


def _out_option(what: str) -> Callable[[Any], Any]:
    told = f"Where to write the {what}; standard output if not said."
    return click.option("-o", "--out", callback=output_file, metavar="FILE", help=told)


@click.group("import")
def import_group() -> None:
    """Make job files and workflow files of what you have for other systems.

    \b
    Examples:
      windfall import sbatch array.sh
      windfall import sbatch array.sh -o array.toml && windfall run array.toml
      windfall import nextflow results -o recorded.json
    """


@import_group.command()
@click.argument("file")
@_out_option("job file")
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
    files.write(out, as_toml(found))
    if not as_json:
        slots = "" if found.slots is None else f"--slots {found.slots} "
        click.echo(f"wrote {out}.  try: windfall run {slots}{shlex.quote(out)}")


@import_group.command()
@click.argument("folder")
@_out_option("workflow")
def pegasus(folder: str, out: str | None) -> None:
    """Make a workflow file (WfFormat) of the submit directory of a run of Pegasus 5.

    Carries over tasks, what they wait for, files and their sizes, arguments, and of kickstart's records run times,
    memory and hosts; jobs that Pegasus added (transfers, cleanup) are left out. Needs wfcommons:
    pip install 'windfall[wfcommons]'.

    \b
    Example:
      windfall import pegasus submit/user/pegasus/diamond/run0001 -o recorded.json
      windfall plan --workflow recorded.json --offers offers.toml --deadline 2h
    """
    _import_trace("Pegasus", folder, out)


@import_group.command()
@click.argument("folder")
@_out_option("workflow")
def nextflow(folder: str, out: str | None) -> None:
    """Make a workflow file (WfFormat) of a run of Nextflow.

    The folder holds a trace file (*trace*.txt) and the ro-crate-metadata.json of Nextflow's plug-in nf-prov. Carries
    over tasks, the files they made and read, and the trace's duration, which is from submission to end. Needs
    wfcommons: pip install 'windfall[wfcommons]'.

    \b
    Example:
      windfall import nextflow results -o recorded.json
      windfall run --workflow recorded.json --emulate --time-scale 100
    """
    _import_trace("Nextflow", folder, out)


def _import_trace(system: str, folder: str, out: str | None) -> None:
    from windfall.workflows.traces import read_trace, sub_workflows

    document, spec = read_trace(system, Path(folder))
    text = json.dumps(document, indent=1) + "\n"
    if out is None:
        click.echo(text, nl=False)
    else:
        files.write(out, text)
        tasks = f"{plural(len(spec.tasks), 'task')}, {plural(spec.graph.edges, 'edge')}"
        click.echo(f"wrote {out}: {tasks}.  try: windfall workflow check {shlex.quote(out)}")
    silent = [task.id for task in spec.tasks if not task.runtime_s]
    if silent:
        click.echo(f"windfall: no run time was recorded of {plural(len(silent), 'task')}, as {silent[0]}", err=True)
    left_out = sub_workflows(Path(folder))
    if left_out:
        many = plural(len(left_out), "sub-workflow")
        click.echo(f"windfall: {many} left out; import each by itself, as {left_out[0]}", err=True)


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
