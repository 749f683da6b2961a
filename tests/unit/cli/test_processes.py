"""Runs in processes of their own end with the process that started them."""

from __future__ import annotations

import os
import signal
import time

import pytest

from windfall.cli.exits import Terminated
from windfall.cli.processes import processes


@pytest.mark.parametrize(("stopped_by", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)])
def test_stopping_a_simulation_does_not_wait_for_its_runs(stopped_by, raised):
    with pytest.raises(raised), processes(2, 2) as pool:
        assert pool is not None
        pool.submit(os.getpid).result()
        runs = [pool.submit(time.sleep, 3600) for _ in range(4)]
        os.kill(os.getpid(), stopped_by)
        runs[0].result()
    assert not pool._processes, "they are gone"
    assert all(run.done() for run in runs)


def test_one_run_needs_no_process():
    with processes(1) as pool:
        assert pool is None
