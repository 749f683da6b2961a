"""The work of `lab spot` through the engine: a task that checkpoints, on machines that a series gives and takes.

Touches nothing. Engine, planner and ledger are those of the live server; the provider is simulated and follows the
series. A boot and the reading of a checkpoint take the changeover of the laboratory. What the laboratory had seen
before the start is imported as a published series.
"""

from __future__ import annotations

from msgspec import Struct

from windfall.core.events import SeriesImported
from windfall.lab.spot.trace import Series, SpotCaseResult
from windfall.planning.checkpoints import save_s
from windfall.planning.contract import ONDEMAND, SPOT, Task
from windfall.planning.counts import SeriesSource
from windfall.planning.offers import Offer
from windfall.planning.spot.law import LEARNING, PRIOR
from windfall.planning.spot.market import Market, Terms
from windfall.planning.spot.sight import Watcher
from windfall.sim.clouds.market import Supply
from windfall.sim.inputs import traces
from windfall.sim.inputs.laws import fixed
from windfall.sim.studies.one_bag import CLOUD, RentedMachine, run_bag

CYCLE_S = 60.0
CHECKPOINT_MB = 1.0
NOTICE_S = 15.0
"""Time of a notice of an interruption: enough to save."""
SPARE_TICKS = 0.4
"""Part of a tick by which the work is shorter and the deadline later: saves, and notices, take seconds."""


class EngineRun(Struct, frozen=True):
    """A run through the engine, and where its task was in each tick."""

    result: SpotCaseResult
    choices: tuple[Market, ...]


def run_in_engine(
    series: Series, start: int, terms: Terms, planner: str = "windfall", save_every_s: float | None = None
) -> EngineRun:
    """The work of these terms on this series from this tick on, planned and rented by the engine.

    `save_every_s`: how often the task saves; None: only when its machine ends.
    """
    length_s, spare_s = terms.deadline_ticks * terms.tick_s, SPARE_TICKS * terms.tick_s
    task = Task(0, terms.work_ticks * terms.tick_s - spare_s, checkpoint_mb=CHECKPOINT_MB)
    outcome = run_bag(
        [task], supplies_of(series, start, terms), length_s + spare_s, planner, 1,
        save_every_s=save_every_s or 100.0 * length_s, news=_imported(series, start),
    )  # fmt: skip
    if outcome.trouble:
        raise RuntimeError(f"the planner failed {outcome.failed_plans} times: {outcome.trouble}")
    finish_s = outcome.finish_s if outcome.finish_s is not None else float("inf")
    ticks = min(round(finish_s // terms.tick_s) + 1, 10 * terms.deadline_ticks) if outcome.finish_s is not None else 0
    return EngineRun(
        SpotCaseResult(outcome.cost_usd, finish_s / 3600.0, outcome.met),
        tuple(_market_at(outcome.machines, (tick + 0.2) * terms.tick_s) for tick in range(ticks)),
    )


def boot_of(terms: Terms) -> float:
    """Seconds of a boot: a changeover without the reading of a checkpoint."""
    return terms.changeover_ticks * terms.tick_s - save_s(CHECKPOINT_MB)


def supplies_of(series: Series, start: int, terms: Terms) -> list[Supply]:
    """A spot machine that the series gives and takes, and an on-demand one."""
    boot_s, hours = boot_of(terms), CYCLE_S / 3600.0
    spot, ondemand = (
        Offer(
            name=market, market=market, price_usd=usd * hours, cycle_s=CYCLE_S, lag_s=boot_s, free_if_taken=False,
            limit=1,
        )
        for market, usd in ((SPOT, terms.spot_usd), (ONDEMAND, terms.ondemand_usd))
    )  # fmt: skip
    available = [float(tick) for tick in series.available[start:]]
    # After the end of the series there is no spot, as in the laboratory; a run is over long before it would repeat.
    ticks = traces.Series(series.tick_s, (*available, *([0.0] * 10 * terms.deadline_ticks)))
    return [
        Supply(offer=spot, boot=fixed(boot_s), ticks=ticks, begins=0.0, notice_s=NOTICE_S),
        Supply(offer=ondemand, boot=fixed(boot_s)),
    ]


def _imported(series: Series, start: int) -> list[SeriesImported]:
    """What was to be seen before the start."""
    observer = Watcher(series.tick_s, PRIOR, LEARNING)
    for available in series.available[:start]:
        observer.observe(available)
    cells = [(place, ends, hours) for place, (ends, hours) in sorted(observer.as_past().cells.items())]
    if not cells:
        return []
    ends, hours = sum(cell[1] for cell in cells), sum(cell[2] for cell in cells)
    return [SeriesImported(0.0, f"{CLOUD}/{SPOT}", SeriesSource(series.name, "", hours, ends), cells)]


def _market_at(machines: tuple[RentedMachine, ...], at_s: float) -> Market:
    """The market of the machine that was ordered last and is there."""
    there = [m for m in machines if m.requested_s <= at_s < m.ended_s and m.cause != "refused"]
    if not there:
        return Market.IDLE
    return Market.SPOT if max(there, key=lambda m: (m.requested_s, m.number)).market == SPOT else Market.ONDEMAND
