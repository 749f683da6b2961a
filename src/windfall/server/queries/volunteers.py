"""Volunteers and their credit. A name is told only of somebody who agreed to that. Reads only."""

from __future__ import annotations

from starlette.requests import Request

from windfall.api.about import Volunteer, Volunteers, Work
from windfall.server.service import Service

MOST = 200


async def volunteers(service: Service, request: Request) -> tuple[int, Volunteers]:
    """Volunteers with the most credit first, at most 200, and sums over all of them."""
    rows: list[Volunteer] = [
        {"pool": front.pool, **row} for front in service.fronts.values() for row in front.volunteers()
    ]
    rows.sort(key=lambda row: (-row["credit"], row["pool"], row["account"]))
    sums: Work = {
        "hosts": sum(row["hosts"] for row in rows),
        "done": sum(row["done"] for row in rows),
        "credit": sum(row["credit"] for row in rows),
    }
    return 200, {"volunteers": rows[:MOST], "total": len(rows), "sums": sums, "fronts": len(service.fronts)}
