"""What the columns of a bag hold, however often a task is tried."""

from __future__ import annotations

from tests.support.engine.hand import Hand
from windfall.core.events import TaskClass
from windfall.core.state.jobs.columns import TASK_COLUMNS, Columns
from windfall.core.state.snapshot import load, save


def test_a_task_may_fail_more_than_255_times():
    hand = Hand()
    bag = hand.submit(1, [TaskClass(max_failures=1000)])
    for _ in range(300):
        hand.report("h", *hand.tasks("h"), cause="exit")
        hand.t += 10.0
    assert bag.columns.failures[0] == 300 and bag.waiting == 1
    assert load(save(hand.state)).bags[1].columns.failures[0] == 300


def test_a_task_may_be_given_out_more_than_65535_times():
    hand = Hand()
    bag = hand.submit(1)
    hand.report("h", *hand.tasks("h"), cause="cancelled")
    bag.columns.attempts[0] = 65_535
    key = hand.tasks("h")[0]
    assert key == (1, 0, 65_536)
    hand.report("h", key, cause="cancelled")
    hand.report("h", *hand.tasks("h"))
    assert bag.state == "done" and bag.columns.attempt[0] == 65_537


def test_a_task_takes_forty_bytes():
    columns = Columns()
    columns.grow(1000)
    assert sum(len(getattr(columns, name).tobytes()) for name in TASK_COLUMNS) == 40_000
