"""A job's progress on standard error: how far, how fast, when done, what fails.

On a terminal it is drawn; in a pipe or a log a line comes now and then.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from windfall.cli.show.money import standing_lines
from windfall.cli.show.output import console, deadline_words, moment, note, plural, rate, worked_s
from windfall.client import Job
from windfall.client.results import cause_text
from windfall.client.showing.milestones import Milestones
from windfall.escaping import harmless
from windfall.units import show_duration

if TYPE_CHECKING:  # loaded where something is drawn: in a pipe nothing is
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

Json = dict[str, Any]
_WINDOW_S = 20.0
_GROUPS_EVERY_S = 2.0
_BAR_CELLS, _LEAST_CELLS = 30, 8


class Pace:
    """How many tasks end a second, over the last while."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def add(self, now_s: float, ended: int) -> None:
        self._samples.append((now_s, ended))
        while len(self._samples) > 2 and now_s - self._samples[0][0] > _WINDOW_S:
            self._samples.popleft()

    @property
    def per_second(self) -> float | None:
        """None while there is nothing to go by."""
        (t0, n0), (t1, n1) = self._samples[0], self._samples[-1]
        return (n1 - n0) / (t1 - t0) if n1 > n0 and t1 > t0 else None


def bar(done: float, failed: float, cells: int = _BAR_CELLS) -> Text:
    """Two shares of one as a bar; it is full when nothing is left."""
    from rich.text import Text

    full = min(round(cells * (done + failed)), cells if done + failed > 1.0 - 1e-9 else cells - 1)
    bad = min(full, max(1, round(cells * failed))) if failed else 0
    return Text.assemble(("█" * (full - bad), "green"), ("█" * bad, "red"), ("░" * (cells - full), "bright_black"))


