"""What `windfall market show` prints."""

from __future__ import annotations

from windfall.cli.market.command import _per_h, _print_by_hour


def hours(*ends: float):
    return [{"hour": hour, "ends": count, "up_h": 1.0} for hour, count in enumerate(ends)]


def test_hours_of_the_day_are_listed_only_where_they_differ(capsys):
    """A series without times counts for every hour alike: its 24 equal lines told nothing."""
    _print_by_hour(hours(*[0.25] * 24))
    assert capsys.readouterr().out == ""
    _print_by_hour(hours(*[0.25] * 23, 0.5))
    assert "23:00" in capsys.readouterr().out


def test_rates_of_thousands_an_hour_have_no_exponent():
    assert [_per_h(rate) for rate in (0.4512, 12.0, 999.4, 1800.0)] == ["0.451", "12", "999", "1,800"]
