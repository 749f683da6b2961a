"""`windfall bench noop`: no-op Python calls through the executor, durably, beside ProcessPoolExecutor.submit."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from concurrent.futures import Executor, ProcessPoolExecutor, wait

import click

from windfall.bench.harness import interleaved, live, ratio_report, report


def noop() -> None:
    """Nothing."""


def rate(executor: Executor, n: int) -> float:
    began = time.perf_counter()
    futures = [executor.submit(noop) for _ in range(n)]
    wait(futures)
    for future in futures:
        future.result()
    return n / (time.perf_counter() - began)


@click.command()
@click.option("--n", default=5000, show_default=True, help="Calls in one round.")
@click.option("--rounds", default=3, show_default=True, help="Rounds, alternating with the peer.")
@click.option("--slots", default=os.cpu_count() or 2, show_default=True, help="Calls at once.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(n: int, rounds: int, slots: int, as_json: bool) -> None:
    """Call a function that does nothing N times and compare with ProcessPoolExecutor.submit (not durable).

    Example: windfall bench noop --n 10000 --json
    """
    spawn = multiprocessing.get_context("spawn")
    with live(slots) as running, running.client() as client:
        peer = ProcessPoolExecutor(slots, spawn, signal.signal, (signal.SIGINT, signal.SIG_IGN))  # Ctrl-C is for us
        ours = client.executor()
        try:
            mine, theirs = interleaved(rounds, lambda: rate(ours, n), lambda: rate(peer, n))
        finally:
            for pool in (ours, peer):
                # After Ctrl-C there is no worker any more that could do the calls that are left.
                pool.shutdown(wait=False, cancel_futures=True)
    report(ratio_report("noop", "calls/s", 1.0, "ProcessPoolExecutor.submit", mine, theirs), as_json)
