"""What notebooks are shown: a display that is updated, and HTML in which names stay text."""

from __future__ import annotations

import sys
import types
from concurrent.futures import Future

import pytest

from windfall.client.showing.milestones import progress
from windfall.client.showing.notebook import bar, display_here, future_html, job_html

STATUS = {
    "job": 3, "name": "<script>", "state": "running",
    "tasks": {"total": 10, "done": 4, "running": 3, "waiting": 1, "failed": 1, "cancelled": 1},
}  # fmt: skip


class Shown:
    """The part of IPython that is used, and what it has shown: the first display, then its updates."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kernel: object | None) -> None:
        self.html: list[str] = []
        shell = types.SimpleNamespace(kernel=kernel)
        ipython = types.ModuleType("IPython")
        ipython.get_ipython = lambda: shell  # type: ignore[attr-defined]
        display = types.ModuleType("IPython.display")
        display.HTML = str  # type: ignore[attr-defined]
        display.display = self._display  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        monkeypatch.setitem(sys.modules, "IPython.display", display)

    def _display(self, html: str, display_id: bool) -> types.SimpleNamespace:
        assert display_id
        assert not self.html, "a second display instead of an update"
        self.html.append(html)
        return types.SimpleNamespace(update=self.html.append)


def test_progress_is_one_bar_that_is_updated(monkeypatch, capsys):
    shown = Shown(monkeypatch, kernel=object())
    futures = [Future() for _ in range(4)]
    for future in futures[:3]:
        future.set_result(1)
    futures[3].set_exception(ValueError("no"))
    progress(futures)
    assert "4 of 4 ended, 1 failed" in shown.html[-1]
    assert "width:75.0%" in shown.html[-1]
    assert capsys.readouterr().err == ""


def test_a_terminal_gets_a_line(monkeypatch, capsys):
    shown = Shown(monkeypatch, kernel=None)
    assert display_here() is None
    progress([])
    assert not shown.html
    assert "0 of 0 ended" in capsys.readouterr().err


def test_names_stay_text():
    assert "&lt;script&gt;" in job_html(STATUS)
    assert "<script>" not in job_html(STATUS) + bar("<script>", 0, 0, 0, "<script>") + future_html("<script>", "done")
    assert "4 of 10 done, 3 running, 1 failed, 1 cancelled" in job_html(STATUS)
