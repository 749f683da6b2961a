"""Counting what is seen of a spot offer, and the law that follows from the counts."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windfall.planning.contract import Market
from windfall.planning.counts import (
    AGES_H,
    AWAY,
    CLASSES,
    DAY_H,
    HERE,
    CountSettings,
    PriceCounts,
    SpellCounts,
    add_series,
    came_back,
    count,
    launched,
    place_of,
    priced,
    refused,
    was_up,
    went_together,
)
from windfall.planning.offers import Offer
from windfall.planning.spot.law import PRIOR
from windfall.planning.spot.live import learned_rates

HOUR = 3600.0
RULES = CountSettings()
SPOT = Offer(name="spot", price_usd=1.0, market="spot", pool="cloud")


def total(counts: SpellCounts, kind: int) -> tuple[float, float]:
    """Ends and hours of one kind of spell."""
    cells = [cell for place, cell in counts.cells.items() if place // (CLASSES * DAY_H) == kind]
    return sum(ends for ends, _ in cells), math.fsum(hours for _, hours in cells)


def seen(counts: SpellCounts, **kwargs: float) -> dict[str, Market]:
    ends, hours = total(counts, HERE)
    return {SPOT.key: Market(up_s=hours * HOUR, reclaimed=int(ends), spells=int(ends), counts=counts, **kwargs)}


@given(
    begun=st.floats(0.0, 1e9), before=st.floats(0.0, 1e6), lasts=st.floats(0.0, 1e6), ended=st.booleans(),
    kind=st.sampled_from([HERE, AWAY]),
)  # fmt: skip
def test_every_hour_and_every_end_is_counted_once(begun, before, lasts, ended, kind):
    counts = SpellCounts()
    count(counts, kind, begun, begun + before, begun + before + lasts, ended)
    assert total(counts, kind)[0] == ended
    assert total(counts, kind)[1] == pytest.approx(lasts / HOUR, rel=1e-3, abs=1e-4)
    assert all(0 <= place < 2 * CLASSES * DAY_H for place in counts.cells)


def test_a_spell_is_counted_by_its_age_and_the_hour_of_the_day():
    counts = SpellCounts()
    count(counts, HERE, 23 * HOUR, 23 * HOUR, 24.5 * HOUR, ended=True)
    assert counts.cells[place_of(HERE, 0.0, 23)] == (0.0, pytest.approx(AGES_H[1]))
    assert counts.cells[place_of(HERE, 1.2, 0)] == (1.0, pytest.approx(0.5))


def test_a_refusal_and_the_next_launch_are_a_spell_without_capacity():
    counts = SpellCounts()
    for t in (0.0, 600.0, 1200.0):
        refused(counts, t)
    launched(counts, 1500.0, RULES)
    assert total(counts, AWAY) == (1.0, pytest.approx(1500.0 / HOUR))
    assert (counts.away_t, counts.here_t) == (None, 1500.0)


def test_an_absence_that_nobody_watched_to_its_end_teaches_nothing():
    counts = SpellCounts()
    refused(counts, 0.0)
    launched(counts, 10 * HOUR, RULES)
    assert total(counts, AWAY) == (0.0, 0.0)
    assert counts.here_t == 10 * HOUR - RULES.unknown_age_s


def test_forty_machines_that_are_reclaimed_together_are_in_one_spell():
    counts = SpellCounts()
    refused(counts, 0.0)
    for _ in range(40):
        launched(counts, 60.0, RULES)
    for _ in range(40):
        was_up(counts, 60.0, 60.0 + HOUR, True, RULES)
    assert total(counts, HERE) == (40.0, pytest.approx(40.0))
    assert counts.away_t == 60.0 + HOUR


def test_a_machine_that_resumes_ends_the_absence():
    counts = SpellCounts()
    launched(counts, 0.0, RULES)
    was_up(counts, 0.0, HOUR, True, RULES)
    came_back(counts, HOUR + 300.0, RULES)
    assert total(counts, AWAY) == (1.0, pytest.approx(300.0 / HOUR))
    assert counts.launches == 1


def test_counts_stay_small_however_much_happens():
    counts = SpellCounts()
    for day in range(400):
        count(counts, HERE, day * 86400.0, day * 86400.0, (day + 0.9) * 86400.0, ended=True)
        count(counts, AWAY, (day + 0.9) * 86400.0, (day + 0.9) * 86400.0, (day + 1) * 86400.0, ended=True)
        went_together(counts, f"offer-{day}", RULES)
    assert len(counts.cells) <= 2 * CLASSES * DAY_H
    assert len(counts.together) == RULES.partners
    assert len(msgspec.msgpack.encode(counts)) < 16_000


def test_a_price_counts_for_as_long_as_it_holds():
    prices = PriceCounts()
    for t, usd in ((0.0, 1.0), (3 * HOUR, 3.0), (4 * HOUR, 1.0)):
        priced(prices, t, usd)
    assert prices.sum_usd / prices.held_s == pytest.approx(1.5)
    assert (prices.low_usd, prices.high_usd, prices.changes) == (1.0, 3.0, 2)


# --- the law ---------------------------------------------------------------------------------------------------------


def test_without_observations_the_law_is_the_told_rate():
    told = learned_rates(msgspec.structs.replace(SPOT, interruptions_per_h=1.0), {})
    assert told.interrupts_per_s * HOUR == pytest.approx(1.0)
    assert [rate * HOUR for rate in told.by_age] == pytest.approx([1.0] * CLASSES)


def test_without_a_told_rate_a_young_spell_is_riskier_than_an_old_one_as_in_published_series():
    rates = learned_rates(SPOT, {})
    assert list(rates.by_age) == sorted(rates.by_age, reverse=True)
    assert rates.by_age[0] / rates.by_age[-1] == pytest.approx(PRIOR.here[0] / PRIOR.here[-1])


def test_a_market_whose_old_spells_end_teaches_that_age_is_no_protection():
    counts = SpellCounts()
    for spell in range(60):
        count(counts, HERE, spell * 1e5, spell * 1e5, spell * 1e5 + 4 * HOUR, ended=True)
    rates = learned_rates(SPOT, seen(counts))
    assert rates.by_age[6] > rates.by_age[1]


def test_capacity_that_has_been_absent_for_long_is_expected_back_later():
    short, long = SpellCounts(), SpellCounts()
    refused(short, 0.0)
    refused(long, 0.0)
    soon = learned_rates(SPOT, {SPOT.key: Market(counts=short)}, t=300.0).back_within(1800.0)
    late = learned_rates(SPOT, {SPOT.key: Market(counts=long)}, t=5 * HOUR).back_within(1800.0)
    assert 0.0 < late < soon < 1.0


def test_an_offer_that_has_turned_bad_has_a_higher_rate_than_its_whole_past_says():
    calm, turned = SpellCounts(), SpellCounts()
    for counts in (calm, turned):
        launched(counts, 0.0, RULES)
        was_up(counts, 0.0, 100 * HOUR, False, RULES)
    t = 100 * HOUR
    for _ in range(6):
        launched(turned, t, RULES)
        was_up(turned, t, t + 600.0, True, RULES)
        t += 900.0
    usual = learned_rates(SPOT, seen(calm), t=t).interrupts_per_s
    now = learned_rates(SPOT, seen(turned), t=t).interrupts_per_s
    later = learned_rates(SPOT, seen(turned), t=t + 48 * HOUR).interrupts_per_s
    assert now > 3 * usual
    assert later < now


def test_machines_that_are_still_up_count_with_their_time_so_far():
    few = learned_rates(SPOT, {SPOT.key: Market(up_s=HOUR, counts=SpellCounts())}).interrupts_per_s
    many = learned_rates(SPOT, {SPOT.key: Market(up_s=50 * HOUR, counts=SpellCounts())}).interrupts_per_s
    assert many < few


def test_an_imported_series_is_learned_from_however_many_machines_were_rented():
    """Fifty machines at once count little each; a published series counts in full beside them."""
    cells = [(place_of(HERE, 1.2, hour), 100.0 / DAY_H, 50.0 / DAY_H) for hour in range(DAY_H)]
    imported = SpellCounts()
    add_series(imported, cells, PriceCounts(2, 100.0, 3.0, 0.1, 0.02, 0.04))
    assert imported.imported_h == pytest.approx(50.0) and imported.prices.changes == 2
    usual = learned_rates(SPOT, {}).interrupts_per_s
    alone = learned_rates(SPOT, {SPOT.key: Market(imported=imported)}).interrupts_per_s
    assert alone > 2 * usual
    busy = Market(imported=imported, up_s=50 * HOUR, counts=SpellCounts())
    assert learned_rates(SPOT, {SPOT.key: busy}, since_s=HOUR).interrupts_per_s > 1.5 * usual


def test_signs_that_lie_just_the_gap_apart_count_alike_whatever_the_clock_rounds():
    found = []
    for asked_t in (16200.0, 16200.000000000013):
        counts = SpellCounts()
        refused(counts, asked_t)
        launched(counts, 18000.000000000015, RULES)
        found.append(counts.here_t)
    assert found == pytest.approx([18000.0, 18000.0])
