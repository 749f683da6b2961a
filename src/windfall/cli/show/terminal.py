"""Standard streams that are terminals show what they are given and obey none of it. Touches the standard streams."""

from __future__ import annotations

import sys
from typing import Any, TextIO

from windfall.escaping import for_terminal


class Terminal:
    """A text stream whose texts are made harmless. Rich, which draws with control sequences, writes past it: give its
    consoles `file=drawn_on(sys.stderr)`."""

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream
        """What rich writes to in place of this object."""

    def write(self, text: str) -> int:
        return self.rich_proxied_file.write(for_terminal(text))

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


def drawn_on(stream: TextIO) -> TextIO:
    """The stream below all guards. Rich looks below one, and adds one of its own while it draws."""
    while (below := getattr(stream, "rich_proxied_file", None)) is not None:
        stream = below
    return stream


def guard_terminals() -> None:
    """From now on, no text that is printed is obeyed by a terminal."""
    if sys.stdout.isatty():
        sys.stdout = Terminal(sys.stdout)
    if sys.stderr.isatty():
        sys.stderr = Terminal(sys.stderr)
