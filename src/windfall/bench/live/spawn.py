"""`windfall bench spawn`: `true` as real processes through server, log and worker, beside bare loops of posix_spawn."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from typing import Any

import click

from windfall.bench.harness import interleaved, live, ratio_report, report

LOOP = """
import os, resource, sys
def spent():
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
path, n = sys.argv[1], int(sys.argv[2])
sys.stdin.readline()
before = spent()
for number in range(n):
    os.waitpid(os.posix_spawn(path, [path, str(number)], os.environ), 0)
print(spent() - before)
"""
"""The same command line as our tasks: `true` with one argument loads its locale, which takes a third of its time."""


def bare(path: str, n: int, loops: int) -> tuple[float, float]:
    """Processes a second of `loops` processes that do nothing but spawn and wait, and processor seconds of one."""
    command = [sys.executable, "-S", "-c", LOOP, path, str(n // loops)]
    # In sessions of their own: Ctrl-C is for us.
    pipe = subprocess.PIPE
    started = [subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True) for _ in range(loops)]
    began = time.perf_counter()
    try:
        for process in started:
            assert process.stdin is not None
            process.stdin.write(b"\n")
            process.stdin.flush()
        spent_s = sum(float(process.communicate()[0]) for process in started)
    except BaseException:
        for process in started:
            process.kill()
        raise
    count = (n // loops) * loops
    return count / (time.perf_counter() - began), spent_s / count


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
    own_s: list[dict[str, float]] = []
    floor_s: list[float] = []
    with live(slots) as running, running.client() as client:

        def ours() -> float:
            before = running.cpu_s()
            status = client.submit([path], params=range(n), cwd="/").wait()
            own_s.append({part: (total_s - before[part]) / n for part, total_s in running.cpu_s().items()})
            return n / float(status["elapsed_s"])

        def floor() -> float:
            rate, each_s = bare(path, n, slots)
            floor_s.append(each_s)
            return rate

        mine, theirs = interleaved(rounds, ours, floor)
    document = ratio_report("spawn", "tasks/s", 0.85, f"{slots} loops of posix_spawn", mine, theirs)
    report(document | _cpu(own_s[1:], floor_s[1:]), as_json)


def _cpu(own_s: list[dict[str, float]], floor_s: list[float]) -> dict[str, Any]:
    """Processor time of a task by process, and the floor's share of it; other load hardly changes it."""
    return {
        **{f"cpu_us_{part}": statistics.median(1e6 * each[part] for each in own_s) for part in own_s[0]},
        "cpu_us_floor": statistics.median(1e6 * each_s for each_s in floor_s),
        "cpu_ratio": statistics.median(each_s / sum(own.values()) for own, each_s in zip(own_s, floor_s, strict=True)),
    }
