"""Billing: cycles, hibernation, the provider's end, exact division."""

from __future__ import annotations

import math

import pytest

from windfall.core.renting import money
from windfall.core.renting.money import Budget, Tariff

HOURLY = Tariff(cycle_microusd=100_000, cycle_s=3600.0)
BY_SECOND = Tariff(cycle_microusd=10, cycle_s=1.0, minimum_s=60.0)


def test_sixty_one_minutes_are_two_cycles():
    assert money.owed_microusd(HOURLY, money.start(0.0), 61 * 60.0) == 200_000


def test_a_machine_that_was_only_just_started_owes_its_first_cycle():
    assert money.owed_microusd(HOURLY, money.start(0.0), 0.0) == 100_000


def test_exactly_one_hour_is_one_cycle():
    assert money.owed_microusd(HOURLY, money.start(5.0), 3605.0) == 100_000


def test_hibernated_time_is_free():
    meter = money.resume(money.pause(money.start(0.0), 1800.0), 90_000.0)
    assert money.owed_microusd(HOURLY, meter, 90_000.0 + 1800.0) == 100_000


def test_the_partial_last_cycle_is_free_when_the_provider_ends_it():
    assert money.owed_microusd(HOURLY, money.end(money.start(0.0), 5400.0, taken=True), 1e6) == 100_000


def test_a_machine_is_free_that_the_provider_ends_in_its_first_hour():
    tariff = Tariff(cycle_microusd=10, cycle_s=1.0, minimum_s=60.0, free_if_taken_within_s=3600.0)
    assert money.owed_microusd(tariff, money.end(money.start(0.0), 3599.0, taken=True), 1e6) == 0
    assert money.owed_microusd(tariff, money.end(money.start(0.0), 3600.0, taken=True), 1e6) == 36_000
    assert money.owed_microusd(tariff, money.end(money.start(0.0), 30.0), 1e6) == 600


def test_the_partial_last_cycle_is_owed_when_we_end_it():
    assert money.owed_microusd(HOURLY, money.end(money.start(0.0), 5400.0), 1e6) == 200_000


def test_a_tariff_may_bill_the_last_cycle_even_when_the_provider_ends_it():
    tariff = Tariff(cycle_microusd=100_000, cycle_s=3600.0, free_if_taken=False)
    assert money.owed_microusd(tariff, money.end(money.start(0.0), 5400.0, taken=True), 1e6) == 200_000


def test_a_second_by_second_tariff_has_its_minimum():
    assert money.owed_microusd(BY_SECOND, money.start(0.0), 12.0) == 600
    assert money.owed_microusd(BY_SECOND, money.start(0.0), 61.5) == 620


def test_the_first_end_counts():
    meter = money.end(money.end(money.start(0.0), 100.0), 9_000.0, taken=True)
    assert money.owed_microusd(HOURLY, meter, 9_000.0) == 100_000


def test_an_ended_machine_does_not_resume():
    meter = money.end(money.start(0.0), 100.0)
    assert money.resume(meter, 200.0) is meter


def test_the_present_cycle_ends_where_held_time_reaches_it():
    meter = money.resume(money.pause(money.start(0.0), 600.0), 1000.0)
    assert money.paid_until_t(HOURLY, meter, 1000.0) == pytest.approx(1000.0 + 3000.0)
    assert money.paid_until_t(HOURLY, money.pause(meter, 1200.0), 1300.0) == math.inf


def test_a_new_cycle_begins_at_the_very_end_of_the_last():
    assert money.paid_until_t(HOURLY, money.start(0.0), 3600.0) == pytest.approx(7200.0)


def test_table_10_of_hads_reads_back_to_the_cent():
    on_demand, spot = money.microusd(0.199), money.microusd(0.0588)
    assert [money.usd(cycles * on_demand) for cycles in (5, 7, 8)] == [0.995, 1.393, 1.592]
    assert [math.floor(100 * money.usd(cycles * spot)) / 100 for cycles in (5, 7, 8)] == [0.29, 0.41, 0.47]


def test_a_budget_stops_the_launch_that_would_break_it():
    assert Budget(1_000).allows(900, 100)
    assert not Budget(1_000).allows(901, 100)
    assert Budget().allows(10**12, 10**12)


@pytest.mark.parametrize("usd_per_h", [0.0013, 0.0042, 0.031])
def test_a_price_below_a_micro_dollar_a_cycle_is_billed_exactly_and_rounded_once(usd_per_h: float) -> None:
    tariff = Tariff(cycle_microusd=money.price_microusd(usd_per_h / 3600), cycle_s=1.0)
    assert money.owed_microusd(tariff, money.start(0.0), 36_000.0) == round(usd_per_h * 10 * 1_000_000)


def test_a_moved_price_below_a_micro_dollar_is_billed_exactly_too() -> None:
    tariff = Tariff(cycle_microusd=money.price_microusd(0.0013 / 3600), cycle_s=1.0)
    rates = [(3_600.0, money.price_microusd(0.0042 / 3600))]
    assert money.owed_at_rates(tariff, money.start(0.0), 7_200.0, rates) == 1_300 + 4_200


def test_a_price_of_whole_micro_dollars_stays_a_whole_number() -> None:
    assert money.price_microusd(0.199) == 199_000 and isinstance(money.price_microusd(0.199), int)
