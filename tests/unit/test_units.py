"""Durations, clock times, sizes and money as people write and read them."""

from datetime import datetime
from math import inf
from zoneinfo import ZoneInfo

import pytest

from windfall.bags.spec import Memory, parse_memory
from windfall.errors import BadInput
from windfall.units import (
    IN_THE_PAST,
    Deadline,
    parse_bytes,
    parse_deadline,
    parse_duration,
    parse_money,
    show_bytes,
    show_deadline,
    show_duration,
    show_price,
    show_usd,
)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("4096", 4096),
        (512, 512),
        ("1k", 1024),
        ("512M", 512 << 20),
        ("2G", 2 << 30),
        ("1.5GiB", 3 << 29),
        ("2 GB", 2 << 30),
    ],
)
def test_sizes_are_counted_in_powers_of_1024(text, count):
    assert parse_bytes(text) == count


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        (1.5, 1.5),
        ("35m", 2100),
        ("2h30m", 9000),
        ("1d", 86400),
        ("250ms", 0.25),
        ("1.5h", 5400),
        ("2d", 172_800),
        ("10min", 600),
        ("2h 5s", 7205),
        ("2 hours 30 minutes", 9000),
        ("1hr", 3600),
        ("10mins 5 secs", 605),
        ("2 Days", 172_800),
        ("1 week", 604_800),
    ],
)
def test_durations_are_seconds_or_sums_of_units(text, seconds):
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "microusd"), [("5", 5_000_000), ("$0.25", 250_000), (1.31, 1_310_000), ("2 usd", 2_000_000)]
)
def test_money_becomes_whole_micro_dollars(text, microusd):
    assert parse_money(text) == microusd


@pytest.mark.parametrize("text", ["", "G", "2X", "-1G", "1 2", "nan", "2G*"])
def test_what_is_no_size_is_refused_with_an_example(text):
    with pytest.raises(BadInput, match="is no size") as error:
        parse_bytes(text, "memory")
    assert "2G" in error.value.hint


@pytest.mark.parametrize("text", ["", "h", "2x", "-5m", "1h2", "inf", "2 months", "2 sm"])
def test_what_is_no_duration_is_refused_with_an_example(text):
    with pytest.raises(BadInput, match="is no duration") as error:
        parse_duration(text)
    assert "2h30m" in error.value.hint


def test_memory_may_grow_with_each_attempt():
    assert parse_memory("2G") == Memory(2 << 30)
    grows = parse_memory("2G * attempt")
    assert [grows.of_attempt(n) for n in (1, 2, 3)] == [2 << 30, 4 << 30, 6 << 30]
    with pytest.raises(BadInput, match="is no memory"):
        parse_memory("2G*tries")


@pytest.mark.parametrize("text", ["2:00", "1:30:00", "18:00", "tomorrow 6:00"])
def test_a_text_with_a_colon_is_never_a_duration(text):
    with pytest.raises(BadInput, match="is a clock time, and a duration is needed"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.00 s"),
        (0.42, "0.42 s"),
        (9.996, "10.0 s"),
        (12.34, "12.3 s"),
        (59.96, "1m00s"),
        (120, "2m00s"),
        (247.2, "4m07s"),
        (3599.6, "1h00m"),
        (7180, "2h00m"),
        (7140, "1h59m"),
        (86_399, "1d00h"),
        (183_600, "2d03h"),
        (-90, "-1m30s"),
        (inf, "never"),
        (None, "-"),
    ],
)
def test_durations_are_printed_at_a_glance(seconds, text):
    assert show_duration(seconds) == text


BERLIN = ZoneInfo("Europe/Berlin")
NOON = datetime(2026, 11, 30, 12, 31, tzinfo=BERLIN).timestamp()


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("18:00", (2026, 11, 30, 18, 0)),
        ("today 18:00", (2026, 11, 30, 18, 0)),
        ("tomorrow 6:00", (2026, 12, 1, 6, 0)),
        ("Tomorrow 06:00:30", (2026, 12, 1, 6, 0, 30)),
        ("2026-12-01 18:00", (2026, 12, 1, 18, 0)),
        ("2026-12-01 6:00", (2026, 12, 1, 6, 0)),
        ("2026-12-01T18:00:05", (2026, 12, 1, 18, 0, 5)),
    ],
)
def test_a_deadline_may_be_a_clock_time(text, when):
    at_s = datetime(*when, tzinfo=BERLIN).timestamp()
    assert parse_deadline(text, NOON, BERLIN) == Deadline(at_s - NOON, at_s)


