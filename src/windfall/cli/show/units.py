"""Times and money as people write and read them. Touches nothing."""

from __future__ import annotations

import re

from windfall.errors import BadInput

_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(min|[smhd]?)")


def parse_duration_s(text: str, name: str = "duration") -> float:
    """Seconds from '90', '90s', '10m', '2h', '1h30m', '1.5d' or '1:30:00'."""
    text = text.strip().lower()
    if re.fullmatch(r"\d+:\d{2}(:\d{2})?", text):
        hours, minutes, *seconds = (int(part) for part in text.split(":"))
        return hours * 3600.0 + minutes * 60.0 + sum(seconds)
    parts = _PART.findall(text)
    if not parts or "".join(f"{number}{unit}" for number, unit in parts) != re.sub(r"\s+", "", text):
        raise BadInput(f"{name} '{text}' is not a time", hint="write 90s, 10m, 2h, 1h30m, 1.5d or 1:30:00")
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def show_duration(seconds: float) -> str:
    """'42.5 s', '12:07 min' or '3:05:09 h'."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d} h"


def show_usd(usd: float) -> str:
    """Cents where cents are enough, more digits where the sum is small."""
    return f"${usd:,.2f}" if usd >= 1 else f"${usd:.4f}"
