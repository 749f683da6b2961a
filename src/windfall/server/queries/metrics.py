"""`GET /metrics`: the server's figures as Prometheus text. Reads the state only."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from windfall.core.state.jobs.columns import STATE_NAMES
from windfall.server.service import Service


async def metrics(service: Service, request: Request) -> Response:
    state = service.state
    totals = [0] * len(STATE_NAMES)
    for bag in state.bags.values():
        for index, count in enumerate(bag.counts):
            totals[index] += count
    lines = ["# TYPE windfall_tasks gauge"]
    lines += [f'windfall_tasks{{state="{name}"}} {count}' for name, count in zip(STATE_NAMES, totals, strict=True)]
    gauges = {
        "windfall_jobs": len(state.bags),
        "windfall_hosts_live": len(state.hosts.live),
        "windfall_hosts_unknown": len(state.hosts.unknown),
        "windfall_slots_live": state.hosts.live_slots,
        "windfall_attempts": sum(bag.tally.attempts for bag in state.bags.values()),
        "windfall_log_records": state.seq,
        "windfall_store_in_trouble": int(bool(service.driver.trouble)),
    }
    for name, value in gauges.items():
        lines += [f"# TYPE {name} gauge", f"{name} {value}"]
    return Response("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")
