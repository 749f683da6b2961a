"""Plans are kept in logs: their encoded form is a format, whatever the fields are called in the code."""

from __future__ import annotations

import msgspec

from windfall.planning.contract import Plan


def test_a_plan_of_an_older_log_keeps_the_time_of_its_next_review():
    assert msgspec.json.decode(b'{"look_again_t": 5.0}', type=Plan).replan_t == 5.0
    assert msgspec.to_builtins(Plan(replan_t=5.0))["look_again_t"] == 5.0
