"""Durations, clock times, sizes and money: the one place that reads and prints them. Pure; every package but the worker
may use it.

What is printed here can be typed: `1h59m`, `2026-12-01 18:00`, `24 GB` and `$0.031` are read back as what they say.
A text with a colon is a clock time and never a duration.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, tzinfo
from math import isinf, isnan

from msgspec import Struct

from windfall.errors import BadInput

MINUTE_S = 60.0
HOUR_S = 3600.0
DAY_S = 86400.0

_BYTES = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}
_SECONDS = {"ms": 0.001, "s": 1.0, "m": MINUTE_S, "h": HOUR_S, "d": DAY_S, "w": 7 * DAY_S}
_WORDS = r"(ms|w(?:eeks?)?|d(?:ays?)?|h(?:ours?|rs?)?|m(?:in(?:ute)?s?)?|s(?:ec(?:ond)?s?)?)(?![a-z])"
_DECIMAL = r"(\d+(?:\.\d+)?|\.\d+)"
_SIZE = re.compile(_DECIMAL + r"\s*([kmgtp]?)(i?b)?\Z", re.IGNORECASE)
_PART = re.compile(r"\s*" + _DECIMAL + r"\s*" + _WORDS, re.IGNORECASE)
_DOTTED_CLOCK = re.compile(r"([01]?\d|2[0-3])\.([0-5]\d)\Z")
_NUMBER = re.compile(_DECIMAL + r"\Z")
_PERIODS = {
    "h": HOUR_S, "hour": HOUR_S, "d": DAY_S, "day": DAY_S, "w": 7 * DAY_S, "week": 7 * DAY_S, "month": 30 * DAY_S,
}  # fmt: skip
_MONEY = re.compile(r"(?:\$\s*)?(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)(?:\s*(?:usd|\$))?\Z", re.IGNORECASE)
_TIME_OF_DAY = re.compile(r"(?:(today|tomorrow)\s+)?(\d{1,2}):(\d{2})(?::(\d{2}))?\Z", re.IGNORECASE)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}[ T]\s*\d{1,2}:\d{2}")

IN_THE_PAST = "in-the-past"
"""The code of the error for a deadline that has passed."""

_DURATIONS = "90s, 35m, 2h30m, 2d"
_CLOCK_TIMES = "18:00, tomorrow 6:00, 2026-12-01 18:00"


# -- durations -------------------------------------------------------------------------------------------------------


def parse_duration(text: str | float, field: str = "duration") -> float:
    """Seconds from `90`, `90s`, `250ms`, `35m`, `2h30m`, `1.5h`, `2 hours`, `2d`, `1w`. BadInput for `2:00`."""
    plain = str(text).strip()
    if _NUMBER.match(plain):
        return _finite(float(plain), text, field)
    if ":" in plain:
        raise BadInput(
            f"{field}: '{text}' is a clock time, and a duration is needed",
            hint=f"write a number of seconds, or as in {_DURATIONS}",
        )
    seconds, position = 0.0, 0
    while part := _PART.match(plain, position):
        unit = part[2].lower()
        seconds += float(part[1]) * _SECONDS["ms" if unit == "ms" else unit[0]]
        position = part.end()
    if position == 0 or position != len(plain):
        raise BadInput(f"{field}: '{text}' is no duration", hint=f"write a number of seconds, or as in {_DURATIONS}")
    return _finite(seconds, text, field)


def _finite(value: float, text: str | float, field: str) -> float:
    """The value; BadInput for one that no machine, clock or bank could hold."""
    if not value <= 1e30:
        raise BadInput(f"{field}: '{str(text)[:40]}' is too large", hint="check the number and its unit")
    return value


def show_duration(seconds: float | None, *, fine: bool = False) -> str:
    """`0.42 s`, `12.3 s`, `2m00s`, `1h59m`, `2d03h`; `-` for None, `never` for infinity. Fine: `0.00421 s`."""
    if seconds is None or isnan(seconds):
        return "-"
    if isinf(seconds):
        return "never"
    if seconds < 0:
        return f"-{show_duration(-seconds, fine=fine)}"
    if fine and 0 < seconds < 0.9995:
        return f"{seconds:.3g} s"
    # Each limit lies where rounding would print 60 of the smaller unit.
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    if (whole := round(seconds)) < HOUR_S:
        return f"{whole // 60}m{whole % 60:02d}s"
    if (minutes := round(seconds / MINUTE_S)) < 24 * 60:
        return f"{minutes // 60}h{minutes % 60:02d}m"
    hours = round(seconds / HOUR_S)
    return f"{hours // 24}d{hours % 24:02d}h"


# -- clock times -----------------------------------------------------------------------------------------------------


class Deadline(Struct, frozen=True):
    """A deadline as it was said: `in_s` seconds from now; `clock_t` (Unix seconds) if it was said as a clock time."""

    in_s: float
    clock_t: float | None = None

    @property
    def identity(self) -> float:
        """The same number whenever the same words are read again: the moment, or else the duration."""
        return self.in_s if self.clock_t is None else self.clock_t


def parse_deadline(text: str | float, now_s: float, zone: tzinfo | None = None, field: str = "deadline") -> Deadline:
    """A duration from now (`2h30m`) or a clock time (`18:00`, `tomorrow 6:00`, `2026-12-01 18:00`).

    `zone` None is the time zone of this host. What is not in the future is refused.
    """
    plain = str(text).strip()
    if ":" in plain:
        at_s = parse_clock(plain, now_s, zone, field)
        if at_s <= now_s:
            ago = show_duration(now_s - at_s)
            again = f"tomorrow {plain.split()[-1]}, or " if _TIME_OF_DAY.match(plain) else ""
            raise BadInput(
                f"{field}: {plain} is in the past ({ago} ago)",
                hint=f"write {again}a duration as in 2h30m",
                code=IN_THE_PAST,
            )
        return Deadline(at_s - now_s, at_s)
    if isinstance(text, str) and (dotted := _DOTTED_CLOCK.match(plain)):
        raise BadInput(
            f"{field}: {plain} may mean a clock time or seconds",
            hint=f"write {dotted[1]}:{dotted[2]}, or {plain}s",
        )
    try:
        seconds = parse_duration(plain, field)
    except BadInput:
        raise BadInput(
            f"{field}: '{text}' is neither a duration nor a clock time",
            hint=f"write a duration as in {_DURATIONS}, or a clock time as in {_CLOCK_TIMES}",
        ) from None
    if seconds <= 0:
        raise BadInput(f"{field}: {plain} is not in the future", hint="write a duration as in 2h30m")
    return Deadline(seconds)


def parse_clock(text: str, now_s: float, zone: tzinfo | None = None, field: str = "time") -> float:
    """Unix seconds of a clock time. Without a date it is today's; an offset as in `18:00+01:00` needs a date."""
    plain = text.strip()
    try:
        if found := _TIME_OF_DAY.match(plain):
            today = datetime.fromtimestamp(now_s, zone)
            day = today + timedelta(days=1) if (found[1] or "").lower() == "tomorrow" else today
            at = day.replace(hour=int(found[2]), minute=int(found[3]), second=int(found[4] or 0), microsecond=0, fold=0)
            return at.timestamp()
        if _DATE.match(plain):
            date, hour = plain[:10], plain[11:].strip()
            at = datetime.fromisoformat(f"{date} {hour if hour[1] != ':' else '0' + hour}")
            return (at if at.tzinfo else at.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError, OSError):
        pass
    raise BadInput(f"{field}: '{text}' is no clock time", hint=f"write it as in {_CLOCK_TIMES}")


