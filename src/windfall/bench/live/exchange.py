"""`windfall bench exchange`: thousands of simulated workers over real HTTP, on another core than the server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any
from urllib.parse import urlsplit

import click

from windfall.bench.harness import Live, cpu_of, live, report, show


def pull(running: Live, **options: Any) -> dict[str, Any]:
    """Run the simulated workers in a process of their own and return their measurements."""
    address = urlsplit(running.url)
    options |= {"host": address.hostname, "port": address.port, "token": running.token}
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        options["core"] = cores[-1]
    ran = subprocess.run(
        [sys.executable, "-m", "windfall.bench.live.pullers", json.dumps(options)], stdout=subprocess.PIPE, check=True
    )
    seen: dict[str, Any] = json.loads(ran.stdout)
    return seen


@click.command()
@click.option("--hosts", default=25_000, show_default=True, help="Simulated workers.")
@click.option("--seconds", default=10.0, show_default=True, help="How long each of the two parts lasts.")
@click.option("--rate", default=2000.0, show_default=True, help="Exchanges a second of the second part.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(hosts: int, seconds: float, rate: float, as_json: bool) -> None:
    """Exchange as fast as the server answers, then at a given rate for its latency.

    Example: windfall bench exchange --hosts 25000 --seconds 10 --json
    """
    with live() as running:
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) > 1:
            os.sched_setaffinity(running.server.pid, {cores[0]})
        client = running.client()
        client.submit(["true"], params=range(2_000_000))
        show("every host joins")
        pull(running, hosts=hosts, seconds=0, want=0, once=True)
        show("as fast as it goes")
        began_s = server_cpu_s(running)
        fast = pull(running, hosts=hosts, seconds=seconds, want=1)
        exchange_us = 1e6 * (server_cpu_s(running) - began_s) / fast["exchanges"]
        show(f"{rate:,.0f} a second")
        steady = pull(running, hosts=hosts, seconds=seconds, want=1, rate=rate)
        show("")
        began_s = server_cpu_s(running)
        floor = floor_rate(running, seconds / 2)
        request_us = 1e6 * (server_cpu_s(running) - began_s) / (floor * seconds / 2)
        document = {
            "bench": "exchange",
            "hosts": hosts,
            "exchanges_per_s": fast["exchanges"] / fast["seconds"],
            "tasks_per_s": fast["tasks"] / fast["seconds"],
            "p99_ms_at_full_speed": fast["p99_ms"],
            "rate_asked": rate,
            "rate_kept": steady["exchanges"] / steady["seconds"],
            "p50_ms": steady["p50_ms"],
            "p99_ms": steady["p99_ms"],
            "floor_requests_per_s": floor,
            "floor_is": "GET /healthz of the same server",
            "ratio": fast["exchanges"] / fast["seconds"] / floor,
            "server_us_per_exchange": exchange_us,
            "server_us_per_request": request_us,
            "cpu_ratio": request_us / max(exchange_us, 1e-9),
            "server_mb": running.resident_bytes() / 1e6,
            "goal": "2,000 exchanges/s at p99 <= 50 ms",
        }
        client.close()
    report(document, as_json)


def server_cpu_s(running: Live) -> float:
    """Processor time of the server so far: on a busy machine it says more than the clock."""
    return sum(cpu_of(running.server.pid))


def floor_rate(running: Live, seconds: float) -> float:
    """Requests a second that the same server answers without deciding or writing anything."""
    import asyncio
    import time

    address = urlsplit(running.url)
    request = f"GET /healthz HTTP/1.1\r\nHost: {address.hostname}\r\n\r\n".encode()

    async def ask() -> int:
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        count, end = 0, time.perf_counter() + seconds
        while not count or time.perf_counter() < end:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(int(x[15:]) for x in head.lower().split(b"\r\n") if x.startswith(b"content-length:"))
            await reader.readexactly(length)
            count += 1
        writer.close()
        return count

    async def all_() -> int:
        return sum(await asyncio.gather(*(ask() for _ in range(16))))

    return asyncio.run(all_()) / seconds
