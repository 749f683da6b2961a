"""Runs in processes of their own end with whoever started them."""

from __future__ import annotations

import os
import signal
import time

import pytest

from windfall.cli.processes import processes


@pytest.mark.parametrize(("stopped_by", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_nobody_who_stops_a_simulation_waits_for_its_runs(stopped_by, raised):
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
