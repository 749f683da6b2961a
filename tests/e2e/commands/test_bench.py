"""The benchmarks of the live server run to their end: their parts are processes that go on with the same hosts."""

from __future__ import annotations

import json

from click.testing import CliRunner

from windfall.cli import cli


def test_a_small_bench_exchanges_in_all_its_parts():
    arguments = ["bench", "exchange", "--hosts", "20", "--seconds", "0.3", "--rate", "200", "--json"]
    ended = CliRunner().invoke(cli, arguments)
    assert ended.exit_code == 0, ended.output
    document = json.loads(ended.stdout)
    assert document["tasks_per_s"] > 0
    assert document["rate_kept"] > 0
    assert document["server_us_per_exchange"] >= 0


def test_the_queue_is_measured_before_and_after_a_restart():
    ended = CliRunner().invoke(cli, ["bench", "queue", "--n", "2000", "--seconds", "0.2", "--json"])
    assert ended.exit_code == 0, ended.output
    document = json.loads(ended.stdout)
    assert document["dispatch_per_s_long"] > 0


def test_calls_are_measured_by_the_clock_and_by_processor_time():
    ended = CliRunner().invoke(cli, ["bench", "noop", "--n", "200", "--rounds", "1", "--slots", "1", "--json"])
    assert ended.exit_code == 0, ended.output
    document = json.loads(ended.stdout)
    assert document["ours"] > 0 and len(document["cpu_ratios"]) == 1
