"""`windfall bench simulate`: GridBot's largest run, made small."""

from __future__ import annotations

from windfall.bench.in_process.simulate import measure


def test_hosts_that_ask_for_bundles_do_the_same_tasks_with_half_the_exchanges():
    one_by_one, bundles = measure(0.001, 0.004), measure(0.001, 0.004, bundles=True)
    assert one_by_one["done"] == bundles["done"] == 2200
    assert bundles["exchanges"] < 0.5 * one_by_one["exchanges"]
