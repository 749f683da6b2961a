"""What a person at a terminal sees: progress is drawn in place, and no control sequence is shown as signs."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys

import pytest

from tests.support.commands.typed import WINDFALL
from windfall.escaping import for_terminal

UP_AND_CLEAR = "\x1b[1A\x1b[2K"
"""What rich writes before it draws a line again."""


def seen(tmp_path, *arguments: str) -> str:
    """All that a command writes to its terminal."""
    ours, its = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "40"}
    process = subprocess.Popen(arguments, cwd=tmp_path, env=env, stdin=its, stdout=its, stderr=its)
    os.close(its)
    written = bytearray()
    with contextlib.suppress(OSError):  # the other end is closed
        while piece := os.read(ours, 65536):
            written += piece
    os.close(ours)
    assert process.wait() == 0, written
    return written.decode(errors="replace")


@pytest.mark.parametrize(
    "arguments",
    [
        [*WINDFALL, "run", "--range", "1-3", "--slots", "1", "--", "sh", "-c", "sleep 0.5; echo {}"],
        [*WINDFALL, "timeout", "fit", "latencies.csv"],
    ],
    ids=["run", "timeout fit"],
)
def test_progress_is_drawn_in_place(tmp_path, arguments):
    (tmp_path / "latencies.csv").write_text("1\n2\n3\n")
    shown = seen(tmp_path, *arguments)
    assert "\x1b[2K" in shown
    assert "\u241b" not in shown


def test_what_a_task_wrote_is_not_obeyed(tmp_path):
    subprocess.run(
        [*WINDFALL, "run", "--range", "1-1", "--", "printf", r"before \033[1A\033[2K after %s"],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    shown = seen(tmp_path, *WINDFALL, "logs", "last")
    assert for_terminal(UP_AND_CLEAR) in shown and UP_AND_CLEAR not in shown


def test_a_terminal_is_drawn_on_below_every_guard(monkeypatch):
    from rich.console import Console
    from rich.file_proxy import FileProxy

    from windfall.cli.show.terminal import Terminal, drawn_on

    guarded = Terminal(sys.__stderr__)
    proxy = FileProxy(Console(file=guarded), guarded)  # type: ignore[arg-type]
    assert drawn_on(guarded) is drawn_on(proxy) is sys.__stderr__  # type: ignore[arg-type]