def show_clock(unix_s: float | None, now_s: float, zone: tzinfo | None = None, *, seconds: bool = False) -> str:
    """`14:30`, or `2026-12-01 14:30` if that is another day; rounded to a minute, or with `seconds` to a second."""
    if unix_s is None:
        return "-"
    at = datetime.fromtimestamp(round(unix_s) if seconds else MINUTE_S * round(unix_s / MINUTE_S), zone)
    is_today = at.date() == datetime.fromtimestamp(now_s, zone).date()
    return at.strftime(("" if is_today else "%Y-%m-%d ") + ("%H:%M:%S" if seconds else "%H:%M"))


def show_deadline(unix_s: float, now_s: float, zone: tzinfo | None = None) -> str:
    """`14:30 (in 1h59m)` or `14:30 (12m05s ago)`."""
    left_s = unix_s - now_s
    distance = f"in {show_duration(left_s)}" if left_s > 0 else f"{show_duration(-left_s)} ago"
    return f"{show_clock(unix_s, now_s, zone)} ({distance})"


# -- sizes -----------------------------------------------------------------------------------------------------------


def parse_bytes(text: str | int, field: str = "size") -> int:
    """Bytes from `4096`, `512M`, `2G`, `1.5 GB`, `1.5GiB`. K, M, G, T and P are powers of 1024, as for memory."""
    match = _SIZE.match(str(text).strip())
    if not match:
        raise BadInput(
            f"{field}: '{text}' is no size", hint="write bytes or a number with K, M, G or T, as in 512M or 2G"
        )
    return round(_finite(float(match[1]) * (1 << _BYTES[match[2].lower()]), text, field))


