"""`windfall bench boinc`: simulated BOINC clients over real HTTP, on another core than the server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from urllib.parse import urlsplit

import click

from windfall.bench.harness import live, report, show

GRIDBOT_PER_S = 18.0
"""Scheduler requests a second that GridBot's server took from its volunteers."""
ACCOUNTS = 100


@click.command()
@click.option("--hosts", default=10_000, show_default=True, help="Simulated volunteers.")
@click.option("--seconds", default=10.0, show_default=True, help="How long is measured, after all have joined.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(hosts: int, seconds: float, as_json: bool) -> None:
    """Scheduler requests that volunteers' clients get answered: each reports a result and asks for more.

    Every result is uploaded first, in a request of its own that is not counted; the server's processor time of both is.

    Example: windfall bench boinc --hosts 10000 --seconds 10 --json
    """
    with live() as running:
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) > 1:
            os.sched_setaffinity(running.server.pid, {cores[0]})
        client, address = running.client(), urlsplit(running.url)
        client.add_pools([{"name": "boinc", "kind": "boinc", "limit": 100_000, "url": f"{running.url}/grid/"}])
        keys = [client.tell_front("boinc", "add-account", name=f"v{n}")["key"] for n in range(ACCOUNTS)]
        client.submit(["true"], params=range(1_000_000), quorum=1, estimate="1h")
        show("every volunteer joins, then as fast as it goes")
        options = {
            "host": address.hostname, "port": address.port, "path": "/grid/", "keys": keys, "hosts": hosts,
            "seconds": seconds, "core": cores[-1] if len(cores) > 1 else None, "server": running.server.pid,
        }  # fmt: skip
        ran = subprocess.run(
            [sys.executable, "-m", "windfall.bench.live.volunteers", json.dumps(options)],
            stdout=subprocess.PIPE, check=True, process_group=0,
        )  # fmt: skip
        show("")
        seen = json.loads(ran.stdout)
        per_s = seen["requests"] / seen["seconds"]
        document = {
            "bench": "boinc",
            "hosts": hosts,
            "requests_per_s": per_s,
            "uploads_per_s": seen["uploads"] / seen["seconds"],
            "workunits_per_s": seen["workunits"] / seen["seconds"],
            "joined_per_s": hosts / seen["joined_s"],
            "server_cpu_ms_per_request": 1e3 * seen["server_cpu_s"] / max(1, seen["requests"]),
            "p50_ms": seen["p50_ms"],
            "p99_ms": seen["p99_ms"],
            "server_mb": running.resident_bytes() / 1e6,
            "floor_requests_per_s": GRIDBOT_PER_S,
            "floor_is": "scheduler requests a second of GridBot's server",
            "ratio": per_s / GRIDBOT_PER_S,
        }
        client.close()
    report(document, as_json)
