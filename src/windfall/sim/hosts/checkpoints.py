"""Tasks that write checkpoints as they run, and continue from them on another host. Pure.

Writing and reading a checkpoint takes the time that HADS's authors measured; the task pauses meanwhile.
"""

from __future__ import annotations

from math import ceil

from msgspec import Struct

from windfall.planning.contract import CHECKPOINT_S, CHECKPOINT_S_PER_MB


class Saves(Struct, gc=False):
    """The checkpoints of one attempt. `rate`: progress (seconds at speed 1) per second on its host."""

    restore_s: float
    base_s: float
    """The progress in the checkpoint that it started from."""
    every_s: float
    dump_s: float
    rate: float
    count: int
    done: int = 0

    def next_s(self) -> float:
        """Seconds of running until the next checkpoint is written."""
        return self.restore_s + (self.done + 1) * (self.every_s + self.dump_s)

    def progress_s(self, ran_s: float) -> float:
        """The progress of an attempt that has run for `ran_s` seconds: what a save at this moment would hold."""
        worked_s, turn_s = max(0.0, ran_s - self.restore_s), self.every_s + self.dump_s
        turns = min(self.count, int(worked_s / turn_s))
        part_s = worked_s - turns * turn_s
        if turns < self.count:
            part_s = min(part_s, self.every_s)
        return round(self.base_s + (turns * self.every_s + part_s) * self.rate, 6)

    def save(self) -> float:
        """Write a checkpoint; return the progress in it."""
        self.done += 1
        return round(self.base_s + self.done * self.every_s * self.rate, 6)


def begin(run_s: float, cpu_s: float, saved_s: float, checkpoint_mb: float, every_s: float) -> tuple[float, Saves]:
    """Seconds that an attempt takes with checkpoints (`cpu_s` without, from the beginning), and its checkpoints.

    `run_s` is the run time of the whole task at speed 1, `saved_s` the part that is saved. If reading the checkpoint
    takes longer than repeating that part, the attempt starts from the beginning.
    """
    dump_s = CHECKPOINT_S + CHECKPOINT_S_PER_MB * checkpoint_mb
    rate = run_s / cpu_s
    restores = saved_s > 0 and dump_s + (run_s - saved_s) / rate < cpu_s
    base_s, restore_s = (saved_s, dump_s) if restores else (0.0, 0.0)
    left_s = (run_s - base_s) / rate
    count = max(0, ceil(left_s / every_s - 1e-9) - 1)
    return restore_s + left_s + count * dump_s, Saves(restore_s, base_s, every_s, dump_s, rate, count)
