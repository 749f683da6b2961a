"""One HTML file with figures in it that needs nothing else. Touches: that file."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from windfall.errors import BadInput

STYLE = "body{font:16px system-ui;max-width:60em;margin:2em auto;padding:0 1em}img{max-width:100%}"


def png(figure: Any) -> str:
    """A figure as text, for an image within the page."""
    import matplotlib.pyplot as plt

    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    plt.close(figure)
    return base64.b64encode(buffer.getvalue()).decode()


def write(path: Path, title: str, paragraphs: Sequence[str], figures: Sequence[tuple[str, str]]) -> None:
    """`figures`: (heading, what `png` made). Missing directories are made."""
    text = "".join(f"<p>{html.escape(paragraph)}</p>" for paragraph in paragraphs if paragraph)
    images = "".join(f"<h2>{name}</h2><img alt='{name}' src='data:image/png;base64,{data}'>" for name, data in figures)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            f"<!doctype html><html lang=en><meta charset=utf-8><title>{html.escape(title)}</title>"
            f"<style>{STYLE}</style><h1>{html.escape(title)}</h1>{text}{images}</html>"
        )
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}", hint="name another file: --out report.html") from None
