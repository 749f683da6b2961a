"""Volunteers and their credit. A name is told only of somebody who agreed to that. Reads only."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from windfall.server.service import Service

Json = dict[str, Any]
MOST = 200


async def volunteers(service: Service, request: Request) -> tuple[int, Json]:
    """Volunteers with the most credit first, at most 200, and sums over all of them."""
    rows = [{"pool": front.pool, **row} for front in service.fronts.values() for row in front.volunteers()]
    rows.sort(key=lambda row: (-row["credit"], row["pool"], row["account"]))
    sums = {key: sum(row[key] for row in rows) for key in ("hosts", "done", "credit")}
    return 200, {"volunteers": rows[:MOST], "total": len(rows), "sums": sums, "fronts": len(service.fronts)}
