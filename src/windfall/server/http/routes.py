"""The table of routes. A handler is named here and loaded when it is first asked for. Touches nothing.

Most servers live for one command and are asked three things: loading all handlers takes longer than answering.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from windfall.loading import loading
from windfall.server.service import Service

Answer = Response | tuple[int, Mapping[str, Any]]
Handler = Callable[[Service, Request], Awaitable[Answer]]
METRICS, PUT_BLOB = "queries.metrics.metrics", "http.blobs.put"

# path, method, handler (its module below windfall.server, and its name), role ("" for none), does it write
ROUTES: list[tuple[str, str, str, str, bool]] = [
    ("/", "GET", "http.console.pages.page", "", False),
    ("/console/{file}", "GET", "http.console.pages.static", "", False),
    ("/v1/console/session", "POST", "http.console.sessions.sign_in", "", False),
    ("/v1/console/session", "GET", "http.console.sessions.session", "", False),
    ("/v1/console/session", "DELETE", "http.console.sessions.sign_out", "", False),
    ("/v1/console/links", "POST", "http.console.sessions.make_link", "read", False),
    ("/v1/stream", "GET", "http.console.pages.stream", "read", False),
    ("/openapi.json", "GET", "http.openapi.document", "", False),
    ("/healthz", "GET", "http.health.healthz", "", False),
    ("/readyz", "GET", "http.health.readyz", "", False),
    ("/worker.pyz", "GET", "http.health.worker_file", "", False),
    ("/metrics", "GET", "queries.metrics.metrics", "read", False),
    ("/v1/jobs", "POST", "http.submission.submit", "submit", True),
    ("/v1/jobs", "GET", "queries.jobs.jobs", "read", False),
    ("/v1/jobs/{job}", "GET", "queries.jobs.job", "read", False),
    ("/v1/jobs/{job}", "DELETE", "http.submission.forget", "submit", True),
    ("/v1/jobs/{job}/spec", "GET", "queries.jobs.job_spec", "read", False),
    ("/v1/jobs/{job}/parameters", "GET", "queries.jobs.parameters", "read", False),
    ("/v1/jobs/{job}/tasks", "POST", "http.submission.add_tasks", "submit", True),
    ("/v1/jobs/{job}/tasks", "GET", "queries.jobs.tasks", "read", False),
    ("/v1/jobs/{job}/seal", "POST", "http.submission.seal", "submit", True),
    ("/v1/jobs/{job}/cancel", "POST", "http.submission.cancel", "submit", True),
    ("/v1/jobs/{job}/retry", "POST", "http.submission.retry", "submit", True),
    ("/v1/jobs/{job}/change", "POST", "http.submission.change", "submit", True),
    ("/v1/jobs/{job}/groups", "GET", "queries.jobs.groups", "read", False),
    ("/v1/jobs/{job}/results", "GET", "queries.jobs.results", "read", False),
    ("/v1/jobs/{job}/completed", "GET", "queries.jobs.completed", "read", False),
    ("/v1/jobs/{job}/commands", "GET", "queries.table.commands", "read", False),
    ("/v1/jobs/{job}/usage", "GET", "queries.table.usage", "read", False),
    ("/v1/jobs/{job}/output/{task}", "GET", "queries.jobs.output", "read", False),
    ("/v1/jobs/{job}/render/{task}", "GET", "queries.jobs.render", "read", False),
    ("/v1/jobs/{job}/explain", "GET", "queries.jobs.explain", "read", False),
    ("/v1/jobs/{job}/cost", "GET", "queries.renting.money.cost", "read", False),
    ("/v1/jobs/{job}/pools", "GET", "queries.by_pool.pools", "read", False),
    ("/v1/jobs/{job}/pictures", "GET", "queries.pictures.drawn.of_job", "read", False),
    ("/v1/jobs/{job}/unfinished", "GET", "queries.renting.money.unfinished", "read", False),
    ("/v1/jobs/{job}/workflow", "GET", "http.workflows.graph", "read", False),
    ("/v1/classes", "GET", "http.workflows.classes", "read", False),
    ("/v1/classes/{name}", "GET", "http.workflows.one_class", "read", False),
    ("/v1/events", "GET", "queries.jobs.events", "read", False),
    ("/v1/timeouts", "GET", "queries.jobs.learned_timeouts", "read", False),
    ("/v1/hosts", "GET", "queries.jobs.hosts", "read", False),
    ("/v1/hosts/{host}", "GET", "queries.jobs.host", "read", False),
    ("/v1/hosts/{host}/{action}", "POST", "http.admin.host_action", "admin", True),
    ("/v1/pools", "GET", "http.supply.pools.listed", "read", False),
    ("/v1/pools", "POST", "http.supply.pools.add", "admin", True),
    ("/v1/pools/{pool}", "DELETE", "http.supply.pools.remove", "admin", True),
    ("/v1/fleets", "GET", "http.supply.fleets.fleets", "read", False),
    ("/v1/fleets", "POST", "http.supply.fleets.create", "admin", True),
    ("/v1/fleets/{fleet}", "GET", "http.supply.fleets.one", "read", False),
    ("/v1/fleets/{fleet}", "DELETE", "http.supply.fleets.delete", "admin", True),
    ("/v1/fleets/{fleet}/cost", "GET", "http.supply.fleets.cost", "read", False),
    ("/v1/fleets/{fleet}/admission", "POST", "queries.renting.admission.ask", "submit", False),
    ("/v1/fleets/{fleet}/change", "POST", "http.supply.fleets.change", "admin", True),
    ("/v1/fleets/{fleet}/{action}", "POST", "http.supply.fleets.switch", "admin", True),
    ("/v1/machines", "GET", "http.supply.machines.machines", "read", False),
    ("/v1/machines/pictures", "GET", "queries.pictures.drawn.of_machines", "read", False),
    ("/v1/market", "GET", "http.supply.market.show", "read", False),
    ("/v1/market", "POST", "http.supply.market.import_", "admin", True),
    ("/v1/bills", "GET", "queries.renting.bills.bills", "read", False),
    ("/v1/system", "GET", "queries.system.system", "read", False),
    ("/v1/volunteers", "GET", "queries.volunteers.volunteers", "read", False),
    ("/v1/decisions", "GET", "queries.renting.decisions.decisions", "read", False),
    ("/v1/policies/test", "POST", "queries.trying.test", "read", False),
    ("/v1/what-if", "POST", "queries.renting.what_if.what_if", "read", False),
    ("/v1/pools/{pool}/doctor", "POST", "http.supply.doctor.doctor", "admin", True),
    ("/v1/pools/{pool}/front/{what}", "POST", "http.supply.pools.front", "admin", True),
    ("/v1/pools/{pool}/{action}", "POST", "http.supply.pools.switch", "admin", True),
    ("/v1/pools/{pool}/machines/{machine}/{what}", "POST", "http.supply.machines.poke", "admin", True),
    ("/v1/sites", "POST", "sites.api.create", "admin", True),
    ("/v1/sites", "GET", "sites.api.sites", "read", False),
    ("/v1/sites/{site}", "GET", "sites.api.one_site", "read", False),
    ("/v1/sites/{site}/change", "POST", "sites.api.change", "admin", True),
    ("/v1/site/exchange", "POST", "sites.exchange.exchange", "site", True),
    ("/v1/site/requests", "POST", "sites.api.ask", "submit", True),
    ("/v1/site/requests", "GET", "sites.api.requests", "read", False),
    ("/v1/site/requests/{request}", "GET", "sites.api.one_request", "read", False),
    ("/v1/site/requests/{request}/cancel", "POST", "sites.api.cancel", "submit", True),
    ("/v1/site/requests/{request}/output", "GET", "sites.api.output", "read", False),
    ("/v1/tokens", "POST", "http.admin.create_token", "admin", True),
    ("/v1/tokens", "GET", "http.admin.list_tokens", "admin", False),
    ("/v1/tokens/{id}", "DELETE", "http.admin.revoke_token", "admin", True),
    ("/v1/tokens/{id}/rotate", "POST", "http.admin.rotate_token", "admin", True),
    ("/v1/blobs/{sha}", "HEAD", "http.blobs.head", "blobs", False),
    ("/v1/blobs/{sha}", "GET", "http.blobs.get", "blobs", False),
    ("/v1/blobs/{sha}", "PUT", "http.blobs.put", "blobs", True),
]


@cache
def handler_of(name: str) -> Handler:
    """The handler that a row names."""
    module, _, function = name.rpartition(".")
    with loading():
        found: Handler = getattr(importlib.import_module(f"windfall.server.{module}"), function)
    return found


class Route:
    """A row of the table, ready to be compared with paths."""

    def __init__(self, path: str, method: str, handler: str, role: str, writes: bool) -> None:
        self.path, self.method, self.handler, self.role, self.writes = path, method, handler, role, writes
        parts = path.split("/")
        self.fixed = [(at, part) for at, part in enumerate(parts) if not part.startswith("{")]
        self.named = [(at, part[1:-1]) for at, part in enumerate(parts) if part.startswith("{")]
        self.length = len(parts)

    def matches(self, parts: list[str]) -> bool:
        return all(parts[at] == part for at, part in self.fixed) and all(parts[at] for at, _ in self.named)


@cache
def routes_by_length() -> dict[int, list[Route]]:
    """The table, by the number of parts of a path."""
    found: dict[int, list[Route]] = {}
    for row in ROUTES:
        route = Route(*row)
        found.setdefault(route.length, []).append(route)
    return found


class Router:
    """Finds the route of a request: the first row of the table whose path and method fit."""

    def __init__(self) -> None:
        self._by_length = routes_by_length()

    def find(self, method: str, path: str) -> tuple[Route | None, dict[str, str], bool]:
        """The route, the values of its placeholders, and whether there is anything at this path."""
        parts = path.split("/")
        fitting = [route for route in self._by_length.get(len(parts), ()) if route.matches(parts)]
        for wanted in (method, "GET") if method == "HEAD" else (method,):
            for route in fitting:
                if route.method == wanted:
                    return route, {name: parts[at] for at, name in route.named}, True
        return None, {}, bool(fitting)
