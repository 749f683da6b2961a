"""What commands print: JSON, tables, times, and a console for progress. Touches standard output and error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
import msgspec

from windfall.cli.show.terminal import drawn_on
from windfall.escaping import visible
from windfall.files import check_folder, check_writable
from windfall.units import show_clock, show_deadline

if TYPE_CHECKING:
    from rich.console import Console

    from windfall.api.answers import JobStatus


def print_json(document: Any) -> None:
    """One document, or one line of a stream."""
    click.echo(msgspec.json.encode(document).decode())


def print_table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Columns as wide as they need to be; numbers to the right."""
    lines = [[_cell(value, head) for head, value in zip(heads, row, strict=True)] for row in rows]
    right = [bool(lines) and all(_is_number(row[i]) for row in lines) for i in range(len(heads))]
    widths = [max(len(row[i]) for row in [list(heads), *lines]) for i in range(len(heads))]
    for line in [list(heads), *lines]:
        cells = [
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(line, widths, right, strict=True)
        ]
        click.echo("  ".join(cells).rstrip())


_NUMBERED = ("task", "job")
"""Heads of columns of numbers that are names: typed back as they are shown, where 1,204 would be two tasks."""


def _cell(value: Any, head: str) -> str:
    if value is None:
        return "-"
    if head in _NUMBERED:
        return visible(str(value))
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return visible(str(value))


def _is_number(text: str) -> bool:
    return text == "-" or text.replace(",", "").replace(".", "").replace("%", "").strip().isdecimal()


def fitted(line: str, columns: int | None) -> list[str]:
    """The line, broken between words where it is longer than `columns`; the rest is indented a little more."""
    if columns is None or len(line) <= columns:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    pieces, rest = list[str](), line
    while len(rest) > columns:
        cut = rest.rfind(" ", len(indent), columns + 1)
        if cut < 0:  # one long word
            break
        pieces.append(rest[:cut].rstrip())
        rest = indent + rest[cut:].lstrip()
    return [*pieces, rest]


def columns_here() -> int | None:
    """The columns of the terminal on standard output; None if it is none."""
    if not sys.stdout.isatty():
        return None
    import shutil  # not above: it loads every way to compress, and only a terminal needs it

    return shutil.get_terminal_size().columns


def echo(line: str) -> None:
    """Print a line of prose, broken between words on a narrow terminal."""
    for piece in fitted(line, columns_here()):
        click.echo(piece)


def console(quiet: bool = False) -> Console:
    """Where progress goes: standard error; nothing at all if that is no terminal, or `quiet`."""
    from rich.console import Console

    quiet = quiet or not sys.stderr.isatty()
    return Console(file=drawn_on(sys.stderr), stderr=True, quiet=quiet, highlight=False)


@contextmanager
def busy(text: str) -> Iterator[Callable[[str], None]]:
    """Show on a terminal what takes a while; the function that it gives changes the text."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    with console().status(text) as shown:
        yield shown.update


def note(text: str) -> None:
    """A remark beside the result: to standard error, so that it spoils no pipe."""
    click.echo(text, err=True)


def plot_file(context: click.Context, option: click.Parameter, path: str | None) -> str | None:
    """Callback of `--plot`: refuse a place where no figure can be saved before anything is computed."""
    if path is not None:
        from windfall.figures.saved import check_picture

        check_picture(path)
    return path


def output_file(context: click.Context, option: click.Parameter, path: Any) -> Any:
    """Callback of options that name a file to write: refuse what cannot be written before anything is done."""
    if path is not None and str(path) != "-":
        check_writable(path)
    return path


def output_folder(context: click.Context, option: click.Parameter, path: Any) -> Any:
    """Callback of options that name a folder to write into: refuse what cannot be written before anything is done."""
    if path is not None:
        check_folder(path)
    return path


def folder_option(default: str = "lab") -> Callable[[Any], Any]:
    """`--out` of commands that write several files."""
    return click.option(
        "--out", callback=output_folder, type=click.Path(path_type=Path), default=Path(default), show_default=True,
        metavar="DIR", help="Where to write.",
    )  # fmt: skip


def wrote(path: object) -> None:
    """Say that a file was written, beside the result."""
    note(f"wrote {path}")


def worked_s(status: dict[str, Any]) -> float:
    """Seconds from the submission of a job to its last result (or now), without the time when no server ran it."""
    return max(0.0, float(status["elapsed_s"]) - float(status.get("down_s") or 0.0))


def rate(per_second: float) -> str:
    """How many a second, or a minute if they are few."""
    if per_second >= 100:
        return f"{per_second:,.0f}/s"
    return f"{per_second:.1f}/s" if per_second >= 1 else f"{60 * per_second:.1f}/min"


def moment(unix_s: float | None) -> str:
    """A clock time of this host with its seconds; with its date if that is another day."""
    return show_clock(unix_s, time.time(), seconds=True)


def plain(status: JobStatus) -> dict[str, Any]:
    """A status of a job for those who add to it, or read all kinds of rows."""
    return cast("dict[str, Any]", status)


def deadline_words(unix_s: float) -> str:
    """`14:30 (in 1h59m)`, by the clock of this host."""
    return show_deadline(unix_s, time.time())


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
