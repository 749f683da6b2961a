"""`windfall demo`: a real bag of small tasks, a few of which fail, in under two minutes. Touches one new directory."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click

from windfall.bags.settings import Settings
from windfall.bags.submission import Request, read_job
from windfall.cli.options import Place
from windfall.cli.run import run_bag
from windfall.client import Job
from windfall.errors import BadInput

THROW_DARTS = """\
# Estimates pi by throwing darts at a square with a circle in it. A few tasks are built to fail.
import os, random, sys

number, attempt = int(sys.argv[1]), int(os.environ["WINDFALL_ATTEMPT"])
if number % 60 == 7 and attempt == 1:
    sys.exit("dropped the darts (the second attempt picks them up)")
if number == 113:
    sys.exit("the dartboard is gone (this one fails however often it is tried)")
throws = 250_000
draw = random.Random(number).random
hits = sum(draw() ** 2 + draw() ** 2 <= 1.0 for _ in range(throws))
print(4 * hits / throws)
"""


@click.command()
@click.option("--tasks", type=click.IntRange(113, 100_000), default=300, show_default=True, help="How many.")
@click.option("--dir", "folder", metavar="DIR", help="Where to keep it all.  [default: a new temporary directory]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def demo(tasks: int, folder: str | None, as_json: bool) -> int:
    """Run a real bag: a few hundred tasks that estimate pi; some fail once, one always fails.

    Nothing is acted: a server, a worker with a slot per core, a log on disk. The exit code is 0 although one task
    failed, for that is what was to be shown.
    """
    place = _set_up(folder)
    home = Path(place.state or "").parent
    command = [sys.executable, str(home / "throw_darts.py"), "{}"]
    settings = Settings(name="pi", cwd=str(home))
    bag = read_job(Request(range=f"1-{tasks}", command=command, settings=settings))
    if not as_json:
        click.echo(f"$ windfall run --range 1-{tasks} -- python3 throw_darts.py {{}}")
    code = run_bag(place, bag, as_json=as_json, at_end=None if as_json else _tell)
    return 0 if code == 1 else code


def _set_up(folder: str | None) -> Place:
    try:
        home = Path(folder).absolute() if folder else Path(tempfile.mkdtemp(prefix="windfall-demo-"))
        home.mkdir(parents=True, exist_ok=True)
        (home / "throw_darts.py").write_text(THROW_DARTS)
    except OSError as error:
        raise BadInput(f"{error.filename}: {error.strerror}", hint="name another directory: --dir DIR") from error
    return Place(state=str(home / ".windfall"), typed_in=str(home))


def _tell(job: Job) -> None:
    estimates = [float(task.stdout) for task in job.results() if task.ok]
    if estimates:
        mean = sum(estimates) / len(estimates)
        click.echo(f"pi is about {mean:.5f}, going by the {len(estimates):,} tasks that have ended well.")
    click.echo("Your own tasks: windfall run tasks.txt   (windfall run --help shows more)")
