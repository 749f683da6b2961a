"""Pictures of pages (a key and an SVG as HTML) as one SVG document of their own, for files. Pure."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from typing import Any

from windfall.figures.look import PALETTE, STYLE
from windfall.figures.timeline import WIDTH, escaped

KEY = re.compile(r'<span><i class="key ([\w -]+)"></i>(.*?)</span>')
DRAWN = re.compile(r'<svg viewBox="0 0 (?P<width>[\d.]+) (?P<height>[\d.]+)"[^>]*>(?P<inner>.*)</svg>', re.DOTALL)
HEADING, KEY_ROW, KEY_LETTER, MARGIN = 26.0, 20.0, 7.4, 12.0


def standalone(title: str, pictures: Sequence[Mapping[str, Any]]) -> str:
    """Pictures (`name`, `html`, `says`) below each other, under a title."""
    parts = [f'<text class="name title" x="{MARGIN}" y="21">{escaped(title)}</text>'] if title else []
    y = 34.0 if title else 8.0
    for each in pictures:
        parts.append(f'<text class="name" x="{MARGIN}" y="{y + 14:.0f}">{escaped(each["name"])}</text>')
        key, y = _key(each["html"], y + HEADING)
        found = DRAWN.search(each["html"])
        assert found is not None, "a picture of a page is one SVG"
        parts.append(f'{key}<g transform="translate(0,{y:.0f})">{found["inner"]}</g>')
        y += float(found["height"]) + 8
    says = " ".join(each["says"] for each in pictures)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {WIDTH:.0f} {y:.0f}" '
        f'width="{WIDTH:.0f}" height="{y:.0f}" role="img" aria-label="{escaped(says)}">'
        f"<style>{html.escape(PALETTE + STYLE, quote=False)}</style>"
        f'<rect class="ground" width="{WIDTH:.0f}" height="{y:.0f}"/>{"".join(parts)}</svg>'
    )


def _key(page: str, y: float) -> tuple[str, float]:
    """What the colours mean, in rows from `y` on, and where they end."""
    parts, x = [], MARGIN
    found = KEY.findall(page)
    for kind, name in found:
        needed = 18 + KEY_LETTER * len(html.unescape(name)) + 14
        if x > MARGIN and x + needed > WIDTH:
            x, y = MARGIN, y + KEY_ROW
        parts.append(
            f'<rect class="{kind}" x="{x:.0f}" y="{y + 2:.0f}" width="11" height="11" rx="2"/>'
            f'<text x="{x + 17:.0f}" y="{y + 12:.0f}">{name}</text>'
        )
        x += needed
    return "".join(parts), y + (KEY_ROW if found else 0.0)
