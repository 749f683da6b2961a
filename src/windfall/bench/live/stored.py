"""`windfall bench stored`: what queued tasks cost in memory, finished ones on disk, and both at a restart."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any

import click

from windfall.bench.harness import Live, cpu_of, live, report, show
from windfall.bench.live.exchange import pull
from windfall.bench.live.queue import submit_range
from windfall.store.sqlite.store import SqliteStore

MB = 1e6


@click.command()
@click.option("--queued", default=10_000_000, show_default=True, type=click.IntRange(10), help="Tasks in the queue.")
@click.option("--seconds", default=10.0, show_default=True, help="How long tasks are finished, for each way.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(queued: int, seconds: float, as_json: bool) -> None:
    """Queue a tenth of QUEUED tasks and all of them, restart, then finish tasks and look at the log.

    \b
    Example:
      windfall bench stored --queued 10000000 --json
    """
    document: dict[str, Any] = {"bench": "stored", "queued": queued}
    for count in (queued // 10, queued):
        show(f"{count:,} queued")
        for name, value in queue(count).items():
            document.setdefault(name, {})[count] = round(value, 2)
    for want in (1, 16):
        show(f"{want} finished in an exchange")
        for name, value in finish(want, seconds).items():
            document.setdefault(name, {})[want] = round(value, 2)
    show("")
    document["floor_restart_cpu_s"] = round(restarted(0)["restart_cpu_s"], 2)
    document["goals"] = "10 million queued in 600 MB, restarted in 10 s; 150 MB of log for a million finished tasks"
    report(document, as_json)


def queue(count: int) -> dict[str, float]:
    with live() as running:
        seconds = submit_range(running, count)
        found = {"submit_s": seconds, "server_mb": running.resident_bytes() / MB}
    return found | restarted(count)


def restarted(count: int) -> dict[str, float]:
    """A restart after a kill, from the log alone, and one after an orderly end, from a snapshot."""
    with live() as running:
        if count:
            submit_range(running, count)
        running.kill_server()
        killed_s, killed_cpu_s = _start(running)
        running.stop_server()
        _, ended_cpu_s = _start(running)
        peak_mb = running.peak_bytes() / MB
    return {
        "restart_s": killed_s,
        "restart_cpu_s": killed_cpu_s,
        "restart_from_snapshot_cpu_s": ended_cpu_s,
        "restart_peak_mb": peak_mb,
    }


def _start(running: Live) -> tuple[float, float]:
    """Seconds, and processor seconds of the server, until it serves."""
    began = time.perf_counter()
    running.start_server()
    return time.perf_counter() - began, cpu_of(running.server.pid)[0]


def finish(want: int, seconds: float) -> dict[str, float]:
    """Megabytes of the log for a million finished tasks, `want` of them in each exchange: as written, and packed."""
    with live() as running:
        with running.client() as client:
            job = client.submit(["true"], params=range(10_000_000))
            empty_bytes = used_bytes(running.state)
            pull(running, hosts=64, seconds=seconds, want=want)
            done = max(1, job.status()["tasks"]["done"])
            written_bytes = used_bytes(running.state) - empty_bytes
        # Two snapshots have to cover what is packed.
        running.stop_server()
        running.start_server()
        running.stop_server()
        pack_all(running.state)
        packed_bytes = used_bytes(running.state) - empty_bytes
    return {
        "log_mb_per_million": written_bytes / done,
        "packed_log_mb_per_million": packed_bytes / done,
        "finished": float(done),
    }


def pack_all(state: Path) -> None:
    """Pack as a server does in the background, at once."""
    store = SqliteStore(state)
    try:
        while store.pack(store.last_seq()):
            pass
    finally:
        store.close()


def used_bytes(state: Path) -> int:
    """The pages of the database that hold something, with everything in it that was committed."""
    database = sqlite3.connect(state / "windfall.db")
    try:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        names = ("page_count", "freelist_count", "page_size")
        pages, free, size = (int(database.execute(f"PRAGMA {name}").fetchone()[0]) for name in names)
    finally:
        database.close()
    return (pages - free) * size
