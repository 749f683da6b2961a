"""Plans as they were made: what they looked at, chose, rejected and predicted, beside what came of it. Reads only."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from windfall.api.renting import Decision, Decisions, Outcome, PastPlan
from windfall.bounds import MAX_INTEGER
from windfall.core.explain import plan as explain_plan
from windfall.server.queries.jobs import whole
from windfall.server.queries.renting.past_plans import newest_plans
from windfall.server.service import Service

MOST = 200
MOST_LOOKED_THROUGH = 500_000
"""Records that one page of decisions is searched in: a page may hold fewer plans than were asked for."""


async def decisions(service: Service, request: Request) -> tuple[int, Decisions]:
    """The newest plans first, of one job or of all; `acted=1` leaves out those that changed nothing.

    `before` continues where a page ended (`next`); null there: there are no older ones.
    """
    reference = request.query_params.get("job")
    job = service.state.fleet.serving(service.bag(reference).number) if reference else None
    limit = max(1, whole(request, "limit", 50, MOST))
    before = whole(request, "before", MAX_INTEGER)
    acted = request.query_params.get("acted") == "1"
    await service.driver.settled()
    found: list[PastPlan] = []
    next_: int | None = None
    if service.state.fleet.plans:
        found, next_ = await asyncio.to_thread(newest_plans, service, job, limit, acted, before, MOST_LOOKED_THROUGH)
    jobs = {row["job"] for row in found if row["job"] is not None and row["job"] in service.state.bags}
    rows: list[Decision] = [{**row, "moved": len(row["moved"])} for row in found]
    outcomes = {str(number): _outcome(service, number) for number in sorted(jobs)}
    return 200, {"decisions": rows, "next": next_, "jobs": outcomes}


def _outcome(service: Service, number: int) -> Outcome:
    """What the first plan predicted and what is known now."""
    bag = service.state.bags[number]
    money: Mapping[str, Any] = explain_plan.money_of(service.state, bag, service.driver.clock()) or {}
    plan: Mapping[str, Any] = explain_plan.plan_of(service.state, bag) or {}
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
