"""Sizes, durations and money as people write them."""

import pytest

from windfall.bags.spec import Memory, parse_memory
from windfall.bags.units import parse_bytes, parse_duration, parse_money
from windfall.errors import BadInput


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
        ("1:30:00", 5400),
        ("2h 5s", 7205),
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


@pytest.mark.parametrize("text", ["", "h", "2x", "-5m", "1h2", "inf"])
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
