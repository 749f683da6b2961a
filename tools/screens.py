"""Records the terminal for the documentation: runs commands in tmux and turns what a person sees into SVG pictures.

    python tools/screens.py            # all of them: `make screens`
    python tools/screens.py demo       # one

Each is recorded 80 and 60 columns wide and written for a dark and a light page: docs/images/NAME-80-dark.svg ... What
stands on the screen while the command runs comes first, then what stands there when it has ended. `front` is the
picture of `windfall plan` in docs/howto/deadlines.md, and the text beside it.
"""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, SVG_EXPORT_THEME
from rich.text import Text

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs" / "images"
PLAN_PAGE = ROOT / "docs" / "howto" / "deadlines.md"
SCREENS: dict[str, tuple[float, list[str]]] = {
    "demo": (6.0, ["windfall", "demo"]),
    "deadline": (20.0, ["windfall", "demo", "deadline"]),
}
"""The command, and after how many seconds it is looked at while it runs."""
WIDTHS, LINES = (80, 60), 34
THEMES = {"dark": SVG_EXPORT_THEME, "light": DEFAULT_TERMINAL_THEME}
LONGEST_S = 300.0


def recorded(name: str, command: list[str], during_s: float, columns: int) -> list[str]:
    """What stands on the screen `during_s` after the command began and when it has ended, with its colours."""
    session = f"windfall-{name}-{columns}-{os.getpid()}"
    with tempfile.TemporaryDirectory() as folder:
        ended = Path(folder) / "ended"
        typed = f"cd {folder}; {shlex.join(command)}; touch {ended}; sleep 3600"
        size = ["-x", str(columns), "-y", str(LINES)]
        subprocess.run(["tmux", "new-session", "-d", "-s", session, *size, typed], check=True)
        try:
            _wait(during_s, ended)
            seen = [_screen(session)]
            _wait(LONGEST_S, ended)
            return [*seen, _screen(session)]
        finally:
            subprocess.run(["tmux", "kill-session", "-t", session], check=True)


def _wait(seconds: float, ended: Path) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and not ended.exists():
        time.sleep(0.1)
    time.sleep(0.3)


def _screen(session: str) -> str:
    capture = ["tmux", "capture-pane", "-e", "-p", "-t", session]
    return subprocess.run(capture, check=True, capture_output=True, text=True).stdout.rstrip()


def write(name: str) -> None:
    during_s, command = SCREENS[name]
    for columns in WIDTHS:
        seen = recorded(name, command, during_s, columns)
        for theme, colours in THEMES.items():
            console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True)
            for screen in seen:
                for line in [*screen.splitlines(), ""]:
                    console.print(Text.from_ansi(line))
            svg = console.export_svg(title=shlex.join(command), theme=colours, unique_id=f"{name}-{columns}-{theme}")
            (IMAGES / f"{name}-{columns}-{theme}.svg").write_text(svg)


def write_plan() -> None:
    """The picture of `windfall plan`, and in the page that shows it what the same command prints."""
    typed = next(line for line in PLAN_PAGE.read_text().splitlines() if line.startswith("$ windfall plan "))
    command = typed[2:].replace("front.png", str(IMAGES / "front.png"))
    ended = subprocess.run(command, shell=True, cwd=ROOT, check=True, capture_output=True, text=True)
    shown = [line.rstrip() for line in ended.stdout.splitlines() if not line.endswith(".png")]
    before, _, rest = PLAN_PAGE.read_text().partition(f"{typed}\n")
    _, _, after = rest.partition("```\n")
    PLAN_PAGE.write_text(f"{before}{typed}\n" + "\n".join(shown) + f"\n```\n{after}")


if __name__ == "__main__":
    for each in sys.argv[1:] or [*SCREENS, "front"]:
        write_plan() if each == "front" else write(each)
