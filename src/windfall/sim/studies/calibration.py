"""Do forecasts hold what they say? Settings with a truth, forecast from what is told of it, and judged. Pure.

A setting is forecast as `windfall plan` would forecast it, and run several times on other seeds as its truth has it.
Counted is how often cost and finish lie in the stated interval, and how often the deadline is met.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from windfall.planning.contract import ONDEMAND, SPOT
from windfall.planning.offers import Offer
from windfall.sim.inputs.laws import RandomLaw
from windfall.sim.studies.forecast import Forecast, Question, Range, Run, simulated, supply_of, wilson

FIRST_TRUE_SEED = 1_000_003
"""Seeds of true runs: no forecast uses them."""
SEEDS_APART = 10_000
"""Between the first seeds of two forecasts."""
FIRST_RUNS, MORE_RUNS = 20, 10
GUESSED_SPREAD = 0.35


class Setting(Struct, frozen=True):
    """What is told, what is true, and the deadline. `as_told`: the truth is what was told, or is unknown to both."""

    name: str
    told: Question
    truth: Question
    deadline_s: float
    as_told: bool = True


class Judged(Struct, frozen=True):
    """One setting: of `pairs` (forecast, true run), how many lay inside; `said`: the mean chance that was stated."""

    setting: str
    as_told: bool
    runs: int
    """Simulated runs of one forecast, on average."""
    interval: float
    """How often the interval says that it holds a run."""
    pairs: int
    cost_inside: int
    finish_inside: int
    true_runs: int
    met: int
    said: float
    cost_usd: Range
    """Stated by the first forecast."""
    true_cost_usd: float

    @property
    def cost_share(self) -> float:
        return self.cost_inside / self.pairs

    @property
    def finish_share(self) -> float:
        return self.finish_inside / self.pairs

    @property
    def met_share(self) -> Range:
        return wilson(self.met, self.true_runs)


# --- settings ---------------------------------------------------------------------------------------------------------


def _offers(cycle_s: float, usd_per_h: float, lag_s: float, limit: int, **spot: object) -> tuple[Offer, Offer]:
    sure = Offer(
        name="sure", price_usd=usd_per_h * cycle_s / 3600, cores=2, cycle_s=cycle_s, lag_s=lag_s, market=ONDEMAND,
        limit=limit,
    )  # fmt: skip
    fields: dict[str, object] = {"name": "spot", "price_usd": 0.3 * sure.price_usd, "market": SPOT} | spot
    return replace(sure, **fields), sure


def _question(offers: Sequence[Offer], tasks: int, seconds: float, spread: float | None) -> Question:
    return Question(
        estimates_s=(seconds,) * tasks, memory_bytes=(0,) * tasks, planner="windfall",
        spread=GUESSED_SPREAD if spread is None else spread, spread_is_guessed=spread is None,
        told_spread=spread, supplies=tuple(map(supply_of, offers)),
    )  # fmt: skip


def _setting(
    name: str, offers: tuple[Offer, Offer], tasks: int, seconds: float, deadline_s: float, *,
    spread: float | None = 0.3, true_spread: float | None = None, rate: float = 1.0, boot: RandomLaw | None = None,
    refusals: float = 0.0, as_told: bool = True,
) -> Setting:  # fmt: skip
    told = _question(offers, tasks, seconds, spread)
    truth = replace(told, spread_is_guessed=False, spread=told.spread if true_spread is None else true_spread)
    supplies = [
        replace(
            supply, interruptions_per_h=supply.interruptions_per_h * rate, boot=boot or supply.boot, refusals=refusals
        )
        for supply in truth.supplies
    ]  # fmt: skip
    return Setting(name, told, replace(truth, supplies=tuple(supplies)), deadline_s, as_told)


WIDTH = 8
LEVELS_S = (120.0, 60.0, 200.0, 90.0, 150.0)
"""Run times by level of the workflow: wide, wide, one task, wide, one task."""


def _workflow(
    name: str, rate: float = 1.0, true_spread: float = 0.15, as_told: bool = True, deadline_s: float = 1500.0
) -> Setting:
    """Two rows of tasks, a task that waits for all of them, another row, and a last task; about twice the fastest time.

    Machines are reclaimed six times an hour as told, so that a run loses some tasks.
    """
    offers = _offers(60.0, 0.2, 30.0, 20, interruptions_per_h=6.0)
    rows = [range(WIDTH), range(WIDTH, 2 * WIDTH), [2 * WIDTH], range(2 * WIDTH + 1, 3 * WIDTH + 1), [3 * WIDTH + 1]]
    edges = [(k, WIDTH + (k + step) % WIDTH) for k in range(WIDTH) for step in (0, 1)]
    edges += [(task, rows[2][0]) for task in rows[1]] + [(rows[2][0], task) for task in rows[3]]
    edges += [(task, rows[4][0]) for task in rows[3]]
    seconds = tuple(LEVELS_S[level] for level, row in enumerate(rows) for _ in row)
    count = len(seconds)
    told = Question(
        estimates_s=seconds, memory_bytes=(0,) * count, planner="windfall", spread=0.15, spread_is_guessed=True,
        supplies=tuple(map(supply_of, offers)), edges=tuple(edges), classes_of=("",) * count, cpus_of=(1,) * count,
    )  # fmt: skip
    supplies = [replace(each, interruptions_per_h=each.interruptions_per_h * rate) for each in told.supplies]
    truth = replace(told, spread=true_spread, spread_is_guessed=False, supplies=tuple(supplies))
    return Setting(name, told, truth, deadline_s, as_told)


def settings() -> list[Setting]:
    """Billing by the hour, the quarter and the second; hibernated and reclaimed; tight and loose; told right or wrong;
    workflows.

    The first is `windfall demo deadline` in its own seconds: that its tasks take exactly two is not told.
    """
    demo = _offers(15.0, 24.0, 1.0, 4, when_taken="hibernate", interruptions_per_h=180.0, resumes_per_h=360.0)
    hibernating = _offers(3600.0, 0.2, 60.0, 8, when_taken="hibernate", interruptions_per_h=1.0, resumes_per_h=4.0)
    reclaimed = _offers(3600.0, 0.2, 60.0, 8, interruptions_per_h=1.0)
    by_second = _offers(1.0, 0.2, 60.0, 8, interruptions_per_h=1.0, minimum_s=60.0)
    slow_boot = RandomLaw("uniform", {"low": 60.0, "high": 300.0})
    return [
        _setting("demo", demo, 60, 2.0, 90.0, spread=None, true_spread=0.0),
        _setting("hibernated, by the hour", hibernating, 40, 300.0, 7200.0),
        _setting("reclaimed, by the hour", reclaimed, 40, 300.0, 7200.0),
        _setting("reclaimed, by the second", by_second, 40, 300.0, 7200.0),
        _setting("tight", reclaimed, 40, 300.0, 2400.0),
        _setting("barely possible", reclaimed, 40, 300.0, 1200.0, spread=0.6),
        _setting("loose", hibernating, 40, 300.0, 21600.0),
        _setting("spread not told, 0.6", reclaimed, 40, 300.0, 7200.0, spread=None, true_spread=0.6),
        _setting("interrupted three times as often as told", reclaimed, 40, 300.0, 7200.0, rate=3.0, as_told=False),
        _setting(
            "refusals and slow boots, not told",
            reclaimed,
            40,
            300.0,
            7200.0,
            boot=slow_boot,
            refusals=0.3,
            as_told=False,
        ),
        _workflow("workflow"),
        _workflow("workflow, interrupted three times as often as told", rate=3.0, as_told=False),
        _workflow("workflow, run times 40 % off", true_spread=0.4, as_told=False),
    ]


# --- judging ----------------------------------------------------------------------------------------------------------


def judge(
    setting: Setting, runs: int | None, forecasts: int, true_runs: int, executor: Executor | None = None,
    done: Callable[[], None] | None = None,
) -> Judged:  # fmt: skip
    """Forecast a setting `forecasts` times, and hold `true_runs` true runs against each.

    `runs`: simulated runs of one forecast; None: as `windfall plan` does it, more where they are not sure enough.
    """

    def ran(question: Question, seeds: range) -> list[Run]:
        found = []
        for _, run in simulated(question, [(setting.deadline_s, seed) for seed in seeds], executor):
            found.append(run)
            if done is not None:
                done()
        return sorted(found, key=lambda run: run.seed)

    true = ran(setting.truth, range(FIRST_TRUE_SEED, FIRST_TRUE_SEED + true_runs))
    made = [_forecast(setting, ran, runs, 1 + place * SEEDS_APART) for place in range(forecasts)]
    every = sum(len(each.runs) for each in made)
    return Judged(
        setting.name, setting.as_told, round(every / forecasts), made[0].holds, forecasts * true_runs,
        sum(_is_in(run.cost_usd, each.cost_usd) for each in made for run in true),
        sum(_is_in(inf if run.finish_s is None else run.finish_s, each.finish_s) for each in made for run in true),
        true_runs, sum(run.met for run in true), sum(each.met for each in made) / every,
        made[0].cost_usd, sum(run.cost_usd for run in true) / true_runs,
    )  # fmt: skip


def _forecast(setting: Setting, ran: Callable[[Question, range], list[Run]], runs: int | None, first: int) -> Forecast:
    """By `runs` runs from a first seed on; None: by `FIRST_RUNS`, and more while they are not sure enough."""
    found: list[Run] = []
    while True:
        more = MORE_RUNS if found else runs or FIRST_RUNS
        found += ran(setting.told, range(first + len(found), first + len(found) + more))
        made = Forecast(setting.deadline_s, tuple(found))
        if runs is not None or made.is_sure_enough(setting.told.confidence):
            return made


def _is_in(value: float, range_: Range | None) -> bool:
    return range_ is not None and range_.low - 1e-9 <= value <= range_.high + 1e-9
