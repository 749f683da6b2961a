"""The simulated runs behind `windfall plan` of a bag: one's own question first, then what it is compared with.

Touches the terminal and processes of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from windfall.cli.plan.refine import Refining, found_of
from windfall.cli.processes import processes
from windfall.sim.studies.forecast import Forecast, Question, Run, bundled, first_plan, simulated
from windfall.sim.studies.fronts import Variant, nearest_promised, surer_plan, too_few_runs

if TYPE_CHECKING:
    from windfall.cli.plan.bag import Asked, Ready

RUNS, FEW_RUNS, MANY_TASKS = 20, 10, 5_000
"""Number of simulated runs by default; FEW_RUNS for larger bags and for what --what-if compares."""

Case = tuple[Variant, int]


class Found(Struct):
    """By variant: what the runs came to, or None where it is impossible.

    If one's own deadline is not kept as often as asked: `surer` is a higher confidence whose plan keeps it, with its
    runs; `nearest` is the nearest deadline that is kept; `unlimited` are the runs without a budget, where that was not
    enough.
    """

    of: dict[Variant, Forecast | None]
    nearest: Forecast | None = None
    unlimited: Forecast | None = None
    surer: tuple[float, Forecast] | None = None


def simulate(asked: Asked, ready: Ready, soonest_s: float) -> Found:
    """All runs that `windfall plan` tells of."""
    question, size = bundled(ready.question, min(variant.deadline_s for variant in ready.variants))
    if size > 1:
        ready.assumed.append(f"{size} tasks at a time count as one, which takes as long: there are very many")
    usual = FEW_RUNS if ready.question.tasks > MANY_TASKS else RUNS
    cases = [
        (variant, asked.first_seed + number)
        for variant in ready.variants
        if variant.deadline_s >= soonest_s
        for number in range(asked.seeds or (usual if variant == ready.own else FEW_RUNS))
    ]
    runs: dict[Variant, list[Run]] = {}
    nearest, unlimited, surer, wanted = None, None, None, len(cases)
    if cases:
        with Refining(ready, soonest_s, len(cases)) as shown, suppress(KeyboardInterrupt), processes(wanted) as pool:
            if shown.is_seen and ready.deadline_s >= soonest_s:
                shown.show_first(first_plan(question, ready.deadline_s, asked.first_seed))
            while cases:
                for variant, run in _runs(question, cases, pool):
                    runs.setdefault(variant, []).append(run)
                    shown.update(found_of(ready, runs))
                cases = [] if asked.seeds else _more(ready, found_of(ready, runs), asked.first_seed)
                wanted = shown.total = wanted + len(cases)
            own, most = found_of(ready, runs)[ready.own], asked.seeds or usual
            unlimited = _unlimited(ready, question, own, most, pool)
            if not unlimited and own is not None and not _is_kept(ready, own):
                surer = _surer(ready, question, own, most, pool)
                nearest = _nearest(ready, question, own, most, pool)
    if sum(map(len, runs.values())) < wanted:
        if ready.deadline_s >= soonest_s and ready.own not in runs:
            raise KeyboardInterrupt
        ready.assumed.append(f"interrupted after {sum(map(len, runs.values()))} of {wanted} simulated runs")
    return Found(found_of(ready, runs), nearest, unlimited, surer)


def _runs(question: Question, cases: Sequence[Case], pool: Executor | None) -> Iterator[tuple[Variant, Run]]:
    """The runs of these cases as they are done, those of one confidence after those of another."""
    for confidence in dict.fromkeys(variant.confidence for variant, _ in cases):
        asked = [(variant.deadline_s, seed) for variant, seed in cases if variant.confidence == confidence]
        for deadline_s, run in simulated(replace(question, confidence=confidence), asked, pool):
            yield Variant(deadline_s, confidence), run


def _more(ready: Ready, found: dict[Variant, Forecast | None], first_seed: int) -> list[Case]:
    """Further runs while the cost or the chance of being in time is uncertain. Then, for rows of --what-if that have
    too few runs to be compared with the main answer: its other seeds."""
    made = found[ready.own]
    if made is None or ready.question.tasks > MANY_TASKS:
        return []
    if not made.is_sure_enough(ready.question.confidence):
        first = first_seed + len(made.runs)
        return [(ready.own, seed) for seed in range(first, first + FEW_RUNS)]
    compared = {variant: found[variant] for variant in ready.others}
    done = {variant: {run.seed for run in each.runs} for variant, each in compared.items() if each is not None}
    return [
        (variant, run.seed) for variant in too_few_runs(compared) for run in made.runs if run.seed not in done[variant]
    ]


def _surer(
    ready: Ready, question: Question, made: Forecast, most: int, pool: Executor | None
) -> tuple[float, Forecast] | None:
    """A higher confidence whose plan keeps the deadline as often as asked, and its runs; None: none found."""
    return surer_plan(
        made,
        ready.question.confidence,
        lambda confidence: _again(replace(question, confidence=confidence), made, ready.deadline_s, most, pool),
    )


def _nearest(ready: Ready, question: Question, made: Forecast, most: int, pool: Executor | None) -> Forecast | None:
    """The runs under the nearest deadline that is kept as often as asked; None: none found."""
    return nearest_promised(
        made, ready.question.confidence, lambda deadline_s: _again(question, made, deadline_s, most, pool)
    )


def _unlimited(
    ready: Ready, question: Question, made: Forecast | None, most: int, pool: Executor | None
) -> Forecast | None:
    """The runs without a budget, if the deadline is kept too seldom and the budget was used up in some runs."""
    if made is None or question.budget_usd is None or _is_kept(ready, made):
        return None
    if all(run.finish_s is not None for run in made.runs):
        return None
    return _again(replace(question, budget_usd=None), made, ready.deadline_s, most, pool)


def _is_kept(ready: Ready, made: Forecast) -> bool:
    return made.met >= ready.question.confidence * len(made.runs)


def _again(question: Question, made: Forecast, deadline_s: float, most: int, pool: Executor | None) -> Forecast:
    """The same runs, `most` at most, of another question or under another deadline."""
    cases = [(deadline_s, run.seed) for run in made.runs[:most]]
    done = [run for _, run in simulated(question, cases, pool)]
    return Forecast(deadline_s, tuple(sorted(done, key=lambda run: run.seed)))
