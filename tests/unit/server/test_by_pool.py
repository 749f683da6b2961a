"""What each pool did: counted task by task and with numpy, the same."""

from __future__ import annotations

import random

from windfall.core.state.jobs.columns import DONE
from windfall.core.state.saving import Bytes, Doubles, Ints
from windfall.server.queries import by_pool


def test_a_large_job_is_counted_as_a_small_one_is(monkeypatch):
    dice = random.Random(3)
    states = Bytes(dice.choices(range(5), k=500))
    hosts = Ints(dice.choices([0, 1, 2, 5], k=500))
    starts = Doubles(dice.uniform(1e9, 1e9 + 100) for _ in range(500))
    ends = Doubles(start + dice.uniform(0, 9) for start in starts)
    names = {1: "here", 2: "there", 5: "there"}
    small = by_pool._sums(states, hosts, starts, ends, names)
    monkeypatch.setattr(by_pool, "MANY_TASKS", 1)
    large = by_pool._sums(states, hosts, starts, ends, names)
    assert set(small) == {"here", "there", by_pool.FORGOTTEN} and sum(states[at] == DONE for at in range(500)) > 50
    for pool, of in small.items():
        assert abs(large[pool].run_s - of.run_s) < 1e-3
        large[pool].run_s = of.run_s
    assert large == small
