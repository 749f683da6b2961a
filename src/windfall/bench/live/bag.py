"""`windfall bench bag`: a bag of short calls on many slots of one machine, beside ProcessPoolExecutor and the ideal."""

from __future__ import annotations

import multiprocessing
import signal
import statistics
import time
from concurrent.futures import ProcessPoolExecutor

import click

from windfall.bench.harness import interleaved, live, ratio_report, report


@click.command()
@click.option("--n", default=20_000, show_default=True, help="Tasks in one round.")
@click.option("--seconds", default=0.05, show_default=True, help="How long a task sleeps.")
@click.option("--slots", default=64, show_default=True, help="Tasks at once.")
@click.option("--rounds", default=1, show_default=True, help="Rounds, alternating with the peer.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(n: int, seconds: float, slots: int, rounds: int, as_json: bool) -> None:
    """Sleep N times on SLOTS slots and compare with the ideal, N x SECONDS / SLOTS.

    \b
    Example:
      windfall bench bag --n 20000 --slots 64 --json
    """
    ideal_s = n * seconds / slots
    spawn = multiprocessing.get_context("spawn")
    with live(slots) as running, running.client() as client:

        def ours() -> float:
            status = client.submit(time.sleep, params=[seconds] * n).wait()
            return n / float(status["elapsed_s"])

        peer = ProcessPoolExecutor(slots, spawn, signal.signal, (signal.SIGINT, signal.SIG_IGN))  # Ctrl-C is for us

        def theirs() -> float:
            began = time.perf_counter()
            for future in [peer.submit(time.sleep, seconds) for _ in range(n)]:
                future.result()
            return n / (time.perf_counter() - began)

        try:
            mine, others = interleaved(rounds, ours, theirs)
        finally:
            peer.shutdown(wait=False, cancel_futures=True)
    document = ratio_report("bag", "tasks/s", 0.95, "ProcessPoolExecutor.submit", mine, others)
    document["ideal_s"] = ideal_s
    document["share_of_ideal"] = statistics.median(rate / (n / ideal_s) for rate in mine)
    document["share_of_ideal_of_peer"] = statistics.median(rate / (n / ideal_s) for rate in others)
    report(document, as_json)
