"""Charts as SVG within a page that do not lie on a time axis, or stack on it. Pure; they follow the page's look."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence

from windfall.figures.timeline import BOTTOM, FAR, LEFT, RIGHT, TOP, WIDTH, Axis, escaped, framed, levels, nice

HUES = 8
"""Colours of a stack; the ninth layer has the colour of the first again."""
BAR = 22.0
ROOM_FOR_A_WORD = 76.0
APART = 46.0
"""Points of a front that are nearer to each other than this have one set of words."""


def stacked_chart(
    layers: Sequence[tuple[str, Sequence[float]]], step_s: float, axis: Axis, show_s: Callable[[float], str],
    show: Callable[[float], str], label: str, height: float = 150.0,
) -> str:  # fmt: skip
    """Values of equal steps of time from zero on, one layer on the other."""
    sums: list[float] = [sum(values) for values in zip(*(values for _, values in layers), strict=True)]
    most = max([*sums, 1e-9]) * 1.08

    def y(value: float) -> float:
        return TOP + height * (1 - value / most)

    parts = levels(most / 1.08, y, show)
    below = [0.0] * len(sums)
    for number, (name, values) in enumerate(layers):
        upper = [low + value for low, value in zip(below, values, strict=True)]
        x = [axis.x(place * step_s) for place in range(len(upper) + 1)]
        line = "".join(
            f"{'L' if place else 'M'}{x[place]:.1f} {y(value):.1f}H{x[place + 1]:.1f}"
            for place, value in enumerate(upper)
        )
        back = "".join(
            f"L{x[place + 1]:.1f} {y(below[place]):.1f}H{x[place]:.1f}" for place in reversed(range(len(below)))
        )
        parts.append(f'<path class="hue{number % HUES}" d="{line}{back}Z"><title>{escaped(name)}</title></path>')
        below = upper
    return framed(parts, axis, height, show_s, label)


def histogram_chart(
    edges: Sequence[float], counts: Sequence[int], show_x: Callable[[float], str], label: str,
    marks: Sequence[tuple[float, str]] = (), height: float = 150.0,
) -> str:  # fmt: skip
    """How often values fell between two edges; `marks` are values with a name.

    Near ones are dashed lines, those far away are named at the edge.
    """
    near = [(value, name) for value, name in marks if value <= FAR * edges[-1]]
    far = [name for value, name in marks if value > FAR * edges[-1]]
    low, high = edges[0], max([edges[-1], *(value for value, _ in near)])
    most = max([*counts, 1])
    bottom = TOP + height

    def x(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (value - low) / max(high - low, 1e-9)

    def y(value: float) -> float:
        return TOP + height * (1 - value / (most * 1.08))

    parts = levels(most, y, lambda value: f"{value:,.0f}")
    for start, end, count in zip(edges, edges[1:], counts, strict=False):
        if count:
            width = max(1.0, x(end) - x(start) - 1)
            parts.append(
                f'<rect class="on-demand" x="{x(start):.1f}" y="{y(count):.1f}" width="{width:.1f}" '
                f'height="{bottom - y(count):.1f}"><title>{count:,}: {html.escape(show_x(start))} to '
                f"{html.escape(show_x(end))}</title></rect>"
            )
    for value in nice(low, high, 5):
        at = x(value)
        anchor = "end" if at > WIDTH - RIGHT - 20 else "middle"
        parts.append(
            f'<text x="{at:.1f}" y="{bottom + 18:.1f}" text-anchor="{anchor}">{html.escape(show_x(value))}</text>'
        )
    if far:
        parts.append(
            f'<text class="limit-name" x="{WIDTH - RIGHT}" y="{TOP - 5}" text-anchor="end">'
            f"{escaped(', '.join(far))} →</text>"
        )
    for value, name in near:
        parts.append(
            f'<line class="limit" x1="{x(value):.1f}" x2="{x(value):.1f}" y1="{TOP}" y2="{bottom:.1f}"/>'
            f'<text class="limit-name" x="{x(value) - 4:.1f}" y="{TOP - 5}" text-anchor="end">{escaped(name)}</text>'
        )
    return picture(parts, bottom + BOTTOM, label)


def histogram_of_cells(bounds_s: Sequence[float], counts: Sequence[int], label: str) -> str:
    """Cells of unequal width beside each other, named by their upper bounds; the last one has none."""
    names = [*(f"{1000 * bound:g} ms" if bound < 1 else f"{bound:g} s" for bound in bounds_s), "more"]
    total = max(sum(counts), 1)
    last = max((place for place, count in enumerate(counts) if count), default=0)
    rows = [
        (f"≤ {name}" if name != "more" else name, float(count), "on-demand", f"{count:,} ({count / total:.1%})")
        for name, count in zip(names, counts, strict=True)
    ]
    return bars_chart(rows[: last + 1], label)


def bars_chart(rows: Sequence[tuple[str, float, str, str]], label: str) -> str:
    """(name, value, kind, text) as horizontal bars."""
    most = max([value for _, value, _, _ in rows] + [1e-9])
    parts = []
    for place, (name, value, kind, text) in enumerate(rows):
        y = TOP + BAR * place
        width = max(1.0, (WIDTH - LEFT - RIGHT - 120) * value / most) if value else 0.0
        parts.append(
            f'<text class="name" x="{LEFT - 8}" y="{y + 14:.1f}" text-anchor="end">{escaped(name)}</text>'
            f'<rect class="{kind}" x="{LEFT}" y="{y + 2:.1f}" width="{width:.1f}" height="{BAR - 6:.0f}" rx="2"/>'
            f'<text x="{LEFT + width + 6:.1f}" y="{y + 14:.1f}">{html.escape(text)}</text>'
        )
    return picture(parts, TOP + BAR * len(rows) + 6, label)


def picture(parts: Sequence[str], height: float, label: str) -> str:
    return (
        f'<div class="chart"><svg viewBox="0 0 {WIDTH:.0f} {height:.0f}" role="img" aria-label="{escaped(label)}">'
        f"{''.join(parts)}</svg></div>"
    )


def front_chart(
    points: Sequence[tuple[float, float, float, float]], notes: Sequence[str], earliest: float, own: float | None,
    show_x: Callable[[float], str], show_y: Callable[[float], str], label: str, height: float = 210.0,
) -> str:  # fmt: skip
    """Cost against deadline: (deadline, mean, low, high) each, what is impossible, and the job's own deadline."""
    right = max([at for at, *_ in points] + [own or 0.0]) * 1.08
    most = max([high for *_, high in points] + [1e-9]) * 1.15
    bottom = TOP + height

    def x(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * value / right

    def y(value: float) -> float:
        return TOP + height * (1 - value / most)

    parts = levels(most / 1.15, y, show_y)
    parts.append(
        f'<rect class="impossible" x="{LEFT}" y="{TOP}" width="{max(0.0, x(min(earliest, right)) - LEFT):.1f}" '
        f'height="{height}"><title>impossible</title></rect>'
    )
    if x(min(earliest, right)) - LEFT > ROOM_FOR_A_WORD:
        parts.append(f'<text class="limit-name" x="{LEFT + 6}" y="{TOP + 16}">impossible</text>')
    upper = " ".join(f"{x(at):.1f},{y(high):.1f}" for at, _, _, high in points)
    lower = " ".join(f"{x(at):.1f},{y(low):.1f}" for at, _, low, _ in reversed(points))
    middle = " ".join(f"{x(at):.1f},{y(mean):.1f}" for at, mean, _, _ in points)
    parts.append(f'<polygon class="area" points="{upper} {lower}"/><polyline class="curve" points="{middle}"/>')
    parts.append(f'<text x="{LEFT - 8}" y="{bottom + 18:.1f}" text-anchor="end">deadline</text>')
    parts.append(f'<text x="{LEFT - 8}" y="{bottom + 34:.1f}" text-anchor="end">runs in time</text>')
    named = -APART
    for (at, mean, _, _), note in zip(points, notes, strict=True):
        tip = f"{show_x(at)}: {show_y(mean)}, {note} in time"
        parts.append(
            f'<circle class="dot" cx="{x(at):.1f}" cy="{y(mean):.1f}" r="4"><title>{escaped(tip)}</title></circle>'
        )
        if x(at) - named < APART:
            continue  # its words would lie on those before
        named = x(at)
        parts.append(
            f'<text x="{x(at):.1f}" y="{bottom + 18:.1f}" text-anchor="middle">{html.escape(show_x(at))}</text>'
            f'<text x="{x(at):.1f}" y="{y(mean) - 10:.1f}" text-anchor="middle">{html.escape(show_y(mean))}</text>'
            f'<text x="{x(at):.1f}" y="{bottom + 34:.1f}" text-anchor="middle">{html.escape(note)}</text>'
        )
    if own is not None:
        parts.append(
            f'<line class="limit" x1="{x(own):.1f}" x2="{x(own):.1f}" y1="{TOP}" y2="{bottom:.1f}"/>'
            f'<text class="limit-name" x="{x(own) - 4:.1f}" y="{TOP - 5}" text-anchor="end">deadline</text>'
        )
    return picture(parts, bottom + BOTTOM + 10, label)
