"""What Windfall prints can be typed: durations, clock times, sizes and money are read back as what they say."""

from datetime import timedelta, timezone

from hypothesis import given
from hypothesis.strategies import floats, integers, sampled_from
from pytest import approx

from windfall.units import (
    parse_bytes,
    parse_clock,
    parse_deadline,
    parse_duration,
    parse_money,
    show_bytes,
    show_clock,
    show_duration,
    show_usd,
)

ZONES = [timezone(timedelta(minutes=minutes)) for minutes in (-720, -210, 0, 60, 345, 840)]
MOMENTS = floats(1e9, 4e9)


@given(seconds=floats(0, 1e8))
def test_a_printed_duration_is_read_back_within_its_last_digit(seconds):
    unit_s = 0.01 if seconds < 9 else 0.1 if seconds < 59 else 1 if seconds < 3590 else 60 if seconds < 86_000 else 3600
    assert abs(parse_duration(show_duration(seconds)) - seconds) <= unit_s


@given(seconds=floats(0, 1e8))
def test_a_duration_that_was_read_back_is_printed_as_before(seconds):
    text = show_duration(seconds)
    assert show_duration(parse_duration(text)) == text


@given(at_s=MOMENTS, now_s=MOMENTS, zone=sampled_from(ZONES))
def test_a_printed_clock_time_is_read_back_within_half_a_minute(at_s, now_s, zone):
    assert abs(parse_clock(show_clock(at_s, now_s, zone), now_s, zone) - at_s) <= 30.001


@given(at_s=MOMENTS, now_s=MOMENTS, zone=sampled_from(ZONES))
def test_a_clock_time_printed_with_seconds_is_read_back_within_half_a_second(at_s, now_s, zone):
    assert abs(parse_clock(show_clock(at_s, now_s, zone, seconds=True), now_s, zone) - at_s) <= 0.501


@given(now_s=MOMENTS, left_s=floats(120, 1e7), later_s=floats(0, 59), zone=sampled_from(ZONES))
def test_the_identity_of_a_deadline_does_not_change_while_it_lies_ahead(now_s, left_s, later_s, zone):
    text = show_clock(now_s + left_s, now_s - 1e6, zone)  # with its date
    first, second = parse_deadline(text, now_s, zone), parse_deadline(text, now_s + later_s, zone)
    assert first.identity == second.identity
    assert first.in_s - second.in_s == approx(later_s, abs=1e-5)


@given(count=integers(0, 1 << 50))
def test_a_printed_size_is_read_back_within_three_digits(count):
    assert parse_bytes(show_bytes(count)) == approx(count, rel=0.006)


@given(microusd=integers(0, 10**12))
def test_printed_money_is_read_back_within_its_last_digit(microusd):
    shown = parse_money(show_usd(microusd / 1e6))
    assert abs(shown - microusd) <= (5_000 if microusd >= 999_950 else 50)
