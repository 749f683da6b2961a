"""`windfall bench match` at a size that takes no time: its document is whole, its worlds are what they are called."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from windfall.bench.in_process.match import PROFILES, Measured, command


def test_the_document_has_a_rate_a_floor_and_the_growth():
    ended = CliRunner().invoke(
        command, ["--bags", "12", "--hosts", "30", "--tasks", "5", "--seconds", "0.05", "--json"]
    )
    document = json.loads(ended.output)
    for profile in PROFILES:
        ratio = document[f"{profile}_per_s"] / document["floor_per_s"]
        assert document[f"{profile}_ratio_to_floor"] == pytest.approx(ratio)
    assert list(document["us_by_bags_mixed"]) == list(document["us_by_bags_distinct"]) == ["1", "10", "12"]
    assert len(document["us_by_tasks"]) == 3


def test_bags_that_want_no_host_get_none_and_nothing_changes_by_asking():
    unwanted = Measured(5, 10, 3, "unwanted", seed=1)
    seq = unwanted.state.seq
    unwanted.rate(0.05)
    assert unwanted.matched_share == 0.0 and unwanted.state.seq == seq


def test_bags_of_the_mixed_profile_are_matched():
    mixed = Measured(40, 20, 3, "mixed", seed=1)
    mixed.rate(0.05)
    assert mixed.matched_share > 0.5
