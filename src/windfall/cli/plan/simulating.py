"""The simulated runs behind `windfall plan` of a bag: one's own question first, then what it is compared with.

Touches the terminal and processes of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import suppress
from typing import TYPE_CHECKING

import click
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from windfall.cli.plan import screen
from windfall.cli.plan.refine import Refining, found_of
from windfall.cli.processes import processes
from windfall.sim.studies.forecast import Forecast, Question, Run, first_plan, run_once, simulated
from windfall.sim.studies.fronts import Variant, nearest_promised, surer_plan, too_few_runs
from windfall.sim.studies.smaller import bundled, smaller

if TYPE_CHECKING:
    from windfall.cli.plan.bag import Asked, Ready
    from windfall.planning.contract import Plan

RUNS, FEW_RUNS, MANY_TASKS = 20, 10, 5_000
"""Number of simulated runs by default; FEW_RUNS for larger bags and for what --what-if compares."""
ROUND, TICK_S = 4, 0.5
"""Runs of one row before those of the next; seconds after which a line about the progress may be due."""
ENOUGH = ((10.0, ROUND), (20.0, 2), (45.0, 1))
"""(seconds, runs of each row) after which the answer is given in a pipe, unless a number of runs was asked for."""
SLOW_TASKS = 500
"""Of bags with more tasks the first plan is shown before the first run has ended."""

Case = tuple[Variant, int]


class _Enough(Exception):
    """There are runs enough for the time that has passed: those that have not ended are not waited for."""


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
    whole = ready.question
    question, words = smaller(whole, min(variant.deadline_s for variant in ready.variants))
    ready.assumed += words
    runs: dict[Variant, list[Run]] = {}
    nearest, unlimited, surer, cases = None, None, None, _first_cases(asked, ready, soonest_s)
    wanted = len(cases)
    if cases:
        with (
            Refining(ready, soonest_s, len(cases)) as shown, suppress(KeyboardInterrupt, _Enough),
            processes(wanted) as pool,
        ):  # fmt: skip
            if ready.deadline_s >= soonest_s and (shown.is_seen or question.tasks > SLOW_TASKS):
                shown.show_first(first_plan(bundled(whole, ready.deadline_s)[0], ready.deadline_s, asked.first_seed))
            while cases:
                for found in _runs(question, cases, pool):
                    if found is not None:
                        runs.setdefault(found[0], []).append(_with_first(found[1], shown.first))
                        shown.update(found_of(ready, runs))
                    shown.tell()
                    can_stop = not (asked.seeds or shown.is_seen or shown.is_nearly_done)
                    if can_stop and _is_enough(ready, soonest_s, runs, shown.passed_s):
                        shown.is_enough = True
                        raise _Enough
                cases = [] if asked.seeds else _more(ready, found_of(ready, runs), asked.first_seed)
                wanted = shown.total = wanted + len(cases)
            own, most = found_of(ready, runs)[ready.own], asked.seeds or _usual(ready)
            unlimited = _unlimited(ready, question, own, most, pool)
            if not unlimited and own is not None and not _is_kept(ready, own):
                surer = _surer(ready, question, own, most, pool)
                nearest = _nearest(ready, question, own, most, pool)
        if (done := sum(map(len, runs.values()))) < wanted:
            _tell_of_missing(ready, soonest_s, runs, shown, f"{done} of {wanted} simulated runs")
    return Found(found_of(ready, runs), nearest, unlimited, surer)


def _usual(ready: Ready) -> int:
    return FEW_RUNS if ready.question.tasks > MANY_TASKS else RUNS


def _first_cases(asked: Asked, ready: Ready, soonest_s: float) -> list[Case]:
    """The runs that are made first; in rounds, so that each row has some when there is no time for all."""
    cases = [
        (number // ROUND, variant, asked.first_seed + number)
        for variant in ready.variants
        if variant.deadline_s >= soonest_s
        for number in range(asked.seeds or (_usual(ready) if variant == ready.own else FEW_RUNS))
    ]
    return [(variant, seed) for _, variant, seed in sorted(cases, key=lambda case: case[0])]


def _is_enough(ready: Ready, soonest_s: float, runs: dict[Variant, list[Run]], passed_s: float) -> bool:
    """Whether the answer is given with the runs that there are."""
    fewest = min(len(runs.get(each, ())) for each in ready.variants if each.deadline_s >= soonest_s)
    return any(passed_s >= seconds and fewest >= least for seconds, least in ENOUGH)


def _tell_of_missing(
    ready: Ready, soonest_s: float, runs: dict[Variant, list[Run]], shown: Refining, words: str
) -> None:
    """Say that the answer rests on fewer runs; without any, what is known is the first plan."""
    if ready.deadline_s >= soonest_s and ready.own not in runs:
        for line in screen.first_lines(ready, shown.first, time.time()) if shown.first is not None else ():
            click.echo(line)
        raise KeyboardInterrupt
    ready.assumed.append(
        f"answered after {words}, {shown.passed_s:.0f} s: with --seeds {shown.total} all are waited for"
        if shown.is_enough
        else f"interrupted after {words}"
    )


def _with_first(run: Run, first: Plan | None) -> Run:
    """Of a sample, the run with the first plan of the whole bag."""
    return run if run.stands_for == 1.0 or first is None else replace(run, first=first)


def _runs(question: Question, cases: Sequence[Case], pool: Executor | None) -> Iterator[tuple[Variant, Run] | None]:
    """The runs of these cases as they are done, the first cases first; None now and then while there is none."""
    encoded = {
        confidence: msgspec.msgpack.encode(replace(question, confidence=confidence))
        for confidence in {variant.confidence for variant, _ in cases}
    }
    if pool is None:
        for variant, seed in cases:
            done = run_once(encoded[variant.confidence], variant.deadline_s, seed)
            yield variant, msgspec.msgpack.decode(done, type=Run)
        return
    waiting: dict[Future[bytes], Variant] = {
        pool.submit(run_once, encoded[variant.confidence], variant.deadline_s, seed): variant for variant, seed in cases
    }
    while waiting:
        ended = wait(waiting, TICK_S, FIRST_COMPLETED).done
        for future in [future for future in waiting if future in ended]:
            yield waiting.pop(future), msgspec.msgpack.decode(future.result(), type=Run)
        if not ended:
            yield None


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
