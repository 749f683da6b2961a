"""What the tasks of a job asked for in memory beside what they took. Pure."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from windfall.core.state.jobs.bags import Bag
from windfall.core.state.jobs.columns import DONE
from windfall.units import show_bytes

if TYPE_CHECKING:
    from windfall.api.explained import MemoryOfClass

PEAK_SAMPLES, FAR_TOO_LARGE, PEAK_MARGIN = 10, 4, 1.5
"""Attempts before their peak says something; a request beyond this many peaks is far too large; what would do."""


def memory_of(bag: Bag) -> list[MemoryOfClass]:
    """By class of tasks: what was asked for, the most that an attempt took, and advice where that is far less."""
    found: list[MemoryOfClass] = []
    known = bag.counts[DONE] > 0  # attempts that only fail, mostly at once, do not say what a task takes
    for index, (count, peak) in sorted(bag.tally.peaks.items()):
        asked = bag.classes[index].memory_for(1)
        row: MemoryOfClass = {
            "class": bag.classes[index].name, "asked_bytes": asked or None, "peak_bytes": peak, "attempts": count,
            "because": "", "try": "",
        }  # fmt: skip
        if asked and known and count >= PEAK_SAMPLES and asked > FAR_TOO_LARGE * peak:
            enough_mb = max(1, ceil(PEAK_MARGIN * peak / (1 << 20)))
            row["because"] = (
                f"the request for memory is far too large: {show_bytes(asked)} asked for, "
                f"{show_bytes(peak)} is the most that {count} attempts took"
            )
            row["try"] = f"windfall change {bag.number} --memory {enough_mb}M" if len(bag.classes) == 1 else ""
        found.append(row)
    return found
