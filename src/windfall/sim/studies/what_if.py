"""What deadlines cost, simulated in a process of its own: a question on standard input, forecasts on standard output.

The server runs it for the console, so that its event loop does not wait: `python -m windfall.sim.studies.what_if`.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import msgspec
from msgspec import Struct

from windfall.sim.studies.forecast import Forecast, Question, earliest_s, simulated
from windfall.sim.studies.fronts import Row, Variant, front
from windfall.sim.studies.smaller import bundled, sampled

Json = dict[str, Any]
LEAST_RUNS = 3
"""Runs of each deadline, however long they take."""


class Asked(Struct):
    """The question, under which deadlines, with at most how many runs each, and for how many seconds."""

    question: Question
    deadlines_s: list[float]
    runs: int = 8
    for_s: float = 15.0
    first_seed: int = 1


def answer(asked: Asked) -> Json:
    """`earliest_s` (null: some task fits on no machine), and one forecast for each deadline that is possible."""
    soonest_s = earliest_s(asked.question)
    possible = [deadline_s for deadline_s in asked.deadlines_s if deadline_s >= soonest_s]
    found: dict[float, list[Any]] = {}
    size = 1
    if possible:
        question, size = bundled(asked.question, min(possible))
        question = sampled(question)
        until = time.monotonic() + asked.for_s
        for number in range(asked.runs):
            for deadline_s, run in simulated(question, [(each, asked.first_seed + number) for each in possible], None):
                found.setdefault(deadline_s, []).append(run)
            if number + 1 >= LEAST_RUNS and time.monotonic() >= until:
                break
    made = {
        Variant(deadline_s, asked.question.confidence): Forecast(deadline_s, tuple(found[deadline_s]))
        if deadline_s in found
        else None
        for deadline_s in asked.deadlines_s
    }
    return {
        "earliest_s": soonest_s if soonest_s != float("inf") else None,
        "bundle": size,
        "deadlines": [_row(row) for row in front(made)],
    }


def _row(row: Row) -> Json:
    made, deadline_s = row.made, row.variant.deadline_s
    if made is None:
        return {"deadline_s": deadline_s, "possible": False}
    finish = made.finish_s
    return {
        "deadline_s": deadline_s,
        "possible": True,
        "cost_usd": made.cost_usd.told(),
        "finish_s": None if finish is None else finish.told(),
        "holds": made.holds,
        "met": made.met,
        "runs": len(made.runs),
        "machines": made.most_at_once(),
        "planned_for_s": row.planned_for.deadline_s,
    }


if __name__ == "__main__":
    told = answer(msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Asked))
    sys.stdout.buffer.write(msgspec.json.encode(told))