class Progress:
    """Draws statuses as they come, if standard error is a terminal; else tells of milestones. Use as a context."""

    def __init__(self, job: Job, *, screen: Console | None = None, quiet: bool = False) -> None:
        """`screen`: where to draw instead of standard error; `quiet`: draw nothing."""
        self._job = job
        self._pace = Pace()
        self._milestones = Milestones(time.monotonic())
        self._groups: list[Json] = []
        self._groups_at_s = 0.0
        self._failed = 0
        self._tail_since_s: float | None = None
        self.remark = ""
        self.trouble = ""
        self.foreseen = ""
        drawn = not screen.quiet if screen is not None else not quiet and sys.stderr.isatty()
        self._live = _live(screen or console()) if drawn else None

    @property
    def _width(self) -> int:
        return 80 if self._live is None else self._live.console.width

    @property
    def is_seen(self) -> bool:
        return self._live is not None

    def __enter__(self) -> Progress:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, status: Json) -> None:
        now_s = time.monotonic()
        tasks = status["tasks"]
        ended = tasks["done"] + tasks["failed"] + tasks["cancelled"]
        self._pace.add(now_s, ended)
        if self._live is None:
            is_over = ended == tasks["total"]  # the summary says it
            if not is_over and self._milestones.is_due(now_s, ended / (tasks["total"] or 1)):
                note(self.line(status))
            return
        if tasks["failed"] != self._failed and now_s - self._groups_at_s > _GROUPS_EVERY_S:
            self._groups = [harmless(group) for group in self._job.groups()]
            self._failed, self._groups_at_s = tasks["failed"], now_s
        self._live.update(self.picture(harmless(status)))

    def line(self, status: Json) -> str:
        """How far the job is, for a log: one line."""
        tasks, total = status["tasks"], status["tasks"]["total"] or 1
        ended = tasks["done"] + tasks["failed"] + tasks["cancelled"]
        said = [f"{moment(time.time())}  job {status['job']} '{status['name']}': {ended:,} of {total:,} ended"]
        said[0] += f" ({ended / total:.0%})"
        said += [f"{tasks['failed']:,} failed"] if tasks["failed"] else []
        said.append(f"{min(tasks['running'], status['slots'] or 1):,} running")
        if pace := self._pace.per_second:
            said += [rate(pace), f"{show_duration((total - ended) / pace)} to go"]
        if status.get("money"):
            said += [line.strip() for line in standing_lines(status)]
        return ", ".join(said)

    def picture(self, status: Json) -> Group:
        """One look answers: how far, how fast, will it make it, is anything wrong."""
        from rich.console import Group
        from rich.text import Text

        lines = [_head(status), self._bar_line(status), *_money_lines(status)]
        if self.foreseen:
            lines.append(Text(f"  {self.foreseen}"))
        if tasks_failed := status["tasks"]["failed"]:
            lines.append(Text(f"  {plural(tasks_failed, 'task')} failed: {self._causes()}", style="red"))
        if self.trouble:
            lines.append(Text(f"  {self.trouble}", style="yellow"))
        elif not status["slots"] and status["state"] == "running" and not status.get("money"):
            lines.append(Text("  no host has asked for work yet", style="yellow"))
        if self.remark:
            lines.append(Text(f"  {self.remark}", style="yellow"))
        return Group(*lines)

    def _bar_line(self, status: Json) -> Text:
        from rich.text import Text

        tasks = status["tasks"]
        total = tasks["total"] or 1
        ended = tasks["done"] + tasks["failed"] + tasks["cancelled"]
        line = Text.assemble((f"  {ended:,} / {tasks['total']:,}", "bold"))
        # What a host holds ready for its slots is sent out, but does not run yet.
        line.append(f"   {min(tasks['running'], status['slots'] or 1):,} running")
        workflow = status.get("workflow") or {"held": 0, "blocked": 0}
        if waiting := workflow["held"] - workflow["blocked"]:
            line.append(f"   {waiting:,} wait for others")
        if workflow["blocked"]:
            line.append(f"   {workflow['blocked']:,} blocked", style="red")
        self._add_estimate(line, status, total - ended)
        if status["state"] == "paused":
            line.append("   paused", style="yellow")
        # The bar gives way: a line that goes on below would jump about.
        cells = max(_LEAST_CELLS, min(_BAR_CELLS, self._width - 2 - line.cell_len))
        drawn = bar(tasks["done"] / total, (tasks["failed"] + tasks["cancelled"]) / total, cells)
        return Text.assemble("  ", drawn, line)

    def _add_estimate(self, line: Text, status: Json, left: int) -> None:
        """How fast and how long still. The pace of others says nothing about the last tasks, which all run: of those
        it is said for how long they have been the last."""
        # A host holds a few tasks ready for its slots: those are sent out, but wait.
        waiting = left - min(status["tasks"]["running"], status["slots"] or 1)
        if left > 0 and waiting <= 0:
            self._tail_since_s = self._tail_since_s or time.monotonic()
            waited_s = time.monotonic() - self._tail_since_s
            line.append(f"   the last {plural(left, 'task')}, for {show_duration(waited_s)}")
            return
        self._tail_since_s = None
        pace = self._pace.per_second
        if pace and left > 0:
            left_s = waiting / pace + (status["mean_run_s"] or 0.0)
            line.append(f"   {rate(pace)}   {show_duration(left_s)} to go")
            line.append_text(_slack(status, left_s))

    def _causes(self) -> str:
        final = [group for group in self._groups if group["final"]]
        return ", ".join(_group_in_short(group) for group in final[:3]) or "..."


def _live(screen: Console) -> Live:
    from rich.live import Live

    return Live(console=screen, transient=True, refresh_per_second=8, redirect_stdout=False)


def _head(status: Json) -> Text:
    from rich.text import Text

    line = Text.assemble(
        (f"job {status['job']} '{status['name']}'", "bold"), f"  {plural(status['tasks']['total'], 'task')}"
    )
    line.append(f"   {show_duration(worked_s(status))} so far")
    if status["deadline_s"] is not None:
        left_s = status["deadline_s"] - time.time()
        line.append(f"   deadline {deadline_words(status['deadline_s'])}", style="" if left_s > 0 else "red")
    return line


def _money_lines(status: Json) -> list[Text]:
    """Of a job that rents machines: what it costs, on what it runs, when its plan expects to be done."""
    from rich.text import Text

    if not status.get("money"):
        return []
    standing, *trouble = standing_lines(status)
    return [Text(standing), *(Text(line, style="yellow") for line in trouble)]


def _slack(status: Json, left_s: float) -> Text:
    from rich.text import Text

    if status["deadline_s"] is None:
        return Text()
    spare_s = status["deadline_s"] - time.time() - left_s
    return (
        Text(f" ({show_duration(spare_s)} to spare)", "green")
        if spare_s >= 0
        else Text(f" ({show_duration(-spare_s)} late)", "red")
    )


def _group_in_short(group: Json) -> str:
    tasks = ", ".join(map(str, (group.get("names") or group["tasks"])[:2])) + (", ..." if group["count"] > 2 else "")
    said = f' "{group["last_line"][:40]}"' if group["last_line"] else ""
    return f"{group['count']:,} x {cause_text(group['cause'], group['exit_code'])}{said} (task {tasks})"
