"""What other deadlines would cost, for a job that runs or for one that is not submitted. Touches a process of its own.

The planner and the simulator answer, as for `windfall plan`; nothing here decides.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request

from windfall.api.answers import Picture
from windfall.api.asking import Forecasts, Unfinished, WhatIf
from windfall.bounds import Name, Seconds
from windfall.errors import BadInput
from windfall.figures.front import FrontPoint, front_picture
from windfall.server.http.bodies import typed_body
from windfall.server.http.problems import TooSlow
from windfall.server.queries.renting.asking import asked_process
from windfall.server.queries.renting.money import free_slots, left_of, offers_told
from windfall.server.service import Service

FACTORS = (0.5, 0.75, 1.0, 1.5, 2.0)
MOST_SIMULATED = 100_000


class WhatIfBody(Struct):
    """`POST /v1/what-if`: of a job (`job`), or of one that is not submitted (`tasks`, `estimate_s`, `pool`)."""

    job: Name = ""
    tasks: Annotated[int, Meta(ge=0, le=MOST_SIMULATED)] = 0
    estimate_s: Seconds | None = None
    pool: Name = ""
    deadlines_s: Annotated[list[Seconds], Meta(max_length=8)] = []
    budget_usd: Annotated[float, Meta(ge=0, le=1e9)] | None = None
    whole: bool = False
    """The job from its start, as if it were submitted now; otherwise what is left of it."""


async def what_if(service: Service, request: Request) -> tuple[int, WhatIf]:
    body = await typed_body(request, WhatIfBody)
    asked, name, own_s = _question(service, body)
    if service.simulating.locked():
        raise TooSlow("another simulation runs for this console", hint="try again in some seconds")
    async with service.simulating:
        told: Forecasts = await asked_process("windfall.sim.studies.what_if", msgspec.msgpack.encode(asked))
    return 200, {"name": name, "deadline_s": own_s, **told, "picture": _picture(told, own_s)}


def _question(service: Service, body: WhatIfBody) -> tuple[Any, str, float | None]:
    from windfall.sim.studies.left import from_the_start, offers_in, question_left
    from windfall.sim.studies.what_if import Asked

    left = left_of(service, service.bag(body.job)) if body.job else _new(service, body)
    left = from_the_start(left) if body.whole else left
    if not left["offers"]:
        raise BadInput("nothing can be rented for it", hint="a server with --pools pools.toml offers machines")
    tasks = sum(each["tasks"] for each in left["classes"])
    if tasks > MOST_SIMULATED:
        raise BadInput(
            f"{tasks:,} tasks take too long to simulate here", hint="windfall plan JOB --what-if deadline=..."
        )
    own_s = left["deadline_in_s"]
    own_s = own_s if own_s is not None and own_s > 0 else None
    deadlines_s = list(body.deadlines_s) or [factor * own_s for factor in FACTORS if own_s]
    if not deadlines_s:
        raise BadInput("a plan needs a deadline", hint="name some, as in 1h, 2h, 4h")
    question = question_left(left, offers_in(left), guess_s=body.estimate_s, budget_usd=body.budget_usd)
    return Asked(question, sorted(set(deadlines_s))), left["name"], own_s


def _new(service: Service, body: WhatIfBody) -> Unfinished:
    """A job that is not submitted, as `left_of` tells of one that is."""
    if not body.tasks or not body.estimate_s:
        raise BadInput("how many tasks, and how long does one take?", hint='as in: {"tasks": 100, "estimate_s": 300}')
    pools = [body.pool] if body.pool else list(service.state.fleet.offers)
    return {
        "job": 0, "name": "a new job", "state": "", "spent_usd": 0.0, "of_server": {},
        "workflow": False, "planner": "", "confidence": 0.95, "deadline_in_s": None,
        "deadline_s": None, "budget_usd": None, "budget_left_usd": None, "machines": 0, "graph": None,
        "free_slots": free_slots(service.state),
        "classes": [
            {"tasks": body.tasks, "estimate_s": body.estimate_s, "run_times_s": [], "memory_bytes": 0, "cpus": 1,
             "resources": {}, "of_server": {}, "of": body.tasks, "spread": None}
        ],
        "offers": offers_told(service, pools),
    }  # fmt: skip


def _picture(told: Forecasts, own_s: float | None) -> Picture | None:
    rows = [row for row in told["deadlines"] if row["possible"]]
    if not rows:
        return None
    points = [
        FrontPoint(
            row["deadline_s"], row["cost_usd"]["mean"], row["cost_usd"]["low"], row["cost_usd"]["high"], row["met"],
            row["runs"],
        )
        for row in rows
    ]  # fmt: skip
    return front_picture(points, told["earliest_s"] or 0.0, own_s)
