"""`windfall bench noop`: no-op Python calls through the executor, durably, beside ProcessPoolExecutor.submit."""

from __future__ import annotations

import multiprocessing
import os
import signal
import statistics
import time
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor, wait

import click

from windfall.bench.harness import cpu_of_family, interleaved, live, ratio_report, report


def noop() -> None:
    """Nothing."""


def rate(executor: Executor, n: int) -> float:
    began = time.perf_counter()
    futures = [executor.submit(noop) for _ in range(n)]
    wait(futures)
    for future in futures:
        future.result()
    return n / (time.perf_counter() - began)


def noting(spent_us: list[float], run: Callable[[], float], n: int) -> Callable[[], float]:
    """`run`, which also notes the processor time of a call, of this process and of all that it has started."""

    def noted() -> float:
        began_s = cpu_of_family(os.getpid())
        rate = run()
        spent_us.append(1e6 * (cpu_of_family(os.getpid()) - began_s) / n)
        return rate

    return noted


@click.command()
@click.option("--n", default=5000, show_default=True, help="Calls in one round.")
@click.option("--rounds", default=9, show_default=True, help="Rounds, alternating with the peer.")
@click.option("--slots", default=os.cpu_count() or 2, show_default=True, help="Calls at once.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(n: int, rounds: int, slots: int, as_json: bool) -> None:
    """Call a function that does nothing N times and compare with ProcessPoolExecutor.submit (not durable).

    Prints calls a second, and processor time a call of all processes: client, server, worker and calls.

    Example: windfall bench noop --n 10000 --json
    """
    spawn = multiprocessing.get_context("spawn")
    with live(slots) as running, running.client() as client:
        peer = ProcessPoolExecutor(slots, spawn, signal.signal, (signal.SIGINT, signal.SIG_IGN))  # Ctrl-C is for us
        ours = client.executor()
        our_us: list[float] = []
        peer_us: list[float] = []
        try:
            mine, theirs = interleaved(
                rounds, noting(our_us, lambda: rate(ours, n), n), noting(peer_us, lambda: rate(peer, n), n)
            )
        finally:
            for pool in (ours, peer):
                # After Ctrl-C there is no worker any more that could do the calls that are left.
                pool.shutdown(wait=False, cancel_futures=True)
            for child in multiprocessing.active_children():
                # A process pool that Ctrl-C met in the middle of a submission would be waited for, for ever.
                child.kill()
    document = ratio_report("noop", "calls/s", 1.5, "ProcessPoolExecutor.submit", mine, theirs)
    # On a busy machine processor time says more than the clock. The first round of each has warmed up.
    document |= {"cpu_us_ours": statistics.median(our_us[1:]), "cpu_us_peer": statistics.median(peer_us[1:])}
    document["cpu_ratios"] = [peer / max(our, 1e-9) for our, peer in zip(our_us[1:], peer_us[1:], strict=True)]
    document["cpu_ratio"] = statistics.median(document["cpu_ratios"])
    report(document, as_json)
