"""Panels of lines and bars as SVG, in the look of the console's pictures: the laboratories' own. Touches: a file."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from zlib import crc32

from msgspec import Struct

from windfall.figures.look import PALETTE, STYLE
from windfall.figures.saved import save
from windfall.figures.timeline import escaped, nice

HUES = 8
LEFT, RIGHT, TOP, BOTTOM = 64.0, 22.0, 30.0, 46.0
HEIGHT = 220.0
WIDTHS = {1: 640.0, 2: 470.0, 3: 380.0}
"""Width of a panel by the number of columns; of more columns the last."""
KEY_ROW, KEY_LETTER = 20.0, 7.2
SOFT = -1
"""Instead of a hue: the colour of what is only there to compare with."""


class Line(Struct, frozen=True, kw_only=True):
    """Points, joined unless told otherwise. A value that is not finite is left out."""

    x: Sequence[float]
    y: Sequence[float]
    name: str = ""
    """In the key; nothing is said of a line without one."""
    hue: int = 0
    dashed: bool = False
    steps: bool = False
    dots: bool = False
    joined: bool = True
    spread: Sequence[tuple[float, float]] = ()
    """At each point: how far below and above it the whisker reaches."""


class Bars(Struct, frozen=True, kw_only=True):
    """One value for each name of the panel."""

    values: Sequence[float]
    name: str = ""
    hue: int = 0


class Mark(Struct, frozen=True):
    """A level (across) or a place (upright) with a name."""

    at: float
    name: str = ""


class Panel(Struct, frozen=True, kw_only=True):
    """One pair of axes. With `names` the x axis has these, at 0, 1, 2 and so on; bars stand beside each other there."""

    title: str = ""
    lines: Sequence[Line] = ()
    bars: Sequence[Bars] = ()
    names: Sequence[str] = ()
    x_name: str = ""
    y_name: str = ""
    x_log: bool = False
    y_log: bool = False
    x_span: tuple[float, float] | None = None
    y_span: tuple[float, float] | None = None
    """Left out: all values, and zero."""
    across: Sequence[Mark] = ()
    upright: Sequence[Mark] = ()


class _Scale(Struct, frozen=True):
    """From values to places in a drawing."""

    low: float
    high: float
    start: float
    end: float
    log: bool

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            value, low, high = (math.log10(max(each, 1e-300)) for each in (value, low, high))
        return self.start + (self.end - self.start) * (value - low) / ((high - low) or 1.0)

    def ticks(self, most: int) -> list[float]:
        return _decades(self.low, self.high, most) if self.log else nice(self.low, self.high, most)


def _decades(low: float, high: float, most: int) -> list[float]:
    """Powers of ten; of fewer than two decades also 2 and 5 times them."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    factors = (1, 2, 5) if last - first <= 2 else (1,)
    every = max(1, -(-(last - first) // most))
    found = [factor * 10.0**power for power in range(first, last + 1, every) for factor in factors]
    return [value for value in found if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]


def sheet(panels: Sequence[Panel], label: str, *, columns: int = 0, title: str = "") -> str:
    """All panels as one SVG, with one key below; `label` says what it shows to those who do not see it."""
    columns = columns or min(len(panels), 3)
    wide = WIDTHS.get(columns, 320.0)
    top = 30.0 if title else 0.0
    rows = -(-len(panels) // columns)
    own = f"{crc32(label.encode()):x}"  # several drawings may stand in one page
    parts = [f'<text class="name title" x="12" y="21">{escaped(title)}</text>'] if title else []
    for place, panel in enumerate(panels):
        x, y = wide * (place % columns), top + (TOP + HEIGHT + BOTTOM) * (place // columns)
        parts.append(
            f'<g transform="translate({x:.0f},{y:.0f})">{"".join(_panel(panel, wide, f"in{place}-{own}"))}</g>'
        )
    width, height = wide * columns, top + (TOP + HEIGHT + BOTTOM) * rows
    drawn, height = _key(panels, width, height)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img" aria-label="{escaped(label)}">'
        f"<style>{html.escape(PALETTE + STYLE, quote=False)}</style>"
        f'<rect class="ground" width="{width:.0f}" height="{height:.0f}"/>{"".join(parts)}{drawn}</svg>'
    )


def write(path: Path, drawn: str) -> Path:
    """Missing directories are made."""
    return save(drawn, path)


def _panel(panel: Panel, wide: float, clip: str) -> Iterator[str]:
    right, bottom = wide - RIGHT, TOP + HEIGHT
    x, y = _scales(panel, right, bottom)
    yield f'<text class="name" x="{(LEFT + right) / 2:.0f}" y="18" text-anchor="middle">{escaped(panel.title)}</text>'
    for value in y.ticks(5):
        yield f'<line class="grid" x1="{LEFT}" x2="{right:.0f}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>'
        yield f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{_shown(value)}</text>'
    yield from _named_places(panel, x, bottom) if panel.names else _places(x, bottom, wide)
    inside = f'<rect x="{LEFT}" y="{TOP}" width="{right - LEFT:.0f}" height="{HEIGHT}"/>'
    yield f'<clipPath id="{clip}">{inside}</clipPath>'
    yield f'<g clip-path="url(#{clip})">'
    yield from _bars(panel, x, y)
    for line in panel.lines:
        yield from _line(line, x, y)
    for mark in panel.across:
        yield f'<line class="limit" x1="{LEFT}" x2="{right:.0f}" y1="{y(mark.at):.1f}" y2="{y(mark.at):.1f}"/>'
    for mark in panel.upright:
        yield f'<line class="limit" x1="{x(mark.at):.1f}" x2="{x(mark.at):.1f}" y1="{TOP}" y2="{bottom}"/>'
    yield "</g>"
    for number, mark in enumerate([*panel.across, *panel.upright]):
        at, anchor = right - 4, "end"
        if number >= len(panel.across):
            # Beside its line, on the side with more room.
            at, anchor = (x(mark.at) + 4, "start") if x(mark.at) < (LEFT + right) / 2 else (x(mark.at) - 4, "end")
        yield (
            f'<text class="limit-name" x="{at:.0f}" y="{TOP + 14 + 16 * number:.0f}" text-anchor="{anchor}">'
            f"{escaped(mark.name)}</text>"
        )
    across, middle = (LEFT + right) / 2, TOP + HEIGHT / 2
    x_name, y_name = escaped(panel.x_name), escaped(panel.y_name)
    yield f'<text x="{across:.0f}" y="{bottom + 38:.0f}" text-anchor="middle">{x_name}</text>'
    yield f'<text transform="translate(14,{middle:.0f}) rotate(-90)" text-anchor="middle">{y_name}</text>'


def _scales(panel: Panel, right: float, bottom: float) -> tuple[_Scale, _Scale]:
    ys = [value for line in panel.lines for value in line.y] + [value for bars in panel.bars for value in bars.values]
    ys += [at + way for line in panel.lines for at, each in zip(line.y, line.spread, strict=False) for way in each[1:]]
    ys += [mark.at for mark in panel.across]
    xs = [value for line in panel.lines for value in line.x] + [mark.at for mark in panel.upright]
    x_low, x_high = panel.x_span or (
        (-0.6, len(panel.names) - 0.4) if panel.names else _around(xs, panel.x_log, from_zero=False)
    )
    y_low, y_high = panel.y_span or _around(ys, panel.y_log, from_zero=True)
    return _Scale(x_low, x_high, LEFT, right, panel.x_log), _Scale(y_low, y_high, bottom, TOP, panel.y_log)


def _around(values: Sequence[float], log: bool, from_zero: bool) -> tuple[float, float]:
    kept = [value for value in values if math.isfinite(value) and (value > 0 or not log)] or [0.1 if log else 0.0, 1.0]
    low, high = min(kept), max(kept)
    if log:
        return low / 1.15, high * 1.15 if high > low else low * 10
    low = min(low, 0.0) if from_zero else low
    return low, high + 0.06 * ((high - low) if from_zero else 0.0) or (1.0 if low == 0 else low)


def _places(x: _Scale, bottom: float, wide: float) -> Iterator[str]:
    for value in x.ticks(int(wide / 80)):
        yield f'<line class="grid" x1="{x(value):.1f}" x2="{x(value):.1f}" y1="{TOP}" y2="{bottom}"/>'
        yield f'<text x="{x(value):.1f}" y="{bottom + 18:.0f}" text-anchor="middle">{_shown(value)}</text>'


def _named_places(panel: Panel, x: _Scale, bottom: float) -> Iterator[str]:
    room = int((x(1) - x(0)) / 6.4)
    for place, name in enumerate(panel.names):
        short = name if len(name) <= room else f"{name[: max(1, room - 1)]}…"
        yield (
            f'<text x="{x(place):.1f}" y="{bottom + 18:.0f}" text-anchor="middle">{escaped(short)}'
            f"<title>{escaped(name)}</title></text>"
        )


def _bars(panel: Panel, x: _Scale, y: _Scale) -> Iterator[str]:
    each = 0.84 * (x(1) - x(0)) / max(len(panel.bars), 1)
    for number, bars in enumerate(panel.bars):
        for place, value in enumerate(bars.values):
            if not math.isfinite(value):
                continue
            foot = y(max(y.low, 0.0))
            left, top = x(place) + each * (number - len(panel.bars) / 2), min(y(value), foot)
            yield (
                f'<rect class="{_class(bars.hue)}" x="{left:.1f}" y="{top:.1f}" width="{each * 0.94:.1f}" '
                f'height="{abs(foot - y(value)):.1f}"><title>{escaped(f"{bars.name}: {value:.4g}")}</title></rect>'
            )


def _line(line: Line, x: _Scale, y: _Scale) -> Iterator[str]:
    kept = [(x(at), y(value)) if math.isfinite(value) else None for at, value in zip(line.x, line.y, strict=True)]
    hue = "soft" if line.hue == SOFT else str(line.hue % HUES)
    if line.joined:
        way, before = "", None
        for point in kept:
            if point is not None:
                px, py = point
                way += (
                    f"M{px:.1f} {py:.1f}"
                    if before is None
                    else f"H{px:.1f}V{py:.1f}"
                    if line.steps
                    else f"L{px:.1f} {py:.1f}"
                )
            before = point
        yield f'<path class="line ink{hue}{" dashed" if line.dashed else ""}" d="{way}"/>'
    for point, (low, high), value in zip(kept, line.spread, line.y, strict=False):
        if point is not None:
            yield (
                f'<line class="line ink{hue}" x1="{point[0]:.1f}" x2="{point[0]:.1f}" y1="{y(value - low):.1f}" '
                f'y2="{y(value + high):.1f}"/>'
            )
    if line.dots or not line.joined:
        for point in filter(None, kept):
            yield f'<circle class="{_class(line.hue)}" cx="{point[0]:.1f}" cy="{point[1]:.1f}" r="3.2"/>'


def _key(panels: Sequence[Panel], width: float, top: float) -> tuple[str, float]:
    """What the colours mean, each once, and the height of the picture with it."""
    seen: dict[str, tuple[int, bool]] = {}
    for panel in panels:
        for bars in panel.bars:
            seen.setdefault(bars.name, (bars.hue, False))
        for line in panel.lines:
            seen.setdefault(line.name, (line.hue, line.dashed))
    seen.pop("", None)
    parts, at, row = [], 14.0, 0
    for name, (hue, dashed) in seen.items():
        needed = 30 + KEY_LETTER * len(name)
        if at > 14.0 and at + needed > width:
            at, row = 14.0, row + 1
        y = top + KEY_ROW * row
        ink = ("soft" if hue == SOFT else str(hue % HUES)) + (" dashed" if dashed else "")
        parts.append(
            f'<line class="line ink{ink}" x1="{at:.0f}" x2="{at + 18:.0f}" y1="{y + 8:.0f}" '
            f'y2="{y + 8:.0f}" stroke-width="4"/><text x="{at + 24:.0f}" y="{y + 12:.0f}">{escaped(name)}</text>'
        )
        at += needed + 12
    return "".join(parts), top + (KEY_ROW * (row + 1) + 4 if seen else 0.0)


def _class(hue: int) -> str:
    return "soft-fill" if hue == SOFT else f"hue{hue % HUES}"


def _shown(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
