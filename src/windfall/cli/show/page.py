"""One HTML file with figures in it that needs nothing else. Touches: that file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from windfall import files
from windfall.figures.look import PALETTE
from windfall.figures.look import STYLE as CHARTS
from windfall.figures.timeline import escaped

STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;background:var(--back);
color:var(--ink)}h1{font-size:1.5em}h2{font-size:1.1em;margin:2em 0 .4em}
table{border-collapse:collapse;font-size:.9em}td,th{text-align:left;padding:.25em .9em .25em 0;vertical-align:top}
th{color:var(--soft);font-weight:500}td{border-top:1px solid var(--line)}p{margin:.3em 0}
""".strip().replace("\n", "")


def write(
    path: Path, title: str, paragraphs: Sequence[str], figures: Sequence[tuple[str, str]], after: str = ""
) -> None:
    """`figures`: (heading, a picture as HTML); `after`: HTML below. Makes missing folders."""
    text = "".join(f"<p>{escaped(paragraph)}</p>" for paragraph in paragraphs if paragraph)
    images = "".join(f"<h2>{escaped(name)}</h2>{drawn}" for name, drawn in figures)
    files.write(
        path,
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escaped(title)}</title>"
        f"<meta name=viewport content='width=device-width'><style>{PALETTE}{STYLE}{CHARTS}</style>"
        f"<h1>{escaped(title)}</h1>{text}{images}{after}</html>",
    )
