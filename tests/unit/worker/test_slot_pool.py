"""Slots of a worker: what a task that takes several of them leaves when it is taken back before it began."""

from __future__ import annotations

import os
import selectors
import signal
from pathlib import Path
from unittest.mock import Mock

from windfall.worker.running.slot_pool import SlotPool

JOB = {"env": {}, "cpus": 2}


def test_a_wide_task_that_is_cancelled_before_it_began_gives_all_its_slots_back(tmp_path: Path):
    ended = []
    pool = SlotPool("host", 2, str(tmp_path / "slots"), selectors.DefaultSelector(), Mock(), ended.append)
    pool.start_first()
    runner = pool.slots[0].process.pid
    os.kill(runner, signal.SIGSTOP)  # it begins nothing
    try:
        pool.accept([[1, 0, 1, ["true"], None, 0]], {"1": JOB}, memoryview(b""))
        pool.dispatch()
        assert not any(slot.is_free for slot in pool.slots), "one runs it, the other lends its core"
        pool.cancel([(1, 0, 1)])
        assert [(result.job, result.cause) for result in ended] == [(1, "cancelled")]
        assert all(slot.is_free for slot in pool.slots)
    finally:
        os.kill(runner, signal.SIGKILL)
        pool.slots[0].process.wait()
        pool.close()