def split_memory(text: str | int, field: str = "memory") -> tuple[int, bool]:
    """Bytes, and whether they grow with each attempt: `2G` or `2G*attempt` (the second attempt gets 4 GB)."""
    size, star, factor = str(text).partition("*")
    if star and factor.strip() != "attempt":
        raise BadInput(
            f"{field}: '{text}' is no memory", hint="write a size as in 2G, or 2G*attempt to grow with each attempt"
        )
    return parse_bytes(size, field), bool(star)


def show_bytes(count: float) -> str:
    """`512 B`, `64 MB`, `1.5 GB`, `24 GB`: three digits of the largest unit that gives at least 1."""
    for unit, power in (("TB", 40), ("GB", 30), ("MB", 20), ("KB", 10)):
        if count >= 0.9995 * (1 << power):
            value = count / (1 << power)
            return f"{value:.0f} {unit}" if value >= 100 else f"{_trimmed(f'{value:.3g}')} {unit}"
    return f"{count:.0f} B"


def _trimmed(decimal: str) -> str:
    return decimal.rstrip("0").rstrip(".") if "." in decimal else decimal


# -- money -----------------------------------------------------------------------------------------------------------


def parse_money(text: str | float, field: str = "budget") -> int:
    """Micro-dollars from dollars: `5`, `0.25`, `$12.50`, `1,200 usd`."""
    match = _MONEY.match(str(text).strip())
    if not match:
        raise BadInput(f"{field}: '{text}' is no amount of dollars", hint="write dollars as in 5 or 0.25")
    return round(_finite(float(match[1].replace(",", "")) * 1_000_000, text, field))


def parse_rate(text: str, field: str = "budget") -> tuple[int, float]:
    """Micro-dollars and the seconds for which they are: `20/h`, `400/day`, `9000/month` (30 days)."""
    amount, slash, unit = str(text).partition("/")
    period_s = _PERIODS.get(unit.strip().lower())
    if not slash or period_s is None:
        raise BadInput(f"{field}: '{text}' is no amount of dollars per time", hint="as in 20/h, 400/day or 9000/month")
    microusd = parse_money(amount, field)
    if microusd <= 0:
        raise BadInput(f"{field}: '{text}' rents nothing", hint="more than 0, or leave it out for no limit")
    return microusd, period_s


def show_rate(usd: float, period_s: float) -> str:
    """`$20.00 per hour`."""
    named = {HOUR_S: "hour", DAY_S: "day", 7 * DAY_S: "week", 30 * DAY_S: "month"}
    return f"{show_usd(usd)} per {named.get(period_s) or show_duration(period_s)}"


def show_usd(usd: float) -> str:
    """`$12.50`; below a dollar with up to four decimals, as many as it has: `$0.10`, `$0.031`, `$0.1785`."""
    if usd < 0:
        return f"-{show_usd(-usd)}"
    if usd >= 0.99995 or usd == 0:
        return f"${usd:,.2f}"
    cents, more = f"{usd:.{4 if usd >= 0.0001 else 6}f}"[:4], f"{usd:.{4 if usd >= 0.0001 else 6}f}"[4:]
    return f"${cents}{more.rstrip('0')}"


def show_price(usd: float, cycle_s: float) -> str:
    """A price by its billing cycle: `$0.031 per minute`, `$0.10 per hour`, `$0.02 per 10m00s`.

    What is billed by the second or finer is shown by the hour: nobody compares prices of seconds.
    """
    if cycle_s <= 1.0:
        by = "the second" if cycle_s == 1.0 else show_duration(cycle_s, fine=True)
        return f"{show_usd(usd / cycle_s * HOUR_S)} per hour, by {by}"
    named = {MINUTE_S: "minute", HOUR_S: "hour", DAY_S: "day"}
    return f"{show_usd(usd)} per {named.get(cycle_s) or show_duration(cycle_s)}"
