"""Plans as they were made: what they looked at, chose, rejected and predicted, beside what came of it. Reads only."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from starlette.requests import Request

from windfall.core.decisions import PlanTaken
from windfall.core.events import PlanProposed
from windfall.core.explain import plan as explain_plan
from windfall.core.records import decode_record
from windfall.core.renting.fleets import name_of
from windfall.server.queries.jobs import whole
from windfall.server.service import Service

Json = dict[str, Any]
MOST = 200
_PAGE = 2000


async def decisions(service: Service, request: Request) -> tuple[int, Json]:
    """The newest plans first, of one job or of all; `acted=1` leaves out those that changed nothing."""
    reference = request.query_params.get("job")
    job = service.state.fleet.serving(service.bag(reference).number) if reference else None
    limit = max(1, whole(request, "limit", 50, MOST))
    acted = request.query_params.get("acted") == "1"
    await service.driver.settled()
    found = await asyncio.to_thread(_plans, service, job, limit, acted) if service.state.fleet.plans else []
    jobs = {row["job"] for row in found if row["job"] is not None}
    return 200, {"decisions": found, "jobs": {str(number): _outcome(service, number) for number in sorted(jobs)}}


def _plans(service: Service, job: int | None, limit: int, acted: bool) -> list[Json]:
    found: deque[Json] = deque(maxlen=limit)
    after = 0
    while rows := service.store.records(after, _PAGE, job, ("PlanProposed",)):
        for row in rows:
            record = decode_record(row.data)
            event, taken = record.event, record.decided
            if isinstance(event, PlanProposed) and isinstance(taken, PlanTaken):
                told = explain_plan.told(event, taken)
                told["moved"] = len(told["moved"])
                if not acted or told["started"] or told["stopped"] or told["moved"] or told["refused"]:
                    fleet = name_of(service.state, event.job)
                    found.append({"seq": row.seq, "job": None if fleet else event.job, "fleet": fleet, **told})
        after = rows[-1].seq
    return list(found)[::-1]


def _outcome(service: Service, number: int) -> Json:
    """What the first plan predicted and what is known now."""
    bag = service.state.bags[number]
    money = explain_plan.money_of(service.state, bag, service.driver.clock()) or {}
    plan = explain_plan.plan_of(service.state, bag) or {}
    return {
        "name": bag.rules.name,
        "state": bag.state,
        "planner": plan.get("planner", ""),
        "deadline_s": None if bag.rules.deadline_s is None else bag.submitted_t + bag.rules.deadline_s,
        "finished_s": bag.finished_t,
        "spent_usd": money.get("spent_usd"),
        "first_forecast_usd": money.get("first_forecast_usd"),
        "first_finish_s": plan.get("first_finish_s"),
        "finish_s": plan.get("finish_s"),
    }
