"""The answer of `windfall plan` while it is simulated: first the plan itself, then what the runs so far say.

Touches the terminal; in a pipe nothing is shown before the end.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

from windfall.cli.plan import screen
from windfall.cli.show.output import console

if TYPE_CHECKING:
    from windfall.cli.plan.bag import Ready
    from windfall.planning.contract import Plan
    from windfall.sim.studies.forecast import Forecast, Run
    from windfall.sim.studies.fronts import Variant

EVERY_S = 0.3
"""Seconds between two pictures of the answer."""
LEAST_RUNS = 2


def found_of(ready: Ready, runs: dict[Variant, list[Run]]) -> dict[Variant, Forecast | None]:
    """By variant: what the runs so far have in common, in the order of their seeds; None where there is none."""
    from windfall.sim.studies.forecast import Forecast

    found: dict[Variant, Forecast | None] = dict.fromkeys(ready.variants)
    for variant, done in runs.items():
        found[variant] = Forecast(variant.deadline_s, tuple(sorted(done, key=lambda run: run.seed)))
    return found


class Refining:
    """Shows the answer so far and how many runs it rests on."""

    def __init__(self, ready: Ready, soonest_s: float, total: int) -> None:
        self._ready, self._soonest_s, self.total = ready, soonest_s, total
        self._first: Plan | None = None
        self._done, self._shown_s = 0, 0.0
        self._live: Any = None

    def __enter__(self) -> Refining:
        from rich.live import Live

        self._live = Live(self._picture({}), console=console(), transient=True, auto_refresh=False)
        self._live.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._live.__exit__(kind, error, at)

    @property
    def is_seen(self) -> bool:
        return not self._live.console.quiet

    def show_first(self, plan: Plan | None) -> None:
        """The first answer, before any run is done: the plan and what its planner expects of it."""
        self._first = plan
        self._live.update(self._picture({}), refresh=True)

    def update(self, found: dict[Variant, Forecast | None]) -> None:
        self._done += 1
        now_s = time.monotonic()
        if now_s - self._shown_s >= EVERY_S and self.is_seen:
            self._shown_s = now_s
            self._live.update(self._picture(found), refresh=True)

    def _picture(self, found: dict[Variant, Forecast | None]) -> Any:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        bar = Table.grid(padding=(0, 1))
        bar.add_row(
            Text("simulating"), ProgressBar(total=self.total, completed=self._done, width=30),
            Text(f"{self._done} of {self.total} runs   Ctrl-C shows what there is"),
        )  # fmt: skip
        made = found.get(self._ready.own)
        if made is None or len(made.runs) < LEAST_RUNS:
            return Group(Text("\n".join(screen.first_lines(self._ready, self._first, time.time()))), bar)
        told = screen.document(self._ready, self._soonest_s, found)
        return Group(Text("\n".join(screen.lines(told, made, time.time()))), bar)
