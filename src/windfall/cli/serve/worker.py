"""`windfall worker`: the worker, run from the installed package. A thin layer over `windfall.worker`."""

from __future__ import annotations

import os
import sys

import click


@click.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
    options_metavar="[OPTIONS]",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def worker(arguments: tuple[str, ...]) -> None:
    """Take tasks from a server and run them. `windfall worker --help` shows the options."""
    from windfall.worker.__main__ import main

    code = main(arguments, prog="windfall worker")
    sys.stdout.flush()
    sys.stderr.flush()
    # As in worker.pyz: no thread in the middle of a request is worth waiting for.
    os._exit(code)
