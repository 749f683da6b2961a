"""Following a job from the terminal: progress, Ctrl-C once and twice. Touches signals and the terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from typing import Any

from windfall.api.explained import Waiting
from windfall.cli.run.foresee import Foresight
from windfall.cli.run.tail import Tail
from windfall.cli.show.money import plan_words
from windfall.cli.show.output import note, plain
from windfall.cli.show.progress import Progress
from windfall.client import Job
from windfall.client.job import POLL_S
from windfall.client.results import ENDED
from windfall.errors import Missed
from windfall.units import show_duration

Json = dict[str, Any]
_IDLE_LOOK_S = 2.0
"""Seconds between looks at a job of which nothing runs, and idle seconds after which it is explained."""


def statuses(job: Job, timeout_s: float | None = None) -> Iterator[Json]:
    """Statuses as they change, at a pace that people and servers can follow, until the job has ended."""
    began_s = time.monotonic()
    status = job.status()
    yield plain(status)
    while status["state"] not in ENDED:
        elapsed_s = time.monotonic() - began_s
        if timeout_s is not None and elapsed_s >= timeout_s:
            return
        job.check()
        # News come with every commit; a short job is looked at often, a long one a few times a second.
        time.sleep(min(0.3, 0.01 + 0.05 * elapsed_s))
        wait_s = _IDLE_LOOK_S if is_idle(status) else POLL_S
        if timeout_s is not None:
            wait_s = max(0.0, min(wait_s, timeout_s - elapsed_s))
        status = job.status(newer_than=status["version"], wait_s=wait_s)
        yield plain(status)


def is_idle(status: Mapping[str, Any]) -> bool:
    """Nothing of it runs although something waits."""
    return status["state"] == "running" and not status["tasks"]["running"] and status["tasks"]["waiting"] > 0


class StuckWatch:
    """Says within seconds that no host can run anything of a job, and why; after `max_wait_s` it gives up.

    And that its plan comes too late."""

    def __init__(self, job: Job, progress: Progress, max_wait_s: float | None = None) -> None:
        self._job = job
        self._progress = progress
        self._max_wait_s = max_wait_s
        self._idle_since_s: float | None = None
        self._broke_since_s: float | None = None
        self._said = ""
        self._said_late = False

    def look(self, status: Json) -> None:
        """Missed (exit code 4) if nothing could run for too long."""
        self._look_at_plan(status)
        now_s = time.monotonic()
        if not is_idle(status):
            self._idle_since_s, self._said, self._progress.trouble = None, "", ""
            return
        if self._idle_since_s is None:
            self._idle_since_s = now_s
        idle_s = now_s - self._idle_since_s
        if idle_s < _IDLE_LOOK_S and (self._max_wait_s is None or idle_s < self._max_wait_s):
            return
        waiting = self._job.explain().get("waiting")
        if waiting is None or not waiting["stuck"]:
            self._idle_since_s, self._said, self._progress.trouble = None, "", ""
            return
        self._say(in_one_line(waiting), waiting["try"])
        if self._max_wait_s is not None and idle_s >= self._max_wait_s:
            raise Missed(
                f"no host could run anything of job {self._job.id} for {show_duration(idle_s)}: {in_one_line(waiting)}",
                hint=f"see: windfall explain {self._job.id}",
            )

    def _look_at_plan(self, status: Json) -> None:
        """Where no screen shows it: say once that its plan comes too late."""
        plan = status.get("plan") or {}
        finish_s, deadline_s = plan.get("finish_s"), status["deadline_s"]
        if self._said_late or self._progress.is_seen or finish_s is None or deadline_s is None:
            return
        if finish_s > deadline_s:
            self._said_late = True
            note(f"windfall: job {self._job.id} will be late by its {plan_words(status)}")
            note(f"  try: windfall plan {self._job.id}, which names the earliest possible deadline")

    def is_out_of_money(self, status: Json) -> bool:
        """Whether the budget has kept the job from renting anything for a while."""
        now_s = time.monotonic()
        if not (status.get("money") or {}).get("held_by_budget"):
            self._broke_since_s = None
            return False
        self._broke_since_s = now_s if self._broke_since_s is None else self._broke_since_s
        return now_s - self._broke_since_s >= _IDLE_LOOK_S

    def _say(self, why: str, tries: list[str]) -> None:
        self._progress.trouble = f"nothing can run: {why}   (windfall explain {self._job.id})"
        if why != self._said and not self._progress.is_seen:
            note(f"windfall: nothing of job {self._job.id} can run: {why}")
            note(f"  try: {tries[0] if tries else f'windfall explain {self._job.id}'}")
        self._said = why


def in_one_line(waiting: Waiting) -> str:
    """Why a job waits, as its greatest reasons."""
    clauses = [f"{reason['hosts']} x {reason['clause']}" for reason in waiting["reasons"][:3]]
    return str(waiting["because"]) + (f" ({', '.join(clauses)})" if clauses else "")


def follow(
    job: Job, max_wait_s: float | None = None, foresight: Foresight | None = None,
    seen: Callable[[Json], None] = lambda status: None, tail: bool = False,
) -> Json:  # fmt: skip
    """Show progress until the job has ended; `seen` gets every status; `tail`: show what tasks write, and no bar.

    Ctrl-C once: start nothing more; twice: `KeyboardInterrupt`.
    """
    status: Json = {}
    with Tail(job) if tail else nullcontext(), Progress(job, quiet=tail) as progress:
        watch = StuckWatch(job, progress, max_wait_s)
        try:
            for status in statuses(job):
                seen(status)
                watch.look(status)
                if foresight is not None and progress.is_seen:
                    foresight.look(status)
                    progress.foreseen = foresight.words
                progress.update(status)
                if watch.is_out_of_money(status):
                    # Paused until somebody raises the budget and resumes the job.
                    return plain(job.change(paused=True))
            return status
        except KeyboardInterrupt:
            pass
        status = plain(job.change(paused=True))
        progress.remark = "stopping: what runs may finish; Ctrl-C again stops it now"
        if not progress.is_seen:
            note(f"windfall: {progress.remark}")
        while status["tasks"]["running"] and status["state"] not in ENDED:
            progress.update(status)
            time.sleep(0.1)
            status = plain(job.status(newer_than=status["version"], wait_s=1.0))
            seen(status)
    return status
