"""Plans of the log, read from the newest back. Reads the store; decides nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator

from windfall.api.renting import PastPlan
from windfall.core.decisions import PlanTaken
from windfall.core.events import PlanProposed
from windfall.core.explain import plan as explain_plan
from windfall.core.records import decode_record
from windfall.core.renting.fleets import name_of
from windfall.server.service import Service
from windfall.store.contract import Record

PAGE = 500
FIRST_WINDOW = 5_000
"""Records that are looked through first; each further window is twice as long."""


def newest_plans(
    service: Service, job: int | None, limit: int, acted: bool, before: float = math.inf, most: float = math.inf
) -> tuple[list[PastPlan], int | None]:
    """Up to `limit` plans below record `before`, the newest first, and where the next page begins.

    `most`: how many records are looked through for them.
    """
    found: list[PastPlan] = []
    upper = int(min(service.store.last_seq() + 1, before))
    lowest, width = max(1.0, upper - most), FIRST_WINDOW
    while upper > lowest:
        lower = int(max(lowest, upper - width))
        for row in reversed(list(_plan_records(service, job, lower, upper))):
            told = _told(service, row)
            if told is None or (acted and not (told["started"] or told["stopped"] or told["moved"] or told["refused"])):
                continue
            found.append(told)
            if len(found) == limit:
                return found, row.seq if row.seq > 1 else None
        upper, width = lower, 2 * width
    return found, int(lowest) if lowest > 1 else None


def _plan_records(service: Service, job: int | None, lower: int, upper: int) -> Iterator[Record]:
    """Records of plans with numbers from `lower` on and below `upper`, in order."""
    after = lower - 1
    while rows := service.store.records(after, PAGE, job, ("PlanProposed",), upper - 1):
        yield from rows
        after = rows[-1].seq


def _told(service: Service, row: Record) -> PastPlan | None:
    record = decode_record(row.data)
    event, taken = record.event, record.decided
    if not isinstance(event, PlanProposed) or not isinstance(taken, PlanTaken):
        return None
    told = explain_plan.told(event, taken)
    fleet = name_of(service.state, event.job)
    return {"seq": row.seq, "job": None if fleet else event.job, "fleet": fleet, **told}
