"""What a table of results needs beside the results: each task's command, and what its attempts used. Reads only."""

from __future__ import annotations

import asyncio
import shlex
from typing import Any

from starlette.requests import Request

from windfall.api.small import Rows
from windfall.bags.rendering import Renderer
from windfall.core.events import ResultsReported
from windfall.core.records import decode_record
from windfall.server.queries.jobs import MAX_ROWS, whole
from windfall.server.service import Service
from windfall.store.contract import StoreError

Json = dict[str, Any]
_LOG_ROWS = 2000


async def commands(service: Service, request: Request) -> tuple[int, Rows]:
    """`[task, command, parameters]` of every task from `after` on; `next` is where to go on, null at the end."""
    bag = service.bag(request.path_params["job"])
    first = whole(request, "after", 0)
    end = min(bag.total, first + whole(request, "limit", 1000, MAX_ROWS))
    renderer = service.renderer(bag.number)
    rows = [[task, *_command(renderer, task, bag.columns.attempt[task] or 1)] for task in range(first, end)]
    return 200, {"rows": rows, "next": end if end < bag.total else None}


def _command(renderer: Renderer, task: int, attempt: int) -> tuple[str, str | dict[str, str] | None]:
    try:
        parameters = renderer.parameters(task)
        if isinstance(parameters, str) and not renderer.spec.command:
            return parameters, None  # a line of a list of commands is the command, as it was written
        return shlex.join(renderer.task(task, attempt).argv or ()), parameters
    except StoreError:
        raise
    except Exception:  # as where it is handed out, and told: whatever keeps a task from being rendered
        return "", None


async def usage(service: Service, request: Request) -> tuple[int, Rows]:
    """`[task, attempt, cpu_s, rss_bytes]` of reported attempts, in pages of the log behind record `after`."""
    bag = service.bag(request.path_params["job"])
    rows, following = await asyncio.to_thread(_used, service, bag.number, whole(request, "after", 0))
    return 200, {"rows": rows, "next": following}


def _used(service: Service, job: int, after: int) -> tuple[list[list[Any]], int | None]:
    found: list[list[Any]] = []
    page = service.store.records(after, _LOG_ROWS, None, ("ResultsReported",))
    for row in page:
        event = decode_record(row.data).event
        assert isinstance(event, ResultsReported)
        found += [
            [result.task, result.attempt, result.cpu_s, result.rss_bytes]
            for result in event.results
            if result.job == job
        ]
    return found, page[-1].seq if len(page) == _LOG_ROWS else None