def test_a_clock_time_may_bring_its_own_offset():
    assert parse_deadline("2026-12-01 18:00+09:00", NOON, BERLIN) == parse_deadline("2026-12-01 10:00", NOON, BERLIN)


def test_a_deadline_may_be_a_duration():
    assert parse_deadline("2h30m", NOON, BERLIN) == Deadline(9000.0)
    assert parse_deadline(90, NOON, BERLIN) == Deadline(90.0)


@pytest.mark.parametrize("text", ["12:31", "6:00", "2025-12-01 18:00"])
def test_a_clock_time_in_the_past_is_refused(text):
    with pytest.raises(BadInput, match="is in the past") as error:
        parse_deadline(text, NOON, BERLIN)
    assert error.value.code == IN_THE_PAST


def test_the_error_for_a_past_time_of_day_offers_tomorrow():
    with pytest.raises(BadInput) as error:
        parse_deadline("6:00", NOON, BERLIN)
    assert str(error.value) == (
        "deadline: 6:00 is in the past (6h31m ago)\n  write tomorrow 6:00, or a duration as in 2h30m"
    )


@pytest.mark.parametrize(
    "text", ["24:00", "18:60", "7:5", "2026-13-01 18:00", "yesterday 6:00", "18:00 tomorrow", "1:2:3"]
)
def test_what_is_no_clock_time_is_refused_with_an_example(text):
    with pytest.raises(BadInput, match="is no clock time") as error:
        parse_deadline(text, NOON, BERLIN)
    assert "tomorrow 6:00" in error.value.hint


@pytest.mark.parametrize("text", ["18.00", "6.30"])
def test_a_clock_time_with_a_dot_is_not_taken_for_seconds(text):
    with pytest.raises(BadInput, match="clock time or seconds") as error:
        parse_deadline(text, NOON, BERLIN)
    assert text.replace(".", ":") in error.value.hint
    assert (
        parse_deadline(f"{text}s", NOON, BERLIN).in_s == parse_deadline(float(text), NOON, BERLIN).in_s == float(text)
    )


@pytest.mark.parametrize("text", ["soon", "2x", ""])
def test_what_is_neither_a_duration_nor_a_clock_time_is_refused_with_both_examples(text):
    with pytest.raises(BadInput, match="neither a duration nor a clock time") as error:
        parse_deadline(text, NOON, BERLIN)
    assert "2h30m" in error.value.hint
    assert "18:00" in error.value.hint


def test_a_deadline_is_printed_as_a_clock_time_and_a_distance():
    assert show_deadline(NOON + 7140, NOON, BERLIN) == "14:30 (in 1h59m)"
    assert show_deadline(NOON - 725, NOON, BERLIN) == "12:19 (12m05s ago)"
    assert show_deadline(NOON + 86_400, NOON, BERLIN) == "2026-12-01 12:31 (in 1d00h)"


def test_tomorrow_is_a_day_of_the_calendar_where_clocks_change():
    before = datetime(2026, 10, 24, 18, 0, tzinfo=BERLIN).timestamp()
    assert parse_deadline("tomorrow 18:00", before, BERLIN).in_s == 25 * 3600


@pytest.mark.parametrize(
    ("usd", "text"),
    [(0, "$0.00"), (0.1, "$0.10"), (0.031, "$0.031"), (0.1785, "$0.1785"), (0.00002, "$0.00002"), (0.99999, "$1.00"),
     (1234.5, "$1,234.50"), (-0.5, "-$0.50")],
)  # fmt: skip
def test_money_is_printed_in_cents_and_more_digits_where_they_say_something(usd, text):
    assert show_usd(usd) == text


def test_a_price_names_its_billing_cycle():
    assert show_price(0.031, 60) == "$0.031 per minute"
    assert show_price(0.1, 3600) == "$0.10 per hour"
    assert show_price(0.02, 600) == "$0.02 per 10m00s"
    assert show_price(0.0725 / 3600, 1.0) == "$0.0725 per hour, by the second"


def test_a_price_of_a_tiny_billing_cycle_is_one_per_hour():
    """Cycles of an emulated cloud in a hurry had been `per 0.00 s`."""
    assert show_price(0.09 / 3600 * 0.004, 0.004) == "$0.09 per hour, by 0.004 s"
    assert show_price(0.00003, 0.025) == "$4.32 per hour, by 0.025 s"


@pytest.mark.parametrize(
    ("count", "text"),
    [(512, "512 B"), (24 << 30, "24 GB"), (3 << 29, "1.5 GB"), (64 << 20, "64 MB"), (900 << 30, "900 GB")],
)
def test_sizes_are_printed_in_the_largest_unit(count, text):
    assert show_bytes(count) == text
