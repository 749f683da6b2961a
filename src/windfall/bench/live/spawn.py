"""`windfall bench spawn`: `true` as real processes through server, log and worker, beside bare loops of posix_spawn."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time

import click

from windfall.bench.harness import interleaved, live, ratio_report, report

LOOP = """
import os, sys
path, n = sys.argv[1], int(sys.argv[2])
sys.stdin.readline()
for _ in range(n):
    os.waitpid(os.posix_spawn(path, ["true"], os.environ), 0)
"""


def bare_rate(path: str, n: int, loops: int) -> float:
    """Processes a second of `loops` processes that do nothing but spawn and wait."""
    command = [sys.executable, "-S", "-c", LOOP, path, str(n // loops)]
    # In sessions of their own: Ctrl-C is for us.
    started = [subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) for _ in range(loops)]
    began = time.perf_counter()
    try:
        for process in started:
            assert process.stdin is not None
            process.stdin.write(b"\n")
            process.stdin.flush()
        for process in started:
            process.communicate()
    except BaseException:
        for process in started:
            process.kill()
        raise
    return (n // loops) * loops / (time.perf_counter() - began)


@click.command()
@click.option("--n", default=2000, show_default=True, help="Tasks in one round.")
@click.option("--rounds", default=3, show_default=True, help="Rounds, alternating with the floor.")
@click.option("--slots", default=os.cpu_count() or 2, show_default=True, help="Tasks at once; also loops of the floor.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(n: int, rounds: int, slots: int, as_json: bool) -> None:
    """Spawn `true` N times, durably, and compare with bare loops of posix_spawn.

    Example: windfall bench spawn --n 5000 --json
    """
    path = shutil.which("true") or "/bin/true"
    with live(slots) as running, running.client() as client:

        def ours() -> float:
            job = client.submit([path], params=range(n), cwd="/")
            status = job.wait()
            return n / float(status["elapsed_s"])

        mine, floor = interleaved(rounds, ours, lambda: bare_rate(path, n, slots))
    report(ratio_report("spawn", "tasks/s", 0.8, f"{slots} loops of posix_spawn", mine, floor), as_json)
