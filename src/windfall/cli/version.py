"""`windfall version`: which Windfall and which Python this is. Touches the terminal."""

from __future__ import annotations

import platform

import click

from windfall import __version__
from windfall.cli.options import json_option
from windfall.cli.show.output import print_json


@click.command()
@json_option
def version(as_json: bool) -> None:
    """Print the version of Windfall and of the Python that runs it."""
    if as_json:
        print_json({"version": __version__, "python": platform.python_version()})
    else:
        click.echo(f"windfall {__version__} (Python {platform.python_version()})")
