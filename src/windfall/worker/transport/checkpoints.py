"""Checkpoints of running attempts: sent to the server when they have changed, brought back before the next attempt.

A task that checkpoints writes to the file that `WINDFALL_CHECKPOINT` names, best by renaming a finished file over it,
and reads that file when it starts. Touches one folder and, through transfers, the network.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from typing import Any, List

from windfall.worker.running import workdir
from windfall.worker.running.slots import Held
from windfall.worker.transport.transfers import Failed, Transfers

Row = List[Any]
"""[job, task, attempt, sha256, bytes, run_s]: the progress of the first `run_s` seconds of this attempt is saved."""


class Checkpoints:
    """The checkpoint files of the attempts that this worker has begun."""

    def __init__(self, folder: str, transfers: Transfers) -> None:
        self.folder = folder
        workdir.remove(folder)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self._transfers = transfers
        self._looked_s: dict[int, float] = {}
        self._sent: dict[int, int] = {}
        self._sending: dict[int, Callable[[], None]] = {}
        """By attempt, the call to make when its file has been sent."""
        self.rows: list[Row] = []
        """Rows for the next exchange."""

    def path(self, held: Held) -> str:
        return os.path.join(self.folder, name_of(held.job, held.task))

    def place(self, held: Held, blob: str | None) -> None:
        """Put the checkpoint that the server sent, if any, where the attempt will look for it."""
        path = self.path(held)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        if blob is not None:
            shutil.copyfile(blob, path)
            self._sent[held.ident] = os.stat(path).st_mtime_ns

    def look(self, held: Held, now_s: float, run_s: float) -> None:
        """Send the file of a running attempt if that is due and the file has changed."""
        every_s = held.spec.checkpoint_s
        if every_s is None or now_s - self._looked_s.get(held.ident, now_s - run_s) < every_s:
            return
        if held.ident not in self._sending:
            self._looked_s[held.ident] = now_s
            self.send(held, run_s, lambda: None)

    def send(self, held: Held, run_s: float, then: Callable[[], None]) -> None:
        """Send the file now if it has changed, then call `then`. A failed transfer is ignored."""
        if held.ident in self._sending:
            # The copy being sent may be older than the file.
            self._sending[held.ident] = lambda: self.send(held, run_s, then)
            return
        try:
            changed_ns = os.stat(self.path(held)).st_mtime_ns
        except OSError:
            changed_ns = None
        if changed_ns is None or changed_ns == self._sent.get(held.ident):
            then()
            return
        # Send a copy: the task may replace its file meanwhile.
        copy = f"{self.path(held)}.{held.ident}"
        try:
            shutil.copyfile(self.path(held), copy)
        except OSError:
            then()
            return
        self._sending[held.ident] = then

        def sent(outcome: list[list[Any]] | Failed) -> None:
            go_on = self._sending.pop(held.ident)
            with contextlib.suppress(OSError):
                os.unlink(copy)
            if not isinstance(outcome, Failed):
                self._sent[held.ident] = changed_ns
                _, sha256, size, _ = outcome[0]
                self.rows.append([*held.key, sha256, size, round(run_s, 3)])
            go_on()

        self._transfers.send([("checkpoint", copy, 0o600)], sent, (), held.key)

    def forget(self, held: Held) -> None:
        """The attempt has ended."""
        self._looked_s.pop(held.ident, None)
        self._sent.pop(held.ident, None)
        with contextlib.suppress(OSError):
            os.unlink(self.path(held))


def name_of(job: object, task: object) -> str:
    return f"{job}.{task}"
