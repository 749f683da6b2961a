"""`windfall bench queue`: a million queued tasks: time to submit, memory, restart, rate of dispatch."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import click

from windfall.bench.harness import Live, live, report, show
from windfall.bench.live.exchange import pull


@click.command()
@click.option("--n", default=1_000_000, show_default=True, help="Tasks in the queue.")
@click.option("--seconds", default=4.0, show_default=True, help="How long dispatch is measured.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(n: int, seconds: float, as_json: bool) -> None:
    """Queue N distinct command lines and N numbers; restart; compare dispatch with a short queue.

    Example: windfall bench queue --n 1000000 --json
    """
    document: dict[str, Any] = {"bench": "queue", "n": n}
    with live() as running:
        show("dispatch from a short queue")
        document["dispatch_per_s_short"] = dispatch_rate(running, min(n, 1000), seconds)
    with live() as running:
        empty = running.resident_bytes()
        show(f"{n:,} command lines")
        document["submit_lines_s"] = submit_lines(running, n)
        document["lines_mb_above_empty"] = (running.resident_bytes() - empty) / 1e6
        show("dispatch from a long queue")
        document["dispatch_per_s_long"] = measure(running, seconds)
        show("killed and started again")
        running.kill_server()
        document["restart_s"] = restart(running)
        document["floor_restart_s"] = empty_start_s()
    with live() as running:
        show(f"--range 1-{n}")
        document["submit_range_s"] = submit_range(running, n)
        document["range_mb_above_empty"] = (running.resident_bytes() - empty) / 1e6
    show("")
    document["dispatch_ratio_long_to_short"] = document["dispatch_per_s_long"] / document["dispatch_per_s_short"]
    document["goals"] = "lines <= 3 s, range <= 0.1 s, <= 150 MB above empty, restart <= 3 s, dispatch ratio about 1"
    report(document, as_json)


def submit_lines(running: Live, n: int) -> float:
    """Seconds from a file of distinct command lines to an accepted job."""
    from windfall.bags.submission import Request, read_job

    path = Path(running.state) / "tasks.txt"
    path.write_text("".join(f"./simulate --seed {i} --out run-{i}.json\n" for i in range(n)))
    client = running.client()
    began = time.perf_counter()
    client.send(read_job(Request(tasks=str(path))))
    elapsed = time.perf_counter() - began
    client.close()
    return elapsed


def submit_range(running: Live, n: int) -> float:
    client = running.client()
    began = time.perf_counter()
    client.submit(["./simulate", "{}"], params=range(1, n + 1))
    elapsed = time.perf_counter() - began
    client.close()
    return elapsed


def dispatch_rate(running: Live, queued: int, seconds: float) -> float:
    """Tasks a second while about `queued` tasks are queued; many small jobs keep a short queue short."""
    client = running.client()
    for _ in range(40):
        client.submit(["true"], params=range(queued))
    client.close()
    return measure(running, seconds)


def measure(running: Live, seconds: float) -> float:
    seen = pull(running, hosts=8, seconds=seconds, want=64)
    return float(seen["tasks"] / seen["seconds"])


def restart(running: Live) -> float:
    """Seconds from the start of the process to the first answered exchange."""
    began = time.perf_counter()
    running.start_server()
    pull_once = pull(running, hosts=1, seconds=0.01, want=1)
    assert pull_once["exchanges"]
    # Subtract the start of the simulated worker's process.
    return time.perf_counter() - began - interpreter_start_s()


def empty_start_s() -> float:
    with live() as running:
        running.kill_server()
        return running.start_server()


def interpreter_start_s() -> float:
    import subprocess

    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import uvloop, windfall.bench.live.pullers"], check=True, process_group=0)
    return time.perf_counter() - began
