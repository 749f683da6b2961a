"""Writes manual pages of all commands: `python tools/man.py FOLDER`, then `man FOLDER/windfall-run.1`."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from mkdocs_site import helps

from windfall import __version__
from windfall.cli import cli


def roff(text: str) -> str:
    """A text as lines that groff leaves alone."""
    lines = text.replace("\\", "\\e").replace("-", "\\-").splitlines()
    return "\n".join(f"\\&{line}" if line[:1] in (".", "'") else line for line in lines)


def page(name: str, text: str) -> str:
    title = name.replace(" ", "-")
    usage, _, rest = text.partition("\n\n")
    summary = " ".join(rest.strip().partition("\n\n")[0].split())
    return (
        f'.TH "{title.upper()}" 1 "" "Windfall {__version__}" "Windfall"\n'
        f".SH NAME\n{roff(title)} \\- {roff(summary)}\n"
        f".SH SYNOPSIS\n.nf\n{roff(usage.removeprefix('Usage: '))}\n.fi\n"
        f".SH DESCRIPTION\n.nf\n{roff(rest)}\n.fi\n"
    )


def main() -> int:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    assert isinstance(cli, click.Group)
    written = [(name, page(name, text)) for name, text in helps(cli, "windfall")]
    for name, text in written:
        (folder / f"{name.replace(' ', '-')}.1").write_text(text)
    print(f"{len(written)} manual pages in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
