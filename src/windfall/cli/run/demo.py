"""`windfall demo`: a real bag of small tasks, or one by a deadline on a small cloud. Touches one new directory."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click

from windfall.bags.settings import Settings
from windfall.bags.submission import Request, read_job
from windfall.cli.options import Place
from windfall.cli.run.command import run_bag
from windfall.client import Job
from windfall.errors import BadInput
from windfall.pools.config import read_pools

CLOUD = """\
# A cloud on this host: machines are workers that boot, are frozen, wake and are killed. A minute passes in a second.
[[pool]]
name = "cloud"
kind = "emulated"
time_scale = 60

[[pool.offer]]
name = "spot"
market = "spot"
cores = 2
price_usd = 0.03            # for a quarter of an hour
cycle_s = 900
lag_s = 60
limit = 4
when_taken = "hibernate"
law = { hibernations_per_h = 3, resumes_per_h = 6 }

[[pool.offer]]
name = "steady"
cores = 2
price_usd = 0.10
cycle_s = 900
lag_s = 60
limit = 4
"""
DEADLINE_S = 90
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
@click.argument("what", type=click.Choice(["bag", "deadline"]), default="bag")
@click.option("--tasks", type=click.IntRange(113, 100_000), default=300, show_default=True, help="Tasks of the bag.")
@click.option("--dir", "folder", metavar="DIR", help="Where to keep it all.  [default: a new temporary directory]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def demo(what: str, tasks: int, folder: str | None, as_json: bool) -> int:
    """Run a real bag: a few hundred tasks that estimate pi; some fail once, one always fails.

    `windfall demo deadline` runs one by a deadline, on spot machines, which hibernate, and on demand: a cloud
    on this host whose machines are processes, in which a minute passes in a second.

    Nothing is acted: a server, workers, a log on disk. The exit code is 0 although one task of the bag failed, for that
    is what was to be shown.
    """
    place = _set_up(folder)
    home = Path(place.state or "").parent
    return _by_a_deadline(place, home, as_json) if what == "deadline" else _bag(place, home, tasks, as_json)


def _bag(place: Place, home: Path, tasks: int, as_json: bool) -> int:
    command = [sys.executable, str(home / "throw_darts.py"), "{}"]
    settings = Settings(name="pi", cwd=str(home))
    bag = read_job(Request(range=f"1-{tasks}", command=command, settings=settings))
    if not as_json:
        click.echo(f"$ windfall run --range 1-{tasks} -- python3 throw_darts.py {{}}")
    code = run_bag(place, bag, as_json=as_json, at_end=None if as_json else _tell)
    return 0 if code == 1 else code


def _by_a_deadline(place: Place, home: Path, as_json: bool) -> int:
    settings = Settings(name="naps", cwd=str(home), deadline=DEADLINE_S, pools=["cloud"], estimate=2)
    bag = read_job(Request(range="1-60", command=["sh", "-c", "sleep 2", "nap {}"], settings=settings))
    if not as_json:
        run = f"windfall run --range 1-60 --deadline {DEADLINE_S}s --pools cloud.toml --pool cloud"
        click.echo(f"$ {run} -- sh -c 'sleep 2' 'nap {{}}'")
    code = run_bag(place, bag, as_json=as_json, pools=read_pools(home / "cloud.toml", None))
    if not as_json:
        click.echo(f"The cloud is described in {home / 'cloud.toml'}. What it cost, and why:")
        click.echo(f"  cd {home} && windfall cost last && windfall explain last")
    return code


def _set_up(folder: str | None) -> Place:
    try:
        home = Path(folder).absolute() if folder else Path(tempfile.mkdtemp(prefix="windfall-demo-"))
        home.mkdir(parents=True, exist_ok=True)
        (home / "throw_darts.py").write_text(THROW_DARTS)
        (home / "cloud.toml").write_text(CLOUD)
    except OSError as error:
        raise BadInput(f"{error.filename}: {error.strerror}", hint="name another directory: --dir DIR") from error
    return Place(state=str(home / ".windfall"), typed_in=str(home))


def _tell(job: Job) -> None:
    estimates = [float(task.stdout) for task in job.results(wait=False) if task.ok]
    if estimates:
        mean = sum(estimates) / len(estimates)
        click.echo(f"pi is about {mean:.5f}, going by the {len(estimates):,} tasks that have ended well.")
    click.echo("Your own tasks: windfall run tasks.txt   (windfall run --help shows more)")
