"""Following a job from the terminal: progress, Ctrl-C once and twice. Touches signals and the terminal."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from windfall.cli.output import note
from windfall.cli.progress import Progress
from windfall.client import Job
from windfall.client.job import ENDED, POLL_S

Json = dict[str, Any]


class Terminated(BaseException):
    """SIGTERM or SIGHUP came: end in good order, now."""


@contextmanager
def good_order() -> Iterator[None]:
    """SIGTERM and SIGHUP end the block by an exception, so that what was started is stopped."""

    def end(number: int, frame: FrameType | None) -> None:
        raise Terminated

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def statuses(job: Job, check: Callable[[], None] = lambda: None, timeout_s: float | None = None) -> Iterator[Json]:
    """Statuses as they change, at a pace that people and servers can follow, until the job has ended."""
    began_s = time.monotonic()
    status = job.status()
    yield status
    while status["state"] not in ENDED:
        elapsed_s = time.monotonic() - began_s
        if timeout_s is not None and elapsed_s >= timeout_s:
            return
        check()
        # News come with every commit; a short job is looked at often, a long one a few times a second.
        time.sleep(min(0.3, 0.01 + 0.05 * elapsed_s))
        wait_s = POLL_S if timeout_s is None else max(0.0, min(POLL_S, timeout_s - elapsed_s))
        status = job.status(newer_than=status["version"], wait_s=wait_s)
        yield status


def follow(job: Job) -> Json:
    """Show progress until the job has ended. Ctrl-C once: start nothing more; twice: `KeyboardInterrupt`."""
    status: Json = {}
    with Progress(job) as progress:
        try:
            for status in statuses(job):
                progress.update(status)
            return status
        except KeyboardInterrupt:
            pass
        status = job.change(paused=True)
        progress.remark = "stopping: what runs may finish; Ctrl-C again stops it now"
        if not progress.is_seen:
            note(f"windfall: {progress.remark}")
        while status["tasks"]["running"] and status["state"] not in ENDED:
            progress.update(status)
            time.sleep(0.1)
            status = job.status(newer_than=status["version"], wait_s=1.0)
    return status
