"""Calibration over random worlds: each is forecast once and run once, and the promises are held against what happened.

Pure but for the executor. Worlds differ in tasks, run times, billing, interruptions and what is told of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, as_completed
from math import ceil, exp, log, sqrt

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from windfall.core.events import PlanProposed
from windfall.core.records import Record
from windfall.planning.contract import ONDEMAND, SPOT
from windfall.planning.offers import Offer
from windfall.planning.registry import PLANNERS
from windfall.sim.studies.forecast import Forecast, Question, earliest_s, run_once, scenario, supply_of
from windfall.sim.studies.forecast import Run as SimulatedRun
from windfall.sim.studies.one_bag import outcome_of
from windfall.sim.world import World

TOLD, NOT_TOLD, WRONG = "as told", "rates not told", "told wrong"
GROUPS = (TOLD, NOT_TOLD, WRONG)
"""In the last, the truth differs from what was told: interruptions are three times as frequent, or as rare, and free
hosts leave."""
BAG, WORKFLOW = "bag", "workflow"
HELPED, WORKFLOWS, LAYERS = 1 / 5, 1 / 4, (2, 4)
"""Shares of the worlds that have free hosts and of those that are workflows, and how many layers these have."""
TRUE_SEED = 5_000_011
WRONG_BY = 3.0
GUESSED_SPREAD = 0.35
TENTH = 10


class RandomWorld(Struct, frozen=True):
    """What is told, what is true, and by when."""

    number: int
    group: str
    told: Question
    truth: Question
    deadline_s: float

    @property
    def kind(self) -> str:
        return WORKFLOW if self.told.edges else BAG


class WorldResult(Struct, frozen=True):
    """One world: what was said, and what happened. `first` and `tenth`: predicted cost over the true one."""

    number: int
    group: str
    confidence: float
    said: float
    named: float
    met: bool
    cost_inside: bool
    finish_inside: bool
    interval: float
    first: float | None
    tenth: float | None
    kind: str = BAG


class GroupResult(Struct, frozen=True):
    """All worlds of one group. `error`: one standard error of the number in time."""

    group: str
    worlds: int
    met: int
    named: float
    error: float
    cost_inside: int
    finish_inside: int
    interval: float
    first: float | None
    tenth: float | None

    @property
    def is_kept(self) -> bool:
        """Whether as many were in time as named, within two standard errors."""
        return self.met >= self.named - 2.0 * self.error


def world_of(number: int) -> RandomWorld:
    """A random world; the same for the same number."""
    chance = np.random.default_rng(number)

    def one(values: Sequence[float]) -> float:
        return float(values[int(chance.integers(len(values)))])

    def between(low: float, high: float) -> float:
        return exp(float(chance.uniform(log(low), log(high))))

    group = GROUPS[int(chance.integers(len(GROUPS)))]
    tasks, seconds = int(one((10, 20, 40))), between(120.0, 1200.0)
    cycle_s, lag_s = one((1.0, 900.0, 3600.0)), one((20.0, 60.0, 180.0))
    sure = Offer(
        name="sure", price_usd=0.2 * cycle_s / 3600, cores=int(one((1, 2))), cycle_s=cycle_s, lag_s=lag_s,
        market=ONDEMAND, limit=tasks, minimum_s=60.0,
    )  # fmt: skip
    rate, resumes = between(0.2, 6.0), between(1.0, 10.0)
    way = ("terminate", "stop", "hibernate")[int(chance.integers(3))]
    told_rate = rate * one((1 / WRONG_BY, WRONG_BY)) if group == WRONG else rate
    spot = replace(
        sure, name="spot", market=SPOT, price_usd=0.3 * sure.price_usd, when_taken=way,
        interruptions_per_h=None if group == NOT_TOLD else told_rate,
        resumes_per_h=None if group == NOT_TOLD else resumes,
    )  # fmt: skip
    spread, is_known = one((0.0, 0.3, 0.5, 1.0)), bool(chance.integers(2))
    told = Question(
        estimates_s=(seconds,) * tasks, memory_bytes=(0,) * tasks, planner="windfall",
        spread=spread if is_known else GUESSED_SPREAD, spread_is_guessed=not is_known,
        supplies=(supply_of(spot), supply_of(sure)), confidence=one((0.8, 0.95)),
    )  # fmt: skip
    # Drawn apart, so that the numbers of all other worlds stay what they were.
    more = np.random.default_rng([number, 1])
    helped, is_workflow = more.uniform() < HELPED, more.uniform() < WORKFLOWS
    if is_workflow:
        told = _layered(told, LAYERS[int(more.integers(len(LAYERS)))])
    elif helped:
        told = replace(told, free_slots=(2,) * int(more.integers(1, 4)))
    deadline_s = float(ceil(earliest_s(told) * one((1.5, 2.0, 3.0, 6.0))))
    if chance.integers(8) == 0:
        work_h = tasks * seconds / 3600 / sure.cores
        told = replace(told, budget_usd=float(ceil(200.0 * work_h * 0.2 * one((1.0, 3.0))) / 100))
    true_spot = supply_of(replace(spot, interruptions_per_h=rate, resumes_per_h=resumes))
    # Planners are told the offer, the market does what is true.
    truth = replace(
        told, spread=spread, spread_is_guessed=False,
        supplies=(replace(true_spot, offer=spot), told.supplies[1]),
        free_stay_s=deadline_s / 4 if group == WRONG and told.free_slots else None,
    )  # fmt: skip
    return RandomWorld(number, group, told, truth, deadline_s)


def _layered(question: Question, layers: int) -> Question:
    """The same tasks as a workflow of layers: each task waits for two of the layer before."""
    width = question.tasks // layers
    edges = {
        (task - task % width - width + (task + step) % width, task) for task in range(width, width * layers)
        for step in (0, 1)
    }  # fmt: skip
    tasks = width * layers
    return replace(
        question, edges=tuple(sorted(edges)), estimates_s=question.estimates_s[:tasks],
        memory_bytes=question.memory_bytes[:tasks], classes_of=("step",) * tasks, cpus_of=(1,) * tasks,
    )  # fmt: skip


def judge_world(number: int, runs: int) -> bytes:
    """Forecast a world by simulated runs, run it as it truly is, and compare; for use with any executor."""
    world = world_of(number)
    encoded = msgspec.msgpack.encode(world.told)
    done = [
        msgspec.msgpack.decode(run_once(encoded, world.deadline_s, seed), type=SimulatedRun)
        for seed in range(1 + number * 1000, 1 + number * 1000 + runs)
    ]
    made, confidence = Forecast(world.deadline_s, tuple(done)), world.told.confidence
    true_usd, true_s, met, predicted = _true_run(world)
    said = made.met / runs
    inside = made.cost_usd.low - 1e-9 <= true_usd <= made.cost_usd.high + 1e-9
    finish = made.finish_s
    return msgspec.msgpack.encode(
        WorldResult(
            number, world.group, confidence, said, min(confidence, said), met, inside,
            true_s is not None and finish is not None and finish.low - 1e-6 <= true_s <= finish.high + 1e-6,
            made.holds, _ratio(predicted, 1, true_usd), _ratio(predicted, TENTH, true_usd),
            world.kind,
        )
    )  # fmt: skip


def _true_run(world: RandomWorld) -> tuple[float, float | None, bool, list[float]]:
    """Cost, finish, whether in time, and what each plan expected the job to cost."""
    predicted: list[float] = []

    def keep(record: Record) -> None:
        if isinstance(record.event, PlanProposed) and record.event.plan.predicted_cost_usd is not None:
            predicted.append(record.event.plan.predicted_cost_usd)

    ran = World(
        scenario(world.truth, world.deadline_s), TRUE_SEED + world.number, keep, None, PLANNERS.__getitem__
    )  # fmt: skip
    ran.run()
    result = outcome_of(ran)
    return result.cost_usd, result.finish_s, result.met, predicted


def _ratio(predicted: Sequence[float], place: int, true_usd: float) -> float | None:
    return predicted[place - 1] / true_usd if len(predicted) >= place and true_usd > 0.0 else None


def judge_worlds(
    numbers: Iterable[int], runs: int, executor: Executor | None, done: Callable[[WorldResult], None] | None = None
) -> list[WorldResult]:
    """All these worlds, in the order of their numbers."""
    found: list[WorldResult] = []

    def take(encoded: bytes) -> None:
        found.append(msgspec.msgpack.decode(encoded, type=WorldResult))
        if done is not None:
            done(found[-1])

    if executor is None:
        for number in numbers:
            take(judge_world(number, runs))
    else:
        for future in as_completed([executor.submit(judge_world, number, runs) for number in numbers]):
            take(future.result())
    return sorted(found, key=lambda result: result.number)


def by_group(results: Sequence[WorldResult], runs: int) -> list[GroupResult]:
    """One row for each group that has worlds, bags and workflows apart.

    A chance that a forecast names is uncertain itself: it rests on `runs` simulated runs.
    """
    rows = []
    for group, kind in [(group, kind) for kind in (BAG, WORKFLOW) for group in GROUPS]:
        these = [result for result in results if (result.group, result.kind) == (group, kind)]
        if not these:
            continue
        variance = sum(each.named * (1.0 - each.named) * (1.0 + 1.0 / runs) for each in these)
        first, tenth = ([v for each in these if (v := getattr(each, key)) is not None] for key in ("first", "tenth"))
        rows.append(
            GroupResult(
                group if kind == BAG else f"workflows, {group}", len(these), sum(each.met for each in these),
                sum(each.named for each in these), sqrt(variance),
                sum(each.cost_inside for each in these), sum(each.finish_inside for each in these),
                these[0].interval, float(np.median(first)) if first else None,
                float(np.median(tenth)) if tenth else None,
            )
        )  # fmt: skip
    return rows
