"""The answer of `windfall plan` while it is simulated: first the plan itself, then what the runs so far say.

Touches the terminal; in a pipe it is a line now and then.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

from windfall.cli.plan import screen
from windfall.cli.show.output import console, note
from windfall.client.showing.milestones import Milestones

if TYPE_CHECKING:
    from windfall.cli.plan.bag import Ready
    from windfall.planning.contract import Plan
    from windfall.sim.studies.forecast import Forecast, Run
    from windfall.sim.studies.fronts import Variant

EVERY_S = 0.3
"""Seconds between two pictures of the answer."""
LEAST_RUNS = 2
NEARLY, NEARLY_FOR_S = 0.8, 20.0
"""Once this share of the runs has ended, the others are waited for, at most until this many seconds have passed."""


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
        self.first: Plan | None = None
        """The first plan, once it is known."""
        self.is_enough = False
        """The answer was given before all runs had ended."""
        self._done, self._shown_s, self._began_s = 0, 0.0, time.monotonic()
        self._milestones, self._is_first_told = Milestones(self._began_s), False
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
        self.first = plan
        self._live.update(self._picture({}), refresh=True)

    def update(self, found: dict[Variant, Forecast | None]) -> None:
        self._done += 1
        now_s = time.monotonic()
        if now_s - self._shown_s >= EVERY_S and self.is_seen:
            self._shown_s = now_s
            self._live.update(self._picture(found), refresh=True)

    @property
    def passed_s(self) -> float:
        return time.monotonic() - self._began_s

    @property
    def is_nearly_done(self) -> bool:
        """Whether it takes hardly longer to wait for the last runs."""
        return self._done >= NEARLY * self.total and self.passed_s < NEARLY_FOR_S

    def tell(self) -> None:
        """Where nobody sees the picture, a line on standard error, if one is due: the first has the first plan."""
        if self.is_seen or not self._milestones.is_due(time.monotonic(), self._done / self.total):
            return
        if not self._is_first_told and self.first is not None:
            for line in screen.first_lines(self._ready, self.first, time.time())[1:]:
                note(f"windfall: {line.strip()}")
            self._is_first_told = True
        note(f"windfall: {self._done} of {self.total} runs simulated after {self.passed_s:.0f} s")

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
            return Group(Text("\n".join(screen.first_lines(self._ready, self.first, time.time()))), bar)
        told = screen.document(self._ready, self._soonest_s, found)
        return Group(Text("\n".join(screen.lines(told, made, time.time()))), bar)
