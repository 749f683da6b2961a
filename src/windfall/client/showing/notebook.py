"""Jobs, futures and progress as a notebook shows them, in HTML. Touches the display of IPython where there is one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from html import escape
from typing import Any

Json = Mapping[str, Any]
_COLOURS = {"done": "#2e7d32", "failed": "#c62828", "cancelled": "#757575"}


def display_here() -> Callable[[str], None] | None:
    """A function that shows HTML below the cell and replaces it when called again; None outside of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if getattr(shell, "kernel", None) is None:
        return None  # a terminal, with IPython or without
    from IPython.display import HTML, display

    handle: Any = None

    def show(html: str) -> None:
        nonlocal handle
        if handle is None:
            handle = display(HTML(html), display_id=True)
        else:
            handle.update(HTML(html))

    return show


def bar(what: str, ended: int, total: int, failed: int, text: str) -> str:
    """A bar of what has ended, with what has failed at its end; `text` stands below it."""
    good, bad = (100 * part / total if total else 0.0 for part in (ended - failed, failed))
    if not total:
        good = 100.0
    return (
        f'<div style="max-width:40em"><b>{escape(what)}</b>'
        f'<div role="progressbar" aria-valuemin="0" aria-valuemax="{total}" aria-valuenow="{ended}" '
        'style="display:flex;height:0.8em;margin:0.3em 0;background:#8884;border-radius:3px;overflow:hidden">'
        f'<div style="width:{good:.1f}%;background:{_COLOURS["done"]}"></div>'
        f'<div style="width:{bad:.1f}%;background:{_COLOURS["failed"]}"></div></div>'
        f"<small>{escape(text)}</small></div>"
    )


def job_html(status: Json) -> str:
    """Where a job stands: its bar, its state, and its tasks by state."""
    tasks = status["tasks"]
    ended = tasks["done"] + tasks["failed"] + tasks["cancelled"]
    text = f"{status['state']}: {tasks['done']:,} of {tasks['total']:,} done"
    text += "".join(f", {tasks[state]:,} {state}" for state in ("running", "failed", "cancelled") if tasks[state])
    return bar(f"job {status['job']} {status['name']}", ended, tasks["total"], tasks["failed"], text)


def future_html(text: str, state: str) -> str:
    """A future in one line, coloured by its state."""
    colour = _COLOURS.get("failed" if state.startswith("raised") else state, "inherit")
    return f'<code style="color:{colour}">{escape(text)}</code>'
