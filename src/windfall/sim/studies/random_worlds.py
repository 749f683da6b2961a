"""Calibration over random worlds: each is forecast once and run, and the promises are held against what happened.

Pure but for the executor. Worlds differ in tasks, run times, billing, interruptions and what is told of them. A world
may be run several times: its jobs differ in run times and interruptions, and share one forecast.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, as_completed
from math import ceil, exp, inf, log, sqrt

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from windfall.core.events import PlanProposed
from windfall.core.records import Record
from windfall.planning.contract import ONDEMAND, SPOT, Plan
from windfall.planning.offers import Offer
from windfall.planning.registry import PLANNERS
from windfall.sim.studies.forecast import (
    HOSTS_JOIN_S,
    Forecast,
    Question,
    earliest_s,
    planner_of_runs,
    run_once,
    scenario,
    supply_of,
)
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
TRUE_SEED, TRUE_SEEDS_APART = 5_000_011, 1_000_000_007
"""First seed of true runs, and between the runs of one world: no forecast uses them."""
WRONG_BY = 3.0
GUESSED_SPREAD = 0.35
TENTH = 10
NEAR = 0.25
"""A plan's cost counts as right within this share of the bill."""
HEAVY = 0.7
"""Tails of this spread and above are heavy."""


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

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes of worlds that it belongs to, by which results are shown."""
        spot, pace = self.told.supplies[0].offer, self.deadline_s / _rented_s(self.told)
        tail = "exact" if not self.truth.spread else "heavy" if self.truth.spread >= HEAVY else "light"
        spreads = [f"run times {tail}, spread told"]
        if self.told.spread_is_guessed:
            spreads = ["spread not told", f"spread not told, in truth {tail}"]
        found = [
            *spreads, spot.when_taken, f"billed by {spot.cycle_s:g} s", f"deadline {pace:.1f} times the earliest",
            f"confidence {self.told.confidence:g}",
        ]  # fmt: skip
        if self.told.budget_usd is not None:
            found.append("budget")
        if self.told.free_slots:
            found.append("free hosts that leave" if self.truth.free_stay_s is not None else "free hosts")
        return tuple(found)


class WorldResult(Struct, frozen=True):
    """One job of a world: what was said, and what happened. `first` and `tenth`: predicted cost over the true one.

    `first_in_time` and `tenth_in_time`: whether that plan expected to be in time.
    """

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
    first_in_time: bool | None = None
    tenth_in_time: bool | None = None


class PlansJudged(Struct, frozen=True):
    """What the first, or the tenth, plan of each job expected, of the jobs that had one."""

    jobs: int
    near: int
    """Jobs whose bill it expected within `NEAR`."""
    said_in_time: int
    met_of_these: int


class GroupResult(Struct, frozen=True):
    """All jobs of one group. `named` is the confidence asked for, or what the forecast said if that is less.

    `error` and `error_said`: one standard error of the number in time, against the number named and the number said.
    """

    group: str
    worlds: int
    jobs: int
    met: int
    named: float
    error: float
    said: float
    error_said: float
    cost_inside: int
    finish_inside: int
    interval: float
    first: float | None
    tenth: float | None
    """Median of the cost that the first and the tenth plan predicted over the bill."""
    first_plan: PlansJudged | None
    tenth_plan: PlansJudged | None

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
        told_spread=spread if is_known else None,
        supplies=(supply_of(spot), supply_of(sure)), confidence=one((0.8, 0.95)),
    )  # fmt: skip
    # Drawn apart, so that the numbers of all other worlds stay what they were.
    more = np.random.default_rng([number, 1])
    helped, is_workflow = more.uniform() < HELPED, more.uniform() < WORKFLOWS
    if is_workflow:
        told = _layered(told, LAYERS[int(more.integers(len(LAYERS)))])
    elif helped:
        told = replace(told, free_slots=(2,) * int(more.integers(1, 4)))
    deadline_s = float(ceil(_rented_s(told) * one((1.5, 2.0, 3.0, 6.0))))
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


def _rented_s(told: Question) -> float:
    """The earliest deadline of rented machines alone: free hosts came later, and worlds keep their deadlines."""
    return earliest_s(replace(told, free_slots=()))


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


def judge_world(number: int, runs: int, true_runs: int = 1) -> bytes:
    """Forecast a world by simulated runs, run it as it truly is, and compare; for use with any executor."""
    world = world_of(number)
    encoded = msgspec.msgpack.encode(world.told)
    done = [
        msgspec.msgpack.decode(run_once(encoded, world.deadline_s, seed), type=SimulatedRun)
        for seed in range(1 + number * 1000, 1 + number * 1000 + runs)
    ]
    made = Forecast(world.deadline_s, tuple(done))
    return msgspec.msgpack.encode([_judged(world, made, encoded, run) for run in range(true_runs)])


def _judged(world: RandomWorld, made: Forecast, encoded: bytes, run: int) -> WorldResult:
    """One true run held against the forecast of its world."""
    true_usd, true_s, met, plans = _true_run(world, encoded, TRUE_SEED + world.number + run * TRUE_SEEDS_APART)
    said, confidence, finish = made.met / len(made.runs), world.told.confidence, made.finish_s
    first, tenth = (plans[place - 1] if len(plans) >= place else None for place in (1, TENTH))
    return WorldResult(
        world.number, world.group, confidence, said, min(confidence, said), met,
        made.cost_usd.low - 1e-9 <= true_usd <= made.cost_usd.high + 1e-9,
        finish is not None and finish.low - 1e-6 <= (inf if true_s is None else true_s) <= finish.high + 1e-6,
        made.holds, _ratio(first, true_usd), _ratio(tenth, true_usd), world.kind,
        _in_time(first, world), _in_time(tenth, world),
    )  # fmt: skip


def _true_run(world: RandomWorld, encoded: bytes, seed: int) -> tuple[float, float | None, bool, list[Plan]]:
    """Cost, finish, whether in time, and the plans that expected a cost."""
    plans: list[Plan] = []

    def keep(record: Record) -> None:
        if isinstance(record.event, PlanProposed) and record.event.plan.predicted_cost_usd is not None:
            plans.append(record.event.plan)

    ran = World(
        scenario(world.truth, world.deadline_s), seed, keep, None, PLANNERS.__getitem__,
        lambda name: planner_of_runs(name, encoded, world.deadline_s),
    )  # fmt: skip
    ran.run()
    result = outcome_of(ran)
    return result.cost_usd, result.finish_s, result.met, plans


def _ratio(plan: Plan | None, true_usd: float) -> float | None:
    if plan is None or plan.predicted_cost_usd is None or true_usd <= 0.0:
        return None
    return plan.predicted_cost_usd / true_usd


def _in_time(plan: Plan | None, world: RandomWorld) -> bool | None:
    """Whether a plan expected to be in time; None if it expected nothing."""
    if plan is None or plan.predicted_finish_t is None:
        return None
    begun_s = HOSTS_JOIN_S if world.told.free_slots else 0.0
    return plan.predicted_finish_t - begun_s <= world.deadline_s


def judge_worlds(
    numbers: Iterable[int], runs: int, executor: Executor | None, done: Callable[[int], None] | None = None,
    true_runs: int = 1,
) -> list[WorldResult]:  # fmt: skip
    """The jobs of all these worlds, in the order of their numbers. `done` is told how many worlds have been judged."""
    found: list[WorldResult] = []

    def take(encoded: bytes) -> None:
        found.extend(msgspec.msgpack.decode(encoded, type=list[WorldResult]))
        if done is not None:
            done(len(found) // true_runs)

    if executor is None:
        for number in numbers:
            take(judge_world(number, runs, true_runs))
    else:
        for future in as_completed([executor.submit(judge_world, number, runs, true_runs) for number in numbers]):
            take(future.result())
    return sorted(found, key=lambda result: result.number)


def by_group(results: Sequence[WorldResult], runs: int) -> list[GroupResult]:
    """One row for each group that has worlds, bags and workflows apart."""
    rows = []
    for group, kind in [(group, kind) for kind in (BAG, WORKFLOW) for group in GROUPS]:
        these = [result for result in results if (result.group, result.kind) == (group, kind)]
        if these:
            rows.append(_row(group if kind == BAG else f"workflows, {group}", these, runs))
    return rows


def by_class(results: Sequence[WorldResult], runs: int) -> list[GroupResult]:
    """One row for each class of worlds (`RandomWorld.classes`); a world belongs to several."""
    classes_of = {number: world_of(number).classes for number in {result.number for result in results}}
    every = sorted({each for classes in classes_of.values() for each in classes})
    return [_row(each, [result for result in results if each in classes_of[result.number]], runs) for each in every]


def _row(name: str, jobs: Sequence[WorldResult], runs: int) -> GroupResult:
    named, said = [each.named for each in jobs], [each.said for each in jobs]
    first, tenth = ([v for each in jobs if (v := getattr(each, key)) is not None] for key in ("first", "tenth"))
    return GroupResult(
        name, len({each.number for each in jobs}), len(jobs), sum(each.met for each in jobs),
        sum(named), _error(jobs, named, runs), sum(said), _error(jobs, said, runs),
        sum(each.cost_inside for each in jobs), sum(each.finish_inside for each in jobs), jobs[0].interval,
        float(np.median(first)) if first else None, float(np.median(tenth)) if tenth else None,
        _plans([(each.first, each.first_in_time, each.met) for each in jobs]),
        _plans([(each.tenth, each.tenth_in_time, each.met) for each in jobs]),
    )  # fmt: skip


def _error(jobs: Sequence[WorldResult], chances: Sequence[float], runs: int) -> float:
    """One standard error of the number in time less the number said.

    A chance that a forecast names is uncertain itself, for all jobs of its world alike: it rests on `runs` runs.
    """
    of_world = Counter(job.number for job in jobs)
    return sqrt(sum(p * (1.0 - p) * (1.0 + of_world[job.number] / runs) for p, job in zip(chances, jobs, strict=True)))


def _plans(found: Sequence[tuple[float | None, bool | None, bool]]) -> PlansJudged | None:
    ratios = [ratio for ratio, _, _ in found if ratio is not None]
    if not ratios:
        return None
    said = [met for _, in_time, met in found if in_time]
    return PlansJudged(len(ratios), sum(abs(ratio - 1.0) <= NEAR for ratio in ratios), len(said), sum(said))
