"""Pictures over one common time axis as SVG within a page: they follow its light or dark look. Pure.

All pictures of a page have the same width and the same axis, so that what is above each other happened together.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence

from msgspec import Struct

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 760.0, 112.0, 20.0, 18.0, 34.0
LANE, GAP = 14.0, 8.0
STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
FAR = 1.25
"""A deadline further away than this many times what has happened is named at the edge instead of drawn."""
STYLE = """
.chart{overflow-x:auto}.chart svg{display:block;width:100%;min-width:560px;height:auto}
.chart text{font:13px system-ui,sans-serif;fill:var(--soft)}.chart .name{fill:var(--ink)}
.chart .grid{stroke:var(--line);stroke-width:1}.chart .limit{stroke:var(--bad);stroke-width:1.5;stroke-dasharray:5 4}
.chart .limit-name{fill:var(--bad)}.chart .curve{fill:none;stroke:var(--main);stroke-width:2}
.chart .area{fill:var(--main);opacity:.13}.done{fill:var(--good)}.failed{fill:var(--bad)}.lost{fill:var(--odd)}
.boot{fill:var(--wait)}.spot{fill:var(--good)}.on-demand{fill:var(--main)}.cancelled{fill:var(--line)}
.key.done,.key.spot{background:var(--good)}.key.failed{background:var(--bad)}.key.lost{background:var(--odd)}
.key.boot{background:var(--wait)}.key.on-demand{background:var(--main)}
.key{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin:0 .35em 0 1em}
""".strip()


class Bar(Struct, frozen=True):
    """What something did from `start_s` to `end_s`; `kind` is a class of the style, `title` is shown on a touch."""

    start_s: float
    end_s: float
    kind: str
    title: str = ""


class Axis(Struct, frozen=True):
    """Seconds from zero to the end of what happened, and the deadline."""

    end_s: float
    deadline_s: float | None = None

    @property
    def deadline_is_near(self) -> bool:
        return self.deadline_s is not None and self.deadline_s <= FAR * self.end_s

    @property
    def length_s(self) -> float:
        near_s = self.deadline_s if self.deadline_is_near and self.deadline_s is not None else 0.0
        return max(self.end_s, near_s, 1e-3) * 1.02

    def x(self, t_s: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * min(max(t_s / self.length_s, 0.0), 1.0)

    def ticks(self) -> list[float]:
        step = next((step for step in STEPS_S if self.length_s / step <= 8), 86400 * math.ceil(self.length_s / 691200))
        return [step * place for place in range(int(self.length_s / step) + 1)]


def lanes(bars: Sequence[Bar]) -> list[list[Bar]]:
    """Bars in as few rows as hold them without overlap."""
    rows: list[list[Bar]] = []
    for bar in sorted(bars, key=lambda bar: (bar.start_s, bar.end_s)):
        row = next((row for row in rows if row[-1].end_s <= bar.start_s + 1e-6), None)
        if row is None:
            rows.append(row := [])
        row.append(bar)
    return rows


def rows_chart(groups: Sequence[tuple[str, Sequence[Bar]]], axis: Axis, show_s: Callable[[float], str]) -> str:
    """One band per group (a host, a machine), its bars in lanes that do not overlap."""
    y, parts = TOP, []
    for name, bars in groups:
        rows = lanes(bars)
        height = LANE * max(1, len(rows))
        short = name if len(name) <= 15 else f"{name[:7]}…{name[-7:]}"
        parts.append(
            f'<text class="name" x="{LEFT - 8}" y="{y + height / 2 + 4.5:.1f}" text-anchor="end">'
            f"{html.escape(short)}<title>{html.escape(name)}</title></text>"
        )
        for lane, row in enumerate(rows):
            parts += [_rectangle(bar, axis, y + LANE * lane) for bar in row]
        y += height + GAP
    return _svg(parts, axis, y - TOP, show_s)


def _rectangle(bar: Bar, axis: Axis, y: float) -> str:
    x, end = axis.x(bar.start_s), axis.x(bar.end_s)
    title = f"<title>{html.escape(bar.title)}</title>" if bar.title else ""
    width = max(1.0, end - x - 0.6)
    return (
        f'<rect class="{bar.kind}" x="{x:.1f}" y="{y + 1:.1f}" width="{width:.1f}" height="{LANE - 2:.0f}" rx="2">'
        f"{title}</rect>"
    )


def steps_chart(
    points: Sequence[tuple[float, float]], axis: Axis, show_s: Callable[[float], str], show: Callable[[float], str],
    limit: tuple[float, str] | None = None, height: float = 190.0,
) -> str:  # fmt: skip
    """A value that changes at once at each point and stays; `limit` is a dashed level with its name."""
    most = max([value for _, value in points] + ([limit[0]] if limit else []) + [1e-9]) * 1.08

    def y(value: float) -> float:
        return TOP + height * (1 - value / most)

    parts = []
    for place in range(5):
        value = most / 1.08 * place / 4
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>'
            f'<text x="{LEFT - 8}" y="{y(value) + 4.5:.1f}" text-anchor="end">{html.escape(show(value))}</text>'
        )
    line = f"M{axis.x(points[0][0]):.1f} {y(points[0][1]):.1f}"
    for t_s, value in points[1:]:
        line += f"H{axis.x(t_s):.1f}V{y(value):.1f}"
    line += f"H{axis.x(max(axis.end_s, points[-1][0])):.1f}"
    foot = f"V{y(0):.1f}H{axis.x(points[0][0]):.1f}Z"
    parts.append(f'<path class="area" d="{line}{foot}"/><path class="curve" d="{line}"/>')
    if limit is not None:
        at = y(limit[0])
        parts.append(
            f'<line class="limit" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
            f'<text class="limit-name" x="{WIDTH - RIGHT}" y="{at - 5:.1f}" text-anchor="end">'
            f"{html.escape(limit[1])}</text>"
        )
    return _svg(parts, axis, height, show_s)


def _svg(parts: Sequence[str], axis: Axis, height: float, show_s: Callable[[float], str]) -> str:
    bottom = TOP + height
    grid = []
    for tick in axis.ticks():
        x = axis.x(tick)
        grid.append(
            f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom:.1f}"/>'
            f'<text x="{x:.1f}" y="{bottom + 18:.1f}" text-anchor="middle">{html.escape(show_s(tick))}</text>'
        )
    deadline = []
    if axis.deadline_s is not None and axis.deadline_is_near:
        x = axis.x(axis.deadline_s)
        deadline.append(
            f'<line class="limit" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom:.1f}"/>'
            f'<text class="limit-name" x="{x - 4:.1f}" y="{TOP - 5}" text-anchor="end">deadline</text>'
        )
    elif axis.deadline_s is not None:
        words = f"deadline {show_s(axis.deadline_s)} →"
        deadline.append(
            f'<text class="limit-name" x="{WIDTH - RIGHT}" y="{TOP - 5}" text-anchor="end">{html.escape(words)}</text>'
        )
    inner = "".join([*grid, *parts, *deadline])
    return f'<div class="chart"><svg viewBox="0 0 {WIDTH:.0f} {bottom + BOTTOM:.0f}" role="img">{inner}</svg></div>'
