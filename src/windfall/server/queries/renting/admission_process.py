"""The process that lays out one more job of a fleet: a question on standard input, the answer as JSON. Touches both."""

from __future__ import annotations

import math
import sys
from typing import Any

import msgspec
from msgspec import Struct

from windfall.bags.outline import Outline
from windfall.planning.contract import Snapshot, Task
from windfall.planning.estimates import GUESSED, RECORDED, Estimates, Record
from windfall.planning.fleet.admission import NewJob, Verdict, judge
from windfall.planning.fleet.streams import StreamPrice, price_stream
from windfall.planning.offers import GIB

Json = dict[str, Any]


class Asked(Struct):
    """`learned`: by class of tasks, run times at speed 1 that jobs before it have had."""

    snapshot: Snapshot
    outline: Outline
    confidence: float = 0.95
    learned: dict[str, list[float]] = {}
    of_server: list[str] = []
    """Resources of the whole server: machines do not have them."""


def answer(asked: Asked) -> Json:
    """`verdict` on this job, and `stream` if the question is about one such job every `every_s` seconds."""
    new = new_job(asked)
    told: Json = {"verdict": told_of(judge(asked.snapshot, new)), "stream": None}
    every_s = asked.outline.every_s
    if every_s is not None:
        price = price_stream(asked.snapshot, new, 3600.0 / every_s)
        told["stream"] = {"in_time": False} if price is None else {"in_time": True, **_told_stream(price)}
    return told


def told_of(verdict: Verdict) -> Json:
    told = {key: value for key, value in msgspec.structs.asdict(verdict).items() if key != "without_limits"}
    free = verdict.without_limits
    told["finish_s"] = None if math.isinf(verdict.finish_s) else verdict.finish_s
    told["without_limits_usd"] = None if free is None else free.extra_usd
    told["holds"] = verdict.holds
    return told


def _told_stream(price: StreamPrice) -> Json:
    return {**msgspec.structs.asdict(price), "each_usd": price.each_usd}


def new_job(asked: Asked) -> NewJob:
    """The job with run times at the quantile that its confidence demands, as its planner will be shown it."""
    quantiles = _quantiles(asked)
    tasks: list[Task] = []
    for group in asked.outline.tasks:
        runtime_s = max(1e-6, quantiles[group.task_class] * group.seconds)
        resources = tuple(sorted((name, n) for name, n in group.resources.items() if name not in asked.of_server))
        cores = max(1, math.ceil(group.cpus))
        first = len(tasks)
        tasks += [
            Task(first + place, runtime_s, group.memory_bytes / GIB, group.task_class, cores=cores, resources=resources)
            for place in range(group.count)
        ]
    after = {task: tuple(sorted(set(parents))) for task, parents in asked.outline.after.items() if parents}
    return NewJob(tuple(tasks), after, asked.outline.deadline_s, asked.outline.owner)


def _quantiles(asked: Asked) -> dict[str, float]:
    """By class, the factor on an estimate: what the guess of a person is usually off by, or what was learned."""
    found = {}
    for name in {group.task_class: None for group in asked.outline.tasks}:
        prior = RECORDED if asked.outline.recorded else GUESSED
        seconds = asked.learned.get(name, [])
        mean_s = _mean_s(asked.outline, name)
        record = Record(seconds, len(seconds), 1.0 if asked.outline.recorded else mean_s, prior)
        estimates = Estimates({name: record}, guess_is_mean=True)
        quantile = estimates.quantile_of_each(name, asked.confidence, asked.outline.count)
        unit_s = 1.0 if asked.outline.recorded else mean_s
        found[name] = (estimates.quantile(name, quantile) or unit_s) / unit_s
    return found


def _mean_s(outline: Outline, name: str) -> float:
    groups = [group for group in outline.tasks if group.task_class == name]
    return max(1e-6, sum(group.seconds * group.count for group in groups) / sum(group.count for group in groups))


if __name__ == "__main__":
    told = answer(msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Asked))
    sys.stdout.buffer.write(msgspec.json.encode(told))
