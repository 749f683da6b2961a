"""Sizes, durations and money as people write them, turned into bytes, seconds and micro-dollars. Pure."""

from __future__ import annotations

import re

from windfall.errors import BadInput

_BYTES = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_SIZE = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*([kmgtp]?)(i?b)?\Z", re.IGNORECASE)
_PART = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*(ms|s|m|h|d|w)", re.IGNORECASE)
_CLOCK = re.compile(r"(\d+):([0-5]?\d)(?::([0-5]?\d))?\Z")
_NUMBER = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\Z")
_MONEY = re.compile(r"(?:\$\s*)?(\d+(?:\.\d+)?|\.\d+)(?:\s*(?:usd|\$))?\Z", re.IGNORECASE)


def parse_bytes(text: str | int, field: str = "size") -> int:
    """A size in bytes: `4096`, `512M`, `2G`, `1.5GiB`. K, M, G, T and P are powers of 1024, as memory is counted."""
    match = _SIZE.match(str(text).strip())
    if not match:
        raise BadInput(
            f"{field}: '{text}' is no size", hint="write bytes or a number with K, M, G or T, as in 512M or 2G"
        )
    power = _BYTES[match[2].lower()]
    return round(float(match[1]) * (1 << power))


def parse_duration(text: str | float, field: str = "duration") -> float:
    """A duration in seconds: `90`, `35m`, `2h30m`, `1d`, `1:30:00`."""
    plain = str(text).strip()
    if _NUMBER.match(plain):
        return float(plain)
    if clock := _CLOCK.match(plain):
        hours, minutes, seconds = int(clock[1]), int(clock[2]), int(clock[3] or 0)
        return float(hours * 3600 + minutes * 60 + seconds)
    seconds_, position = 0.0, 0
    while part := _PART.match(plain, position):
        seconds_ += float(part[1]) * _SECONDS[part[2].lower()]
        position = part.end()
    if position == 0 or position != len(plain):
        raise BadInput(f"{field}: '{text}' is no duration", hint="write seconds or as in 90s, 35m, 2h30m, 1d")
    return seconds_


def parse_money(text: str | float, field: str = "budget") -> int:
    """Dollars as micro-dollars: `5`, `0.25`, `$12.50`."""
    match = _MONEY.match(str(text).strip())
    if not match:
        raise BadInput(f"{field}: '{text}' is no amount of dollars", hint="write dollars as in 5 or 0.25")
    return round(float(match[1]) * 1_000_000)


def split_memory(text: str | int, field: str = "memory") -> tuple[int, bool]:
    """Bytes, and whether they are meant per attempt: `2G` or `2G*attempt` (the second attempt gets 4 GB)."""
    size, star, factor = str(text).partition("*")
    if star and factor.strip() != "attempt":
        raise BadInput(
            f"{field}: '{text}' is no memory", hint="write a size as in 2G, or 2G*attempt to grow with each attempt"
        )
    return parse_bytes(size, field), bool(star)
