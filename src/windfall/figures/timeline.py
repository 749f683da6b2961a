"""Pictures over one common time axis as SVG within a page: they follow its light or dark look. Pure.

All pictures of a page have the same width and the same axis, so that what is above each other happened together.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence

from msgspec import Struct

from windfall.escaping import visible

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 760.0, 126.0, 20.0, 18.0, 34.0
LANE, GAP = 14.0, 8.0
TALLEST_BAND = 16 * LANE
"""A host with more lanes has narrower ones: many short tasks at once would fill pages."""
LETTER = 7.5
"""How wide a letter of a picture is at most, in the mean of a word."""
TALL = 500.0
"""Higher pictures have their times above, too."""
STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
FAR = 1.25
"""A deadline further away than this many times what has happened is named at the edge instead of drawn."""


def escaped(text: str) -> str:
    """A text for a page: escaped, and with control characters shown as signs."""
    return html.escape(visible(text))


class Bar(Struct, frozen=True):
    """What something did from `start_s` to `end_s`; `kind` is a class of the style, `title` is shown on a touch."""

    start_s: float
    end_s: float
    kind: str
    title: str = ""


class Fan(Struct, frozen=True):
    """From a value at `from_s` down to zero: between `low_s` and `high_s`, in the middle at `mid_s`."""

    from_s: float
    value: float
    low_s: float
    mid_s: float
    high_s: float


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


def rows_chart(
    groups: Sequence[tuple[str, Sequence[Bar]]],
    axis: Axis,
    show_s: Callable[[float], str],
    label: str = "bars over time",
    above: Sequence[Sequence[Bar]] = (),
) -> str:
    """One band per group (a host, a machine), its bars in lanes that do not overlap; those of `above` in the first."""
    y, parts = TOP, []
    for place, (name, bars) in enumerate(groups):
        rows = [*([above[place]] if above else []), *lanes(bars)]
        height = min(LANE * max(1, len(rows)), TALLEST_BAND)
        lane_height = height / max(1, len(rows))
        short = name if len(name) <= 15 else f"{name[:6]}…{name[-7:]}"
        parts.append(
            f'<text class="name" x="{LEFT - 8}" y="{y + height / 2 + 4.5:.1f}" text-anchor="end">'
            f"{escaped(short)}<title>{escaped(name)}</title></text>"
        )
        for lane, row in enumerate(rows):
            parts += [_rectangle(bar, axis, y + lane_height * lane, lane_height) for bar in row]
        y += height + GAP
    return framed(parts, axis, y - TOP, show_s, label)


def _rectangle(bar: Bar, axis: Axis, y: float, height: float) -> str:
    x, end = axis.x(bar.start_s), axis.x(bar.end_s)
    title = f"<title>{escaped(bar.title)}</title>" if bar.title else ""
    width, gap = max(1.0, end - x - 0.6), height / LANE
    return (
        f'<rect class="{bar.kind}" x="{x:.1f}" y="{y + gap:.1f}" width="{width:.1f}" '
        f'height="{height - 2 * gap:.4g}" rx="2">{title}</rect>'
    )


def steps_chart(
    points: Sequence[tuple[float, float]], axis: Axis, show_s: Callable[[float], str], show: Callable[[float], str],
    limit: tuple[float, str] | None = None, height: float = 190.0, *, label: str = "a value over time",
    fan: Fan | None = None, marks: Sequence[tuple[float, str]] = (), until_s: float | None = None,
    against: Sequence[tuple[float, float]] = (),
) -> str:  # fmt: skip
    """A value that changes at once at each point and stays, up to `until_s` (the end of the axis if None).

    `limit` is a dashed level with its name, `fan` a forecast, `marks` are moments with a name, `against` a second line.
    """
    most = max([value for _, value in (*points, *against)] + ([limit[0]] if limit else []) + [1e-9]) * 1.08

    def y(value: float) -> float:
        return TOP + height * (1 - value / most)

    parts = levels(most / 1.08, y, show)
    last_s = axis.end_s if until_s is None else until_s
    line = _steps(points, axis, y, last_s)
    foot = f"V{y(0):.1f}H{axis.x(points[0][0]):.1f}Z"
    parts.append(f'<path class="area" d="{line}{foot}"/><path class="curve" d="{line}"/>')
    if against:
        parts.append(f'<path class="against" fill="none" d="{_steps(against, axis, y, last_s)}"/>')
    parts += _fan(fan, axis, y) if fan is not None else []
    for t_s, name in marks:
        parts.append(
            f'<line class="mark" x1="{axis.x(t_s):.1f}" x2="{axis.x(t_s):.1f}" y1="{TOP}" y2="{TOP + height:.1f}"/>'
            f"{_beside(axis.x(t_s), name)}"
        )
    if limit is not None:
        at = y(limit[0])
        parts.append(
            f'<line class="limit" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
            f'<text class="limit-name" x="{WIDTH - RIGHT}" y="{at - 5:.1f}" text-anchor="end">'
            f"{escaped(limit[1])}</text>"
        )
    return framed(parts, axis, height, show_s, label)


def _beside(x: float, name: str) -> str:
    """The name of a mark: behind it, or before it where it would not fit."""
    fits = x + 4 + LETTER * len(name) <= WIDTH
    at, anchor = (x + 4, "start") if fits else (x - 4, "end")
    return f'<text class="mark-name" x="{at:.1f}" y="{TOP + 12}" text-anchor="{anchor}">{escaped(name)}</text>'


def _steps(points: Sequence[tuple[float, float]], axis: Axis, y: Callable[[float], float], last_s: float) -> str:
    """The path of a value that changes at once at each point, up to `last_s`."""
    line = f"M{axis.x(points[0][0]):.1f} {y(points[0][1]):.1f}"
    for t_s, value in points[1:]:
        line += f"H{axis.x(t_s):.1f}V{y(value):.1f}"
    return line + f"H{axis.x(max(last_s, points[-1][0])):.1f}"


def nice(low: float, high: float, most: int = 6) -> list[float]:
    """About `most` round values from `low` to `high` for an axis, in steps of 1, 2 or 5 times a power of ten."""
    raw = (high - low) / max(most, 1) or 1.0
    power = 10.0 ** math.floor(math.log10(raw))
    step = next((factor * power for factor in (1, 2, 5) if factor * power >= raw * (1 - 1e-9)), 10 * power)
    first = math.ceil(low / step - 1e-9)
    return [round(step * place, 12) for place in range(first, math.floor(high / step + 1e-9) + 1)]


def levels(most: float, y: Callable[[float], float], show: Callable[[float], str]) -> list[str]:
    """Lines of a grid at round values from zero to `most`, with these values; at whole ones, where the words for
    them would be the same."""
    values = nice(0.0, most, 5)
    if len({show(value) for value in values}) < len(values):
        values = [value for value in values if value == int(value)]
    return [
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>'
        f'<text x="{LEFT - 8}" y="{y(value) + 4.5:.1f}" text-anchor="end">{html.escape(show(value))}</text>'
        for value in values
    ]


def _fan(fan: Fan, axis: Axis, y: Callable[[float], float]) -> list[str]:
    """Cut off at the end of the axis, in proportion."""

    def foot(end_s: float) -> str:
        last_s = min(end_s, axis.length_s)
        gone = (last_s - fan.from_s) / max(end_s - fan.from_s, 1e-9)
        return f"{axis.x(last_s):.1f},{y(fan.value * (1 - gone)):.1f}"

    start = f"{axis.x(fan.from_s):.1f},{y(fan.value):.1f}"
    edge = f"{axis.x(min(fan.high_s, axis.length_s)):.1f},{y(0.0):.1f}"
    return [
        f'<polygon class="fan" points="{start} {foot(fan.low_s)} {edge} {foot(fan.high_s)}"/>',
        f'<polyline class="middle" fill="none" points="{start} {foot(fan.mid_s)}"/>',
    ]


def framed(parts: Sequence[str], axis: Axis, height: float, show_s: Callable[[float], str], label: str) -> str:
    """The parts of a picture within its axis; `label` says what it shows to those who do not see it."""
    bottom = TOP + height
    grid = []
    for tick in axis.ticks():
        x = axis.x(tick)
        grid.append(
            f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom:.1f}"/>'
            f'<text x="{x:.1f}" y="{bottom + 18:.1f}" text-anchor="middle">{html.escape(show_s(tick))}</text>'
        )
        if height > TALL and (axis.deadline_s is None or abs(x - min(axis.x(axis.deadline_s), WIDTH - 90)) > 80):
            grid.append(f'<text x="{x:.1f}" y="{TOP - 5}" text-anchor="middle">{html.escape(show_s(tick))}</text>')
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
    return (
        f'<div class="chart"><svg viewBox="0 0 {WIDTH:.0f} {bottom + BOTTOM:.0f}" role="img" '
        f'aria-label="{escaped(label)}">{inner}</svg></div>'
    )
