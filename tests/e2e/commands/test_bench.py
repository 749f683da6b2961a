"""The benchmarks of the live server run to their end: their parts are processes that go on with the same hosts."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any


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
