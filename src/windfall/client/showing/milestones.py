"""How far a job or futures are, where no screen is drawn: one line that is overwritten, or a line now and then.

Touches standard error, or the display of a notebook.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TextIO

from windfall.client.showing.notebook import bar, display_here
from windfall.units import show_duration

if TYPE_CHECKING:
    from windfall.client.executor import Future
    from windfall.client.job import Job

EVERY_S = 30.0
"""Seconds after which a line is due, whatever has happened."""
AT_LEAST_S = 5.0
"""Seconds between two lines, however quickly tasks end."""
STEP = 0.1
"""The share of the tasks after which a line is due."""


class Milestones:
    """When to write a line about a run: every 30 s, or after 10 % more of it, and not in its first 5 s."""

    def __init__(self, now_s: float) -> None:
        self._last_s = now_s
        self._share: float | None = None

    def is_due(self, now_s: float, share: float) -> bool:
        """`share`: the part that has ended, from 0 to 1. True at most once for each milestone."""
        if self._share is None:
            self._share = share  # what had ended before is no news
        waited_s = now_s - self._last_s
        if waited_s < AT_LEAST_S or (waited_s < EVERY_S and share - self._share < STEP - 1e-9):
            return False
        self._last_s, self._share = now_s, share
        return True


def progress(what: Job | Iterable[Future], timeout: float | None = None, file: TextIO | None = None) -> None:
    """Wait until a job, or each of some futures, has ended, and show how far it is.

    On standard error (or `file`) as a line; in a notebook as a bar below the cell.
    """
    display = display_here() if file is None else None
    line = _Line(file or sys.stderr) if display is None else _Bar(display)
    if hasattr(what, "watch"):
        for status in what.watch(timeout):
            tasks = status["tasks"]
            ended = tasks["done"] + tasks["failed"] + tasks["cancelled"]
            line.show(f"job {status['job']} '{status['name']}'", ended, tasks["total"], tasks["failed"])
    else:
        _of_futures(list(what), line.show, timeout)
    line.end()


def _of_futures(futures: list[Future], show: Callable[[str, int, int, int], None], timeout: float | None) -> None:
    from concurrent.futures import FIRST_COMPLETED, wait

    until_s = None if timeout is None else time.monotonic() + timeout
    pending: set[Any] = set(futures)
    while True:
        ended = [future for future in futures if future.done()]
        raised = sum(not future.cancelled() and future.exception() is not None for future in ended)
        show("calls", len(ended), len(futures), raised)
        if not pending or (until_s is not None and time.monotonic() >= until_s):
            return
        left_s = 1.0 if until_s is None else min(1.0, max(0.0, until_s - time.monotonic()))
        pending = set(wait(pending, left_s, FIRST_COMPLETED).not_done)


class _Bar:
    """One bar below the cell of a notebook, drawn again at most five times a second."""

    def __init__(self, display: Callable[[str], None]) -> None:
        self._display = display
        self._began_s = time.monotonic()
        self._drawn_s = -math.inf
        self._html = ""

    def show(self, what: str, ended: int, total: int, failed: int) -> None:
        now_s = time.monotonic()
        bad = f", {failed:,} failed" if failed else ""
        text = f"{ended:,} of {total:,} ended{bad}, {show_duration(now_s - self._began_s)}"
        self._html = bar(what, ended, total, failed, text)
        if now_s >= self._drawn_s + 0.2:
            self._drawn_s = now_s
            self._display(self._html)

    def end(self) -> None:
        self._display(self._html)


class _Line:
    """One line, written over itself on a terminal; elsewhere a new line at each milestone and at the end."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._is_terminal = file.isatty()
        self._began_s = time.monotonic()
        self._milestones = Milestones(self._began_s)
        self._text = ""

    def show(self, what: str, ended: int, total: int, failed: int) -> None:
        now_s = time.monotonic()
        share = ended / total if total else 1.0
        bad = f", {failed:,} failed" if failed else ""
        text = f"{what}: {ended:,} of {total:,} ended ({share:.0%}){bad}, {show_duration(now_s - self._began_s)}"
        if self._is_terminal:
            self._file.write(f"\r{text}".ljust(len(self._text) + 1))
            self._file.flush()
        elif self._milestones.is_due(now_s, share):
            self._write(text)
        self._text = text

    def end(self) -> None:
        self._write("" if self._is_terminal else self._text)

    def _write(self, text: str) -> None:
        self._file.write(f"{text}\n")
        self._file.flush()
