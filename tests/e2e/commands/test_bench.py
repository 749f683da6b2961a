"""The benchmarks of the live server run to their end: their parts are processes that go on with the same hosts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from windfall.bench.harness import live


def bench(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "windfall", "bench", *arguments, "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def test_a_small_bench_exchanges_in_all_its_parts():
    document = bench("exchange", "--hosts", "20", "--seconds", "0.3", "--rate", "200")
    assert document["tasks_per_s"] > 0
    assert document["rate_kept"] > 0


def test_the_queue_is_measured_before_and_after_a_restart():
    document = bench("queue", "--n", "2000", "--seconds", "0.2")
    assert document["dispatch_per_s_long"] > 0


def test_calls_are_measured_by_the_clock_and_by_processor_time():
    document = bench("noop", "--n", "200", "--rounds", "1", "--slots", "1")
    assert document["ours"] > 0
    assert len(document["cpu_ratios"]) == 1


def test_ctrl_c_is_for_the_benchmark_and_its_worker_ends_in_order():
    with live(slots=1) as running:
        # A worker that the terminal's Ctrl-C reached, too, would wait for a server that it had ended as well.
        assert all(os.getpgid(process.pid) == process.pid for process in running.processes)
        with running.client() as client:
            client.submit(["sleep", "60"], params=[0])
    assert [process.returncode for process in running.processes if process.returncode == -9] == []
