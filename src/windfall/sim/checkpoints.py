"""Tasks that save their progress as they run, and go on from there elsewhere. Pure.

A checkpoint takes the time that HADS's authors measured to write and to read; meanwhile the task stands still.
"""

from __future__ import annotations

from math import ceil

from msgspec import Struct

from windfall.planning.contract import CHECKPOINT_S, CHECKPOINT_S_PER_MB


class Saves(Struct, gc=False):
    """The checkpoints of one attempt. `rate`: progress (seconds on a machine of speed 1) in a second of its own."""

    restore_s: float
    base_s: float
    """The progress that it began with."""
    every_s: float
    dump_s: float
    rate: float
    count: int
    done: int = 0

    def next_s(self) -> float:
        """Seconds of running until the next one is written."""
        return self.restore_s + (self.done + 1) * (self.every_s + self.dump_s)

    def save(self) -> float:
        """One more is written; the progress in it."""
        self.done += 1
        return round(self.base_s + self.done * self.every_s * self.rate, 6)


def begin(run_s: float, cpu_s: float, saved_s: float, checkpoint_mb: float, every_s: float) -> tuple[float, Saves]:
    """How long an attempt takes that would take `cpu_s` without checkpoints and from the beginning, and its saves.

    `run_s` is the whole task on a machine of speed 1, `saved_s` what has been saved of it. Where reading a checkpoint
    takes longer than what it saves, the attempt begins anew.
    """
    dump_s = CHECKPOINT_S + CHECKPOINT_S_PER_MB * checkpoint_mb
    rate = run_s / cpu_s
    restores = saved_s > 0 and dump_s + (run_s - saved_s) / rate < cpu_s
    base_s, restore_s = (saved_s, dump_s) if restores else (0.0, 0.0)
    left_s = (run_s - base_s) / rate
    count = max(0, ceil(left_s / every_s - 1e-9) - 1)
    return restore_s + left_s + count * dump_s, Saves(restore_s, base_s, every_s, dump_s, rate, count)
