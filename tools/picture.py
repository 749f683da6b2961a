"""Records the terminal for the README: runs a command in tmux and turns what a person sees into an SVG.

What stands on the screen after the first number of seconds comes first, then what stands there after the second:

    python tools/picture.py docs/images/demo.svg 12 40 windfall demo
"""

from __future__ import annotations

import io
import shlex
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS, LINES = 112, 30


def screens(command: list[str], moments: list[float]) -> list[str]:
    """What stands on the screen at these seconds after the command began, with its colours."""
    name = "windfall-picture"
    size = ["-x", str(COLUMNS), "-y", str(LINES)]
    subprocess.run(["tmux", "new-session", "-d", "-s", name, *size, f"{shlex.join(command)}; sleep 3600"], check=True)
    seen = []
    began = time.monotonic()
    try:
        for moment in moments:
            time.sleep(max(0.0, began + moment - time.monotonic()))
            capture = ["tmux", "capture-pane", "-e", "-p", "-t", name]
            seen.append(subprocess.run(capture, check=True, capture_output=True, text=True).stdout.rstrip())
    finally:
        subprocess.run(["tmux", "kill-session", "-t", name], check=True)
    return seen


def main() -> None:
    target, first, second, *command = sys.argv[1:]
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for screen in screens(command, [float(first), float(second)]):
        for line in [*screen.splitlines(), ""]:
            console.print(Text.from_ansi(line))
    Path(target).write_text(console.export_svg(title=shlex.join(command)))


if __name__ == "__main__":
    main()
