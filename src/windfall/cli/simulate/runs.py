"""How `windfall simulate` runs a scenario many times: its options, progress and executors. Touches the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, nullcontext
from typing import Any

import click

from windfall.cli.processes import processes
from windfall.cli.show.output import console, plural


def sweep_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print one JSON document."),
        click.option("--on", "server", metavar="URL", help="Run the seeds as tasks of this Windfall server."),
        click.option(
            "--jobs", type=click.IntRange(1), default=None, metavar="P", help="Runs at a time; default: all cores."
        ),
        click.option(
            "--set", "changes", multiple=True, metavar="KEY=VALUE", help="Change the scenario: pool.slurm.hosts=50."
        ),
    ):
        command = option(command)
    return command


def read_scenario(name: str, changes: tuple[str, ...] | list[str]) -> Any:
    from windfall.lab.data import root
    from windfall.sim.scenario import read

    return read(name, list(changes), root())


def many(scenario: Any, seeds: Sequence[int], jobs: int | None, server: str | None) -> list[Any]:
    """The outcomes of these seeds, in their order."""
    from windfall.sim.studies.sweep import sweep

    ready = 0
    with _executor(jobs, server, len(seeds)) as executor, progress(f"simulating {scenario.name}") as show:

        def done(outcome: Any) -> None:
            nonlocal ready
            ready += 1
            show(f"{ready} of {plural(len(seeds), 'run')}")

        return sweep(scenario, seeds, executor, done)


@contextmanager
def _executor(jobs: int | None, server: str | None, runs: int) -> Iterator[Executor | None]:
    if server is not None:
        from windfall.client import Client

        client = Client(server).greet()
        with client.executor() as remote:
            yield remote
        client.close()
        return
    with processes(runs, jobs) as pool:
        yield pool


@contextmanager
def progress(what: str) -> Iterator[Callable[[str], None]]:
    screen = console()
    shown = nullcontext() if screen.quiet else screen.status(what)
    with shown as status:
        yield lambda text: None if status is None else status.update(f"{what}: {text}")
